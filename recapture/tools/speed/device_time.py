"""A GPU's own time, without a profiler: how long it works on an iteration if it never waits for a launch.

Where launching takes longer than the kernels, the time of an iteration is that of the processor, and varies with what
else the host does. So the GPU is first given a kernel that only waits. Meanwhile the process launches the iteration,
which then runs without a gap between two events. The driver queues about a thousand launches: of an iteration with
more, the figure is an upper bound. The same holds for one that itself waits for the GPU.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Protocol

from recapture.tools.speed.speedups import FASTEST, DeviceTime
from recapture.tools.speed.subject import Subject

SAMPLES = 15
"""Samples of each variant in one process."""

MARGIN = 1.5
"""Ratio of the time that the GPU is kept waiting to the time that launching usually takes."""

LONGEST_WAIT = 0.5
"""Seconds that the GPU is kept waiting at most, so that a slow launch does not cost a sample minutes."""

PROBE_CYCLES = 20_000_000
"""Cycles of the waiting kernel from which the clock's rate is measured: about 10 ms."""


class Device(Protocol):
    """The GPU, as far as this module uses it; a test has its own."""

    def synchronize(self) -> None:
        """Wait until everything launched has ended."""

    def wait(self, cycles: int) -> None:
        """Launch a kernel that does nothing for this many cycles of the GPU's clock."""

    def mark(self) -> Callable[[], float]:
        """Launch an event; the returned function gives its time in seconds once the GPU has passed it."""


class Cuda:
    """The current CUDA device."""

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        self._first: Any = torch.cuda.Event(enable_timing=True)
        self._first.record()

    def synchronize(self) -> None:
        """Wait until everything launched has ended."""
        self._cuda.synchronize()

    def wait(self, cycles: int) -> None:
        """Launch a kernel that does nothing for this many cycles of the GPU's clock."""
        self._cuda._sleep(cycles)  # noqa: SLF001 - torch has no public name for it

    def mark(self) -> Callable[[], float]:
        """Launch an event; the returned function gives its time in seconds once the GPU has passed it."""
        event: Any = self._cuda.Event(enable_timing=True)
        event.record()
        return lambda: float(self._first.elapsed_time(event)) / 1000


def device_time(eager: Subject, candidate: Subject, device: Device) -> DeviceTime:
    """Return the GPU's own time of both, whose iterations are sampled in turn; they must be warmed up."""
    begin = device.mark()
    device.wait(PROBE_CYCLES)
    end = device.mark()
    device.synchronize()
    rate = PROBE_CYCLES / max(end() - begin(), 1e-9)
    samples: list[list[float]] = [[], []]
    cpu: list[list[float]] = [[], []]
    waits = [_launch_seconds(subject, device) for subject in (eager, candidate)]
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(SAMPLES):
            for index, subject in enumerate((eager, candidate)):
                cycles = int(rate * min(MARGIN * waits[index], LONGEST_WAIT))
                own, launching = _sample(subject, device, cycles, number)
                samples[index].append(max(own, FASTEST))
                cpu[index].append(launching)
    finally:
        if collecting:
            gc.enable()
    own_eager, own_candidate = (tuple(float(f"{seconds:.6g}") for seconds in row) for row in samples)
    eager_cpu, candidate_cpu = (float(f"{median(row):.6g}") for row in cpu)
    return DeviceTime(eager=own_eager, candidate=own_candidate, eager_cpu=eager_cpu, candidate_cpu=candidate_cpu)


def _launch_seconds(subject: Subject, device: Device) -> float:
    """Return the seconds that an iteration takes, which launching it does not exceed."""
    with subject.context():
        device.synchronize()
        begin = time.perf_counter()
        subject.iterate(0)
        device.synchronize()
        return time.perf_counter() - begin


def _sample(subject: Subject, device: Device, cycles: int, number: int) -> tuple[float, float]:
    """Return the GPU's own seconds of one iteration, and the CPU seconds of launching it."""
    with subject.context():
        device.synchronize()
        device.wait(cycles)
        begin = device.mark()
        # Of all threads: autograd launches a backward pass from another one.
        cpu = time.process_time()
        subject.iterate(number)
        cpu = time.process_time() - cpu
        end = device.mark()
        device.synchronize()
        return end() - begin(), cpu
