"""A worker server configured for the device: preloads modules that tasks import, and replaces a dead server."""

from __future__ import annotations

import contextlib
import re
import signal
from types import TracebackType
from typing import Any, Literal, TypeVar

from recapture.base.errors import EnvironmentUnfitError
from recapture.base.scrub import scrub
from recapture.base.text import one_line, shorten
from recapture.pool.client import Client, ServerDiedError, SlowStartError
from recapture.pool.folders import Home
from recapture.pool.kept_folder import builds_limit, kept_folder
from recapture.pool.protocol import CALLED_EXIT, DIED, EXITED, Ended, task_name
from recapture.pool.worker import FAILED, canary
from recapture.torch_api.kept_builds import prune

T = TypeVar("T")

BARE = "bare"
"""The level of a server that has imported torch and nothing else."""

LONGEST_REASON = 200
"""Characters of the exception that is quoted where a process could not report a result."""

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: |$)")
"""The last line of a traceback."""

CANARY = task_name(canary)

CANARY_SECONDS = 180.0
"""Seconds that initialising a GPU may take at most."""


class WorkerPool:
    """A worker server configured for the device; use it as a context manager.

    `imports` are modules that every server imports when it starts, so that children need not.
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
        self.level = BARE
        self.modules: list[str] = []
        self.many = True
        """Whether many tasks will run, so that servers prepare for cheap forks."""
        self.device_works = False
        self.left_over = False
        """Whether tasks of a driver that was interrupted may still run."""
        self._asked: dict[str, tuple[Client, int]] = {}
        self.successor: Client | None = None
        # A benchmark compiles as a user's process does, from empty caches.
        self.kept, self.kept_refused = (None, "") if whole_graphs else kept_folder()
        """The folder of builds that are kept from run to run, and why there is none, if there should be one."""
        self.home = Home()
        try:
            self.client = self._client(fork=worker != "fresh")
        except BaseException:
            self.home.cleanup()
            raise

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._dismiss_successor()
        self.client.stop()
        self.home.cleanup()
        if self.kept is not None:
            prune(self.kept, builds_limit())

    def _new_client(self, *, fork: bool) -> Client:
        return Client(
            home=self.home.path,
            jobs=self.jobs,
            fork=fork,
            whole_graphs=self.whole_graphs,
            imports=self.imports,
            gpus=self.device != "cpu",
            kept=self.kept,
        )

    def _client(self, *, fork: bool) -> Client:
        client = self._new_client(fork=fork)
        client.launch()
        try:
            client.wait()
        except SlowStartError:
            client.stop(patience=1.0)
            raise
        except ServerDiedError:
            words = client.last_words()
            client.stop()
            raise EnvironmentUnfitError(f"the worker server cannot start: {words}") from None
        except BaseException:  # Ctrl-C
            client.stop()
            raise
        return client

    def restart(self) -> None:
        """Start a server in place of one that died or hangs; if a task removed the home, create it again."""
        self.client.stop(patience=1.0)
        if not self.home.is_whole():
            self._dismiss_successor()  # it refers to files in the removed home
            self.home.renew()
        self.client = self._client(fork=self.client.fork)
        self._preload()

    def end_left_over(self) -> None:
        """End the tasks of a driver that was interrupted, if there are any, by a new server in place of theirs."""
        if self.left_over:
            self.left_over = False
            self.restart()

    def ask(self, task: str, payload: Any, *, timeout: float) -> None:
        """Submit a task without waiting, unless it is asked for already; `answer` returns its result later."""
        if self._asked.get(task, (None, 0))[0] is self.client:
            return
        number = self.client.submit(task, payload, timeout=timeout, memory=1 << 40, awaited=True)
        self._asked[task] = (self.client, number)

    def has_answer(self, task: str) -> bool:
        """Whether the result of a task that was asked for has arrived."""
        client, number = self._asked.get(task, (None, 0))
        return client is self.client and client.has_ended(number)

    def answer(self, task: str, payload: Any, kind: type[T], *, timeout: float) -> T | Ended:
        """Return the result of a task; submits it now if `ask` did not, or if that server died."""
        client, number = self._asked.pop(task, (None, 0))
        if client is not self.client:
            return self.client.run(task, payload, kind, timeout=timeout)
        return self.client.result(number, kind, timeout=timeout)

    def _preload(self) -> None:
        """Preload the level and the modules, or only the level if importing a module kills the server.

        A server that does not get ready is replaced by one that has only torch: each task then imports what it needs.
        """
        try:
            self.client.preload(self.level, self.modules, many=self.many)
        except SlowStartError:
            if (self.level, self.modules) == (BARE, []):
                raise
            self.level, self.modules = BARE, []
            self.restart()
        except ServerDiedError:
            if not self.modules:
                raise
            self.modules = []
            self.restart()

    def launch_successor(self, level: str, modules: list[str]) -> None:
        """Start a second server that preloads a level while the first runs tasks that do not need it.

        The preload takes longer than starting the first server, and keeps one processor busy. This is only for the
        CPU, where no device has to be tested afterwards, and only where processes can be forked.
        """
        if not self.client.fork or self.device != "cpu":
            return
        self.successor = self._new_client(fork=True)
        self.successor.launch()
        with contextlib.suppress(ServerDiedError):  # detected when the server is needed
            self.successor.ask_preload(level, modules, many=self.many)

    def hand_over(self, new_level: str, modules: list[str]) -> None:
        """Continue with a server that has preloaded `new_level`: the successor if there is one, else this one.

        If preloading fails, tasks take longer; a task that needs a missing module reports the reason.
        """
        level = self.level
        if self.successor is not None:
            try:
                self.successor.wait()
                self.successor.rss = max(self.successor.rss, self.client.rss)
                self.client, self.successor = self.successor, self.client
                self.level, self.modules = new_level, modules
            except SlowStartError:  # the first server would not fare better: tasks prepare themselves
                self._dismiss_successor()
                return
            except ServerDiedError:
                pass
            self._dismiss_successor()
            modules = self.modules  # without modules that kill a server
        if (self.level, self.modules) != (new_level, modules):
            try:
                self.prepare(new_level, modules)
            except ServerDiedError:
                self.level = level
                self.restart()

    def _dismiss_successor(self) -> None:
        if self.successor is not None:
            self.successor.stop()
            self.successor = None

    def prepare(self, level: str, modules: list[str]) -> None:
        """Preload a level of `recapture.torch_api.preload` and modules, or less if children then cannot use the device.

        A child tests the device, unless `device_works` shows that one has used it and nothing was preloaded since.
        Raises EnvironmentUnfitError if no child can use it.
        """
        self.level, self.modules = level, modules
        self._preload()
        if self.device == "cpu" or (self.device_works and level == "bare" and not modules):
            return
        while not isinstance(answer := self.client.run(CANARY, self.device, float, timeout=CANARY_SECONDS), float):
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
                last = (answer.stderr.strip().splitlines() or [cause_of_death(answer)])[-1]
                raise EnvironmentUnfitError(f"CUDA cannot be used in a {'forked' if fork else 'fresh'} process: {last}")


LESS = {"cuda_aoti": "light", "cuda": "light", "light": "bare"}
"""The lower level to preload if children cannot use CUDA after a level."""


def cause_of_death(ended: Ended) -> str:
    """Return a description of how a process without a result ended."""
    if ended.cause == "timeout":
        return "passed its deadline"
    if ended.cause == "memory":
        return "passed its memory cap"
    if ended.cause == "processes":
        return "started too many processes"
    if ended.lost:
        return "removed directories that its run needs"
    if ended.unreadable and ended.status >= 0:
        return "left an unreadable result"
    if ended.status < 0:
        with contextlib.suppress(ValueError):
            return f"{DIED} {signal.Signals(-ended.status).name}"
        return f"{DIED} signal {-ended.status}"
    last = (ended.stderr.strip().splitlines() or [""])[-1]
    if ended.called_exit:
        said = f": {shorten(scrub(one_line(last)), LONGEST_REASON)}" if last else ""
        return f"{CALLED_EXIT}({ended.status}){said}"
    if ended.status == FAILED and _EXCEPTION.match(last):
        return f"could not report a result: {shorten(scrub(one_line(last)), LONGEST_REASON)}"
    if ended.status == FAILED:  # not even the exception could be written
        return "could not report a result: its connection to the run was closed"
    return f"{EXITED} {ended.status} and without a result"
