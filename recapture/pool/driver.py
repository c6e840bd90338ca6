"""Schedules tasks on the worker server: starts them, repeats them after the server died, or gives them up."""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Collection, Hashable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from recapture.base.errors import EnvironmentUnfitError
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Begun, Ended
from recapture.pool.worker_pool import WorkerPool

MOST_RESTARTS = 3
"""Number of consecutive servers that may die before any task begins; after that, no other server is started."""

MOST_INCIDENTS = 2
"""Number of times that a server may die, or a task's directory be deleted, before the running task is given up."""


SIGTERM_SECONDS = 0.5
"""Seconds to wait before a task's end by SIGTERM is recorded. A batch system sends SIGTERM to every process of a job:
if this process receives it too, the task is not at fault."""


class Identified(Protocol):
    """A task; tasks with equal keys share their count of incidents."""

    @property
    def key(self) -> Hashable:
        """The key under which incidents are counted."""


T = TypeVar("T", bound=Identified)


class Request(NamedTuple):
    """What the server is to run: ``module:function``, its payload, and whether its speed is its result.

    Tasks of one `group` may run in one process, one after the other, and `movable` ones in that of another group: see
    `recapture.pool.protocol.Task`. `timeout` is the task's own time limit in seconds, if it has one.
    """

    function: str
    payload: Any
    timed: bool = False
    group: str | None = None
    timeout: float | None = None
    movable: bool = False


class Work(Protocol[T]):
    """Supplies a driver with tasks, and receives their results."""

    def next(self, running: Collection[T]) -> T | None:
        """Return a task that may start beside the running ones; None if there is none at the moment."""

    def request(self, task: T) -> Request:
        """Return what the server is to run for a task that is about to start."""

    def begun(self, task: T) -> None:
        """Handle the start of a task's process."""

    def ended(self, task: T, ended: Ended) -> None:
        """Handle the end of a task's process, which may lead to new tasks."""

    def given_up(self, task: T, reason: str) -> None:
        """Handle a task that will not run again, because its server died or lost its directories each time."""


class Driver(Generic[T]):
    """Runs the tasks of a `Work` on the server of a pool.

    Any task that was running when the server died may have killed it, and any task that was running when directories
    disappeared may have deleted them. These suspects run again, one at a time, after all other tasks. So only the task
    at fault has a second incident, and is given up. Tasks that had not begun are simply repeated.

    `timeout` is the time limit in seconds of every task that has none of its own, `memory` its memory limit in bytes.
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
        """Whether directories of the server were deleted; it is then replaced when no task is running."""

    def run(self) -> None:
        """Run all tasks.

        Raises EnvironmentUnfitError if the server keeps dying before any task begins. If something else ends it, such
        as Ctrl-C, tasks still run; the pool ends them when it is used again.
        """
        self.pool.end_left_over()
        try:
            self._run()
        finally:
            self.pool.left_over = bool(self.running)

    def _run(self) -> None:
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
                request = self.work.request(task)
                number = self.pool.client.submit(
                    request.function,
                    request.payload,
                    timeout=request.timeout or self.timeout,
                    memory=self.memory,
                    timed=request.timed,
                    group=request.group,
                    movable=request.movable,
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
        """Wait until one task's process ends."""
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
            return
        try:
            self.work.ended(task, message)
        except ServerDiedError:  # while `ended` waited for something else that the server runs
            self._returned.append(task)
            raise

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
        """Schedule a task to run again alone, or give it up for this reason."""
        self._incidents[task.key] += 1
        if self._incidents[task.key] < MOST_INCIDENTS:
            self._suspects.append(task)
        else:
            self.work.given_up(task, reason)
