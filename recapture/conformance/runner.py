"""Run planned cells through the worker server and make a record of every one of them, exactly once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.conformance.cell import Findings
from recapture.conformance.ledger import Ledger
from recapture.conformance.plan import Key, Options, PlannedCell, plan_cells
from recapture.conformance.preparation import IMPORTS, collect_suites, preload_level, survey
from recapture.conformance.tasks import CELL
from recapture.declare.claim import Claim
from recapture.declare.compilers import builtin_compilers
from recapture.machine import doctor
from recapture.machine.environment import Environment, SuiteEntry
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Begun, Ended
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.results.records import ClaimResult, Phase, Record, Timing
from recapture.results.verdicts import RIGHT, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from recapture.declare.collection import SuiteInfo

__all__ = ["Progress", "Summary", "run"]

GIB = 1 << 30

MOST_FRUITLESS = 3
"""So often the server may die before another cell begins; a new one would fare no better."""


class Progress(Protocol):
    """What the runner tells of its progress."""

    def start(self, total: int, estimate_seconds: float | None) -> None:
        """Be told how many cells will run, and how many seconds that took before."""

    def cell_started(self, cell: str) -> None:
        """Be told of a cell whose process has begun."""

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Be told of a cell's record."""


@dataclass
class Summary:
    """How a run ended: where its results are, and which suites could not be collected.

    `records` are all that the directory holds, `selected` those of the cells that were asked for.
    """

    directory: Path
    records: list[Record]
    selected: list[Record]
    environment: Environment
    failed_suites: list[SuiteInfo]
    seconds_in_children: float
    rss_server: int


def run(options: Options, progress: Progress, warn: Callable[[str], None]) -> Summary:
    """Run the selected cells and leave complete, sorted results; Ctrl-C keeps what is done for ``--resume``.

    `warn` is told, a line each, what a user should know before the verdicts come.
    """
    with WorkerPool(device=options.device, jobs=options.jobs, worker=options.worker, imports=IMPORTS) as pool:
        suites = collect_suites(pool, options.selection.suites)
        failed = [suite for suite in suites if suite.error is not None]
        usable = [suite for suite in suites if suite.error is None]
        if not usable:
            raise UsageError(f"suite {failed[0].name!r} cannot be collected: {failed[0].error}")
        cells = plan_cells(options, usable, failed)
        modules = sorted({module for suite in usable for module in suite.imports})
        staged = options.device == "cpu"
        compiling = {cell.spec.compiler for cell in cells if staged and _compiles(cell)}
        if compiling and not all(map(_compiles, cells)):
            pool.launch_successor(preload_level(options.device, modules, compiling, compiles=True), modules)
        checks, environment = survey(pool)
        if options.device == "cuda" and environment.capability == "cpu":
            raise EnvironmentUnfitError("no CUDA device is visible to torch here; run with --device cpu")
        compiles = not staged or all(map(_compiles, cells))
        wanted = {cell.spec.compiler for cell in cells}
        pool.prepare(preload_level(options.device, modules, wanted, compiles=compiles), modules)
        directory = options.results / environment.image / environment.capability
        environment = msgspec.structs.replace(
            environment,
            worker=("fork" if pool.client.fork else "fresh") + (f" ({pool.why})" if pool.why else ""),
            suites=[SuiteEntry(one.name, len(one.cases), one.error) for one in suites],
            selection=[] if options.whole else [" ".join(options.words)],
            doctor=[check for check in checks if check.status in ("fault", "warning")],
        )
        with Ledger(directory, options, cells, environment) as ledger:
            for text in (*ledger.warnings, *_warnings(environment, checks, failed)):
                warn(text)
            execution = _Execution(pool, ledger, options, checks, progress)
            missing = ledger.missing()
            progress.start(len(missing), ledger.estimate(missing, options.jobs))
            later = [cell for cell in missing if staged and _compiles(cell)]
            execution.run([cell for cell in missing if not staged or not _compiles(cell)])
            if later:
                pool.hand_over(preload_level(options.device, modules, compiling, compiles=True), modules)
                execution.run(later)
            records, environment = ledger.close()
            selected = [row for row in records if (row.case, row.compiler, row.device) in ledger.cells]
            return Summary(directory, records, selected, environment, failed, ledger.seconds, pool.client.rss)


def _compiles(cell: PlannedCell) -> bool:
    """Whether a cell may generate code: by its compiler, unless that is a user's own, or by what the case does."""
    compiler = builtin_compilers().get(cell.spec.compiler)
    return compiler is None or compiler.generates_code or cell.info.compiles


PUBLISHED_CAPABILITIES = ("cpu", "sm_70", "sm_80", "sm_90")
"""The GPUs that the published claims assume: V100, A100, H100."""


def _warnings(environment: Environment, checks: list[doctor.Check], failed: list[SuiteInfo]) -> Iterator[str]:
    if environment.capability not in PUBLISHED_CAPABILITIES:
        yield f"warning: the published claims assume capability 7.0, 8.0 or 9.0; this GPU is {environment.capability}"
    for check in checks:
        if check.status == "fault":
            yield f"warning: {check.name}: {check.found}; mend: {check.mend}"
    for suite in failed:
        yield f"warning: suite {suite.name!r} is left out: {suite.error}"


