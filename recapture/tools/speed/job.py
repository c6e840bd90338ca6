"""One process of a benchmark: eager and a candidate, compared with each other and then timed alternately."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec

from recapture.base.exceptions import qualified, safe_text
from recapture.base.files import write_atomically
from recapture.base.scrub import fingerprint, scrub
from recapture.cases.collection import execute
from recapture.cases.compiler import Compiler
from recapture.cases.compilers import EAGER, builtin_compilers, compilers_of
from recapture.cases.requirements import unmet
from recapture.cases.workload import Workload
from recapture.cases.workload_sources import ModelSpec, load_workload
from recapture.records.record import ErrorInfo
from recapture.records.verdicts import Verdict
from recapture.tools.speed import cpu_settings
from recapture.tools.speed.conditions import CpuWatch
from recapture.tools.speed.correctness import Snapshot, deviations
from recapture.tools.speed.costs import CompileWork, saved_bytes
from recapture.tools.speed.device_time import Cuda, device_time
from recapture.tools.speed.probes import allocated, kernel_seconds, operators, peak_memory, warm_libraries
from recapture.tools.speed.speedups import (
    Conditions,
    Configuration,
    Costs,
    Deviation,
    DeviceTime,
    Reasons,
    Series,
    Start,
)
from recapture.tools.speed.spent import COLD, GATE, PROBES, REFERENCE, TIMING, WARM, Stopwatch
from recapture.tools.speed.subject import Subject
from recapture.tools.speed.timing import interleave
from recapture.tools.speed.yardstick import yardstick
from recapture.torch_api.compat import (
    float32_flags,
    is_capture_error,
    is_out_of_memory,
    keep_caches,
    make_shapes_dynamic,
    reset_dynamo,
    seed_everything,
)
from recapture.torch_api.counts import CompileCounts, count_compilation
from recapture.torch_api.watch import CaptureLog, compile_seconds, recorded_cudagraphs, watch_cudagraphs, watch_dynamo

FIRST_CALLS = 4
"""Number of calls timed separately before the steady state; CUDA graphs warm up and are recorded in the first two."""

CHECKED_CALLS = (0, FIRST_CALLS - 1)
"""Indices of the calls after which values are compared: just compiled, and replayed on other inputs."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a child process. Without `timing`, it stops after the correctness check, as for a cold compile.

    `seconds` is the duration of the steady state. `cache` is the directory of compile caches, `gpu` the index of the
    GPU among the visible ones, `profile` a directory for traces. `cold` is whether the caches are empty, so that what
    compiling costs is counted.
    """

    model: ModelSpec
    configuration: Configuration
    device: str
    timing: bool
    seconds: float
    seed: int
    cache: str
    compile_threads: int
    cpu_threads: int
    gpu: int | None = None
    profile: str | None = None
    cold: bool = False
    steady: bool = False
    """Whether to fix the process to cores and keep freed memory, as `recapture.tools.speed.cpu_settings` does."""


class Operator(msgspec.Struct, frozen=True):
    """An operator's times in microseconds over `probes.ITERATIONS` iterations, and its number of calls.

    `cpu` and `device` are the operator's own time, `total` is the CPU's with the operators that it calls.
    """

    name: str
    cpu: float
    total: float
    device: float
    calls: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a child process."""

    verdict: Verdict
    phase: str | None = None
    reason: str | None = None
    error: ErrorInfo | None = None
    what: str = "model"
    start: Start | None = None
    eager_start: Start | None = None
    deviations: tuple[Deviation, ...] = ()
    series: tuple[Series, ...] = ()
    """Samples of eager, of eager with the candidate's arithmetic if that differs, and of the candidate."""
    window: tuple[float, float] | None = None
    overhead: float | None = None
    memory: int | None = None
    eager_memory: int | None = None
    kernel: float | None = None
    eager_kernel: float | None = None
    reasons: Reasons = Reasons()
    cpu: Conditions = Conditions()
    gpu_uuid: str | None = None
    flags: dict[str, str | bool] = {}
    operators: tuple[list[Operator], list[Operator]] | None = None
    device_time: DeviceTime | None = None
    costs: Costs | None = None
    yardstick: tuple[float, ...] | None = None
    spent: dict[str, float] = {}
    """Seconds of the steps of this process (`recapture.tools.speed.spent`)."""


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """What a process with empty caches found out, which it leaves in its caches as soon as it has compiled.

    If it is interrupted in its check of the values, the next process goes on with these caches and figures.
    """

    start: Start
    reasons: Reasons
    costs: Costs

    @staticmethod
    def path(cache: str) -> Path:
        """Return the file in a directory of caches."""
        return Path(cache, "compiled.json")

    @classmethod
    def read(cls, cache: str) -> Compiled | None:
        """Return what was left in a directory of caches; None if its process did not get so far."""
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(cls.path(cache).read_bytes(), type=cls)
        return None

    def write(self, cache: str) -> None:
        """Leave this in a directory of caches, which is complete from now on."""
        self.path(cache).parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # a compiler may have written nothing
        write_atomically(self.path(cache), msgspec.json.encode(self))


