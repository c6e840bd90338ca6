"""A worker server that suits the device: it preloads what tasks import, and starts another server when one dies."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recapture.base.errors import EnvironmentUnfitError
from recapture.pool.client import Client, ServerDiedError
from recapture.pool.protocol import Ended

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["WorkerPool", "cause_of_death"]

CANARY = "recapture.pool.worker:canary"

CANARY_SECONDS = 180.0
"""Initialising a GPU takes this long at most."""


def _without_blanks() -> str | None:
    """Where to make the home: not in a folder whose path has a blank, at which Inductor splits its g++ commands."""
    if not re.search(r"\s", tempfile.gettempdir()):
        return None
    return next((place for place in ("/tmp", "/var/tmp") if os.access(place, os.W_OK | os.X_OK)), None)  # noqa: S108


class WorkerPool:
    """A worker server made fit for the device; use it as a context manager.

    `imports` are modules that every server imports when it starts, so that children find them imported.
    """

    def __init__(
        self,
        *,
        device: str,
        jobs: int,
        worker: Literal["auto", "fork", "fresh"] = "auto",
        whole_graphs: bool = False,
        imports: tuple[str, ...] = (),
    ) -> None:
        self.device = device
        self.whole_graphs = whole_graphs
        self.jobs = jobs
        self.imports = imports
        self.worker = worker
        self.why = ""
        self.home = tempfile.TemporaryDirectory(prefix="recapture-", dir=_without_blanks(), ignore_cleanup_errors=True)
        self.level = "bare"
        self.modules: list[str] = []
        self.client = self._client(fork=worker != "fresh")
        self.successor: Client | None = None

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._dismiss_successor()
        self.client.stop()
        self.home.cleanup()

    def _new_client(self, *, fork: bool) -> Client:
        home = Path(self.home.name)
        return Client(home=home, jobs=self.jobs, fork=fork, whole_graphs=self.whole_graphs, imports=self.imports)

    def _client(self, *, fork: bool) -> Client:
        client = self._new_client(fork=fork)
        try:
            client.start()
        except ServerDiedError:
            raise EnvironmentUnfitError(f"the worker server cannot start: {client.last_words()}") from None
        except BaseException:  # interrupted while it starts
            client.stop()
            raise
        return client

    def restart(self) -> None:
        """Start a server like the one that died, or that hangs."""
        self.client.stop(patience=1.0)
        Path(self.home.name).mkdir(mode=0o700, exist_ok=True)  # a task may have deleted it
        self.client = self._client(fork=self.client.fork)
        self._preload()

    def _preload(self) -> None:
        """Preload what is wanted, without the modules where importing one of them kills the server."""
        try:
            self.client.preload(self.level, self.modules)
        except ServerDiedError:
            if not self.modules:
                raise
            self.modules = []
            self.restart()

    def launch_successor(self, level: str, modules: list[str]) -> None:
        """Start another server, which preloads a level while the first one works on tasks that do not need it.

        Getting ready takes longer than all of the first one's start, and keeps one processor busy. Only for the CPU,
        where nothing needs to be tried afterwards, and where there are processes to fork.
        """
        if not self.client.fork or self.device != "cpu":
            return
        self.successor = self._new_client(fork=True)
        self.successor.launch()
        with contextlib.suppress(ServerDiedError):  # found out when it is wanted
            self.successor.ask_preload(level, modules)

    def hand_over(self, wanted: str, modules: list[str]) -> None:
        """Go on with a server that has preloaded the level `wanted`: the successor, or else this one.

        Where that fails tasks take longer, and one of them will say why.
        """
        level = self.level
        if self.successor is not None:
            with contextlib.suppress(ServerDiedError):
                self.successor.wait()
                self.successor.rss = max(self.successor.rss, self.client.rss)
                self.client, self.successor = self.successor, self.client
                self.level, self.modules = wanted, modules
            self._dismiss_successor()
            modules = self.modules  # without those that kill a server
        if (self.level, self.modules) != (wanted, modules):
            try:
                self.prepare(wanted, modules)
            except ServerDiedError:
                self.level = level
                self.restart()

    def _dismiss_successor(self) -> None:
        if self.successor is not None:
            self.successor.stop()
            self.successor = None

    def prepare(self, level: str, modules: list[str]) -> None:
        """Preload a level of `torch_compat.preload` and modules, or less where children could not use the device."""
        self.level, self.modules = level, modules
        self._preload()
        if self.device == "cpu":
            return
        while not isinstance(told := self.client.run(CANARY, self.device, float, timeout=CANARY_SECONDS), float):
            level, fork = self.level, self.client.fork
            self.level = LESS.get(level, "bare")
            self.client.stop()
            if fork and level != "bare":
                self.client = self._client(fork=True)
                if self.level == "bare":
                    self.modules = []
                self._preload()
            elif fork and self.worker == "auto":
                self.why = "a forked child could not use CUDA"
                self.client = self._client(fork=False)
            else:
                last = (told.stderr.strip().splitlines() or [cause_of_death(told)])[-1]
                raise EnvironmentUnfitError(f"CUDA cannot be used in a {'forked' if fork else 'fresh'} process: {last}")


LESS = {"cuda": "light", "light": "bare"}
"""What to preload when children cannot use CUDA after a level."""


def cause_of_death(ended: Ended) -> str:
    """Say in words how a process ended that left no result."""
    if ended.cause == "timeout":
        return "passed its deadline"
    if ended.cause == "memory":
        return "passed its memory cap"
    if ended.cause == "processes":
        return "started too many processes"
    if ended.status < 0:
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(-ended.status).name}"
        return f"died of signal {-ended.status}"
    return f"exited with status {ended.status} and without a result"
