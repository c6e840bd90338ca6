"""Runs a whole benchmark: the workloads, the machine, the rows, and the results file.

Each row is a configuration of a workload. If the compiler generates code, a first process compiles with empty caches
(cold) and checks the values. Then several processes, one at a time and alone on the device, compile from the warm
caches, check again, and measure. With several GPUs, the first is used for timing and the others for compiling. With
``--costs``, each row has a first process and no other.

Each process is a phase. What it found is kept as soon as it has ended, with the caches that it filled: see
`recapture.tools.speed.phases`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.paths import data_folder
from recapture.base.text import plural
from recapture.cases.compilers import EAGER, builtin_compilers
from recapture.cases.workload_sources import WorkloadInfo
from recapture.machine import doctor
from recapture.machine.environment import Environment, without_private_paths
from recapture.machine.hardware import visible_gpus
from recapture.pool.driver import Driver, Request
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import WorkerPool
from recapture.records.verdicts import FAILING, RIGHT, Verdict
from recapture.run.outcomes import OutcomeReader
from recapture.run.preparation import begin_survey, survey
from recapture.tools.speed import tasks
from recapture.tools.speed.conditions import GpuSampler
from recapture.tools.speed.earlier_benchmarks import hanging_last
from recapture.tools.speed.estimate import Estimate, phases_left
from recapture.tools.speed.job import Job, Outcome
from recapture.tools.speed.operators import OperatorTimes, Profile, write_profile
from recapture.tools.speed.phases import CACHES, PhaseFile, caches_folder, identity_of
from recapture.tools.speed.probes import ITERATIONS
from recapture.tools.speed.results_file import SpeedupsFile, set_aside_others, writing
from recapture.tools.speed.rows import PlannedProcess, PlannedRow, make_row
from recapture.tools.speed.selection import BenchOptions, check_names, choose, collect, modules_of, plan_rows, select
from recapture.tools.speed.speedups import Configuration, Row, Speedups
from recapture.tools.speed.spent import total, with_other
from recapture.tools.speed.subject import INPUT_SETS
from recapture.tools.speed.tasks import MEASURE

IMPORTS = (tasks.__name__, "recapture.run.tasks")
"""Modules that every server of a benchmark imports when it starts."""

T = TypeVar("T")


@dataclass(frozen=True)
class BenchSummary:
    """The outcome of a benchmark: the results file, all its rows, and the workloads and profiles of this run."""

    path: Path
    speedups: Speedups
    workloads: set[str]
    profiles: list[Profile]
    spent: dict[str, float]
    """Seconds of the measured rows by what they were spent on (`recapture.tools.speed.spent`)."""


def run_benchmark(options: BenchOptions, progress: RowProgress, warn: Callable[[str], None]) -> BenchSummary:
    """Measure the selected rows; each finished process is kept, so that an interruption loses at most the running ones.

    `warn` receives one line for each warning that a user should see before the figures.
    """
    check_names(options)
    with WorkerPool(
        device=options.device,
        # One more than may compile at a time: with several GPUs, a row is timed beside them.
        jobs=options.compile_jobs + 1,
        worker=options.worker,
        whole_graphs=True,
        imports=IMPORTS,
    ) as pool:
        modules = modules_of(options)
        # In the server, before the first child: each child would otherwise import them again.
        pool.client.preload("bare", modules)
        # The doctor's checks take seconds, and run while the workloads are collected.
        begin_survey(pool)
        infos = collect(pool, options)
        rows = [
            PlannedRow(
                info, configuration, "", compiles=options.costs or compiles_first(configuration, gpus=options.gpus)
            )
            for info, configuration in plan_rows(select(infos, options), options)
        ]
        check_iterator, environment = survey(pool)
        checks = list(check_iterator)
        check_gpus(options)
        # On the CPU, too, only import: a server that has compiled before would make cold compiles look faster.
        pool.prepare("cuda", modules)
        path = options.results / environment.image / environment.capability / f"speedups-{_slug(environment)}.json"
        for text in _warnings(checks, rows, infos):
            warn(text)
        notable = [check for check in checks if check.status in ("fault", "warning")]
        environment = without_private_paths(msgspec.structs.replace(environment, doctor=notable))
        # Under the lock, because `recapture report` may be writing the same file.
        with writing(path):
            moved = set_aside_others(path, environment)
        if moved is not None:
            folder, difference = moved
            warn(
                f"warning: {path.name} is of another machine or installation ({difference}); it was moved to "
                f"{folder.name}"
            )
        method = _method(options, "fork" if pool.client.fork else "fresh")
        rows = hanging_last(rows, options.device, (options.results, data_folder("results")))
        file = SpeedupsFile(path, environment, method, rows, resume=options.resume, keep_timed=options.costs)
        _place_caches(rows, environment, options, path, pool, warn)
        with GpuSampler(enabled=options.device == "cuda") as sampler:
            execution = RowExecution(pool, options, checks, sampler, file, progress)
            execution.run()
        measured = total(row.row.spent for row in execution.measured if row.row is not None)
        names = {row.info.spec.name for row in rows}
        return BenchSummary(path, file.speedups(), names, execution.profiles, measured)


def _place_caches(
    rows: list[PlannedRow],
    environment: Environment,
    options: BenchOptions,
    results: Path,
    pool: WorkerPool,
    warn: Callable[[str], None],
) -> None:
    """Give each row its identity and its folder of compile caches, which outlives an interruption."""
    settings = (options.device, options.seconds, options.threads, options.cpu_settings, pool.client.fork)
    try:
        root = caches_folder()
    except EnvironmentUnfitError as error:
        warn(f"warning: compiled code is not kept for --resume: {error}")
        root = Path(pool.home.name) / CACHES
    for row in rows:
        row.identity = identity_of(row, environment, settings)
        # Also by the results: another benchmark of the same row may run at the same time.
        where = hashlib.sha256(f"{row.identity} {results.resolve()}".encode()).hexdigest()[:16]
        row.cache = str(root / where)


def _warnings(checks: list[doctor.Check], rows: list[PlannedRow], infos: list[WorkloadInfo]) -> Iterator[str]:
    autotuned = any(row.configuration.autotunes for row in rows)
    for check in checks:
        if check.status == "fault" or (check.status == "warning" and check.name == "ptxas" and autotuned):
            yield f"warning: {check.name}: {check.found}; fix: {check.mend}"
    for info in infos:
        if info.error is not None:
            yield f"warning: {Path(str(info.spec.path)).name} is left out: {info.error}"


def _method(options: BenchOptions, worker: str) -> dict[str, str | int | float]:
    """Return a description of how a run measures, for its results file."""
    return {
        "processes": options.processes,
        **({"seconds of timing a process": options.seconds} if options.processes else {}),
        "sets of inputs in rotation": INPUT_SETS,
        "caches": "not flushed between iterations",
        "worker": worker,
        "compiling at a time": options.compile_jobs,
        "CPU threads": options.threads,
        **({"cores and allocator": options.cpu_settings} if options.device == "cpu" else {}),
        "clock": "CUDA events" if options.device == "cuda" else "monotonic",
    }


def _slug(environment: Environment) -> str:
    # On a CPU the file has the same name on every machine; `set_aside_others` tells two models apart.
    name = environment.gpu.name if environment.gpu is not None and environment.gpu.name else environment.capability
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def check_gpus(options: BenchOptions) -> None:
    """Raise UsageError if more GPUs are requested than are available."""
    # Counted without CUDA, which would take memory of the GPU that is timed.
    visible = visible_gpus() if options.gpus > 1 else None
    if visible is not None and visible < options.gpus:
        raise UsageError(f"--gpus {options.gpus}, but {plural(visible, 'GPU')} can be used here")


def list_workloads(options: BenchOptions) -> list[WorkloadInfo]:
    """Return the workloads that the command line names; if none, all, including broken files."""
    check_names(options)
    with WorkerPool(device=options.device, jobs=1, worker=options.worker, imports=IMPORTS) as pool:
        pool.client.preload("bare", modules_of(options))
        infos = collect(pool, options)
    chosen = choose(infos, options)
    return chosen if options.names or options.models else infos


def explainable(outcome: Outcome) -> bool:
    """Whether a fault of the machine can be what ended a row, whose verdict then becomes ``environment``."""
    return outcome.verdict in FAILING and outcome.verdict.facts.may_be_machine


class RowProgress(Protocol):
    """Receives the progress of a benchmark."""

    def start(self, rows: int) -> None:
        """Receive the number of rows to measure."""

    def doing(self, what: dict[int, str]) -> None:
        """Receive the running processes, one line for each."""

    def begun(self, text: str) -> None:
        """Receive the description of a process that has started."""

    def phase(self, text: str, seconds: float, left: str) -> None:
        """Receive what a process that has ended did, its seconds, and how long the rest is likely to take."""

    def finished(self, row: Row) -> None:
        """Receive a finished row."""


class RowExecution:
    """Runs the processes of rows (implements `recapture.pool.driver.Work`)."""

    def __init__(
        self,
        pool: WorkerPool,
        options: BenchOptions,
        checks: list[doctor.Check],
        sampler: GpuSampler,
        file: SpeedupsFile,
        progress: RowProgress,
    ) -> None:
        self.options = options
        self.sampler = sampler
        self.file = file
        self.progress = progress
        self.profiles: list[Profile] = []
        self.estimate = Estimate()
        self.measured = [row for row in file.rows if row.row is None]
        """The rows that this run measures."""
        self.schedule = Schedule(self.measured, compile_jobs=options.compile_jobs, gpus=options.gpus)
        self.driver = Driver(pool, self, timeout=options.process_limit, memory=options.memory)
        self.outcomes = OutcomeReader(
            Outcome, timeout=options.process_limit, memory=options.memory, checks=checks, explainable=explainable
        )

    def run(self) -> None:
        """Run all rows that are not on file yet."""
        self.file.write()  # detects a results directory that cannot be written before measuring
        self.progress.start(len(self.measured))
        self.phases = PhaseFile(self.file.path, self.file.rows)
        try:
            self._restore()
            self.driver.run()
        finally:
            self.phases.close()

    def _restore(self) -> None:
        """Go on with the phases that have ended if the benchmark is resumed; otherwise forget them."""
        if not self.options.resume:
            self.phases.clear()
            for row in self.measured:
                shutil.rmtree(row.cache, ignore_errors=True)
            return
        for phase in self.phases.restore():
            self.estimate.add(phase.row, timing=phase.timing, seconds=phase.seconds)
        for row in self.measured:
            del row.processes[self.options.processes :]
            if row.cold is not None or row.processes:
                done = plural((row.cold is not None) + len(row.processes), "process")
                self.progress.begun(f"{row}: {done} of before the interruption count")
            if self._complete(row):
                self._finish(row, [outcome for outcome in (row.cold, *row.processes) if outcome is not None][-1])

    def next(self, running: Collection[PlannedProcess]) -> PlannedProcess | None:
        """Return the process that starts next beside the running ones."""
        return self.schedule.next(running)

    def request(self, task: PlannedProcess) -> Request:
        """Return the request to run a process of a row."""
        row, timing, gpu = task
        options = self.options
        self.progress.begun(self._name(task))
        number = len(row.processes)
        folder = None
        # One profile for a row: another process would show the same, and cost as much.
        if options.profile and timing and number == 0:
            folder = self._profile_folder(row)
            folder.mkdir(parents=True, exist_ok=True)
        cores = len(os.sched_getaffinity(0))
        beside = 1 if timing else self.schedule.compiling_beside(row)
        job = Job(
            model=row.info.spec,
            configuration=row.configuration,
            device=options.device,
            timing=timing,
            seconds=options.seconds,
            # Each process has another order of its rounds, which is the same whenever the benchmark is repeated.
            seed=number,
            cache=row.cache,
            # Twice the number of available cores, because compiling processes do not use all cores all the time.
            compile_threads=max(1, min(cores, 2 * cores // beside)),
            cpu_threads=options.threads,
            gpu=gpu,
            # A process that only compiles uses all cores, as a user's does.
            steady=timing and options.device == "cpu" and options.cpu_settings == "set",
            profile=None if folder is None else str(folder.resolve()),
            cold=timing and row.cold is None and number == 0,
        )
        return Request(MEASURE, job, timed=True)

    def begun(self, task: PlannedProcess) -> None:  # noqa: ARG002 - shows all running tasks
        """Report the running processes."""
        self._show()

    def ended(self, task: PlannedProcess, ended: Ended) -> None:
        """Handle the end of a process: the row needs another one, or is finished."""
        self._show()
        row = task.row
        outcome = self.outcomes.read(ended)
        # The stacks written shortly before the deadline say where it hung.
        if outcome.verdict is Verdict.TIMEOUT:
            outcome = msgspec.structs.replace(outcome, reason=f"{outcome.reason}{last_seen(ended.stderr)}")
        outcome = msgspec.structs.replace(outcome, spent=with_other(outcome.spent, ended.seconds))
        if outcome.window is not None:
            conditions = self.sampler.conditions(outcome.gpu_uuid, outcome.window, outcome.cpu)
            outcome = msgspec.structs.replace(outcome, cpu=conditions)
        name = self._name(task)
        if task.timing:
            row.processes.append(outcome)
        else:
            row.cold = outcome
        right = outcome.verdict in RIGHT
        if right:
            self.phases.add(row, outcome, timing=task.timing, seconds=ended.seconds)
        self.estimate.add(row, timing=task.timing, seconds=ended.seconds)
        # A failure ends the row at once: its figures need every process to be right.
        if not right or self._complete(row):
            self._finish(row, outcome, lambda: self._ended(name, outcome, ended.seconds))
        else:
            self.schedule.again(row)
            self._ended(name, outcome, ended.seconds)

    def _complete(self, row: PlannedRow) -> bool:
        """Whether all processes of a row have ended, if each was right."""
        if self.options.processes == 0:
            return row.cold is not None
        return len(row.processes) == self.options.processes

    def _ended(self, name: str, outcome: Outcome, seconds: float) -> None:
        left = self.estimate.text(phases_left(self.file.rows, self.options.processes))
        self.progress.phase(f"{name}: {outcome.verdict}", seconds, left)

    def given_up(self, task: PlannedProcess, reason: str) -> None:
        """Write a row whose process will not run again."""
        self._finish(task.row, self.outcomes.crash(reason))

    def _show(self) -> None:
        self.progress.doing({number: self._name(task) for number, task in self.driver.running.items()})

    def _name(self, task: PlannedProcess) -> str:
        """Return what a process does, and which of its row's timed processes it is."""
        row, timing, _ = task
        if not timing:
            return f"compiling {row} with empty caches, checking its values"
        return f"timing {row} ({len(row.processes) + 1}/{self.options.processes})"

    def _finish(self, planned: PlannedRow, outcome: Outcome, show: Callable[[], None] = lambda: None) -> None:
        """Write a finished row; `show` reports its last process."""
        jobs = self.schedule.compiling_beside(planned)
        planned.row = make_row(planned, outcome, compile_jobs=jobs)
        # No other row uses these caches, and together they would fill a disk.
        shutil.rmtree(planned.cache, ignore_errors=True)
        self.file.write()
        if planned.processes and planned.processes[0].operators is not None:
            times = OperatorTimes(*planned.processes[0].operators, ITERATIONS)
            profile = Profile(str(planned), self._profile_folder(planned), times)
            write_profile(profile)
            self.profiles.append(profile)
        show()
        self.progress.finished(planned.row)

    def _profile_folder(self, row: PlannedRow) -> Path:
        """Return the folder of a row's operator tables and traces."""
        return self.file.path.parent / "profiles" / re.sub(r"[^\w.-]+", "-", str(row))


