"""What the host and the worker server say to each other: JSON lines over one socket."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["GOODBYE", "Begun", "Ended", "FromServer", "Preload", "Ready", "Task", "ToServer"]


GOODBYE = b"bye"
"""The line by which a host takes leave; a link that closes without it is that of a host that died."""


class Task(msgspec.Struct, frozen=True, tag=True):
    """Run ``module:function`` in a process of its own; `timeout` in seconds, `memory` in bytes of resident memory.

    A `timed` task runs at normal priority: its speed is its result.
    """

    id: int
    task: str
    payload: msgspec.Raw
    timeout: float
    memory: int
    timed: bool = False


class Preload(msgspec.Struct, frozen=True, tag=True):
    """Import these modules, and what `torch_compat.preload` has for a level, so that children find them imported."""

    level: str
    modules: list[str]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The server (or a preload) is done starting; `rss` is its resident memory in bytes."""

    rss: int


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A task's process has started."""

    id: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A task's process is gone, with everything it left behind.

    `cause` says who ended it: itself (`exit`, with `status`, negative for a signal), the `timeout`, the `memory` cap,
    or the cap on the number of its `processes`. `result` is None when it left none. `lost` says that it left none
    because its scratch directory was deleted, which another task may have done.
    """

    id: int
    cause: Literal["exit", "timeout", "memory", "processes"]
    status: int
    phase: str | None
    result: str | None  # JSON
    seconds: float
    peak_rss: int
    stdout: str
    stderr: str
    rss_server: int
    lost: bool = False


ToServer = Task | Preload
FromServer = Ready | Begun | Ended
