"""Plan cells, run them through the worker server, and record every one of them exactly once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec

from recapture import doctor
from recapture.cell import CellSpec, Findings
from recapture.claims import Claim
from recapture.client import Client, ServerDiedError
from recapture.collection import DYNAMO, CaseInfo, Selection, SuiteFile, SuiteInfo
from recapture.compilers import builtin_compilers
from recapture.environment import Environment, SuiteEntry, read_environment, write_environment
from recapture.errors import EnvironmentUnfitError, UsageError, did_you_mean
from recapture.protocol import Begun, Ended
from recapture.records import (
    CONFORMANCE,
    ENVIRONMENT,
    PARTIAL,
    TIMINGS,
    ClaimResult,
    Record,
    Timing,
    append_record,
    read_jsonl,
    sort_key,
    write_atomically,
    write_jsonl,
)
from recapture.report.markdown import render_conformance
from recapture.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

__all__ = ["Options", "Progress", "Summary", "Workbench", "run"]

OUTPUT = "output.jsonl"
REPORT = "conformance.md"
PARTIAL_TIMINGS = "timings.partial.jsonl"
COLLECT_SECONDS = 120.0
SURVEY_SECONDS = 180.0
GIB = 1 << 30
COLLECT_MEMORY = 8 * GIB

TORCH_ALONE = frozenset({"eager", "jit.trace", "jit.script", "fx", "fx:concrete_args"})
"""Compilers that need nothing beyond ``import torch``: importing Dynamo takes longer than all their cells."""


@dataclass(frozen=True)
class Options:
    """What `recapture run` was asked to do; `timeout` in seconds, `memory` in bytes per cell."""

    selection: Selection
    keyword: Callable[[str], bool] | None
    compilers: tuple[str, ...]
    device: str
    jobs: int
    timeout: float
    memory: int
    results: Path
    resume: bool
    worker: Literal["auto", "fork", "fresh"] = "auto"
    words: tuple[str, ...] = ()
    """The selection as it was typed, for the record."""


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
    """How a run ended: where its results are, and which suites could not be collected."""

    directory: Path
    records: list[Record]
    environment: Environment
    failed_suites: list[SuiteInfo]
    seconds_in_children: float
    rss_server: int


@dataclass(frozen=True)
class _Cell:
    spec: CellSpec
    info: CaseInfo

    @property
    def key(self) -> tuple[str, str, str]:
        return (f"{self.spec.suite}::{self.spec.case}", self.spec.compiler, self.spec.device)

    @property
    def address(self) -> str:
        return f"{self.spec.suite}::{self.spec.case}::{self.spec.compiler}"


class _Survey(msgspec.Struct):
    checks: list[doctor.Check]
    environment: Environment


class Workbench:
    """A worker server made fit for the device, and what it told about suites and the machine."""

    def __init__(self, *, device: str, jobs: int, worker: Literal["auto", "fork", "fresh"] = "auto") -> None:
        self.device = device
        self.jobs = jobs
        self.worker = worker
        self.why = ""
        self.home = tempfile.TemporaryDirectory(prefix="recapture-", ignore_cleanup_errors=True)
        self.level = "bare"
        self.modules: list[str] = []
        self.client = self._client(fork=worker != "fresh")

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.stop()
        self.home.cleanup()

    def _client(self, *, fork: bool) -> Client:
        client = Client(home=Path(self.home.name), jobs=self.jobs, fork=fork)
        try:
            client.start()
        except ServerDiedError:
            raise EnvironmentUnfitError(f"the worker server cannot start: {client.last_words()}") from None
        return client

    def restart(self) -> None:
        """Start a server like the one that died, or that hangs."""
        self.client.stop(patience=1.0)
        self.client = self._client(fork=self.client.fork)
        self.client.preload(self.level, self.modules)

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
                info = SuiteInfo(suite.name, str(suite.path), error=f"died on import: {_cause(info)}")
            found.append(info)
        return found

    def survey(self) -> tuple[list[doctor.Check], Environment]:
        """Examine the machine, in a child: for CUDA that initialises the device."""
        told = self.client.run("survey", self.device, _Survey, timeout=SURVEY_SECONDS)
        if isinstance(told, Ended):
            last = (told.stderr.strip().splitlines() or [_cause(told)])[-1]
            raise EnvironmentUnfitError(f"this environment cannot be examined: {last}")
        return told.checks, told.environment

    def make_fit(self, modules: list[str], compilers: set[str]) -> None:
        """Preload what suites and compilers import, then make sure that children can still use the device."""
        self.level, self.modules = _level(self.device, modules, compilers), modules
        self.client.preload(self.level, modules)
        if self.device == "cpu":
            return
        while not isinstance(told := self.client.run("canary", self.device, float, timeout=SURVEY_SECONDS), float):
            level, fork = self.level, self.client.fork
            self.level = LESS.get(level, "bare")
            self.client.stop()
            if fork and level != "bare":
                self.client = self._client(fork=True)
                self.modules = [] if self.level == "bare" else modules
                self.client.preload(self.level, self.modules)
            elif fork and self.worker == "auto":
                self.why = "a forked child could not use CUDA"
                self.client = self._client(fork=False)
            else:
                last = (told.stderr.strip().splitlines() or [_cause(told)])[-1]
                raise EnvironmentUnfitError(f"CUDA cannot be used in a {'forked' if fork else 'fresh'} process: {last}")


LESS = {"cuda": "light", "light": "bare"}
"""What to preload when children cannot use CUDA after a level."""


def _level(device: str, modules: list[str], compilers: set[str]) -> str:
    """How much the server should import for these compilers, and for suites whose cases or compilers compile."""
    ours = {name: how for name, how in builtin_compilers().items() if name in compilers}
    if ours.keys() <= TORCH_ALONE and DYNAMO not in modules:
        return "bare"
    compiles = DYNAMO in modules or any(how.generates_code for how in ours.values())
    if device != "cpu":
        return "cuda" if compiles else "light"
    return "codegen" if compiles else "capture"


def run(options: Options, progress: Progress, warn: Callable[[str], None]) -> Summary:
    """Run the selected cells and leave complete, sorted results; Ctrl-C keeps what is done for ``--resume``.

    `warn` is told, a line each, what a user should know before the verdicts come.
    """
    with Workbench(device=options.device, jobs=options.jobs, worker=options.worker) as bench:
        suites = bench.collect(options.selection.suites)
        failed = [suite for suite in suites if suite.error is not None]
        usable = [suite for suite in suites if suite.error is None]
        cells = _plan(options, usable, failed)
        if not usable:
            raise UsageError(f"suite {failed[0].name!r} cannot be collected: {failed[0].error}")
        checks, environment = bench.survey()
        if options.device == "cuda" and environment.capability == "cpu":
            raise EnvironmentUnfitError("no CUDA device is visible to torch here; run with --device cpu")
        modules = sorted({module for suite in usable for module in suite.imports})
        bench.make_fit(modules, {cell.spec.compiler for cell in cells})
        directory = options.results / environment.image / environment.capability
        with _Ledger(directory, options, cells) as ledger:
            for text in _warnings(environment, checks, failed):
                warn(text)
            _Execution(bench, ledger, options, checks, progress).run(ledger.missing())
            whole = not options.selection.wanted and options.keyword is None and not options.compilers
            worker = "fork" if bench.client.fork else "fresh"
            environment = msgspec.structs.replace(
                environment,
                worker=worker + (f" ({bench.why})" if bench.why else ""),
                suites=[SuiteEntry(one.name, len(one.cases), one.error) for one in suites],
                selection=[] if whole else [" ".join(options.words)],
                doctor=[check for check in checks if check.status in ("fault", "warning")],
            )
            records, environment = ledger.close(environment, whole=whole)
            return Summary(directory, records, environment, failed, ledger.seconds, bench.client.rss)


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


def _plan(options: Options, suites: list[SuiteInfo], failed: list[SuiteInfo]) -> list[_Cell]:
    builtin = builtin_compilers()
    theirs = {name: suite for suite in suites for name in suite.compilers}
    clash = sorted(builtin.keys() & theirs)
    if clash:
        raise UsageError(
            f"{Path(theirs[clash[0]].path).name}: compiler {clash[0]!r} exists already; choose another name"
        )
    known = [*builtin, *theirs]
    for name in [*options.compilers, *(how for _, _, how in options.selection.wanted if how)]:
        if name not in known:
            raise UsageError(f"unknown compiler {name!r}{did_you_mean(name, known)}")
    addresses = {f"{suite.name}::{case.name}" for suite in suites for case in suite.cases}
    broken = {suite.name for suite in failed}
    for place, wanted, _ in options.selection.wanted:
        address = f"{place}::{wanted}"
        if wanted is not None and place not in broken and address not in addresses:
            raise UsageError(f"unknown case {address!r}{did_you_mean(address, addresses)}")
    cells = []
    for suite in suites:
        for case in suite.cases:
            claimed = [name for name in case.claims if name not in known]
            if claimed:
                near = did_you_mean(claimed[0], known)
                raise UsageError(f"case '{suite.name}::{case.name}': claim of unknown compiler {claimed[0]!r}{near}")
            for name in known:
                how = name if name in options.compilers else None
                asked = options.selection.admits(suite.name, case.name, name)
                named = any(one[2] == name for one in options.selection.wanted)
                default = name in theirs or not builtin[name].optional or named
                if not asked or (options.compilers and how is None) or (how is None and not default):
                    continue
                if options.keyword and not options.keyword(f"{suite.name}::{case.name}"):
                    continue
                owner = theirs.get(name)
                spec = CellSpec(
                    suite=suite.name,
                    path=suite.path,
                    case=case.name,
                    compiler=name,
                    device=options.device,
                    compiler_suite=owner.name if owner else None,
                    compiler_file=owner.path if owner else None,
                )
                cells.append(_Cell(spec, case))
    if not cells and suites:
        raise UsageError("nothing to run: no case matches the selection")
    return cells


Row = TypeVar("Row", Record, Timing)


class _Ledger:
    """The files of one results directory: every planned cell ends here exactly once, whatever happens in between."""

    def __init__(self, directory: Path, options: Options, cells: list[_Cell]) -> None:
        self.directory = directory
        self.options = options
        self.cells = {cell.key: cell for cell in cells}
        self.done: dict[tuple[str, str, str], Record] = {}
        self.timings: dict[tuple[str, str, str], Timing] = {}
        self.output: dict[str, dict[str, str]] = {}
        self.seconds = 0.0

    def __enter__(self) -> _Ledger:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = (self.directory / ".lock").open("w")
        except OSError as error:
            raise UsageError(f"cannot write results to {self.directory}: {error.strerror}") from None
        with contextlib.ExitStack() as stack:  # what was opened is closed again when a later step refuses
            stack.enter_context(self._lock)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"another run is writing to {self.directory}") from None
            self._read_before()
            self._partial = self._append_to(PARTIAL, stack)
            self._partial_timings = self._append_to(PARTIAL_TIMINGS, stack)
            self._files = stack.pop_all()
        return self

    def _read_before(self) -> None:
        self.before = self._read(CONFORMANCE, PARTIAL, Record)
        self.timings_before = self._read(TIMINGS, PARTIAL_TIMINGS, Timing)
        if self.options.resume:
            for key, cell in self.cells.items():
                row = self.before.get(key)
                if row is not None and row.case_hash == cell.info.hash:
                    self.done[key] = row
                    if key in self.timings_before:
                        self.timings[key] = self.timings_before[key]

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _read(self, whole: str, partial: str, kind: type[Row]) -> dict[tuple[str, str, str], Row]:
        rows: list[Row] = []
        for name in (whole, partial):
            path = self.directory / name
            if path.exists():
                rows += read_jsonl(path, kind, tolerate_torn_tail=name == partial)
        return {(row.case, row.compiler, row.device): row for row in rows}  # the later row counts

    def _append_to(self, name: str, stack: contextlib.ExitStack) -> int:
        """Open a file to append to, without the line that a killed run left half written."""
        path = self.directory / name
        try:
            if path.exists():
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise UsageError(f"cannot write results to {path}: {error.strerror}") from None
        stack.callback(os.close, handle)
        return handle

    def missing(self) -> list[_Cell]:
        """The planned cells that still have to run, long ones first: the last minute should not be one long cell."""
        todo = [cell for key, cell in self.cells.items() if key not in self.done]
        builtin = builtin_compilers()

        def cost(cell: _Cell) -> float:
            before = self.timings_before.get(cell.key)
            if before is not None:
                return before.seconds
            how = builtin.get(cell.spec.compiler)
            return 10.0 if how is not None and how.generates_code else 0.1

        return sorted(todo, key=cost, reverse=True)

    def estimate(self, cells: list[_Cell], jobs: int) -> float | None:
        """Seconds the cells took last time, divided by jobs; None when most were never run."""
        known = [self.timings_before[cell.key].seconds for cell in cells if cell.key in self.timings_before]
        return sum(known) / jobs if cells and len(known) > len(cells) / 2 else None

    def record(self, row: Record, timing: Timing, stdout: str, stderr: str) -> None:
        """Keep one finished cell, on disk at once."""
        key = (row.case, row.compiler, row.device)
        append_record(self._partial, row)
        append_record(self._partial_timings, timing)
        self.done[key] = row
        self.timings[key] = timing
        self.seconds += timing.seconds
        if stdout or stderr:
            self.output[row.cell] = {"cell": row.cell, "stdout": stdout, "stderr": stderr}

    def close(self, environment: Environment, *, whole: bool) -> tuple[list[Record], Environment]:
        """Write the finished files; a selective run keeps the directory's other rows, a whole one replaces them."""
        absent = self.cells.keys() - self.done.keys()
        if absent:
            raise AssertionError(f"{len(absent)} planned cells have no record, the first {min(absent)}")
        kept = {} if whole else self.before
        records = sorted((kept | {key: self.done[key] for key in self.cells}).values(), key=sort_key)
        timings = list((self.timings if whole else self.timings_before | self.timings).values())
        planned = len(kept.keys() | self.cells.keys())
        environment = msgspec.structs.replace(environment, planned=planned, recorded=len(records))
        if not whole:
            environment = self._joined(environment)
        write_jsonl(self.directory / CONFORMANCE, records)
        write_jsonl(self.directory / TIMINGS, timings)
        lines = [msgspec.json.encode(self.output[cell]) + b"\n" for cell in sorted(self.output)]
        write_atomically(self.directory / OUTPUT, b"".join(lines))
        write_environment(self.directory / ENVIRONMENT, environment)
        write_atomically(self.directory / REPORT, render_conformance(records, environment).encode())
        for name in (PARTIAL, PARTIAL_TIMINGS):
            (self.directory / name).unlink(missing_ok=True)
        return records, environment

    def _joined(self, environment: Environment) -> Environment:
        """Add to what the directory's other rows were selected by; none means that everything was run."""
        path = self.directory / ENVIRONMENT
        if not path.exists():
            return environment
        before = read_environment(path)
        suites = {one.name: one for one in [*before.suites, *environment.suites]}
        selection = [*before.selection, *environment.selection] if before.selection else []
        return msgspec.structs.replace(
            environment, suites=[suites[name] for name in sorted(suites)], selection=list(dict.fromkeys(selection))
        )