def measure(job: Job, enter: Callable[[str], None]) -> Outcome:
    """Run one job in this process; `enter` is called at the start of each phase, to show where a crash happened."""
    enter("reference")
    if job.gpu is not None:
        # CUDA reads the variable when it starts, which it has not: the server never initialises it.
        visible = [index for index in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if index]
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[job.gpu] if visible else str(job.gpu)
    import torch

    if job.steady:
        # Before torch makes its threads, which inherit the cores.
        cpu_settings.fix_cores(job.cpu_threads)
        cpu_settings.keep_freed_memory()
    # The pool gives a process one thread, so that results can be repeated; speed is that of all cores.
    torch.set_num_threads(job.cpu_threads)
    stopwatch = Stopwatch()
    compiled = None if job.timing else Compiled.read(job.cache)
    cold = job.cold if job.timing else compiled is None
    if cold:
        # What an interrupted process left there would make this compilation look shorter.
        shutil.rmtree(job.cache, ignore_errors=True)
    keep_caches(job.cache, job.compile_threads)
    workload = load_workload(job.model)
    compiler = _compiler(job)
    refusal = _not_applicable(workload, compiler)
    if refusal is not None:
        return Outcome(verdict=Verdict.NOT_APPLICABLE, reason=refusal)
    measurement = _Measurement(job, workload, compiler, stopwatch)
    outcome = _measure(measurement, enter, compiled=compiled, cold=cold)
    return msgspec.structs.replace(outcome, spent=stopwatch.seconds)


def _measure(
    measurement: _Measurement, enter: Callable[[str], None], *, compiled: Compiled | None, cold: bool
) -> Outcome:
    """Run eager, the candidate, the check of its values and, where asked, the timing; `cold` counts what it costs."""
    job, compiler, step = measurement.job, measurement.compiler, measurement.stopwatch.step
    try:
        with step(REFERENCE):
            measurement.prepare_eager()
            repeatable = measurement.repeatable()
    except BaseException as error:
        # A workload may raise anything, SystemExit included.
        return _failed("reference", error)
    if not repeatable:
        reason = "the model draws random numbers: two runs of eager disagree, so there is nothing to compare with"
        return Outcome(verdict=Verdict.UNSTABLE, reason=reason)
    log: CaptureLog
    unwatched = nullcontext(CaptureLog(breaks_known=False))
    work = CompileWork() if cold and job.configuration.compiler != EAGER else None
    with watch_cudagraphs() as slow:
        with (
            count_compilation() if cold and compiler.generates_code else nullcontext(CompileCounts()) as counts,
            watch_dynamo() if compiler.uses_dynamo else unwatched as log,
        ):
            try:
                with step(COLD if cold else WARM):
                    measurement.prepare_candidate(enter, work)
            except BaseException as error:
                return _failed("capture" if measurement.capturing else "call", error)
        if not job.timing:
            compiled = compiled or Compiled(
                start=measurement.start, reasons=_reasons(log, slow, None), costs=_costs(log, counts, work)
            )
            # From now on, an interruption loses no compilation.
            with suppress(OSError):
                compiled.write(job.cache)
        try:
            with step(GATE):
                errors, wrong = measurement.gate()
            outcome = Outcome(
                verdict=Verdict.PASS_WITH_BREAKS if log.break_reasons else Verdict.PASS,
                what=measurement.what,
                start=measurement.start if compiled is None else compiled.start,
                eager_start=measurement.eager_start,
                deviations=tuple(errors),
            )
            if wrong is not None:
                return msgspec.structs.replace(outcome, verdict=Verdict.WRONG, reason=wrong)
            if job.timing:
                outcome = measurement.time(outcome, log, slow, enter)
                costs = _costs(log, counts, work) if cold else None
            else:
                outcome = msgspec.structs.replace(outcome, reasons=compiled.reasons if compiled else Reasons())
                costs = compiled.costs if compiled else None
            if costs is not None:
                outcome = msgspec.structs.replace(outcome, costs=measurement.with_saved(costs))
        except BaseException as error:
            return _failed("call", error)
    return outcome


