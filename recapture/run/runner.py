"""Runs planned cells on the worker server and records each of them exactly once."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from recapture.base.by_name import module_of
from recapture.base.errors import UsageError
from recapture.base.file_contents import FileContents
from recapture.base.start_times import note
from recapture.cases.claim import Claim
from recapture.cases.compilers import EAGER
from recapture.machine.environment import Environment, SuiteEntry
from recapture.pool.driver import Driver, Request
from recapture.pool.worker_pool import WorkerPool
from recapture.records.record import CellKey, ClaimResult, Record, Timing
from recapture.records.shard_files import SHARD, write_shard
from recapture.records.verdicts import Verdict
from recapture.run.cell import CellResult
from recapture.run.durations import recorded_seconds
from recapture.run.outcomes import OutcomeReader, check_result, explainable, recorded_fields
from recapture.run.plan import PlannedCell, RunOptions, plan_cells, refused_cases
from recapture.run.preparation import IMPORTS, MANY, TwoServers, begin_survey, collect_suites, few_cells, survey
from recapture.run.result_files import ResultFiles
from recapture.run.shards import shard_plan
from recapture.run.shared_processes import CellOfCase, End, end_of, group_of, in_groups, known_ends, passes
from recapture.run.tasks import CELL, KNOWN_CELL, SHARED_CELL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from recapture.cases.collection import SuiteInfo
    from recapture.machine import doctor
    from recapture.pool.protocol import Ended
    from recapture.records.cell_facts import CellFacts
    from recapture.records.shard_files import ShardPlan
    from recapture.run.preparation import Checks

PUBLISHED_CAPABILITIES = ("cpu", "sm_70", "sm_80", "sm_90")
"""Capabilities that the published claims are about: the CPU, V100, A100 and H100."""


EAGER_ENDED = {Verdict.CRASH: "", Verdict.OOM: "", Verdict.TIMEOUT: "was "}
"""How a process ends in which eager itself does not return, with what its reason lacks as a sentence about eager.

Before the capture, that says nothing about a compiler.
"""


class CellProgress(Protocol):
    """Receives the progress of a run."""

    def start(self, likely: Mapping[str, float], jobs: int, *, guessed: bool) -> None:
        """Receive the cells to run with the seconds that each is likely to take, and how many run at a time.

        `guessed` is whether most of them never ran anywhere.
        """

    def cell_started(self, cell: str) -> None:
        """Receive the address of a cell whose process has started."""

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Receive the record of a cell, and the seconds its process took."""


@dataclass
class RunSummary:
    """The outcome of a run: its results directory, its records, and what was not run.

    `records` are all records in the directory, `selected` those of the selected cells. `failed_suites` could not be
    collected; `refused_cases` has a line for each selected case of another suite whose declaration is invalid.
    `seconds` are what each cell took. `facts` are by the cell's address, where the run's examiner reports them.
    """

    directory: Path
    records: list[Record]
    selected: list[Record]
    environment: Environment
    failed_suites: list[SuiteInfo]
    refused_cases: list[str]
    rss_server: int
    facts: dict[str, CellFacts]
    seconds: dict[CellKey, float]


@dataclass
class OpenRun:
    """A run whose cells are done, and whose pool and files are open, for a tool that goes on with them.

    `prepare` makes the pool preload what cells need that generate code; None if it has. `warn` receives a line about
    what begins.
    """

    pool: WorkerPool
    result_files: ResultFiles
    options: RunOptions
    warn: Callable[[str], None]
    prepare: Callable[[WorkerPool], None] | None


