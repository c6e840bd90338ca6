"""The tasks that a server runs, and everything that each of them started: found, counted and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recapture.pool.processes import MAX_PROCESSES, children, descendants, held_memory, kill, mark_of, rss, weigh

if TYPE_CHECKING:
    from recapture.pool.protocol import Task

__all__ = ["Child", "Running", "check_caps"]


@dataclass
class Child:
    """One running task."""

    task: Task
    pid: int
    scratch: Path
    started: float
    identity: tuple[int, int] | None
    """Device and inode of the scratch directory."""
    peak_rss: int = 0
    cause: str | None = None
    processes: int = 0
    weighed_again: float = 0.0


class Running(dict[int, Child]):
    """The running tasks by process id. Their scratch directories lie below `root`."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def kill(self, child: Child) -> None:
        """Kill what a task started; the task's own process too where a cause for that is set."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # first, and all at once: a fork bomb may have no time to go on
        for pid in [*descendants(child.pid), *self.orphans(child)]:
            kill(pid)
        if child.cause is not None:
            kill(child.pid)

    def orphans(self, child: Child) -> list[int]:
        """Return the processes of a task whose parents have died, and those below them."""
        found = [pid for pid in children(os.getpid()) if pid not in self and self._comes_of(child, pid)]
        return [*found, *descendants(*found)]

    def sweep(self, ended: Child | None = None) -> None:
        """Kill the orphans that became this server's children, and theirs, until none is left.

        While other tasks run, those that the task which `ended` left: any other may be a helper that one waits for.
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
        """Whether an orphan is of a task, by its mark; where it bears none, by its session, directory and environment.

        In this order: what a fork bomb leaves is known by the first, and to read the last it may have to be waited for.
        """
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
    """Set the cause of a task's end where its processes are too many, or use too much memory together.

    A running task is not weighed while it makes processes (their number has a cap of its own), and the longer weighing
    takes, the less often it is repeated. Of a task that `ended`, `processes` are those it left.
    """
    resident = sum(map(rss, processes))
    child.peak_rss = max(child.peak_rss, resident)
    grows = len(processes) > max(child.processes, 1) and not ended
    child.processes = len(processes)
    begin = time.monotonic()
    if len(processes) > MAX_PROCESSES:
        child.cause = "processes"
    elif resident + held_memory(processes) > child.task.memory and not grows and begin >= child.weighed_again:
        weight = weigh(processes)
        end = time.monotonic()
        child.weighed_again = end + 5 * (end - begin)
        if weight > child.task.memory:
            child.cause = "memory"
            child.peak_rss = max(child.peak_rss, weight)
