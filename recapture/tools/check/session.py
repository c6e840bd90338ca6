"""Checks a target: examines it in a child, writes its case, and runs the compilers on it."""

from __future__ import annotations

import re
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.option_fields import GIB
from recapture.base.paths import PACKAGE
from recapture.base.scrub import scrub
from recapture.base.text import one_line, shorten
from recapture.cases.collection import Selection, SuiteFile
from recapture.cases.compilers import builtin_compilers, compiler_facts
from recapture.command.command_table import of_tools
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended
from recapture.pool.worker import FAILED, LinkLostError
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.records.verdicts import FAILING, RIGHT, Verdict
from recapture.run.plan import RunOptions, unknown_compiler
from recapture.run.preparation import COLLECT_MEMORY, IMPORTS, begin_survey
from recapture.run.runner import run_cells
from recapture.tools.check.answers import (
    CheckedOperator,
    CheckReport,
    CheckRow,
    Circumstances,
    failing_families,
    row_of,
)
from recapture.tools.check.case_text import SUITE, Prepared, case_file, case_name
from recapture.tools.check.derivation import NO_GPU, PREPARE, STAGES, TOO_SLOW, Preparation
from recapture.tools.check.examine_cell import EXAMINE_WITH_CAUSE
from recapture.tools.check.obstacles import OBSTACLES, Obstacle, ObstacleSearch
from recapture.tools.check.operators import OPERATORS, OperatorSearch
from recapture.tools.check.request import CheckOptions, CheckRequest

if TYPE_CHECKING:
    from recapture.machine.environment import Environment
    from recapture.records.record import Record

OF_A_BACKWARD = "torch.fx.experimental.symbolic_shapes"
"""What the first backward of a process imports, with sympy: a second of CPU time that every cell would need."""

SHARE_OF_EAGER = 0.5
"""Part of a compiler's memory that eager may need for a derived input: the cell keeps results, and repeats eager."""

MOST_DEATHS = 5
"""The most derived inputs that may end the process that tries them."""

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
"""A frame as Python's watchdog and fault handler write it, the innermost first."""

Speed = tuple[tuple[float, float, float], str]
"""Eager's time divided by a compiler's, with the ends of its 95 % interval, and what that shows."""


class CheckOutcome(NamedTuple):
    """What a check found: its report, the scripts of the compilers that are not right, and the lines in their way."""

    report: CheckReport
    scripts: Mapping[str, str]
    obstacles: tuple[Obstacle, ...]


@dataclass(frozen=True, kw_only=True)
class CheckEvents:
    """Functions that are called as a check goes on, and what it produces besides its report.

    `prepared` receives what is known about the target before the first compiler runs, `finished` each row, and `warn`
    lines for people. `case` receives the source of the generated case. `speeds` measures the compilers that are right
    on the case at a path. With `scripts` there is one for each compiler that is not right, with `obstacles` the lines
    that stand in the way of the compilers.
    """

    prepared: Callable[[Prepared], object] = lambda _: None
    finished: Callable[[CheckRow], object] = lambda _: None
    warn: Callable[[str], None] = lambda _: None
    case: Callable[[str], object] = lambda _: None
    speeds: Callable[[Path, tuple[str, ...]], Mapping[str, Speed]] | None = None
    scripts: bool = False
    obstacles: bool = False


def run_check(
    request: CheckRequest,
    options: CheckOptions,
    events: CheckEvents | None = None,
    *,
    folder: Path | None = None,
    opened: WorkerPool | None = None,
) -> CheckOutcome:
    """Check a target. The generated case and its records are in `folder`, by default one that is removed at the end.

    `opened` is a pool of `pool_of_checks`, by default one of this check: with one, many checks import torch once.

    Raises UsageError or EnvironmentUnfitError, in one line, for a target or inputs that cannot be used: what fails
    before or in eager is never said of a compiler.
    """
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recapture-check-")))
        folder.mkdir(parents=True, exist_ok=True)
        pool = opened if opened is not None else stack.enter_context(pool_of_checks(options))
        return _Check(request, options, events or CheckEvents(), folder.resolve()).run(pool)


def pool_of_checks(options: CheckOptions) -> WorkerPool:
    """Return a pool for checks with the device and the number of jobs of some options, to be entered."""
    imports = (*IMPORTS, *(task.partition(":")[0] for task in (PREPARE, OBSTACLES, OPERATORS)))
    return WorkerPool(device=options.device, jobs=options.jobs, imports=imports)