def run_cells(
    options: RunOptions,
    progress: CellProgress,
    warn: Callable[[str], None],
    *,
    shares_processes: bool | None = None,
    opened: WorkerPool | None = None,
    afterwards: Sequence[Callable[[OpenRun], None]] = (),
) -> RunSummary:
    """Run the selected cells and write sorted results; an interrupted run keeps finished cells for ``--resume``.

    `warn` receives one line for each warning that a user should see before the verdicts. `shares_processes` decides
    whether cells share processes; by default they do on a GPU. `opened` is a pool to
    use instead of a new one; it stays open. `afterwards` is what tools do when all cells are done, before the results
    are written.
    """
    note("imports")
    with contextlib.ExitStack() as stack:
        imports = tuple(dict.fromkeys((*IMPORTS, module_of(options.examiner))))
        pool = opened or stack.enter_context(
            WorkerPool(device=options.device, jobs=options.jobs, worker=options.worker, imports=imports)
        )
        note("server")
        # First, so that it runs while the suites are collected.
        begin_survey(pool)
        contents = FileContents(suite.path for suite in options.selection.suites)
        suites = collect_suites(pool, options.selection.suites)
        note("suites")
        failed = [suite for suite in suites if suite.error is not None]
        usable = [suite for suite in suites if suite.error is None]
        if not usable:
            raise UsageError(f"suite {failed[0].name!r} cannot be collected: {failed[0].error}")
        cells, part = _shard(options, plan_cells(options, usable, failed))
        servers = TwoServers(options.device, usable, cells, few=few_cells(options, again=bool(afterwards)))
        pool.many = len(servers.cells) >= MANY
        refused = refused_cases(options, usable)
        servers.launch_second_server(pool)
        checks, environment = survey(pool)
        note("machine")
        servers.prepare_first_server(pool)
        note("preload")
        directory = options.results / environment.image / environment.capability
        environment = _with_run(environment, options, pool, suites)
        with ResultFiles(directory, options, servers.cells, environment) as result_files:
            _note_shard(directory, part)
            for text in (*result_files.warnings, *_warnings(environment, failed, refused, pool.kept_refused)):
                warn(text)

            checks.give_to(lambda checks: _note_checks(result_files, checks, warn))
            execution = CellExecution(
                pool, result_files, options, checks, progress, contents, shares_processes=shares_processes
            )
            missing = result_files.missing()
            progress.start(
                result_files.likely_seconds(missing), options.jobs, guessed=result_files.mostly_guessed(missing)
            )
            first, second = servers.split(missing, result_files.hanging)
            execution.run(first)
            checks.wait()  # the first server makes them, and is about to be replaced
            if second:
                servers.hand_over(pool)
                execution.run(second)
            for work in afterwards:
                work(OpenRun(pool, result_files, options, warn, None if second else servers.hand_over))
            return _summary(execution, failed, refused)


def _summary(execution: CellExecution, failed: list[SuiteInfo], refused: list[str]) -> RunSummary:
    """Write the results and return the outcome of the run."""
    files = execution.result_files
    records, environment = files.close()
    selected = [row for row in records if row.key in files.cells]
    rss, facts = execution.pool.client.rss, execution.facts
    seconds = {key: timing.seconds for key, timing in files.timings.items()}
    return RunSummary(files.directory, records, selected, environment, failed, refused, rss, facts, seconds)


def _with_run(environment: Environment, options: RunOptions, pool: WorkerPool, suites: list[SuiteInfo]) -> Environment:
    """Return the environment with what this run does in it."""
    return msgspec.structs.replace(
        environment,
        worker=("fork" if pool.client.fork else "fresh") + (f" ({pool.why})" if pool.why else ""),
        suites=[SuiteEntry(suite.name, len(suite.cases), _error(suite)) for suite in suites],
        selection=[] if options.whole else [_selection(options)],
    )


def _note_checks(result_files: ResultFiles, checks: list[doctor.Check], warn: Callable[[str], None]) -> None:
    """Add the doctor's checks that are not in order to the environment, and warn of each fault."""
    result_files.add_checks([check for check in checks if check.status in ("fault", "warning")])
    for check in checks:
        if check.status == "fault":
            warn(f"warning: {check.name}: {check.found}; fix: {check.mend}")


def _note_shard(directory: Path, part: ShardPlan | None) -> None:
    """Write which part of the plan a directory holds, or remove what an earlier run wrote if it is the whole plan."""
    if part is None:
        (directory / SHARD).unlink(missing_ok=True)
    else:
        write_shard(directory, part)