def _costs(log: CaptureLog, counts: CompileCounts, work: CompileWork | None) -> Costs:
    return Costs(
        graphs=log.graphs,
        breaks=log.graph_breaks,
        recompiles=log.recompiles,
        kernels=counts.kernels,
        code=counts.code,
        instructions=None if work is None else work.instructions,
        compile_cpu=None if work is None else work.cpu,
    )


def _compiler(job: Job) -> Compiler:
    own = (
        {} if job.model.path is None else compilers_of(execute(f"compilers_of_{job.model.name}", Path(job.model.path)))
    )
    return own.get(job.configuration.compiler) or builtin_compilers()[job.configuration.compiler]


def _not_applicable(workload: Workload, compiler: Compiler) -> str | None:
    lacking = unmet("the workload", None, workload.requires) or unmet(compiler.name, compiler.since, compiler.requires)
    if lacking is not None:
        return lacking
    return compiler.unavailable() if compiler.unavailable is not None else None


class _Measurement:
    """Eager, eager with the candidate's arithmetic (the twin), and the candidate, in one process."""

    def __init__(self, job: Job, workload: Workload, compiler: Compiler, stopwatch: Stopwatch) -> None:
        self.job = job
        self.stopwatch = stopwatch
        self.workload = workload
        self.compiler = compiler
        self.whole_step = workload.trains and workload.whole_step and compiler.uses_dynamo
        self.what = "step" if self.whole_step else "model"
        self.capturing = False
        self.peaks: list[int | None] = []

    def prepare_eager(self) -> None:
        """Build and warm up eager, its twin and the float64 reference, and take snapshots of their values."""
        own = Configuration(EAGER, self.workload.dtype)
        warm_libraries(self.job.device)
        self.eager, self.eager_start, snapshots = self._warm_up(own)
        self.twin: Subject | None = None
        if self.job.configuration.eager != own:
            self.twin, _, snapshots = self._warm_up(self.job.configuration.eager)
        self.snapshots = snapshots
        self.exact: list[Snapshot] | None = None
        try:
            reference = Subject(self.workload, own, self.job.device, exact=True)
            self.exact = self._first_calls(reference)[1]
        except Exception as error:  # a model that cannot run in float64: the candidate is compared with eager
            print(f"no float64 reference: {qualified(type(error))}: {safe_text(error)}"[:500], file=sys.stderr)

    def _warm_up(self, configuration: Configuration) -> tuple[Subject, Start, list[Snapshot]]:
        before = allocated(self.job.device)
        subject = Subject(self.workload, configuration, self.job.device)
        seconds, snapshots = self._first_calls(subject)
        if self.job.timing:
            # The snapshots belong to the check, not to the model.
            held = sum(snapshot.nbytes for snapshot in snapshots)
            with self.stopwatch.step(PROBES):
                self.peaks.append(peak_memory(subject, self.job.device, before + held))
        return subject, Start(capture=0.0, calls=_rounded(seconds)), snapshots

    def _first_calls(
        self, subject: Subject, compiled: Callable[[], None] = lambda: None
    ) -> tuple[list[float], list[Snapshot]]:
        """Return the seconds of the first calls, and snapshots of the checked ones; `compiled` is called after one."""
        snapshots: list[Snapshot] = []

        def keep() -> None:
            compiled()
            snapshots.append(Snapshot(subject))

        seed_everything()
        return subject.timed_calls(FIRST_CALLS, dict.fromkeys(CHECKED_CALLS, keep)), snapshots

    def repeatable(self) -> bool:
        """Whether eager computes the same with other random numbers."""
        before = allocated(self.job.device)
        again = Subject(self.workload, self.job.configuration.eager, self.job.device)
        seed_everything(1)
        with again.context():
            again.iterate(0)
        same = deviations(self.snapshots[:1], [Snapshot(again)], None, self.job.configuration.dtype)[1] is None
        if self.job.timing and self.job.device == "cpu" and self.twin is None:
            # The first copy's figure includes memory that libraries keep.
            with self.stopwatch.step(PROBES):
                self.peaks[0] = peak_memory(again, self.job.device, before)
        return same

    def prepare_candidate(self, enter: Callable[[str], None], work: CompileWork | None) -> None:
        """Build, capture and warm up the candidate; `work` counts until the first call has ended."""
        enter("capture")
        configuration = self.job.configuration
        if configuration.dynamic:
            make_shapes_dynamic()
        before = allocated(self.job.device)
        self.candidate = Subject(self.workload, configuration, self.job.device)
        # Nothing that the variants before have compiled may shorten this compilation.
        reset_dynamo()
        compile_seconds()  # discards earlier figures
        self.capturing = True
        seconds = 0.0
        if configuration.compiler != EAGER:
            seconds = self.candidate.capture(self.compiler.capture, whole_step=self.whole_step)
        self.capturing = False
        enter("call")
        calls, self.candidate_snapshots = self._first_calls(self.candidate, work.stop if work else lambda: None)
        stages = compile_seconds() if self.compiler.uses_dynamo else None
        self.start = Start(capture=round(seconds, 6), calls=_rounded(calls), stages=stages)
        if self.job.timing:
            held = sum(snapshot.nbytes for snapshot in self.candidate_snapshots)
            with self.stopwatch.step(PROBES):
                self.peaks.append(peak_memory(self.candidate, self.job.device, before + held))

    def gate(self) -> tuple[list[Deviation], str | None]:
        """Check the candidate's values, and drop the snapshots."""
        errors_and_fault = deviations(
            self.snapshots, self.candidate_snapshots, self.exact, self.job.configuration.dtype
        )
        # Their memory would count as that of the timed variants.
        del self.snapshots, self.candidate_snapshots, self.exact
        return errors_and_fault

    def time(self, outcome: Outcome, log: CaptureLog, slow: list[str], enter: Callable[[str], None]) -> Outcome:
        """Time the steady state, then run the probes."""
        enter("call")
        job = self.job
        subjects = [subject for subject in (self.eager, self.twin, self.candidate) if subject is not None]
        with self.stopwatch.step(TIMING):
            for subject in subjects:  # the check and the probes came in between
                subject.timed_calls(2)
            # Recording a graph takes far longer than replaying it: it has to show if that happens while timing.
            recorded = recorded_cudagraphs()
            machine = self._yardstick()
            before = machine()
            watch = CpuWatch()
            timed = interleave(subjects, job.device, job.seconds, seed=job.seed)
            conditions = watch.stop()
            around = (*before, *machine())
            del machine  # its memory is no model's
            after = recorded_cudagraphs()
            own_time = self._device_time()
        newly = None if recorded is None or after is None else after - recorded
        series = [
            Series(iterations=count, seconds=_rounded(seconds))
            for count, seconds in zip(timed.iterations, timed.seconds, strict=True)
        ]
        with self.candidate.context():
            flags = dict(
                zip(("float32_matmul_precision", "cudnn.allow_tf32", "cudnn.benchmark"), float32_flags(), strict=True)
            )
        with self.stopwatch.step(PROBES):
            profiles = self._profiles()
            kernels = [kernel_seconds(subject, job.device) for subject in (self.eager, self.candidate)]
        return msgspec.structs.replace(
            outcome,
            reasons=_reasons(log, slow, newly),
            series=tuple(series),
            window=(timed.began, timed.ended),
            overhead=round(timed.overhead, 4),
            memory=self.peaks[-1],
            eager_memory=self.peaks[0],
            eager_kernel=kernels[0],
            kernel=kernels[1],
            cpu=conditions,
            gpu_uuid=_uuid(job.device),
            flags=flags,
            operators=profiles,
            device_time=own_time,
            yardstick=around or None,
        )

    def _yardstick(self) -> Callable[[], tuple[float, ...]]:
        """Return the function that times the yardstick; it has no samples where the yardstick cannot run."""
        try:
            return yardstick(self.job.device)
        except Exception as error:  # this figure is optional: little memory may be left
            print(f"no yardstick: {qualified(type(error))}: {safe_text(error)}"[:500], file=sys.stderr)
            return tuple

    def _device_time(self) -> DeviceTime | None:
        """Return the GPU's own time; None on the CPU, and where an iteration cannot be launched beside a kernel."""
        if self.job.device != "cuda":
            return None
        try:
            return device_time(self.eager, self.candidate, Cuda())
        except Exception as error:  # this figure is optional
            print(f"no GPU time: {qualified(type(error))}: {safe_text(error)}"[:500], file=sys.stderr)
            return None

    def _profiles(self) -> tuple[list[Operator], list[Operator]] | None:
        """Return the operators of eager and of the candidate, and write their traces, if this process is to profile."""
        if self.job.profile is None:
            return None
        folder = Path(self.job.profile)
        eager, candidate = (
            [Operator(*row) for row in operators(subject, self.job.device, folder / f"{name}.trace.json")]
            for name, subject in (("eager", self.twin or self.eager), ("candidate", self.candidate))
        )
        return eager, candidate

    def with_saved(self, costs: Costs) -> Costs:
        """Return costs with the bytes that eager and the candidate save for a backward pass."""
        with self.stopwatch.step(PROBES):
            return msgspec.structs.replace(
                costs, saved=saved_bytes(self.candidate), eager_saved=saved_bytes(self.twin or self.eager)
            )