class _Check:
    """One target that is checked."""

    def __init__(self, request: CheckRequest, options: CheckOptions, events: CheckEvents, folder: Path) -> None:
        self.request = request
        self.options = options
        self.events = events
        self.compilers = compilers_of_check(options.compilers, request)
        self.folder = folder
        self.path = folder / f"{SUITE}.py"
        self.prepared = Prepared()
        self.records: dict[str, Record] = {}
        self.rows: dict[str, CheckRow] = {}
        self.failed_in_eager: Record | None = None
        self.warned: set[str] = set()
        self.died_where_eager_raises: dict[str, str] = {}
        """The input that a compiler's process ended on although eager merely raises, by compiler."""

    def run(self, pool: WorkerPool) -> CheckOutcome:
        """Examine the target, run every compiler, and return what was found."""
        options, events = self.options, self.events
        begin_survey(pool)
        pool.client.preload("bare", [OF_A_BACKWARD])
        self.prepared = prepare(pool, self.request, options)
        self.path.write_text(case_file(self.request, self.prepared), encoding="utf-8")
        events.prepared(self.prepared)
        # Two runs, so that the first verdicts do not wait until the server has imported Dynamo.
        first = tuple(name for name in self.compilers if compiler_facts(name).torch_alone)
        second = tuple(name for name in self.compilers if not compiler_facts(name).torch_alone)
        for compilers in filter(None, (first, second)):
            environment = self._run_cells(pool, compilers, self.path)
        if self.died_where_eager_raises:
            self._run_again(pool)
        scripts = self._scripts(pool) if events.scripts else {}
        obstacles = self._obstacles(pool) if events.obstacles else ()
        events.case(self.path.read_text(encoding="utf-8"))
        if events.speeds is not None:
            right = tuple(name for name, record in self.records.items() if record.verdict in RIGHT)
            for name, (speedup, finding) in events.speeds(self.path, right).items():
                self.rows[name] = msgspec.structs.replace(self.rows[name], speedup=speedup, finding=finding)
        prepared = self.prepared
        report = CheckReport(
            target=self.request.title,
            torch=environment.torch.version,
            device=options.device,
            image=environment.image,
            inputs=(*prepared.inputs, *self.request.held_out, *prepared.other_ranks),
            must_raise=prepared.must_raise,
            refused=prepared.refused,
            unaffordable=prepared.unaffordable,
            untried=prepared.untried,
            random=prepared.random,
            train=self.request.train,
            eager_seconds=prepared.seconds,
            remarks=prepared.remarks,
            operators=self._operators(pool) if prepared.operators else (),
            rows=self._rows(),
        )
        return CheckOutcome(report, scripts, obstacles)

    def _rows(self) -> tuple[CheckRow, ...]:
        """Return the rows in the order of the compilers. Only now is it known which of them advice can recommend."""
        around = msgspec.structs.replace(self._circumstances, failing=failing_families(self.rows.values()))
        return tuple(
            msgspec.structs.replace(self.rows[name], advice=row_of(self.records[name], around).advice)
            for name in self.compilers
        )

    def _run_cells(self, pool: WorkerPool, compilers: tuple[str, ...], path: Path) -> Environment:
        """Run some compilers, and return the environment that they ran in. Raises UsageError if eager itself fails."""
        run = RunOptions(
            selection=Selection((SuiteFile(SUITE, path),), ((SUITE, None, None),), frozenset({SUITE})),
            compilers=compilers,
            device=self.options.device,
            jobs=self.options.jobs,
            timeout=self.options.timeout,
            memory=self.options.memory,
            results=path.parent / "results",
            words=(self.request.title,),
            examiner=EXAMINE_WITH_CAUSE,
        )
        summary = run_cells(run, _Finished(self._finished), self._warn, opened=pool)
        if self.failed_in_eager is not None:
            raise _fault_in_eager(self.request, self.options, self.failed_in_eager)
        return summary.environment

    def _warn(self, text: str) -> None:
        """Pass on a warning; a check is several runs, each of which examines the machine."""
        if text not in self.warned:
            self.warned.add(text)
            self.events.warn(text)

    def _finished(self, record: Record, seconds: float) -> None:
        """Keep a record, and tell its row; one that eager itself fails is no row of a compiler."""
        if record.phase == "reference":
            self.failed_in_eager = record
            return
        around, name = self._circumstances, record.compiler
        died = record.verdict in FAILING and record.verdict is not Verdict.ERROR
        if died and record.input in around.refused and name not in self.died_where_eager_raises:
            self.died_where_eager_raises[name] = around.name(record.input)
            return
        row = row_of(record, around, seconds)
        if name in self.died_where_eager_raises:
            ended = f"{self.died_where_eager_raises[name]}: the process ends"
            row = msgspec.structs.replace(row, accepts_refused=(ended, *row.accepts_refused))
        self.records[name], self.rows[name] = record, row
        self.events.finished(row)

    def _run_again(self, pool: WorkerPool) -> None:
        """Run compilers without the inputs that eager refuses: one of these ended their process, and hid the others."""
        path = self.folder / "without_refused" / self.path.name
        path.parent.mkdir()
        prepared = msgspec.structs.replace(self.prepared, must_raise=())
        path.write_text(case_file(self.request, prepared), encoding="utf-8")
        self._run_cells(pool, tuple(self.died_where_eager_raises), path)

    @property
    def _circumstances(self) -> Circumstances:
        prepared = self.prepared
        accepted = (*prepared.inputs, *self.request.held_out, *prepared.other_ranks)
        must_raise = range(len(accepted), len(accepted) + len(prepared.must_raise))
        return Circumstances(
            inputs=(*accepted, *(f"{name} (eager raises)" for name in prepared.must_raise)),
            refused=frozenset(f"held_out[{index}]" for index in must_raise),
            random=prepared.random,
            depends_on_calls=prepared.depends_on_calls,
            size_of_one=prepared.size_of_one,
            sets_fallback_random=prepared.sets_fallback_random,
            compilers=self.compilers,
        )

    def _scripts(self, pool: WorkerPool) -> dict[str, str]:
        """Return a script for each compiler that is not right."""
        case, suite = case_name(self.prepared.name), SuiteFile(SUITE, self.path)
        wrong = [name for name in self.compilers if self.records[name].verdict not in RIGHT]
        return {name: _script(pool, suite, case, name, self.options.device, self.folder / "results") for name in wrong}

    def _operators(self, pool: WorkerPool) -> tuple[CheckedOperator, ...]:
        """Test the custom operators of the target in a process of their own."""
        search = OperatorSearch(self.request, self.prepared.calling)
        try:
            answer = pool.client.run(
                OPERATORS,
                search,
                list[CheckedOperator],
                timeout=self.options.timeout,
                memory=max(COLLECT_MEMORY, self.options.memory),
            )
        except ServerDiedError:
            pool.restart()
            problem = "the process that started it ended"
        else:
            if not isinstance(answer, Ended):
                return tuple(answer)
            problem = cause_of_death(answer)
        return tuple(CheckedOperator(name=name, problem=problem) for name in self.prepared.operators)

    def _obstacles(self, pool: WorkerPool) -> tuple[Obstacle, ...]:
        obstacles: list[Obstacle] = []
        for compiler in self.compilers:  # one process each: a crash or a long compilation costs one of them
            search = ObstacleSearch(self.request, self.prepared.calling, (compiler,))
            try:
                answer = pool.client.run(
                    OBSTACLES,
                    search,
                    list[Obstacle],
                    timeout=self.options.timeout,
                    memory=max(COLLECT_MEMORY, self.options.memory),
                )
            except ServerDiedError:
                pool.restart()
                continue
            if isinstance(answer, Ended):
                obstacles.append(Obstacle(compiler=compiler, kind="refused", reason=cause_of_death(answer)))
            else:
                obstacles += answer
        return tuple(obstacles)