@dataclass
class _Execution:
    """Drives the server through a list of cells."""

    bench: Workbench
    ledger: _Ledger
    options: Options
    checks: list[doctor.Check]
    progress: Progress
    running: dict[int, _Cell] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    deaths: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def run(self, cells: list[_Cell]) -> None:
        self.progress.start(len(cells), self.ledger.estimate(cells, self.options.jobs))
        queue = deque(cells)
        suspects: deque[_Cell] = deque()
        while queue or suspects or self.running:
            try:
                self._step(queue, suspects)
            except ServerDiedError:
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
                self.bench.restart()

    def _step(self, queue: deque[_Cell], suspects: deque[_Cell]) -> None:
        if queue:
            while queue and len(self.running) < 2 * self.options.jobs:  # the server never waits for the next cell
                self._submit(queue.popleft())
        elif suspects and not self.running:
            self._submit(suspects.popleft())
        for message in self.bench.client.messages():
            if isinstance(message, Begun):
                self.begun.add(message.id)
                self.progress.cell_started(self.running[message.id].address)
                continue
            cell = self.running.pop(message.id)
            self.begun.discard(message.id)
            self._record(cell, self._findings(message), message)
            return

    def _submit(self, cell: _Cell) -> None:
        client = self.bench.client
        number = client.submit("cell", cell.spec, timeout=self.options.timeout, memory=self.options.memory)
        self.running[number] = cell

    def _findings(self, ended: Ended) -> Findings:
        phase: Any = ended.phase
        if ended.cause == "timeout":
            return Findings(
                verdict=Verdict.TIMEOUT, phase=phase, reason=f"still running after {self.options.timeout:g} s"
            )
        if ended.cause == "memory":
            return Findings(
                verdict=Verdict.OOM, phase=phase, reason=f"used more than {self.options.memory / GIB:g} GiB"
            )
        if ended.result is not None and ended.status == 0:
            return self._environmental(msgspec.json.decode(ended.result, type=Findings), ended)
        return self._environmental(Findings(verdict=Verdict.CRASH, phase=phase, reason=_cause(ended)), ended)

    def _environmental(self, findings: Findings, ended: Ended) -> Findings:
        """A failure that a failing check of the doctor explains is the machine's, not the compiler's."""
        if findings.verdict not in (Verdict.ERROR, Verdict.CRASH):
            return findings
        kind = findings.error.type if findings.error else ""
        text = f"{findings.error.message if findings.error else ''}\n{ended.stderr}"
        check = doctor.explain(kind, text, self.checks)
        if check is None:
            return findings
        reason = f"{check.name}: {check.found}"
        return msgspec.structs.replace(findings, verdict=Verdict.ENVIRONMENT, reason=reason)

    def _record(self, cell: _Cell, findings: Findings, ended: Ended | None) -> None:
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
        worker: Literal["fork", "fresh"] = "fork" if self.bench.client.fork else "fresh"
        peak = ended.peak_rss if ended else None
        timing = Timing(case=case, compiler=compiler, device=device, seconds=seconds, peak_rss=peak, worker=worker)
        self.ledger.record(row, timing, ended.stdout if ended else "", ended.stderr if ended else "")
        self.progress.cell_finished(row, seconds)


def _cause(ended: Ended) -> str:
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
