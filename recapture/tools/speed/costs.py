"""What compiling costs in counts: instructions from the processor's counters, and CPU seconds."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct
import time
from pathlib import Path

from recapture.pool.processes import children, cpu_seconds
from recapture.tools.speed.subject import Subject
from recapture.torch_api.compat import tree_leaves
from recapture.torch_api.counts import saved_for_backward

PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
"""Numbers of the system call, by machine."""

HARDWARE, INSTRUCTIONS = 0, 1
"""Type and number of the event in ``linux/perf_event.h``."""

INHERIT, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
"""Flags of ``perf_event_attr``: count threads and processes started later, too, and only in user space."""

ATTRIBUTE_BYTES = 112
"""Bytes of ``perf_event_attr``, version 5, which every supported kernel knows."""


class CompileWork:
    """The work of compiling, from creation to `stop`: that of this process, its threads, and compilers it starts."""

    def __init__(self) -> None:
        self.instructions: int | None = None
        self.cpu: float | None = None
        self._cpu = _cpu_seconds()
        self._counters = _open_counters()

    def stop(self) -> None:
        """Read the counters; only the first call does."""
        if self.cpu is not None:
            return
        self.cpu = round(max(0.0, _cpu_seconds() - self._cpu), 3)
        counts = []
        for counter in self._counters:
            with contextlib.suppress(OSError):
                counts.append(int.from_bytes(os.read(counter, 8), "little"))
            os.close(counter)
        # Some virtual machines open counters that count nothing.
        if counts and sum(counts) > 0:
            self.instructions = sum(counts)


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process, of the children that it collected, and of those that run."""
    collected = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(map(cpu_seconds, children(os.getpid())))
    return time.process_time() + collected.ru_utime + collected.ru_stime + running


def _open_counters() -> list[int]:
    """Return a counter of instructions for each thread of this process; none where the machine or kernel has none."""
    number = PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        return []
    flags = INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
    attribute = struct.pack("=IIQQQQQ", HARDWARE, ATTRIBUTE_BYTES, INSTRUCTIONS, 0, 0, 0, flags)
    buffer = ctypes.create_string_buffer(attribute.ljust(ATTRIBUTE_BYTES, b"\0"), ATTRIBUTE_BYTES)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    counters: list[int] = []
    for thread in sorted(int(path.name) for path in Path("/proc/self/task").iterdir()):
        counter = syscall(number, buffer, thread, -1, -1, 0)
        if counter < 0:  # not supported, or forbidden by kernel.perf_event_paranoid
            for opened in counters:
                os.close(opened)
            return []
        os.set_inheritable(counter, False)
        counters.append(counter)
    return counters


def saved_bytes(subject: Subject) -> int | None:
    """Return the bytes that an iteration saves for its backward pass; None if that cannot be seen."""
    import torch

    known = [*subject.model.parameters(), *subject.model.buffers()]
    known += [leaf for leaf in tree_leaves(subject.batches) if isinstance(leaf, torch.Tensor)]
    try:
        with subject.context():
            return saved_for_backward(lambda: subject.iterate(0), known)
    except Exception:  # this figure is optional: some compiled code refuses hooks
        return None