def _selection(options: RunOptions) -> str:
    """Return the selection as typed, with the shard."""
    return " ".join((*options.words, *(() if options.shard is None else ("--shard", str(options.shard)))))


def _shard(options: RunOptions, cells: list[PlannedCell]) -> tuple[list[PlannedCell], ShardPlan | None]:
    """Return the cells of this shard and the plan of the whole run; all cells and None if the run is not divided."""
    if options.shard is None:
        return cells, None
    options.check_durations()
    seconds = recorded_seconds(options.durations_place, options.device)
    selection = [] if not options.words else [" ".join(options.words)]
    plan = shard_plan(options.shard, {cell.key: cell.info.hash for cell in cells}, seconds, selection)
    own = {row.key for row in plan.cells if row.shard == plan.number}
    return [cell for cell in cells if cell.key in own], plan


def _error(suite: SuiteInfo) -> str | None:
    """Return why a suite, or some of its cases, could not be collected."""
    if not suite.refused:
        return suite.error
    return (
        f"{len(suite.refused)} of {len(suite.refused) + len(suite.cases)} cases: {'; '.join(map(str, suite.refused))}"
    )


def _warnings(
    environment: Environment, failed: list[SuiteInfo], refused: list[str], kept_refused: str
) -> Iterator[str]:
    if kept_refused:
        yield f"warning: compiled code is not kept for later runs: {kept_refused}"
    if environment.capability not in PUBLISHED_CAPABILITIES:
        # Another GPU may round, choose kernels and fail in other ways than the claims were measured with.
        yield f"warning: the published claims assume capability 7.0, 8.0 or 9.0; this GPU is {environment.capability}"
    for suite in failed:
        yield f"warning: suite {suite.name!r} is left out: {suite.error}"
    for line in refused:
        yield f"warning: a case is left out: {line}"