@dataclass
class _Execution:
    """Drives the server through a list of cells."""

    pool: WorkerPool
    ledger: Ledger
    options: Options
    checks: list[doctor.Check]
    progress: Progress
    running: dict[int, PlannedCell] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    deaths: dict[Key, int] = field(default_factory=dict)
    fruitless: int = 0
    """How often the server died since a cell last began."""

    def run(self, cells: list[PlannedCell]) -> None:
        queue = deque(cells)
        suspects: deque[PlannedCell] = deque()
        while queue or suspects or self.running:
            try:
                self._step(queue, suspects)
            except ServerDiedError:
                self.fruitless += 1
                if self.fruitless > MOST_FRUITLESS:
                    words = self.pool.client.last_words()
                    raise EnvironmentUnfitError(f"the worker server dies before a cell begins: {words}") from None
                # Whoever ran when the server died may have killed it: those cells run again, alone, at the end.
                for number, cell in self.running.items():
                    if number not in self.begun:
                        queue.appendleft(cell)
                        continue
                    self.deaths[cell.key] = self.deaths.get(cell.key, 0) + 1
                    if self.deaths[cell.key] >= 2:
                        self._record(
                            cell, Findings(verdict=Verdict.CRASH, reason="killed the worker server, twice"), None
                        )
                    else:
                        suspects.append(cell)
                self.running.clear()
                self.begun.clear()
                self.pool.restart()

    def _step(self, queue: deque[PlannedCell], suspects: deque[PlannedCell]) -> None:
        if queue:
            while queue and len(self.running) < 2 * self.options.jobs:  # the server never waits for the next cell
                self._submit(queue)
        elif suspects and not self.running:
            self._submit(suspects)
        while isinstance(message := self.pool.client.message(self.options.timeout), Begun):
            self.fruitless = 0
            self.begun.add(message.id)
            self.progress.cell_started(self.running[message.id].address)
        cell = self.running.pop(message.id)
        self.begun.discard(message.id)
        if message.lost:  # this cell or a neighbour removed its directory: it runs again, alone
            self.deaths[cell.key] = self.deaths.get(cell.key, 0) + 1
            if self.deaths[cell.key] < 2:
                suspects.append(cell)
                return
        self._record(cell, self._findings(message), message)

    def _submit(self, queue: deque[PlannedCell]) -> None:
        """Submit the first cell of a queue, where it stays if the server is dead by now."""
        spec = queue[0].spec
        number = self.pool.client.submit(CELL, spec, timeout=self.options.timeout, memory=self.options.memory)
        self.running[number] = queue.popleft()

    def _findings(self, ended: Ended) -> Findings:
        phase: Any = ended.phase if ended.phase in get_args(Phase) else None
        if ended.cause == "timeout":
            return Findings(
                verdict=Verdict.TIMEOUT, phase=phase, reason=f"still running after {self.options.timeout:g} s"
            )
        if ended.cause == "memory":
            return Findings(
                verdict=Verdict.OOM, phase=phase, reason=f"used more than {self.options.memory / GIB:g} GiB"
            )
        if ended.result is not None and ended.status == 0:
            try:
                findings = msgspec.json.decode(ended.result, type=Findings)
            except (msgspec.MsgspecError, RecursionError):
                ended = msgspec.structs.replace(ended, result=None, unreadable=True)
            else:
                return self._environmental(findings, ended)
        return self._environmental(Findings(verdict=Verdict.CRASH, phase=phase, reason=cause_of_death(ended)), ended)

    def _environmental(self, findings: Findings, ended: Ended) -> Findings:
        """A failure that a failing check of the doctor explains is the machine's, not the compiler's.

        Also where eager failed of it, and a compiled call in the same way: that agrees, and says nothing.
        """
        if findings.verdict not in (*RIGHT, Verdict.ERROR, Verdict.CRASH):
            return findings
        kind = findings.error.type if findings.error else ""
        text = f"{findings.error.message if findings.error else ''}\n{ended.stderr}"
        check = doctor.explain(kind, text, self.checks)
        if check is None:
            return findings
        return msgspec.structs.replace(findings, verdict=Verdict.ENVIRONMENT, reason=check.reason)

    def _record(self, cell: PlannedCell, findings: Findings, ended: Ended | None) -> None:
        case, compiler, device = cell.key
        row = Record(
            case=case,
            compiler=compiler,
            device=device,
            case_hash=cell.info.hash,
            **{name: getattr(findings, name) for name in Findings.__struct_fields__},
        )
        claims = tuple(
            ClaimResult(name, expected, Claim(name, expected).holds(row))
            for name, expected in cell.info.claims.get(compiler, ())
        )
        row = msgspec.structs.replace(row, claims=claims)
        seconds = round(ended.seconds, 4) if ended else 0.0
        worker: Literal["fork", "fresh"] = "fork" if self.pool.client.fork else "fresh"
        peak = ended.peak_rss if ended else None
        timing = Timing(case=case, compiler=compiler, device=device, seconds=seconds, peak_rss=peak, worker=worker)
        self.ledger.record(row, timing, ended.stdout if ended else "", ended.stderr if ended else "")
        self.progress.cell_finished(row, seconds)
