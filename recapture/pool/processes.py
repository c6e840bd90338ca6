"""The processes of tasks, from ``/proc``: which they are, how much memory they use, and how they are ended.

A process may leave its session, directory and parent, and is still found: every task marks its processes with a
resource limit, which is inherited across fork and exec (see `mark`). No cgroup is needed. System V shared memory is
found by its creator, because it belongs to no process and outlives its creator unless somebody removes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from recapture.pool.folders import Folder
from recapture.pool.protocol import Report, Task

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


TABLE = Path("/proc/sysvipc/shm")

IPC_RMID = 0
"""Number of the shmctl operation that removes a segment, which takes effect when no process has it attached."""


class Segment(NamedTuple):
    """One segment of shared memory."""

    id: int
    creator: int
    """Process id of its creator, which may have ended."""
    occupied: int
    """Bytes in memory or swapped out."""


def segments() -> list[Segment]:
    """Return all segments of this machine, or of this container."""
    listed = []
    with contextlib.suppress(OSError, ValueError, KeyError):  # a kernel without System V shared memory
        head, *lines = TABLE.read_text().splitlines()
        names = head.split()
        for line in lines:
            row = dict(zip(names, line.split(), strict=False))
            listed.append(Segment(int(row["shmid"]), int(row["cpid"]), int(row["rss"]) + int(row["swap"])))
    return listed


def remove_segment(segment: Segment) -> None:
    """Remove a segment; does nothing if it is gone or belongs to another user."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).shmctl(segment.id, IPC_RMID, None)


@dataclass
class Child:
    """One running task."""

    task: Task
    pid: int
    folder: Folder
    """The task's scratch directory."""
    started: float
    peak_rss: int = 0
    cause: str | None = None
    processes: int = 0
    weighed_again: float = 0.0
    over_limit: bool = False
    """Whether its processes together used too much memory when they were last measured."""
    before: int = 0
    """How many tasks the process had run before."""
    report: Report = field(init=False)
    """What the process has sent about this task."""
    pids: set[int] = field(default_factory=set)
    """Every process of the task that was ever seen."""
    reported: set[int] = field(default_factory=set)
    """Those that the host knows."""
    others: frozenset[int] = field(default_factory=lambda: frozenset(segment.id for segment in segments()))
    """Segments of shared memory that are older than the task."""

    def __post_init__(self) -> None:
        """Expect the report of this task."""
        self.report = Report(self.task.id)

    @property
    def scratch(self) -> Path:
        """The path of the scratch directory."""
        return self.folder.path

    def new_processes(self) -> list[int]:
        """Return the processes that were seen since the last call."""
        new = self.pids - self.reported
        self.reported |= new
        return sorted(new)

    def segments(self) -> list[Segment]:
        """Return the segments of shared memory that the task created, also those whose creator has ended."""
        return [segment for segment in segments() if segment.creator in self.pids and segment.id not in self.others]

    def remove_leftovers(self) -> None:
        """Remove what outlives the task's processes: shared memory, and the scratch directory wherever it is."""
        for segment in self.segments():
            remove_segment(segment)
        self.folder.remove()
        self.folder.close()


class Running(dict[int, Child]):
    """The running tasks by process id. Their scratch directories are below `root`."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def kill(self, child: Child) -> None:
        """Kill the processes that a task started, and the task's own process if `cause` is set."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # first and all at once, so that a fork bomb cannot continue
        for pid in [*descendants(child.pid), *self.orphans(child)]:
            kill(pid)
        if child.cause is not None:
            kill(child.pid)

    def kill_started_by(self, child: Child) -> None:
        """Kill the processes that a task started, but not its own, which can run another task."""
        for pid in [*descendants(child.pid), *self.orphans(child)]:
            kill(pid)

    def orphans(self, child: Child) -> list[int]:
        """Return the processes of a task whose parents have died, and their descendants."""
        orphans = [pid for pid in children(os.getpid()) if pid not in self and self._comes_of(child, pid)]
        return [*orphans, *descendants(*orphans)]

    def sweep(self, ended: Child | None = None) -> None:
        """Kill orphans that became this server's children, and their descendants, until none is left.

        While other tasks run, only orphans of the task that `ended` are killed: a running task may need its own.
        """
        doomed: set[int] = set()
        for _ in range(100):
            orphans = [pid for pid in children(os.getpid()) if pid not in self]
            if ended is not None:
                doomed.update(pid for pid in orphans if self._comes_of(ended, pid))
                orphans = [pid for pid in orphans if pid in doomed]
            if not orphans:
                return
            for orphan in orphans:
                for pid in [*descendants(orphan), orphan]:
                    kill(pid)
            for orphan in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, os.WNOHANG)
            time.sleep(0.002)

    def _comes_of(self, task: Child, pid: int) -> bool:
        """Whether an orphan belongs to a task: seen before or, by its mark, session, directory or environment.

        The order matters: a process can change its mark later, the mark identifies a fork bomb's processes quickly, and
        reading an environment can block.
        """
        if pid in task.pids:
            return True
        if any(pid in other.pids for other in self.values()):
            return False
        marked = mark_of(pid)
        if marked is not None:
            return marked == task.pid
        with contextlib.suppress(OSError):
            session = os.getsid(pid)
            if session == task.pid or session in self:
                return session == task.pid
            directory = Path(f"/proc/{pid}/cwd").readlink()
            if directory.is_relative_to(self.root):
                return directory.is_relative_to(task.scratch)
            return os.fsencode(f"TMPDIR={task.scratch}/") in Path(f"/proc/{pid}/environ").read_bytes()
        return False


def check_caps(child: Child, processes: list[int], *, ended: bool = False) -> None:
    """Set the cause of a task's end if its processes are too many or together use too much memory.

    The memory of a running task is not measured while it creates processes, whose number is limited separately. Two
    measurements in a row have to be over the limit: processes are read one after another, and while they map the same
    pages, the sum is too large for a moment. The longer measuring takes, the less often it is repeated. For a task that
    `ended`, `processes` are those it left, and one measurement decides.
    """
    child.pids.update(processes)
    resident = sum(map(rss, processes))
    held = held_memory(processes) + sum(segment.occupied for segment in child.segments())
    child.peak_rss = max(child.peak_rss, resident)
    grows = len(processes) > max(child.processes, 1) and not ended
    child.processes = len(processes)
    begin = time.monotonic()
    if len(processes) > MAX_PROCESSES:
        child.cause = "processes"
    elif resident + held > child.task.memory and not grows and begin >= child.weighed_again:
        weight = weigh(processes, held)
        end = time.monotonic()
        child.weighed_again = end + 5 * (end - begin)
        was_over, child.over_limit = child.over_limit, weight > child.task.memory
        if child.over_limit and (was_over or ended):
            child.cause = "memory"
            child.peak_rss = max(child.peak_rss, weight)
