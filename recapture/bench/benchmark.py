"""Run the processes of a benchmark's rows, and file every row, whatever becomes of it.

Each row is a configuration of a workload. Where a compiler generates code, a first process compiles it with fresh
caches (cold) and checks its values; then some processes, one at a time and alone on the device, compile from the warm
caches, check again, and time. With several GPUs the first is timed on and the others compile meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.text import plural
from recapture.base.torch_compat import OWN_VARIABLES
from recapture.bench import tasks
from recapture.bench.compilations import Compilations
from recapture.bench.conditions import GpuSampler
from recapture.bench.figures import claim_holds, measure
from recapture.bench.filing import joined, set_aside, writing
from recapture.bench.job import Job, Outcome
from recapture.bench.selection import Options, check_names, choose, collect, plan, select
from recapture.bench.subject import INPUT_SETS
from recapture.bench.tasks import MEASURE
from recapture.conformance.preparation import survey
from recapture.declare.compilers import builtin_compilers
from recapture.declare.workload import SpeedClaim
from recapture.machine import doctor
from recapture.machine.describe import variables
from recapture.machine.environment import without_private_paths
from recapture.machine.hardware import visible_gpus
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Begun, Ended
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.results.speedups import (
    EAGER,
    Claimed,
    Configuration,
    Process,
    Row,
    Speedups,
    read_speedups,
    write_speedups,
)
from recapture.results.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recapture.bench.job import Operator
    from recapture.declare.workload_sources import WorkloadInfo
    from recapture.machine.environment import Environment

__all__ = ["Progress", "Summary", "check_gpus", "list_workloads", "run"]

GIB = 1 << 30

IMPORTS = (tasks.__name__, "recapture.conformance.tasks")
"""What every server of a benchmark imports when it starts."""

# What the compilers and the allocator read, but for what the run sets itself.
COMPILER_VARIABLES = (
    rf"(?!(?:{'|'.join(sorted(OWN_VARIABLES))})$)"
    r"(?:TORCHINDUCTOR_|TORCHDYNAMO_|TORCH_COMPILE_|AOT_|TRITON_|PYTORCH_JIT|PYTORCH_\w*ALLOC_CONF)"
)


class Progress(Protocol):
    """What the runner tells of its progress."""

    def start(self, rows: int) -> None:
        """Be told how many rows there will be."""

    def doing(self, what: dict[int, str]) -> None:
        """Be told what runs now."""

    def finished(self, row: Row) -> None:
        """Be told of a finished row."""


class Publisher(Protocol):
    """What renders the results of a benchmark for people."""

    def speedups(self, path: Path, speedups: Speedups) -> None:
        """Render the rows that were just written to `path`."""

    def operators(self, folder: Path, title: str, operators: tuple[Sequence[Operator], Sequence[Operator]]) -> None:
        """Render the operators of eager and of a row."""


@dataclass(frozen=True)
class Summary:
    """Where the results are, all of them, and which workloads were measured now."""

    path: Path
    speedups: Speedups
    workloads: set[str]


@dataclass
class _Task:
    """A row in the making."""

    info: WorkloadInfo
    configuration: Configuration
    cache: str
    cold: Outcome | None = None
    processes: list[Outcome] = field(default_factory=list)
    row: Row | None = None
    deaths: int = 0
    """How often the server died while a process of the row was under way."""

    @property
    def key(self) -> tuple[str, Configuration]:
        return (self.info.spec.name, self.configuration)

    def __str__(self) -> str:
        return f"{self.info.spec.name} {self.configuration}"

    @property
    def hash(self) -> str | None:
        """Of the workload and, where its file declares the compiler, of that."""
        own = self.info.compilers.get(self.configuration.compiler)
        if own is None or self.info.hash is None:
            return self.info.hash
        return hashlib.sha256(f"{self.info.hash} {own}".encode()).hexdigest()[:12]

    def compiles_alone(self) -> bool:
        """Whether nothing else may compile meanwhile."""
        return self.configuration.autotunes


def run(options: Options, progress: Progress, publisher: Publisher, warn: Callable[[str], None]) -> Summary:
    """Measure what was asked for; every finished row is on disk at once, so that Ctrl-C loses what is under way.

    `publisher` renders the file of rows each time it was written, and the operators of a profiled row.
    """
    check_names(options)
    with WorkerPool(
        device=options.device,
        jobs=options.compile_jobs + 1,
        worker=options.worker,
        whole_graphs=True,
        imports=IMPORTS,
    ) as pool:
        pool.client.preload("bare", ["torchvision"])  # most files of workloads import it
        infos = collect(pool, options)
        failed = [info for info in infos if info.error is not None]
        caches = Path(pool.home.name) / "bench"
        tasks = [
            _Task(info, one, str(caches / str(number)))
            for number, (info, one) in enumerate(plan(select(infos, options), options))
        ]
        checks, environment = survey(pool)
        if options.device == "cuda" and environment.capability == "cpu":
            raise EnvironmentUnfitError("no CUDA device is visible to torch here; run with --device cpu")
        check_gpus(options)
        # On the CPU too: imports alone, for a server that has compiled before would flatter the cold figures.
        pool.prepare("cuda", ["torchvision"])
        directory = options.results / environment.image / environment.capability
        path = directory / f"speedups-{_slug(environment)}.json"
        autotuned = any(task.configuration.autotunes for task in tasks)
        for check in checks:
            if check.status == "fault" or (check.status == "warning" and check.name == "ptxas" and autotuned):
                warn(f"warning: {check.name}: {check.found}; mend: {check.mend}")
        found = [check for check in checks if check.status in ("fault", "warning")]
        environment = without_private_paths(msgspec.structs.replace(environment, doctor=found))
        for info in failed:
            warn(f"warning: {Path(str(info.spec.path)).name} is left out: {info.error}")
        with writing(path):
            moved = set_aside(path, environment)
        if moved is not None:
            warn(f"warning: {path.name} is of another machine or installation ({moved[1]}); it is {moved[0].name} now")
        with GpuSampler(wanted=options.device == "cuda") as sampler:
            execution = _Execution(pool, tasks, options, checks, environment, sampler, path, progress, publisher)
            execution.run()
        return Summary(path, execution.speedups(), {task.info.spec.name for task in tasks})


def check_gpus(options: Options) -> None:
    """Raise UsageError where more GPUs are asked for than can be used."""
    visible = visible_gpus() if options.gpus > 1 else None
    if visible is not None and visible < options.gpus:
        raise UsageError(f"--gpus {options.gpus}, but {plural(visible, 'GPU')} can be used here")


def list_workloads(options: Options) -> list[WorkloadInfo]:
    """Return the workloads that a command line means; where it names none, all, broken files among them."""
    check_names(options)
    with WorkerPool(device=options.device, jobs=1, worker=options.worker, imports=IMPORTS) as pool:
        pool.client.preload("bare", ["torchvision"])
        found = collect(pool, options)
    mine = choose(found, options)
    return mine if options.names or options.models else found


def _slug(environment: Environment) -> str:
    name = environment.gpu.name if environment.gpu is not None and environment.gpu.name else environment.capability
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


class _Execution:
    """Drives the processes of all rows."""

    def __init__(
        self,
        pool: WorkerPool,
        tasks: list[_Task],
        options: Options,
        checks: list[doctor.Check],
        environment: Environment,
        sampler: GpuSampler,
        path: Path,
        progress: Progress,
        publisher: Publisher,
    ) -> None:
        self.pool = pool
        self.publisher = publisher
        self.tasks = tasks
        self.options = options
        self.checks = checks
        self.environment = environment
        self.sampler = sampler
        self.path = path
        self.progress = progress
        self.running: dict[int, tuple[_Task, bool]] = {}
        self.compiling_on: dict[int, int] = {}
        self.suspects: deque[tuple[_Task, bool]] = deque()
        if options.resume:
            kept = self._kept()
            done = {row.key: row for row in kept.rows if not row.again} if kept else {}
            for task in tasks:
                row = done.get(task.key)
                if row is not None and row.hash in (None, task.hash):  # else it was edited since
                    task.row = row

    def _kept(self) -> Speedups | None:
        """What is on file."""
        return read_speedups(self.path) if self.path.is_file() else None

    def speedups(self) -> Speedups:
        """Everything there is so far. What was measured before stays until it has been measured again."""
        kept = self._kept()
        mine = {task.key for task in self.tasks}
        done = {task.key: task.row for task in self.tasks if task.row is not None}
        before = {
            row.key: msgspec.structs.replace(row, again=row.again or row.key in mine)
            for row in (kept.rows if kept else ())
            if row.key not in done
        }
        rows = {**before, **done}
        return Speedups(
            environment=self.environment,
            method=joined(kept.method if kept and (before or self.options.resume) else {}, self._method()),
            planned=len(rows.keys() | mine),
            rows=tuple(rows[key] for key in sorted(rows)),
        )

    def _method(self) -> dict[str, str | int | float]:
        """How this run measures."""
        options = self.options
        return {
            "processes": options.processes,
            "seconds of timing a process": options.seconds,
            "sets of inputs in rotation": INPUT_SETS,
            "caches": "not flushed between iterations",
            "worker": "fork" if self.pool.client.fork else "fresh",
            "compiling at a time": options.compile_jobs,
            "CPU threads": options.threads,
            "clock": "CUDA events" if options.device == "cuda" else "monotonic",
        }

    def _write(self) -> None:
        with writing(self.path):
            found = self.speedups()
            write_speedups(self.path, found)
            self.publisher.speedups(self.path, found)

    def run(self) -> None:
        """Run everything that has no row yet."""
        todo = [task for task in self.tasks if task.row is None]
        self._write()  # a results directory that cannot be written is found out before anything is measured
        self.progress.start(len(todo))
        if self.options.gpus > 1:
            self._pipeline(todo)
            return
        # One row after the other, so that an interruption loses one; several compilations at a time are worth more the
        # more there are. Nothing compiles while something is timed.
        for group in [todo] if self.options.compile_jobs > 1 else [[task] for task in todo]:
            cold = self._compilations(group)
            timing = deque(task for task in group if not self._compiles(task))
            while cold or self.running:
                self._compile(cold)
                timing.extend(self._wait())
            while timing:
                self._submit(timing.popleft(), timing=True)
                timing.extendleft(self._wait())
            self._run_suspects()

    def _pipeline(self, todo: list[_Task]) -> None:
        """With a GPU to compile on beside the one to time on, do both at once."""
        cold = self._compilations(todo)
        timing = deque(task for task in todo if not self._compiles(task))
        while cold or timing or self.running:
            self._compile(cold)
            if timing and not any(timed for _, timed in self.running.values()):
                self._submit(timing.popleft(), timing=True)
            for task in self._wait():
                if task.processes:
                    timing.appendleft(task)  # the rest of a row that was begun comes first
                else:
                    timing.append(task)
        self._run_suspects()

    def _run_suspects(self) -> None:
        """Run again, each by itself, the rows under way when the server died."""
        while self.suspects:
            task, timing = self.suspects.popleft()
            self._submit(task, timing=timing)
            while self._wait():
                self._submit(task, timing=True)

    def _server_died(self) -> None:
        """Start another server. Whoever was under way may have killed it: a row that was so twice has crashed."""
        for task, timing in self.running.values():
            task.deaths += 1
            if task.deaths < 2:
                self.suspects.append((task, timing))
            else:
                self._finish(task, Outcome(verdict=Verdict.CRASH, reason="killed the worker server, twice"))
        self.running.clear()
        self.pool.restart()

    def _compilations(self, tasks: list[_Task]) -> Compilations[_Task]:
        """The rows that begin with a process that compiles."""
        return Compilations(filter(self._compiles, tasks), most=self.options.compile_jobs, alone=_Task.compiles_alone)

    def _compile(self, cold: Compilations[_Task]) -> None:
        """Start all that may compile now."""
        while (task := cold.next([task for task, timed in self.running.values() if not timed])) is not None:
            self._submit(task, timing=False)

    def _compile_jobs(self, task: _Task) -> int:
        """How many compile at a time while this row does."""
        return 1 if task.compiles_alone() else self.options.compile_jobs

    def _compiles(self, task: _Task) -> bool:
        """Whether a row begins with a process that compiles and checks, and times nothing.

        With a GPU to compile on, every compiler does: one that hangs must not keep the other GPU from timing.
        """
        if task.configuration.compiler == EAGER:
            return False
        how = builtin_compilers().get(task.configuration.compiler)
        return self.options.gpus > 1 or how is None or how.generates_code

    def _submit(self, task: _Task, *, timing: bool) -> None:
        options = self.options
        number = len(task.processes)
        gpu = None
        if options.gpus > 1:
            busy = Counter(self.compiling_on[one] for one, (_, timed) in self.running.items() if not timed)
            gpu = 0 if timing else min(range(1, options.gpus), key=lambda one: busy[one])
        folder = None
        if options.profile and timing and number == 0:
            folder = self._profiles(task)
            folder.mkdir(parents=True, exist_ok=True)
        cores = len(os.sched_getaffinity(0))
        job = Job(
            model=task.info.spec,
            configuration=task.configuration,
            device=options.device,
            timing=timing,
            seconds=options.seconds,
            seed=number,
            cache=task.cache,
            # Twice as many as there are cores for: not all that compile are at it at the same moment.
            compile_threads=max(1, min(cores, 2 * cores // (1 if timing else self._compile_jobs(task)))),
            cpu_threads=options.threads,
            gpu=gpu,
            profile=None if folder is None else str(folder.resolve()),
        )
        try:
            identity = self.pool.client.submit(MEASURE, job, timeout=options.timeout, memory=options.memory, timed=True)
        except ServerDiedError:  # before this row began
            self._server_died()
            identity = self.pool.client.submit(MEASURE, job, timeout=options.timeout, memory=options.memory, timed=True)
        self.running[identity] = (task, timing)
        if gpu is not None:
            self.compiling_on[identity] = gpu
        self._tell()

    def _profiles(self, task: _Task) -> Path:
        """Where the operator tables and traces of a row go."""
        return self.path.parent / "profiles" / re.sub(r"[^\w.-]+", "-", str(task))

    def _tell(self) -> None:
        self.progress.doing(
            {
                number: f"{'timing' if timing else 'compiling'} {task}"
                + (f" ({len(task.processes) + 1}/{self.options.processes})" if timing else "")
                for number, (task, timing) in self.running.items()
            }
        )

    def _wait(self) -> list[_Task]:
        """Wait until a process ends; return its task if another process of it is due, else nothing."""
        try:
            while isinstance(message := self.pool.client.message(self.options.timeout), Begun):
                pass
        except ServerDiedError:
            self._server_died()
            return []
        task, timing = self.running.pop(message.id)
        self._tell()
        return [task] if self._ended(task, message, timing=timing) else []

    def _ended(self, task: _Task, message: Ended, *, timing: bool) -> bool:
        """Note how a process ended; return whether the row needs another."""
        outcome = self._outcome(message)
        if timing:
            task.processes.append(outcome)
        else:
            task.cold = outcome
        if outcome.verdict not in RIGHT:
            self._finish(task, outcome)
            return False
        if len(task.processes) == self.options.processes:
            self._finish(task, outcome)
        return task.row is None

    def _outcome(self, ended: Ended) -> Outcome:
        phase = ended.phase
        if ended.cause == "timeout":
            return Outcome(
                verdict=Verdict.TIMEOUT,
                phase=phase,
                reason=f"still running after {self.options.timeout:g} s{_last_seen(ended.stderr)}",
            )
        if ended.cause == "memory":
            return Outcome(verdict=Verdict.OOM, phase=phase, reason=f"used more than {self.options.memory / GIB:g} GiB")
        if ended.result is not None and ended.status == 0:
            try:
                found = msgspec.json.decode(ended.result, type=Outcome)
            except ValueError as error:
                found = Outcome(verdict=Verdict.CRASH, phase=phase, reason=f"left an unreadable result: {error}")
        else:
            found = Outcome(verdict=Verdict.CRASH, phase=phase, reason=cause_of_death(ended))
        if found.verdict in (Verdict.ERROR, Verdict.CRASH):
            kind = found.error.type if found.error else ""
            text = f"{found.error.message if found.error else ''}\n{ended.stderr}"
            check = doctor.explain(kind, text, self.checks)
            if check is not None:
                return msgspec.structs.replace(found, verdict=Verdict.ENVIRONMENT, reason=check.reason)
        return found

    def _finish(self, task: _Task, outcome: Outcome) -> None:
        task.row = self._row(task, outcome)
        shutil.rmtree(task.cache, ignore_errors=True)
        self._write()
        if task.processes and task.processes[0].operators is not None:
            self.publisher.operators(self._profiles(task), str(task), task.processes[0].operators)
        self.progress.finished(task.row)

    def _row(self, task: _Task, outcome: Outcome) -> Row:
        right = outcome.verdict in RIGHT
        outcomes = task.processes
        cold = task.cold or (outcomes[0] if outcomes else None)
        warm = outcomes[0] if outcomes and task.cold is not None else None
        jobs = self._compile_jobs(task) if task.cold is not None else 1
        starts = [
            None if one is None or one.start is None else msgspec.structs.replace(one.start, compile_jobs=count)
            for one, count in ((cold, jobs), (warm, 1))
        ]
        processes = tuple(self._process(one) for one in outcomes) if right else ()
        measured = measure(processes, outcomes, starts) if right else None
        claims = []
        failed = outcome.verdict in FAILING or outcome.verdict in SILENTLY_WRONG
        failed = failed and outcome.phase != "reference"  # else eager itself fails here
        for name, expected, published in task.info.claims.get(task.configuration.compiler, []):
            if task.configuration.dynamic or task.configuration.eager != Configuration(EAGER, task.info.dtype):
                continue  # the claim is about the workload's own arithmetic and sizes
            holds = False if failed else None
            if measured is not None:
                holds = claim_holds(SpeedClaim(name, expected, published), measured, processes)
            claims.append(Claimed(id=name, expected=expected, published=published, holds=holds))
        # The cold process says why graphs were broken; the timed one, what happened at speed.
        told = outcomes[-1] if outcomes else outcome
        reasons = (
            told.reasons
            if task.cold is None
            else msgspec.structs.replace(
                task.cold.reasons,
                cudagraphs=tuple(dict.fromkeys([*task.cold.reasons.cudagraphs, *told.reasons.cudagraphs])),
                recorded=told.reasons.recorded,
            )
        )
        what: Literal["model", "step"] = "step" if outcome.what == "step" else "model"
        return Row(
            workload=task.info.spec.name,
            configuration=task.configuration,
            verdict=outcome.verdict,
            phase=None if right else outcome.phase,
            reason=outcome.reason,
            error=outcome.error,
            what=what,
            cold=starts[0],
            warm=starts[1],
            deviations=outcome.deviations,
            measured=measured,
            reasons=reasons,
            claims=tuple(claims),
            flags={**told.flags, **variables(COMPILER_VARIABLES)},
            processes=processes,
            own_dtype=task.info.dtype,
            hash=task.hash,
        )

    def _process(self, outcome: Outcome) -> Process:
        series = outcome.series
        if outcome.start is None or outcome.eager_start is None or outcome.window is None or outcome.overhead is None:
            raise AssertionError("a process that timed has all of these")
        return Process(
            start=outcome.start,
            eager_start=outcome.eager_start,
            eager=series[0],
            twin=series[1] if len(series) == 3 else None,
            candidate=series[-1],
            overhead=outcome.overhead,
            conditions=self.sampler.conditions(outcome.gpu_uuid, outcome.window, outcome.cpu),
        )


def _last_seen(stderr: str) -> str:
    """Where the process was when its deadline came: its stacks go to stderr shortly before, the main thread's last."""
    stack = stderr.rpartition("(most recent call first):")[2]
    frame = re.match(r'\s+File "([^"]+)", line (\d+) in (\S+)', stack)
    return f", in {frame[3]} ({Path(frame[1]).name}:{frame[2]})" if frame else ""
