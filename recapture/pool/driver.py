"""Drives the worker server through tasks: what runs, what runs again after the server died, and what is given up."""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from recapture.base.errors import EnvironmentUnfitError
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Begun, Ended

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from recapture.pool.worker_pool import WorkerPool

__all__ = ["MOST_INCIDENTS", "MOST_RESTARTS", "Driver", "Request", "Work"]

MOST_RESTARTS = 3
"""Number of servers in a row that may die before any task begins; after that a new one would fare no better."""

MOST_INCIDENTS = 2
"""Number of times a task may be running while its server dies or its directory is deleted; then it is given up."""


SIGTERM_SECONDS = 0.5
"""Seconds to wait before the end of a task by SIGTERM counts: a batch system sends it to every process of a job, and
where this one is among them, the task is not at fault."""


class Identified(Protocol):
    """A task; tasks with equal keys share their count of incidents."""

    @property
    def key(self) -> Hashable:
        """What the task belongs to."""


T = TypeVar("T", bound=Identified)


class Request(NamedTuple):
    """What the server is asked to run: ``module:function``, its payload, and whether its speed is its result."""

    function: str
    payload: Any
    timed: bool = False


class Work(Protocol[T]):
    """What a driver asks for tasks, and tells how they end."""

    def next(self, running: Collection[T]) -> T | None:
        """Return a task that may start beside the running ones; None when there is none for now."""

    def request(self, task: T) -> Request:
        """Return what the server is to run for a task, which is about to start."""

    def begun(self, task: T) -> None:
        """Note that the process of a task has started."""

    def ended(self, task: T, ended: Ended) -> None:
        """Take the end of a task's process; new tasks may follow from it."""

    def given_up(self, task: T, reason: str) -> None:
        """Take a task that will not run again, because its server died or lost its directories each time it ran."""


class Driver(Generic[T]):
    """Runs the tasks of some work through the server of a pool.

    A task that was running when the server died may have killed it, and one whose scratch directory is gone may have
    deleted it: both are suspects. They run again by themselves when nothing else is left to run, so that only the
    task at fault meets a second incident, and is given up. Tasks that had not begun simply run again.

    `timeout` is the deadline of every task in seconds, `memory` its cap in bytes.
    """

    def __init__(self, pool: WorkerPool, work: Work[T], *, timeout: float, memory: int) -> None:
        self.pool = pool
        self.work = work
        self.timeout = timeout
        self.memory = memory
        self.running: dict[int, T] = {}
        self._begun: set[int] = set()
        self._returned: deque[T] = deque()
        self._suspects: deque[T] = deque()
        self._incidents: Counter[Hashable] = Counter()
        self._fruitless = 0
        self._alone = False
        self._spoilt = False
        """Whether directories of the server were deleted: it is replaced as soon as nothing runs."""

    def run(self) -> None:
        """Run all there is.

        Raises EnvironmentUnfitError when the server keeps dying before any task begins.
        """
        while True:
            try:
                if self._spoilt and not self.running:
                    self._replace_server()
                self._start()
                if not self.running:
                    return
                self._wait()
            except ServerDiedError:
                self._server_died()

    def _start(self) -> None:
        while not self._spoilt and (task := self._next()) is not None:
            try:
                function, payload, timed = self.work.request(task)
                number = self.pool.client.submit(
                    function, payload, timeout=self.timeout, memory=self.memory, timed=timed
                )
            except ServerDiedError:
                self._returned.appendleft(task)
                raise
            self.running[number] = task

    def _next(self) -> T | None:
        if self._alone:
            return None
        if self._returned:
            return self._returned.popleft()
        task = self.work.next(tuple(self.running.values()))
        if task is None and self._suspects and not self.running:
            self._alone = True
            return self._suspects.popleft()
        return task

    def _wait(self) -> None:
        """Wait until the process of a task ends."""
        while isinstance(message := self.pool.client.message(self.timeout), Begun):
            self._fruitless = 0
            self._begun.add(message.id)
            self.work.begun(self.running[message.id])
        if message.status == -signal.SIGTERM:
            time.sleep(SIGTERM_SECONDS)
        task = self.running.pop(message.id)
        self._begun.discard(message.id)
        self._alone = False
        if message.lost:
            self._spoilt = True
            self._suspect(task, "removed directories that its run needs")
        else:
            self.work.ended(task, message)

    def _server_died(self) -> None:
        self._fruitless += 1
        if self._fruitless > MOST_RESTARTS:
            words = self.pool.client.last_words()
            raise EnvironmentUnfitError(f"the worker server keeps dying before a task begins: {words}") from None
        running, self.running = self.running, {}
        begun, self._begun = self._begun, set()
        self._alone = False
        for number, task in running.items():
            if number in begun:
                self._suspect(task, "killed the worker server, twice")
            else:
                self._returned.append(task)
        self._replace_server()

    def _replace_server(self) -> None:
        self._spoilt = False
        self.pool.restart()

    def _suspect(self, task: T, reason: str) -> None:
        """Let a task run again by itself, or give it up for this reason."""
        self._incidents[task.key] += 1
        if self._incidents[task.key] < MOST_INCIDENTS:
            self._suspects.append(task)
        else:
            self.work.given_up(task, reason)