def last_seen(stderr: str) -> str:
    """Return where a process was at its deadline, from the stacks written to stderr shortly before it.

    The main thread's stack is the last. Empty if stderr has no stack.
    """
    stack = stderr.rpartition("(most recent call first):")[2]
    frame = re.match(r'\s+File "([^"]+)", line (\d+) in (\S+)', stack)
    return f", in {frame[3]} ({Path(frame[1]).name}:{frame[2]})" if frame else ""


class Compilations(Generic[T]):
    """Rows that wait to compile, `most` at a time; rows that must compile `alone` come last, one at a time.

    Autotuning times kernels. Other work at the same time could change the choice, and several rows that tune at the
    same time may never finish.
    """

    def __init__(self, rows: Iterable[T], *, most: int, alone: Callable[[T], bool]) -> None:
        self._most = most
        self._alone = alone
        self._waiting = deque(sorted(rows, key=alone))  # the sort is stable

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self, running: Sequence[T]) -> T | None:
        """Take a row that may start beside those that are compiling; None if there is none at the moment."""
        if not self._waiting:
            return None
        most = 1 if any(map(self._alone, [self._waiting[0], *running])) else self._most
        return self._waiting.popleft() if len(running) < most else None


def compiles_first(configuration: Configuration, *, gpus: int) -> bool:
    """Whether a row begins with a process that only compiles and checks, without timing.

    With a separate GPU for compiling, this holds for every compiler, so that a hanging compiler does not block the
    timing GPU.
    """
    if configuration.compiler == EAGER:
        return False
    compiler = builtin_compilers().get(configuration.compiler)
    return gpus > 1 or compiler is None or compiler.generates_code


