"""One process of a benchmark: eager and a candidate, compared with each other and then timed alternately."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import msgspec

from recapture.base.exceptions import qualified, safe_text
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
from recapture.tools.speed.probes import allocated, kernel_seconds, operators, peak_memory, warm_libraries
from recapture.tools.speed.speedups import Conditions, Configuration, Deviation, Reasons, Series, Start
from recapture.tools.speed.subject import Subject
from recapture.tools.speed.timing import interleave
from recapture.torch_api.compat import (
    float32_flags,
    is_capture_error,
    is_out_of_memory,
    keep_caches,
    make_shapes_dynamic,
    reset_dynamo,
    seed_everything,
)
from recapture.torch_api.watch import CaptureLog, compile_seconds, recorded_cudagraphs, watch_cudagraphs, watch_dynamo

FIRST_CALLS = 4
"""Number of calls timed separately before the steady state; CUDA graphs warm up and are recorded in the first two."""

CHECKED_CALLS = (0, FIRST_CALLS - 1)
"""Indices of the calls after which values are compared: just compiled, and replayed on other inputs."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a child process. Without `timing`, it stops after the correctness check, as for a cold compile.

    `seconds` is the duration of the steady state. `cache` is the directory of compile caches, `gpu` the index of the
    GPU among the visible ones, `profile` a directory for traces.
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
    keep_caches(job.cache, job.compile_threads)
    workload = load_workload(job.model)
    compiler = _compiler(job)
    refusal = _not_applicable(workload, compiler)
    if refusal is not None:
        return Outcome(verdict=Verdict.NOT_APPLICABLE, reason=refusal)
    measurement = _Measurement(job, workload, compiler)
    try:
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
    with watch_cudagraphs() as slow:
        with watch_dynamo() if compiler.uses_dynamo else unwatched as log:
            try:
                measurement.prepare_candidate(enter)
            except BaseException as error:
                return _failed("capture" if measurement.capturing else "call", error)
        try:
            errors, wrong = measurement.gate()
            outcome = Outcome(
                verdict=Verdict.PASS_WITH_BREAKS if log.break_reasons else Verdict.PASS,
                what=measurement.what,
                start=measurement.start,
                eager_start=measurement.eager_start,
                deviations=tuple(errors),
            )
            if wrong is not None:
                return msgspec.structs.replace(outcome, verdict=Verdict.WRONG, reason=wrong)
            return (
                measurement.time(outcome, log, slow, enter)
                if job.timing
                else measurement.with_reasons(outcome, log, slow, None)
            )
        except BaseException as error:
            return _failed("call", error)


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

    def __init__(self, job: Job, workload: Workload, compiler: Compiler) -> None:
        self.job = job
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
            self.peaks.append(peak_memory(subject, self.job.device, before + held))
        return subject, Start(capture=0.0, calls=_rounded(seconds)), snapshots

    def _first_calls(self, subject: Subject) -> tuple[list[float], list[Snapshot]]:
        snapshots: list[Snapshot] = []
        keep = dict.fromkeys(CHECKED_CALLS, lambda: snapshots.append(Snapshot(subject)))
        seed_everything()
        return subject.timed_calls(FIRST_CALLS, keep), snapshots

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
            self.peaks[0] = peak_memory(again, self.job.device, before)
        return same

    def prepare_candidate(self, enter: Callable[[str], None]) -> None:
        """Build, capture and warm up the candidate."""
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
        calls, self.candidate_snapshots = self._first_calls(self.candidate)
        stages = compile_seconds() if self.compiler.uses_dynamo else None
        self.start = Start(capture=round(seconds, 6), calls=_rounded(calls), stages=stages)
        if self.job.timing:
            held = sum(snapshot.nbytes for snapshot in self.candidate_snapshots)
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
        for subject in subjects:  # the check and the probes came in between
            subject.timed_calls(2)
        # Recording a graph takes far longer than replaying it: it has to show if that happens while timing.
        recorded = recorded_cudagraphs()
        watch = CpuWatch()
        timed = interleave(subjects, job.device, job.seconds, seed=job.seed)
        conditions = watch.stop()
        after = recorded_cudagraphs()
        newly = None if recorded is None or after is None else after - recorded
        series = [
            Series(iterations=count, seconds=_rounded(seconds))
            for count, seconds in zip(timed.iterations, timed.seconds, strict=True)
        ]
        with self.candidate.context():
            flags = dict(
                zip(("float32_matmul_precision", "cudnn.allow_tf32", "cudnn.benchmark"), float32_flags(), strict=True)
            )
        profiles = None
        if job.profile is not None:
            folder = Path(job.profile)
            profiles = tuple(
                [Operator(*row) for row in operators(subject, job.device, folder / f"{name}.trace.json")]
                for name, subject in (("eager", self.twin or self.eager), ("candidate", self.candidate))
            )
        return msgspec.structs.replace(
            self.with_reasons(outcome, log, slow, newly),
            series=tuple(series),
            window=(timed.began, timed.ended),
            overhead=round(timed.overhead, 4),
            memory=self.peaks[-1],
            eager_memory=self.peaks[0],
            eager_kernel=kernel_seconds(self.eager, job.device),
            kernel=kernel_seconds(self.candidate, job.device),
            cpu=conditions,
            gpu_uuid=_uuid(job.device),
            flags=flags,
            operators=profiles,
        )

    def with_reasons(self, outcome: Outcome, log: CaptureLog, slow: list[str], recorded: int | None) -> Outcome:
        """Add what torch reported about this compilation."""
        reasons = Reasons(
            graphs=log.graphs,
            break_reasons=tuple(dict.fromkeys(scrub(reason) for reason in log.break_reasons)),
            recompiles=tuple(dict.fromkeys(scrub(reason) for reason in log.recompile_reasons or ())),
            cudagraphs=tuple(scrub(reason) for reason in slow),
            recorded=recorded,
        )
        return msgspec.structs.replace(outcome, reasons=reasons)


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
