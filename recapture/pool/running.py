"""The running tasks of a server: finding, counting and killing the processes that each task started."""

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
    """Device and inode of the task's scratch directory."""
    peak_rss: int = 0
    cause: str | None = None
    processes: int = 0
    weighed_again: float = 0.0


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

    def orphans(self, child: Child) -> list[int]:
        """Return the processes of a task whose parents have died, and their descendants."""
        found = [pid for pid in children(os.getpid()) if pid not in self and self._comes_of(child, pid)]
        return [*found, *descendants(*found)]

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
        """Whether an orphan belongs to a task: by its mark or, without one, its session, directory and environment.

        The order matters: the mark identifies a fork bomb's processes quickly, but reading an environment can block.
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
    """Set the cause of a task's end if its processes are too many or together use too much memory.

    The memory of a running task is not measured while it creates processes, whose number is limited separately. The
    longer measuring takes, the less often it is repeated. For a task that `ended`, `processes` are those it left.
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
