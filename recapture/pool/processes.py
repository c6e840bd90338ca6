"""Finds the processes of a task and their memory, from ``/proc``.

A process may leave its session, directory and parent, and is still found: every task marks its processes with a
resource limit, which is inherited across fork and exec (see `mark`). No cgroup is needed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MAX_PROCESSES = 64
"""Number of processes that one task may have at a time; a compiler needs a few, a fork bomb grows without limit."""

WEIGH_SECONDS = 0.1
"""Seconds that measuring the memory of one task's processes may take before the remaining ones are estimated."""

MARK_BASE = 1 << 52
"""The mark of a task is this number plus the task's process id."""

PAGE = os.sysconf("SC_PAGE_SIZE")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def mark() -> None:
    """Mark this process and all its future descendants as belonging to one task.

    The mark is the soft limit on a real-time process's uninterrupted CPU time (RLIMIT_RTTIME, in microseconds; the
    value is more than a century). No task is real-time, so the limit has no other effect. Children inherit it even if
    they change their session, directory, parent or environment. If it cannot be set, nothing happens.
    """
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        resource.setrlimit(resource.RLIMIT_RTTIME, (MARK_BASE + os.getpid(), hard))


def mark_of(pid: int) -> int | None:
    """Return the process id of the task that a process belongs to; None if it has no mark."""
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_RTTIME)
    except (OSError, ValueError):  # the process has ended or belongs to another user
        return None
    return soft - MARK_BASE if MARK_BASE < soft < 2 * MARK_BASE else None


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    pids: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in Path(f"/proc/{pid}/task").iterdir():  # each thread has its own list of children
            with contextlib.suppress(OSError, ValueError):
                pids += map(int, (thread / "children").read_text().split())
    return pids


def descendants(*pids: int) -> list[int]:
    """Return the ids of all descendants of these processes; for a fork bomb, only enough to recognise it."""
    tree: list[int] = []
    queue = list(pids)
    while queue and len(tree) <= 2 * MAX_PROCESSES:
        below = children(queue.pop())
        tree += below
        queue += below
    return tree


def cpu_seconds(pid: int) -> float:
    """Return the processor time in seconds that a process and its descendants have used, ended ones included."""
    ticks = 0
    for process in (pid, *descendants(pid)):
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{process}/stat").read_bytes()
            # Of the process and of its collected children, as user and system; the name before may have any character.
            ticks += sum(map(int, status[status.rindex(b")") + 2 :].split()[11:15]))
    return ticks / CLOCK_TICKS


def kill(pid: int) -> None:
    """Send SIGKILL to a process that may have ended already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def rss(pid: int) -> int:
    """Return the resident memory of a process in bytes, including memory shared with other processes."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return resident * PAGE


def stopped(pid: int) -> bool:
    """Whether a process was stopped, as by SIGSTOP."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return status[status.rindex(b")") :].startswith(b") T")  # the program's name before it may have any character


def held_memory(pids: list[int]) -> int:
    """Return the bytes of open in-memory files (memfd_create and ``/dev/shm``) of these processes.

    Their contents count towards a process's resident memory only if they are also mapped.
    """
    files: dict[tuple[int, int], int] = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208 - called often, and twice as fast as pathlib
                with contextlib.suppress(OSError):
                    # The link is read first, because stat on a dead network file system would block.
                    if os.readlink(f"{folder}/{name}").startswith(("/memfd:", "/dev/shm/")):  # noqa: PTH115, S108
                        status = os.stat(f"{folder}/{name}")  # noqa: PTH116
                        files[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(files.values())


@dataclass(frozen=True)
class Usage:
    """Proportional memory of one process in bytes: a page shared by n processes counts as 1/n."""

    total: int
    shared_files: int
    """Bytes of it in mapped in-memory files and segments of System V shared memory."""


def weigh(pids: list[int], held: int) -> int:
    """Return the memory of processes in bytes; a page shared by n processes counts as 1/n for each.

    `held` are the bytes of shared memory that they hold, whether or not they map it: see `held_memory`.

    To measure one process, the kernel walks its pages, and waits while the process forks; this can take half a second.
    No task may delay the deadlines of others in this way. So after `WEIGH_SECONDS` the remaining processes are
    estimated: they are assumed to share the same fraction of their memory as those already measured.
    """
    begin = time.monotonic()
    total = shared = resident = 0
    waiting = list(pids)
    while waiting and (not resident or time.monotonic() - begin < WEIGH_SECONDS):
        pid = waiting.pop(0)
        usage = _proportional(pid)
        total += usage.total
        shared += usage.shared_files
        resident += rss(pid)
    unweighed = sum(map(rss, waiting))
    if unweighed and resident:
        total += total * unweighed // resident
        shared += shared * unweighed // resident
    return total + max(0, held - shared)  # what is both held and mapped is counted once


def _proportional(pid: int) -> Usage:
    """Read the kernel's totals over all mappings of a process; Pss_Shmem exists since Linux 5.4."""
    totals = {"Pss:": rss(pid), "Pss_Shmem:": 0}
    with contextlib.suppress(OSError, IndexError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, number, *_ = line.split()
            if name in totals:
                totals[name] = int(number) * 1024
    return Usage(totals["Pss:"], totals["Pss_Shmem:"])