class CellExecution:
    """Runs lists of cells and records each (implements `recapture.pool.driver.Work`).

    On a GPU, groups of cells share processes: see `recapture.run.shared_processes`.
    """

    def __init__(
        self,
        pool: WorkerPool,
        result_files: ResultFiles,
        options: RunOptions,
        checks: Checks,
        progress: CellProgress,
        contents: FileContents,
        *,
        shares_processes: bool | None = None,
    ) -> None:
        self.pool = pool
        self.contents = contents
        self.result_files = result_files
        self.checks = checks
        self.progress = progress
        self.at_once = 2 * options.jobs  # so that the server never waits for the next cell or group
        shares = options.device == "cuda" if shares_processes is None else shares_processes
        self.shares = shares and pool.client.fork
        self.ends = known_ends(options.results, result_files.environment.torch.version) if self.shares else {}
        self.queue: deque[PlannedCell] = deque()
        self.facts: dict[str, CellFacts] = {}
        self.again: set[CellKey] = set()
        """Cells that ended otherwise than known in a process that others had used before, and run again alone."""
        self.driver = Driver(pool, self, timeout=options.timeout, memory=options.memory)
        self.outcomes = OutcomeReader(
            CellResult,
            timeout=options.timeout,
            memory=options.memory,
            checks=checks,
            explainable=explainable,
            check=check_result,
        )

    def run(self, cells: list[PlannedCell]) -> None:
        """Run cells, starting them in this order."""
        if self.shares:
            cells = in_groups(cells, self._group, self.result_files.expected_seconds, self._ends)
        self.queue.extend(cells)
        self.driver.run()

    def next(self, running: Collection[PlannedCell]) -> PlannedCell | None:
        """Return the next cell, until enough cells and groups of cells are submitted to keep the server busy."""
        if not self.queue:
            return None
        busy = {self._group(cell) or cell.key for cell in running}
        following = self.queue[0]
        enough = len(busy) >= self.at_once and (self._group(following) or following.key) not in busy
        return None if enough else self.queue.popleft()

    def request(self, task: PlannedCell) -> Request:
        """Return the request that runs a cell."""
        group = self._group(task)
        known = bool(self._ends(task))
        shared = KNOWN_CELL if known else SHARED_CELL
        return Request(
            CELL if group is None else shared,
            task.spec,
            group=group,
            timeout=task.limit(self.driver.timeout),
            movable=known and group is not None,
        )

    def _group(self, cell: PlannedCell) -> str | None:
        """Return the group whose processes a cell may share; None if it runs alone."""
        if not self.shares or cell.key in self.again:
            return None
        expected = self.result_files.expected_seconds(cell)
        return group_of(cell, self._ends(cell), self.result_files.verdicts_before(cell.key), expected)

    def _ends(self, cell: PlannedCell) -> Collection[End]:
        """Return how a cell is known to end."""
        return self.ends.get(CellOfCase(*cell.key[:2], cell.info.hash), ())

    def _counts(self, cell: PlannedCell, findings: CellResult) -> bool:
        """Whether findings count although they come from a process that other cells had used before."""
        ends = self._ends(cell)
        return end_of(findings) in ends if ends else passes(findings.verdict, findings.phase)

    def begun(self, task: PlannedCell) -> None:
        """Report a cell whose process has started."""
        note("first cell")
        self.progress.cell_started(task.address)

    def ended(self, task: PlannedCell, ended: Ended) -> None:
        """Record a cell whose process ended, or run it again alone if the process had run others before."""
        self.checks.read_if_made()
        findings = self.outcomes.read(ended, task.limit(self.driver.timeout))
        if edited := self._edited(task):
            reason = f"{edited} was edited after the run began: --resume runs its cells again"
            self._record(task, CellResult(verdict=Verdict.ENVIRONMENT, reason=reason), ended)
            return
        if task.spec.compiler != EAGER and findings.phase == "reference" and findings.verdict in EAGER_ENDED:
            # The compiler was never called.
            findings = msgspec.structs.replace(
                findings,
                verdict=Verdict.NOT_APPLICABLE,
                reason=f"eager itself {EAGER_ENDED[findings.verdict]}{findings.reason}",
            )
        if ended.reused and not self._counts(task, findings):
            # What ran before it may be the cause: only a process of its own can say.
            self.again.add(task.key)
            self.queue.appendleft(task)
        else:
            self._record(task, findings, ended)

    def _edited(self, cell: PlannedCell) -> str:
        """Return the name of a file of the cell that is not as it was when the run began; an empty text if none is.

        The record would have the hash of a source that did not run.
        """
        files = (cell.spec.path, cell.spec.compiler_file)
        return next((Path(file).name for file in files if file and self.contents.changed(file)), "")

    def given_up(self, task: PlannedCell, reason: str) -> None:
        """Record a cell that will not run again."""
        self._record(task, self.outcomes.crash(reason), None)

    def _record(self, cell: PlannedCell, findings: CellResult, ended: Ended | None) -> None:
        case, compiler, device = cell.key
        row = Record(
            case=case,
            compiler=compiler,
            device=device,
            case_hash=cell.info.hash,
            **recorded_fields(findings),
        )
        # Here, not in the child: a claim may be about how the process ended.
        claims = tuple(
            ClaimResult(name, expected, Claim(name, expected).holds(row))
            for name, expected in cell.info.claims.get(compiler, ())
        )
        row = msgspec.structs.replace(row, claims=claims)
        if findings.facts is not None:
            self.facts[cell.address] = findings.facts
        seconds = round(ended.seconds, 4) if ended else 0.0
        worker: Literal["fork", "fresh"] = "fork" if self.pool.client.fork else "fresh"
        peak = ended.peak_rss if ended else None
        timing = Timing(case=case, compiler=compiler, device=device, seconds=seconds, peak_rss=peak, worker=worker)
        eager = findings.eager if compiler == EAGER else None
        self.result_files.record(row, timing, ended.stdout if ended else "", ended.stderr if ended else "", eager=eager)
        self.progress.cell_finished(row, seconds)
