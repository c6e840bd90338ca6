"""The messages between the host and the worker server: JSON lines over one socket."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["GOODBYE", "Begun", "Ended", "FromServer", "LineBuffer", "Preload", "Ready", "Task", "ToServer"]


GOODBYE = b"bye"
"""The line with which a host that is done closes the link. Without this line, the host has died."""


class Task(msgspec.Struct, frozen=True, tag=True):
    """Run ``module:function`` in a process of its own.

    `timeout` is in seconds, `memory` in bytes. A `timed` task runs at normal priority, because its speed is its result.
    """

    id: int
    task: str
    payload: msgspec.Raw
    timeout: float
    memory: int
    timed: bool = False


class Preload(msgspec.Struct, frozen=True, tag=True):
    """Import these modules and what `torch_compat.preload` imports for a level, so that children find them imported."""

    level: str
    modules: list[str]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The server has started, or has finished a preload; `rss` is its resident memory in bytes."""

    rss: int


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A task's process has started."""

    id: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A task's process is gone, with everything it left behind.

    `cause` names what ended it: itself (`exit`, with `status`, negative for a signal), the `timeout`, the `memory` cap,
    or the cap on the number of its `processes`.

    `result` is JSON as the task left it; nobody has parsed it yet. It is None where the task left none, and where what
    it left may not be read (`unreadable`: not a regular file, too large, or not UTF-8).

    `lost` says that a directory which the task or its server needs vanished while the task ran, and that its result
    does not count. This task or a neighbour removed it: the task has to run again, alone. If it is lost again, it was
    this task.
    """

    id: int
    cause: Literal["exit", "timeout", "memory", "processes"]
    status: int
    phase: str | None
    result: str | None
    seconds: float
    peak_rss: int
    stdout: str
    stderr: str
    rss_server: int
    unreadable: bool = False
    lost: bool = False


ToServer = Task | Preload
FromServer = Ready | Begun | Ended


class LineBuffer:
    """Splits a stream of bytes into lines. Each byte is searched once, whatever the size of the chunks."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without their line ends."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts.clear()
        if rest:
            self._parts.append(rest)
        return lines