def _reasons(log: CaptureLog, slow: list[str], recorded: int | None) -> Reasons:
    """Return what torch reported about a compilation; `recorded` is the number of CUDA graphs recorded again."""
    return Reasons(
        graphs=log.graphs,
        break_reasons=tuple(dict.fromkeys(scrub(reason) for reason in log.break_reasons)),
        recompiles=tuple(dict.fromkeys(scrub(reason) for reason in log.recompile_reasons or ())),
        cudagraphs=tuple(scrub(reason) for reason in slow),
        recorded=recorded,
    )


def _rounded(seconds: list[float]) -> tuple[float, ...]:
    """Return six significant digits, more than the resolution of any clock."""
    return tuple(float(f"{value:.6g}") for value in seconds)


def _uuid(device: str) -> str | None:
    if device != "cuda":
        return None
    import torch

    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    return None if uuid is None else str(uuid)


def _failed(phase: str, error: BaseException) -> Outcome:
    # Most compilers capture at the first call.
    if phase == "call" and is_capture_error(error):
        phase = "capture"
    kind, message = qualified(type(error)), safe_text(error)
    print(f"{kind}: {message}", file=sys.stderr)
    return Outcome(
        verdict=Verdict.OOM if is_out_of_memory(error) else Verdict.ERROR,
        phase=phase,
        error=ErrorInfo(type=kind, message=scrub(message), fingerprint=fingerprint(kind, message)),
    )
