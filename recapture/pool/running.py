"""The running tasks of a server: finding, counting and killing the processes that each task started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recapture.pool.processes import MAX_PROCESSES, children, descendants, held_memory, kill, mark_of, rss, weigh
from recapture.pool.shared_memory import Segment, remove_segment, segments

if TYPE_CHECKING:
    from recapture.pool.folders import Folder
    from recapture.pool.protocol import Task


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
    reused: bool = False
    """Whether the process had run other tasks before."""
    pids: set[int] = field(default_factory=set)
    """Every process of the task that was ever seen."""
    reported: set[int] = field(default_factory=set)
    """Those that the host knows."""
    others: frozenset[int] = field(default_factory=lambda: frozenset(segment.id for segment in segments()))
    """Segments of shared memory that are older than the task."""

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

    The memory of a running task is not measured while it creates processes, whose number is limited separately. The
    longer measuring takes, the less often it is repeated. For a task that `ended`, `processes` are those it left.
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
        if weight > child.task.memory:
            child.cause = "memory"
            child.peak_rss = max(child.peak_rss, weight)
