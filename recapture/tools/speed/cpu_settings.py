"""Settings of a process that make CPU timings steadier: fixed cores, and an allocator that keeps freed memory."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Numbers of glibc's `mallopt` parameters, from its ``malloc.h``."""

MOST = 2**31 - 1
"""The largest value of a `mallopt` parameter: two GiB of free memory at the end of the heap are kept."""

PRELOADED = ("jemalloc", "tcmalloc", "mimalloc")
"""Allocators that people preload instead of the C library's."""

_applied: set[str] = set()
"""Settings of this process that cannot be read back from the C library."""


def physical_cores(allowed: set[int] | None = None, cpus: Path = CPUS) -> list[int]:
    """Return one CPU of each physical core that this process may use, those of the largest NUMA node first.

    `allowed` are the CPUs to choose from, by default those of this process. Hardware threads that share a core also
    share its arithmetic units, so that the second adds noise and little speed. Where the machine does not report which
    CPUs share a core, or to which node they belong, each counts as a core of its own, and of one node.
    """
    usable = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    first_of_core: dict[frozenset[int], int] = {}
    for cpu in usable:
        siblings = _numbers(_read(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list"))
        # A list without the CPU itself cannot be right: the CPU then counts as a core of its own.
        first_of_core.setdefault(siblings if cpu in siblings else frozenset({cpu}), cpu)
    cores = sorted(first_of_core.values())
    nodes = {cpu: _node(cpus / f"cpu{cpu}") for cpu in cores}
    # From the largest node on, the threads share one node's memory if it has cores enough.
    sizes = {node: list(nodes.values()).count(node) for node in nodes.values()}
    return sorted(cores, key=lambda cpu: (-sizes[nodes[cpu]], nodes[cpu], cpu))


def fix_cores(threads: int) -> bool:
    """Keep this process on as many physical cores as it has threads; return whether it is.

    False, and nothing changes, if there are fewer such cores than threads, or if the kernel refuses. Threads that exist
    already are not moved: call this before torch makes its own.
    """
    cores = physical_cores()
    # Threads that share a core would wait for each other.
    if len(cores) < threads:
        return False
    try:
        os.sched_setaffinity(0, cores[:threads])
    except OSError:
        return False
    return True


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for the next allocation; return whether it does.

    By default, glibc returns large blocks to the kernel at once. Each iteration of a model then gets new pages, which
    the kernel clears, and this time varies with what else runs. False for another C library or a preloaded allocator.
    """
    # Such an allocator replaces the C library's, and has settings of its own.
    if any(name in os.environ.get("LD_PRELOAD", "") for name in PRELOADED):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - other C libraries define `mallopt` and ignore it
        keeps = bool(library.mallopt(MMAP_MAX, 0)) and bool(library.mallopt(TRIM_THRESHOLD, MOST))
    except (OSError, AttributeError):
        return False
    if keeps:
        _applied.add("keeps freed memory")
    return keeps


def allocator_name() -> str:
    """Return the allocator of this process, for its conditions."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    name = next((name for name in PRELOADED if name in preloaded), None)
    return name or ", ".join(["libc", *sorted(_applied)])


def _node(cpu: Path) -> int:
    with suppress(OSError, ValueError):
        return min(int(folder.name.removeprefix("node")) for folder in cpu.glob("node[0-9]*"))
    return 0


def _numbers(text: str) -> frozenset[int]:
    """Return the CPUs of a list as the kernel writes it, such as ``0-2,8``; none for any other text."""
    numbers: set[int] = set()
    try:
        for part in filter(None, text.strip().split(",")):
            first, dash, last = part.partition("-")
            numbers.update(range(int(first), int(last if dash else first) + 1))
    except ValueError:
        return frozenset()
    return frozenset(numbers)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