class Schedule:
    """The processes of rows, in their order of start.

    If a compiler generates code, a first process compiles; then timed processes follow, one at a time. With one GPU, or
    on the CPU, nothing compiles during timing. With several GPUs, the first is used for timing and the others for
    compiling.
    """

    def __init__(self, rows: Iterable[PlannedRow], *, compile_jobs: int, gpus: int) -> None:
        self._compile_jobs = compile_jobs
        self._gpus = gpus
        rows = list(rows)
        if gpus > 1:
            groups = [rows]
        else:
            # A row's figures come before the next rows begin. As many rows as may compile at a time go together.
            together = [row for row in rows if not row.compiles_alone]
            groups = [together[first : first + compile_jobs] for first in range(0, len(together), compile_jobs)]
            groups += [[row] for row in rows if row.compiles_alone]
            if compile_jobs == 1:
                groups = [[row] for row in rows]
        self._groups = deque(groups)
        self._cold = self._compilations([])
        self._timing: deque[PlannedRow] = deque()

    def next(self, running: Collection[PlannedProcess]) -> PlannedProcess | None:
        """Return the process that starts next beside the running ones; None if there is none at the moment."""
        if not (self._cold or self._timing or running) and self._groups:
            group = self._groups.popleft()
            self._cold = self._compilations(row for row in group if row.compiles and row.cold is None)
            self._timing.extend(row for row in group if not row.compiles or row.cold is not None)
        timed = any(process.timing for process in running)
        compiling = [process.row for process in running if not process.timing]
        if self._gpus > 1 or not timed:
            row = self._cold.next(compiling)
            if row is not None:
                return PlannedProcess(row, timing=False, gpu=self._gpu_to_compile_on(running))
        if timed or not self._timing or (self._gpus == 1 and (self._cold or compiling)):
            return None
        return PlannedProcess(self._timing.popleft(), timing=True, gpu=0 if self._gpus > 1 else None)

    def again(self, row: PlannedRow) -> None:
        """Schedule another timed process of a row; rows that have begun come first."""
        if row.processes:
            self._timing.appendleft(row)
        else:
            self._timing.append(row)

    def compiling_beside(self, row: PlannedRow) -> int:
        """Return the number of rows that compile at the same time as this one, including itself."""
        return 1 if row.compiles_alone else self._compile_jobs

    def _compilations(self, rows: Iterable[PlannedRow]) -> Compilations[PlannedRow]:
        return Compilations(rows, most=self._compile_jobs, alone=lambda row: row.compiles_alone)

    def _gpu_to_compile_on(self, running: Collection[PlannedProcess]) -> int | None:
        """Return the GPU, other than the first, on which the fewest rows compile; None with one GPU."""
        if self._gpus == 1:
            return None
        busy = Counter(process.gpu for process in running if not process.timing)
        return min(range(1, self._gpus), key=lambda gpu: busy[gpu])
