"""Processes that run several tasks of a group, one after the other: the server's links to them.

A process of a group has a link to the server. When its task has finished and left nothing that could influence another
one, the process asks for the next task on that link. If there is none, the server closes the link, and the process
ends as after any task.
"""

from __future__ import annotations

import contextlib
import selectors
from socket import socketpair
from typing import TYPE_CHECKING

import msgspec

from recapture.pool.worker import REUSABLE, Following

if TYPE_CHECKING:
    import socket
    from collections import deque
    from collections.abc import Iterable
    from pathlib import Path

    from recapture.pool.protocol import Task


class Links:
    """The server's ends of the links, by process id; the `selector` shows which process asks."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._ends: dict[int, socket.socket] = {}
        self._new: tuple[socket.socket, socket.socket] | None = None

    def create(self, *, needed: bool) -> None:
        """Create the link of a process that is about to be forked, if it is `needed`."""
        self._new = socketpair() if needed else None

    def inherited(self) -> socket.socket | None:
        """Return the new process's end of its link; called in that process, in which it closes all other ends."""
        for end in [*self._ends.values(), *(self._new or ())[:1]]:
            end.close()
        return None if self._new is None else self._new[1]

    def register(self, pid: int) -> None:
        """Listen to the new process; the selector has its id as data."""
        if self._new is not None:
            end, process_end = self._new
            process_end.close()
            end.setblocking(False)
            self._ends[pid] = end
            self._selector.register(end, selectors.EVENT_READ, pid)

    def asks(self, pid: int) -> bool:
        """Whether a process asks for another task, and has not closed its end or written something else."""
        with contextlib.suppress(OSError):
            return self._ends[pid].recv(1 << 10) == REUSABLE
        return False

    def send(self, pid: int, scratch: Path, task: Task) -> None:
        """Send a task to a process; a process that cannot receive it is dying."""
        following = Following(str(scratch), task.task, task.payload, task.timeout)
        with contextlib.suppress(OSError):
            self._ends[pid].sendall(msgspec.json.encode(following) + b"\n")

    def close(self, pid: int) -> None:
        """Close the link of a process, if it has one."""
        end = self._ends.pop(pid, None)
        if end is not None:
            self._selector.unregister(end)
            end.close()


def take_next(queue: deque[Task], busy: Iterable[str | None] = (), group: str | None = None) -> Task | None:
    """Take from a queue the first task of a `group`, or of no `busy` group; None if there is none."""
    avoided = set(busy) - {None}
    for task in queue:
        if (group is None or task.group == group) and task.group not in avoided:
            queue.remove(task)
            return task
    return None
