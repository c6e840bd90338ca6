"""Which processes belong to a task, and how much memory they use, as ``/proc`` reports it.

A process may leave its session, its directory and its parent, and still be counted: every task marks its processes
with a resource limit, which they inherit over forks and new programs (see `mark`). No cgroup is needed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MAX_PROCESSES",
    "Usage",
    "children",
    "descendants",
    "held_memory",
    "kill",
    "mark",
    "mark_of",
    "rss",
    "weigh",
]

MAX_PROCESSES = 64
"""Processes that one task may have at a time; a compiler needs a handful, a fork bomb has no limit of its own."""

WEIGH_SECONDS = 0.1
"""Seconds that weighing the processes of one task may take before the rest of them is estimated."""

MARK_BASE = 1 << 52
"""The mark of a task is this number plus the task's process id."""

PAGE = os.sysconf("SC_PAGE_SIZE")


def mark() -> None:
    """Mark this process, and all that will come of it, as belonging to one task.

    The mark is the soft limit on a real-time process's uninterrupted seconds on a processor (RLIMIT_RTTIME, in
    microseconds: more than a century). No task is real-time, so the limit has no other effect. Children inherit it,
    whatever session, directory, parent or environment they choose. Where it cannot be set, nothing happens.
    """
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        resource.setrlimit(resource.RLIMIT_RTTIME, (MARK_BASE + os.getpid(), hard))


def mark_of(pid: int) -> int | None:
    """Return the process id of the task that a process belongs to; None where it bears no mark."""
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_RTTIME)
    except (OSError, ValueError):  # gone, or of another user
        return None
    return soft - MARK_BASE if MARK_BASE < soft < 2 * MARK_BASE else None


def children(pid: int) -> list[int]:
    """Return the ids of the processes whose parent is this one."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in Path(f"/proc/{pid}/task").iterdir():  # each thread has its own list of those it forked
            with contextlib.suppress(OSError, ValueError):
                found += map(int, (thread / "children").read_text().split())
    return found


def descendants(*pids: int) -> list[int]:
    """Return the ids of all processes below these; of a fork bomb, enough to know that it is one."""
    found: list[int] = []
    queue = list(pids)
    while queue and len(found) <= 2 * MAX_PROCESSES:
        below = children(queue.pop())
        found += below
        queue += below
    return found


def kill(pid: int) -> None:
    """Send SIGKILL to a process that may be gone by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def rss(pid: int) -> int:
    """Return the resident memory of a process in bytes, with what it shares with other processes."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return resident * PAGE


def held_memory(pids: list[int]) -> int:
    """Return the bytes of memory in files that these processes hold open: of memfd_create and in ``/dev/shm``.

    What is written to such a file is in no process's resident memory unless it is mapped as well.
    """
    files: dict[tuple[int, int], int] = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208 - called often; this takes half the time
                with contextlib.suppress(OSError):
                    # The link is read first: to ask a file on a dead network file system for its size would block.
                    if os.readlink(f"{folder}/{name}").startswith(("/memfd:", "/dev/shm/")):  # noqa: PTH115, S108
                        status = os.stat(f"{folder}/{name}")  # noqa: PTH116
                        files[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(files.values())


@dataclass(frozen=True)
class Usage:
    """Memory of one process in bytes, where a page that n processes share counts as its n-th part."""

    total: int
    shared_files: int
    """The part of it in mapped memory files."""


def weigh(pids: list[int]) -> int:
    """Return how much memory processes use in bytes, counting what they share with others in part.

    To weigh one process the kernel goes through its pages, and waits while it forks: up to half a second each. No task
    may delay the deadlines of others by that, so after `WEIGH_SECONDS` the processes that are left are estimated: they
    share as much of their memory as those that were weighed.
    """
    begin = time.monotonic()
    total = shared = resident = 0
    rest = list(pids)
    while rest and (not resident or time.monotonic() - begin < WEIGH_SECONDS):
        pid = rest.pop(0)
        usage = _proportional(pid)
        total += usage.total
        shared += usage.shared_files
        resident += rss(pid)
    unweighed = sum(map(rss, rest))
    if unweighed and resident:
        total += total * unweighed // resident
        shared += shared * unweighed // resident
    # A memory file that is both open and mapped is counted once.
    return total + max(0, held_memory(pids) - shared)


def _proportional(pid: int) -> Usage:
    """Read what the kernel has summed up over all mappings of a process; Pss_Shmem is known since Linux 5.4."""
    found = {"Pss:": rss(pid), "Pss_Shmem:": 0}
    with contextlib.suppress(OSError, IndexError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, number, *_ = line.split()
            if name in found:
                found[name] = int(number) * 1024
    return Usage(found["Pss:"], found["Pss_Shmem:"])
