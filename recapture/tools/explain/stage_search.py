"""Searches the guilty stages of many cells on the pool, each run in a child of its own, and adds them to records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.text import plural
from recapture.cases.compiler import Family
from recapture.cases.compilers import shorter_compilers
from recapture.pool.driver import Driver, Request
from recapture.records.record import CellKey, Record
from recapture.run.cell import EXAMINE, CellResult
from recapture.run.outcomes import OutcomeReader
from recapture.run.shared_processes import compiles
from recapture.run.tasks import CELL
from recapture.tools.explain.compiler_stages import COMPILE, FACTS, StageFacts
from recapture.tools.explain.run_options import BUDGET
from recapture.tools.explain.stages import Search, StageReport, StageRun, search, stageable

if TYPE_CHECKING:
    from recapture.pool.protocol import Ended
    from recapture.pool.worker_pool import WorkerPool
    from recapture.run.plan import PlannedCell
    from recapture.run.runner import OpenRun

PREFIXES_RECORDED = {
    name: prefix.backend
    for name, stage in shorter_compilers(Family.DYNAMO).items()
    for prefix in COMPILE
    if prefix.stage == stage
}
"""Compilers that ship and are prefixes of `torch.compile`, with the backend of each."""


@dataclass(frozen=True)
class SearchedCell:
    """A cell's record, what its search found, and the seconds that its trials took, one after the other."""

    record: Record
    report: StageReport
    seconds: float

    @property
    def key(self) -> CellKey:
        """The key of the cell."""
        return self.record.key

    @property
    def with_stage(self) -> Record:
        """The record with the guilty stage, if one was found."""
        stage = self.report.stage
        return self.record if stage is None else msgspec.structs.replace(self.record, stage=stage)


@dataclass
class _Searching:
    """One cell whose stage is searched: its next trial is None while the facts about its compiler are awaited."""

    cell: PlannedCell
    record: Record
    steps: Search | None = None
    trial: StageRun | None = None
    tried: int = 0
    seconds: float = 0.0

    @property
    def key(self) -> tuple[CellKey, int]:
        """The key of the trial that runs."""
        return (self.cell.key, self.tried)


def search_stages(
    pool: WorkerPool,
    cells: Iterable[tuple[PlannedCell, Record]],
    *,
    timeout: float,
    memory: int,
    budget: int = BUDGET,
    known: Mapping[CellKey, Record] = MappingProxyType({}),
    finished: Callable[[SearchedCell], object] = lambda _: None,
) -> list[SearchedCell]:
    """Find the guilty stages of cells, and return them in their order; `finished` receives each when its search ends.

    `timeout` is in seconds and `memory` in bytes, both for each trial; `budget` is the most extra cells for each cell.
    `known` are records of the same run: those of compilers that are prefixes of the cell's compiler are not run again.
    The pool must have preloaded what the cells need.
    """
    work = _Trials(pool, [_Searching(cell, record) for cell, record in cells], budget, timeout, memory, known, finished)
    Driver(pool, work, timeout=timeout, memory=memory).run()
    return [work.finished[cell.key] for cell in work.order]


@dataclass
class _Trials:
    """Supplies the driver with the next trial of each search (implements `recapture.pool.driver.Work`)."""

    pool: WorkerPool
    searches: list[_Searching]
    budget: int
    timeout: float
    memory: int
    rows: Mapping[CellKey, Record]
    announce: Callable[[SearchedCell], object]
    finished: dict[CellKey, SearchedCell] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = [searching.cell for searching in self.searches]
        self.ready = deque(self.searches)
        self.outcomes = OutcomeReader(
            CellResult, timeout=self.timeout, memory=self.memory, checks=(), explainable=lambda _: False
        )

    def next(self, running: Collection[_Searching]) -> _Searching | None:
        """Return a search whose next trial can run."""
        return self.ready.popleft() if self.ready and len(running) < 2 * self.pool.jobs else None

    def request(self, task: _Searching) -> Request:
        """Return the request for a trial, or for the facts about the compiler."""
        if task.trial is None:
            return Request(FACTS, task.cell.spec)
        # The cell itself was explained and has written its artifacts.
        plain = msgspec.structs.replace(task.cell.spec, examiner=EXAMINE, artifacts=None)
        return Request(CELL, msgspec.structs.replace(plain, varied=task.trial.variation))

    def begun(self, task: _Searching) -> None:
        """Do nothing at the start of a trial."""

    def ended(self, task: _Searching, ended: Ended) -> None:
        """Give the result of a run to its search, which says what runs next."""
        task.seconds += ended.seconds
        if task.trial is None:
            self._start(task, ended.result)
        else:
            self._continue(task, self.outcomes.read(ended))

    def given_up(self, task: _Searching, reason: str) -> None:
        """Continue a search without the trial that ended its server each time."""
        if task.trial is None:
            self._finish(task, StageReport(None, unknown=f"its compiler cannot be examined: {reason}"))
        else:
            self._continue(task, self.outcomes.crash(reason))

    def _start(self, task: _Searching, result: str | None) -> None:
        try:
            facts = msgspec.json.decode(result or "", type=StageFacts)
        except (ValueError, RecursionError):
            self._finish(task, StageReport(None, unknown="its compiler cannot be examined"))
            return
        task.steps = search(task.record, facts, self.budget, self.known(task, facts))
        self._advance(task, next)

    def known(self, task: _Searching, facts: StageFacts) -> dict[str, Record]:
        """Return the cells that were run already and are prefixes of a cell: those of other compilers."""
        if not facts.plain or task.cell.spec.compiler_file is not None:
            return {}
        case, _, device = task.cell.key
        rows = {name: self.rows.get(CellKey(case, name, device)) for name in PREFIXES_RECORDED}
        return {PREFIXES_RECORDED[name]: row for name, row in rows.items() if row is not None}

    def _continue(self, task: _Searching, result: CellResult) -> None:
        self._advance(task, lambda steps: steps.send(result))

    def _advance(self, task: _Searching, step: Callable[[Any], StageRun]) -> None:
        try:
            task.trial = step(task.steps)
        except StopIteration as end:
            self._finish(task, end.value)
            return
        task.tried += 1
        self.ready.append(task)

    def _finish(self, task: _Searching, report: StageReport) -> None:
        cell = SearchedCell(task.record, report, round(task.seconds, 1))
        self.finished[task.cell.key] = cell
        self.announce(cell)


class StageRecorder:
    """Searches the guilty stage of each wrong or failing cell of a run, and amends its record.

    It is given to `recapture.run.runner.run_cells` as what follows the cells. `budget` is the most extra cells for each
    cell. Afterwards `searched` has the cells whose stage was searched.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.searched: list[SearchedCell] = []

    def __call__(self, run: OpenRun) -> None:
        """Search the stages. A record that names one already keeps it, so that a run can be resumed."""
        options, result_files = run.options, run.result_files
        rows = [(cell, result_files.done[key]) for key, cell in result_files.cells.items()]
        searched = [(cell, row) for cell, row in rows if stageable(row) and row.stage is msgspec.UNSET]
        if not searched:
            return
        if run.prepare is not None and options.device == "cpu" and any(compiles(cell) for cell, _ in searched):
            run.prepare(run.pool)
        run.warn(f"searching the guilty stage of {plural(len(searched), 'cell')}")

        def record(cell: SearchedCell) -> None:
            if cell.report.stage is not None:
                result_files.amend(cell.with_stage)

        self.searched = search_stages(
            run.pool,
            searched,
            timeout=options.timeout,
            memory=options.memory,
            budget=self.budget,
            known=result_files.done,
            finished=record,
        )
