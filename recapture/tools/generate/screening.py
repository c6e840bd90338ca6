"""Runs the generated programs on the worker server: many in one process, and each cell once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from recapture.pool.driver import Driver, Request
from recapture.records.record import CellKey, Record
from recapture.run.cell import CellResult, CellSpec
from recapture.run.outcomes import OutcomeReader, check_result, explainable, recorded_fields
from recapture.tools.generate.tasks import SCREEN

if TYPE_CHECKING:
    from recapture.pool.protocol import Ended
    from recapture.pool.worker_pool import WorkerPool

T = TypeVar("T")

AT_ONCE = 2
"""Groups for each job that are submitted, so that the server never waits for the next one."""


def next_task(queue: deque[T], busy: Collection[str], group: Callable[[T], str], at_once: int) -> T | None:
    """Take the next task of a queue: one of a busy group, or of a new one while there are few groups."""
    if not queue or (len(busy) >= at_once and group(queue[0]) not in busy):
        return None
    return queue.popleft()


@dataclass
class Limits:
    """The limits of a cell, in seconds and bytes, and when to stop beginning cells.

    That is at a time of `time.monotonic`, or after so many cells that are not right; `failures` counts these.
    """

    timeout: float
    memory: int
    deadline: float | None = None
    until: int | None = None
    failures: int = 0

    @property
    def passed(self) -> bool:
        """Whether no further cell shall begin."""
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return late or (self.until is not None and self.failures >= self.until)


@dataclass(frozen=True)
class GeneratedCell:
    """One program and one compiler."""

    spec: CellSpec

    @property
    def key(self) -> CellKey:
        """What identifies the cell."""
        return self.spec.key

    @property
    def group(self) -> str:
        """The cells that share a process: those of a suite, and of a user's compiler, which may change torch."""
        own = self.spec.compiler if self.spec.compiler_file is not None else ""
        return f"{self.spec.suite} {own}"


class Screening:
    """Runs cells, those of one suite in one process (implements `recapture.pool.driver.Work`).

    `receive` gets the record of each. What it says of a cell that does not pass is not the last word: cells before it,
    in the same process, may be the cause.
    """

    def __init__(
        self,
        pool: WorkerPool,
        cells: Iterable[GeneratedCell],
        jobs: int,
        limits: Limits,
        receive: Callable[[Record], None],
    ) -> None:
        self._queue = deque(cells)
        self._at_once = AT_ONCE * jobs
        self._limits = limits
        self._receive = receive
        self._outcomes = OutcomeReader(
            CellResult,
            timeout=limits.timeout,
            memory=limits.memory,
            checks=(),
            explainable=explainable,
            check=check_result,
        )
        self._driver: Driver[GeneratedCell] = Driver(pool, self, timeout=limits.timeout, memory=limits.memory)

    def run(self) -> None:
        """Run the cells, until the deadline passes."""
        self._driver.run()

    def next(self, running: Collection[GeneratedCell]) -> GeneratedCell | None:
        """Return the next cell, until enough groups are submitted."""
        if self._limits.passed:
            return None
        return next_task(self._queue, {cell.group for cell in running}, lambda cell: cell.group, self._at_once)

    def request(self, task: GeneratedCell) -> Request:
        """Return the request that runs a cell."""
        return Request(SCREEN, task.spec, group=task.group)

    def begun(self, task: GeneratedCell) -> None:
        """Do nothing."""

    def ended(self, task: GeneratedCell, ended: Ended) -> None:
        """Pass on the record of a cell."""
        self._record(task, recorded_fields(self._outcomes.read(ended)))

    def given_up(self, task: GeneratedCell, reason: str) -> None:
        """Pass on the record of a cell that ended the server."""
        self._record(task, recorded_fields(self._outcomes.crash(reason)))

    def _record(self, cell: GeneratedCell, fields: dict[str, Any]) -> None:
        case, compiler, device = cell.key
        self._receive(Record(case=case, compiler=compiler, device=device, case_hash="", **fields))