def _script(pool: WorkerPool, suite: SuiteFile, case: str, compiler: str, device: str, results: Path) -> str:
    printers = of_tools("script of a cell")
    if not printers:
        return "# no script can be printed: the tool that prints scripts is not installed\n"
    try:
        return str(printers[0](pool, suite, case, compiler, device, results))
    except UsageError as error:
        return f"# no script can be printed: {error}\n"


def prepare(pool: WorkerPool, request: CheckRequest, options: CheckOptions) -> Prepared:
    """Examine a target in a child. An input that ends the child is left out, and the others are tried again.

    Raises UsageError or EnvironmentUnfitError, in one line, if the target or its example cannot be used.
    """
    without: dict[str, str] = {}
    whole = max(COLLECT_MEMORY, options.memory)
    memory = max(COLLECT_MEMORY, int(whole * SHARE_OF_EAGER))
    began = time.monotonic()
    while True:
        # Where inputs end their process, those that follow share what is left of the time.
        left = max(options.timeout - (time.monotonic() - began), 0.0)
        preparation = Preparation(request, options.timeout, without, left)
        try:
            answer = pool.client.run(PREPARE, preparation, Prepared, timeout=options.timeout, memory=memory)
        except ServerDiedError:
            pool.restart()
            raise UsageError(
                f"{request.title} ended the process that started it, or removed its folders: a target must leave other "
                "processes alone"
            ) from None
        if not isinstance(answer, Ended):
            if answer.error is not None:
                raise _error(answer.error)
            return answer
        stage = answer.phase or "load"
        if stage in STAGES and answer.cause == "memory" and memory < whole:
            memory = whole  # the example itself is that large
            continue
        if stage in STAGES or stage in without or len(without) == MOST_DEATHS or _failed_itself(answer):
            where = STAGES.get(stage, f"in the call with the input {stage}")
            raise UsageError(f"{request.title} {how_it_ended(answer, options)} {where}{_place(answer.stderr)}")
        without |= {stage: "it takes too long" if TOO_SLOW in answer.stderr else cause_of_death(answer)}


