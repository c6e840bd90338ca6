"""A worker server that suits the device and the work, and what it tells about suites and the machine."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from recapture import doctor  # noqa: TC001 - msgspec resolves annotations at run time
from recapture.client import Client, ServerDiedError
from recapture.collection import DYNAMO, SuiteFile, SuiteInfo
from recapture.compilers import builtin_compilers
from recapture.environment import Environment  # noqa: TC001 - likewise
from recapture.errors import EnvironmentUnfitError
from recapture.protocol import Ended

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Workbench", "cause_of_death"]

COLLECT_SECONDS = 120.0
COLLECT_MEMORY = 8 << 30
SURVEY_SECONDS = 180.0

TORCH_ALONE = frozenset({"eager", "jit.trace", "jit.script", "fx", "fx:concrete_args"})
"""Compilers that need nothing beyond ``import torch``: importing Dynamo takes longer than all their cells."""


class _Survey(msgspec.Struct):
    checks: list[doctor.Check]
    environment: Environment


def _without_blanks() -> str | None:
    """Where to make the home: not in a folder whose path has a blank, at which Inductor splits its g++ commands."""
    if not re.search(r"\s", tempfile.gettempdir()):
        return None
    return next((place for place in ("/tmp", "/var/tmp") if os.access(place, os.W_OK | os.X_OK)), None)  # noqa: S108


class Workbench:
    """A worker server made fit for the device, and what it told about suites and the machine."""

    def __init__(
        self,
        *,
        device: str,
        jobs: int,
        worker: Literal["auto", "fork", "fresh"] = "auto",
        whole_graphs: bool = False,
    ) -> None:
        self.device = device
        self.whole_graphs = whole_graphs
        self.jobs = jobs
        self.worker = worker
        self.why = ""
        self.home = tempfile.TemporaryDirectory(prefix="recapture-", dir=_without_blanks(), ignore_cleanup_errors=True)
        self.level = "bare"
        self.modules: list[str] = []
        self.client = self._client(fork=worker != "fresh")
        self.successor: Client | None = None

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._dismiss_successor()
        self.client.stop()
        self.home.cleanup()

    def _new_client(self, *, fork: bool) -> Client:
        return Client(home=Path(self.home.name), jobs=self.jobs, fork=fork, whole_graphs=self.whole_graphs)

    def _client(self, *, fork: bool) -> Client:
        client = self._new_client(fork=fork)
        try:
            client.start()
        except ServerDiedError:
            raise EnvironmentUnfitError(f"the worker server cannot start: {client.last_words()}") from None
        return client

    def restart(self) -> None:
        """Start a server like the one that died, or that hangs."""
        self.client.stop(patience=1.0)
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

    def collect(self, suites: tuple[SuiteFile, ...]) -> list[SuiteInfo]:
        """Collect suites, each in a process of its own: a suite file may do anything when it is imported."""
        found = []
        for suite in suites:
            try:
                where = (suite.name, str(suite.path))
                info = self.client.run("collect", where, SuiteInfo, timeout=COLLECT_SECONDS, memory=COLLECT_MEMORY)
            except ServerDiedError:
                self.restart()
                info = SuiteInfo(suite.name, str(suite.path), error="killed the worker server on import")
            if isinstance(info, Ended):
                info = SuiteInfo(suite.name, str(suite.path), error=f"died on import: {cause_of_death(info)}")
            found.append(info)
        return found

    def survey(self) -> tuple[list[doctor.Check], Environment]:
        """Examine the machine, in a child: for CUDA that initialises the device."""
        told = self.client.run("survey", self.device, _Survey, timeout=SURVEY_SECONDS)
        if isinstance(told, Ended):
            last = (told.stderr.strip().splitlines() or [cause_of_death(told)])[-1]
            raise EnvironmentUnfitError(f"this environment cannot be examined: {last}")
        return told.checks, told.environment

    def make_fit(self, modules: list[str], compilers: set[str], *, compiles: bool = True) -> None:
        """Preload what suites and compilers import, then make sure that children can still use the device.

        `compiles` False says that no cell to come generates code, whatever the suites and compilers could do.
        """
        self.prepare(_level(self.device, modules, compilers, compiles=compiles), modules)

    def raise_successor(self, modules: list[str], compilers: set[str]) -> None:
        """Start another server, which gets ready for cells that compile while the first one works on others.

        Getting ready takes longer than all of the first one's start, and keeps one processor busy. Only for the CPU,
        where nothing needs to be tried afterwards, and where there are processes to fork.
        """
        if not self.client.fork or self.device != "cpu":
            return
        self.successor = self._new_client(fork=True)
        self.successor.launch()
        with contextlib.suppress(ServerDiedError):  # found out when it is wanted
            self.successor.ask_preload(_level(self.device, modules, compilers, compiles=True), modules)

    def hand_over(self, modules: list[str], compilers: set[str]) -> None:
        """Go on with a server that is ready for cells that compile: the successor, or else this one.

        Without getting ready the cells take longer, and one of them will say what the matter is.
        """
        level = self.level
        wanted = _level(self.device, modules, compilers, compiles=True)
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
        while not isinstance(told := self.client.run("canary", self.device, float, timeout=SURVEY_SECONDS), float):
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


def _level(device: str, modules: list[str], compilers: set[str], *, compiles: bool) -> str:
    """How much the server should import for these compilers, and for suites whose cases or compilers compile."""
    ours = {name: how for name, how in builtin_compilers().items() if name in compilers}
    if ours.keys() <= TORCH_ALONE and DYNAMO not in modules:
        return "bare"
    compiles = compiles and (DYNAMO in modules or any(how.generates_code for how in ours.values()))
    if device != "cpu":
        return "cuda" if compiles else "light"
    if not compiles:
        return "capture"
    return "aoti" if "aoti" in ours else "codegen"


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
