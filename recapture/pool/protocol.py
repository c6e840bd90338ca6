"""The messages between the host and the worker server, JSON lines over one socket, and what a task's process reports.

A task's process and the server have a socket pair of their own. No other process can write to it: a socket cannot be
opened under ``/proc``, as a file or a pipe can. The process sends each phase that it enters as a line, and its result
after a line with its length.
"""

from __future__ import annotations

import re
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
    Where none of them is left, and the tasks of two groups are `movable`, the process goes on with the other group.
    """

    id: int
    task: str
    payload: msgspec.Raw
    timeout: float
    memory: int
    timed: bool = False
    group: str | None = None
    movable: bool = False


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


EXITED = "exited with status"
CALLED_EXIT = "C code called exit"
DIED = "died of"
"""How the description begins of a process that ended with an exit status of its own, or by a signal.

Python's ``os._exit`` ends a process at once. The ``exit`` of C, which a library calls where it gives up, first runs
functions that were left with it, so that the process can report it.
"""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A task's process has ended or runs the next task of its group, and everything the task left was removed.

    `cause` is what ended it: its own exit (`exit`, with `status`, negative for a signal), the `timeout`, the `memory`
    limit, or the limit on the number of `processes`.

    `result` is JSON text from the task, not parsed or validated. It is None if the task left none, or left one that
    cannot be read (`unreadable`: another form, too large, or not UTF-8).

    `lost` means that a directory that the task or its server needs disappeared while the task ran, so that its result
    is invalid. This task or another one removed the directory, so the task must run again, alone. If it is lost again,
    this task is at fault.

    `reused` means that the process had run other tasks before. It may be their fault that this one failed.

    `called_exit` means that C code called ``exit``, which a process can tell only where it has glibc.
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
    called_exit: bool = False


RESULT_CAP_BYTES = 16 * 1024 * 1024
"""Bytes of the largest report of a task, which has its phases and its result."""

PHASE_CAP_BYTES = 256
"""Bytes of the longest name of a phase."""

EXIT_LINE = b"exit\n"
"""What a process sends when C code calls ``exit`` in it."""

_PHASE = re.compile(rb"phase ([^\n]*)\n")
_RESULT = re.compile(rb"(result|reusable) (\d{1,19}) (\d{1,9})\n")


def phase_line(phase: str) -> bytes:
    """Return what a process sends when it enters a phase."""
    return b"phase %b\n" % " ".join(phase.split()).encode(errors="replace")[:PHASE_CAP_BYTES]


def result_message(number: int, result: bytes, *, reusable: bool) -> bytes:
    """Return what a process sends as the result of the task with this number.

    `reusable` asks for another task of the group.
    """
    return b"%b %d %d\n%b" % (b"reusable" if reusable else b"result", number, len(result), result)


class Report:
    """What the process of the task with this `number` has sent so far. It may be anything, because it runs user code.

    `result` is None until the whole result has arrived. `invalid` means that something else was sent than phases and
    one result of this task, or more than `RESULT_CAP_BYTES`. `called_exit` means that C code has called ``exit``.
    """

    def __init__(self, number: int) -> None:
        self.phase: str | None = None
        self.result: bytes | None = None
        self.reusable = False
        self.invalid = False
        self.called_exit = False
        self._number = number
        self._size = 0
        self._unread = bytearray()

    def add(self, chunk: bytes) -> None:
        """Add what the process sent."""
        self._size += len(chunk)
        self._unread += chunk
        while self._unread and not self.invalid:
            header = _RESULT.match(self._unread)
            if self._unread.startswith(EXIT_LINE):  # also after the result: a thread may go on
                self.called_exit = True
                del self._unread[: len(EXIT_LINE)]
            elif self.result is not None or self._size > RESULT_CAP_BYTES:
                self.invalid = True
            elif header is not None:
                if not self._take_result(header):
                    return
            elif (line := _PHASE.match(self._unread)) is not None:
                self.phase = line[1].decode(errors="replace")[:PHASE_CAP_BYTES].strip() or None
                del self._unread[: line.end()]
            elif b"\n" in self._unread or len(self._unread) > 2 * PHASE_CAP_BYTES:
                self.invalid = True
            else:  # the end of the line has not arrived
                return

    def _take_result(self, header: re.Match[bytes]) -> bool:
        """Take the result after its line; False if a part of it has not arrived."""
        end = header.end() + int(header[3])
        if int(header[2]) != self._number or end > RESULT_CAP_BYTES:
            self.invalid = True
            return True
        if len(self._unread) < end:
            return False
        self.result = bytes(self._unread[header.end() : end])
        self.reusable = header[1] == b"reusable"
        del self._unread[:end]
        return True

    def text(self) -> tuple[str | None, bool]:
        """Return the text of the result, and whether there is something else that cannot be read."""
        if self.invalid or (self._unread and self.result is None):
            return None, True
        try:
            return None if self.result is None else self.result.decode(), False
        except UnicodeDecodeError:
            return None, True


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