def how_it_ended(ended: Ended, options: CheckOptions) -> str:
    """Say what the user's code did, where its process ended without a result."""
    if ended.cause == "timeout":
        return f"is not done after --timeout {options.timeout:g} s,"
    if ended.cause == "memory":
        return f"needs more than --memory {options.memory / GIB:g} GiB"
    if ended.called_exit:
        return f"ends its process ({cause_of_death(ended)})"
    if ended.status == FAILED and LinkLostError.__name__ in _last_line(ended.stderr):
        return "closes or floods descriptors that its process needs, such as os.closerange does,"
    if _failed_itself(ended):
        return f"cannot be examined ({scrub(_last_line(ended.stderr))})"
    if ended.status < 0:
        return f"{cause_of_death(ended).replace('died', 'dies')}"
    if ended.cause == "exit" and not ended.lost and not ended.unreadable:
        return f"ends its process with exit status {ended.status}"
    return cause_of_death(ended)


def _failed_itself(ended: Ended) -> bool:
    """Whether recapture's own part of a process failed: it says how, unlike code that ends it with the same status."""
    return ended.status == FAILED and not ended.called_exit and ended.cause == "exit" and bool(ended.stderr.strip())


def _place(stderr: str) -> str:
    """Return where the user's code was when its process ended, if Python wrote that: `` (line 3 of model.py)``."""
    libraries = (PACKAGE, *(Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib")))
    for frame in _FRAME.finditer(stderr):
        file = Path(frame["file"])
        if file.suffix == ".py" and file.is_file() and not any(library in file.parents for library in libraries):
            return f" (line {frame['line']} of {file.name})"
    return ""


def _last_line(stderr: str) -> str:
    return shorten(one_line((stderr.strip().splitlines() or ["no message"])[-1]), 300)


def _fault_in_eager(request: CheckRequest, options: CheckOptions, record: Record) -> UsageError:
    """Return the error for a cell that eager itself ends, in words of the target."""
    if record.verdict is Verdict.TIMEOUT:
        how = f"is not done in eager after --timeout {options.timeout:g} s: raise it, or lower --most-inputs"
    elif record.verdict is Verdict.OOM:
        how = f"needs more than --memory {options.memory / GIB:g} GiB in eager: raise it, or try a smaller input"
    else:
        why = record.reason if record.error is None else f"{record.error.type}: {record.error.message}"
        how = f"fails in eager: {shorten(scrub(one_line(why or 'without a message')), 300)}"
    return UsageError(f"{request.title} {how}")


def _error(text: str) -> UsageError | EnvironmentUnfitError:
    """Return the error for a target that cannot be checked: an absent package or GPU is the environment's."""
    return EnvironmentUnfitError(text) if text == NO_GPU or "is not installed" in text else UsageError(text)


def compilers_of_check(names: tuple[str, ...], request: CheckRequest) -> tuple[str, ...]:
    """Return the compilers of a check, those that generate no code first. Raises UsageError for an unknown one."""
    known = builtin_compilers()
    for name in names:
        if name not in known and name != "all":
            raise unknown_compiler(name, known)
    if "all" in names:
        chosen = [name for name, compiler in known.items() if not compiler.optional]
    elif names:
        chosen = [name for name in known if name in names]
    else:
        chosen = [name for name, compiler in known.items() if "check" in compiler.run_by]
        chosen = [name for name in chosen if not (request.train and known[name].inference_only)]
    return tuple(sorted(chosen, key=lambda name: (known[name].generates_code, not known[name].torch_alone)))


class _Finished:
    """Passes on finished records (implements `recapture.run.runner.CellProgress`)."""

    def __init__(self, finished: Callable[[Record, float], object]) -> None:
        self._finished = finished

    def start(self, likely: Mapping[str, float], jobs: int, *, guessed: bool) -> None:
        """Ignore the number of cells: the caller knows its compilers."""

    def cell_started(self, cell: str) -> None:
        """Ignore the start of a cell."""

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Pass on a finished record."""
        self._finished(record, seconds)
