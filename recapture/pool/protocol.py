"""The messages between the host and the worker server: JSON lines over one socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

GOODBYE = b"bye"
"""The last line that a host sends before it closes the link. If it is missing, the host has died."""


def task_name(function: Callable[..., bytes]) -> str:
    """Return the name by which a server finds a function of a module: ``module:function``."""
    return f"{function.__module__}:{function.__qualname__}"


class Task(msgspec.Struct, frozen=True, tag=True):
    """Run ``module:function`` in a separate process.

    `timeout` is in seconds, `memory` in bytes. A `timed` task runs at normal priority, because its speed is its result.
    Tasks of one `group` run one after the other, and a process that its task declared reusable runs the next of them.
    """

    id: int
    task: str
    payload: msgspec.Raw
    timeout: float
    memory: int
    timed: bool = False
    group: str | None = None


class Preload(msgspec.Struct, frozen=True, tag=True):
    """Import these modules and those of a level of `recapture.torch_api.preload`, so that children need not.

    With `many`, enough children follow that it pays to make forks cheap: see `recapture.pool.server`.
    """

    level: str
    modules: list[str]
    many: bool = True


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The server has started, or has finished a preload; `rss` is its resident memory in bytes."""

    rss: int


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A task's process is about to start, or a process of its group is about to run it."""

    id: int


class Processes(msgspec.Struct, frozen=True, tag=True):
    """These processes belong to a task: its own, which is named before it runs any code of the task, or others of it.

    The host has to know them in case that the task kills the server.
    """

    id: int
    pids: list[int]


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A task's process has ended or runs the next task of its group, and everything the task left was removed.

    `cause` is what ended it: its own exit (`exit`, with `status`, negative for a signal), the `timeout`, the `memory`
    limit, or the limit on the number of `processes`.

    `result` is JSON text from the task, not parsed or validated. It is None if the task left none, or left one that
    cannot be read (`unreadable`: not a regular file, too large, or not UTF-8).

    `lost` means that a directory that the task or its server needs disappeared while the task ran, so that its result
    is invalid. This task or another one removed the directory, so the task must run again, alone. If it is lost again,
    this task is at fault.

    `reused` means that the process had run other tasks of the group before. It may be their fault that this one failed.
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
    reused: bool = False


ToServer = Task | Preload
FromServer = Ready | Begun | Processes | Ended


class LineBuffer:
    """Splits a stream of bytes into lines. Each byte is searched only once, for any chunk size."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without their line ends."""
        *lines, unfinished = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts.clear()
        if unfinished:
            self._parts.append(unfinished)
        return lines
