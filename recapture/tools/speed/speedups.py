"""The results of a benchmark: its rows, with every raw sample, and the file that holds them.

History of the file format, newest first (``SCHEMA_VERSION``):

1. first version. Fields that came later (`spent`, `costs`, `device_time`, `yardstick`) are optional, and absent from
   older files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from recapture.base.decode import Count, Format, NonNegative
from recapture.base.files import write_atomically
from recapture.base.paths import module_file
from recapture.cases.compilers import EAGER, compiler_facts
from recapture.machine.environment import Environment
from recapture.records.directories import BEFORE
from recapture.records.record import ErrorInfo, schema_of
from recapture.records.schema import schema_text
from recapture.records.verdicts import RIGHT, Verdict

SCHEMA_VERSION: Literal[1] = 1

SCHEMA_PATH = module_file("tools", "speed", f"speedups-{SCHEMA_VERSION}.json")
"""Path of the shipped schema; `python -m recapture.records.schema` writes it."""

Finding = Literal["faster", "slower", "no difference shown", "too noisy"]


FIRST_CALLS = 2
"""Number of first calls that reports show separately; every process makes at least this many."""

FASTEST, SLOWEST = 1e-9, 1e6
"""Shortest and longest credible seconds per iteration: limited by clock resolution and by deadlines."""

MOST_PROCESSES = 100
"""Largest number of timed processes of a row, 20 times the default of `bench`.

The time and memory to compute a row's ratios grow with them.
"""

MOST_SAMPLES = 1000
"""Largest number of samples of one variant in one process; `recapture.tools.speed.timing` takes at most 400."""

LARGEST_RATIO = 1e15
"""The largest ratio of two credible times."""

# Ranges are part of the types, so that the reader refuses what no ratio follows from, and the schema names them.
Quotient = Annotated[float, msgspec.Meta(ge=1 / LARGEST_RATIO, le=LARGEST_RATIO)]
"""A ratio of two times, or a time that ratios are computed from."""

Interval = tuple[Quotient, Quotient, Quotient]
"""A ratio with the lower and the upper end of its 95 % interval."""

Samples = Annotated[
    tuple[Annotated[float, msgspec.Meta(ge=FASTEST, le=SLOWEST)], ...],
    msgspec.Meta(min_length=1, max_length=MOST_SAMPLES),
]
"""Seconds per iteration, one for each round."""


class Configuration(msgspec.Struct, frozen=True, order=True):
    """One way to run a workload; ``str()`` gives its name in reports."""

    compiler: str
    dtype: str
    layout: str = "contiguous"
    dynamic: bool = False

    def __str__(self) -> str:
        parts = [self.compiler, self.dtype, *([self.layout] if self.layout != "contiguous" else [])]
        return " ".join([*parts, *(["dynamic"] if self.dynamic else [])])

    @property
    def autotunes(self) -> bool:
        """Whether compiling includes timing candidates on the device."""
        return compiler_facts(self.compiler).autotunes

    @property
    def eager(self) -> Configuration:
        """The eager configuration with the same arithmetic."""
        return Configuration(EAGER, self.dtype, self.layout)


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The warm-up time of one process: seconds of capturing, then of each of the first calls."""

    capture: NonNegative
    calls: Annotated[tuple[NonNegative, ...], msgspec.Meta(min_length=FIRST_CALLS)]
    compile_jobs: int = 1
    """Number of processes that were compiling at the same time."""
    stages: dict[str, NonNegative] | None = None
    """Seconds of each compilation stage, if torch reports them (see `recapture.torch_api.watch.compile_seconds`)."""

    @property
    def total(self) -> float:
        """Total seconds."""
        return self.capture + sum(self.calls)


class Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The samples of one variant in one process: seconds per iteration, each averaged over `iterations` runs."""

    iterations: Annotated[int, msgspec.Meta(ge=1)]
    seconds: Samples


OTHER_CORES = 2.0
"""Cores used by other work on a GPU host above which it is reported. Launching kernels needs only one core, so this
does not make the timing doubtful; but a busy host slows eager down where eager waits for launches."""


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU's own time in one process: seconds per iteration in which launching does not delay it.

    Samples with the same index were taken one after the other. `eager_cpu` and `candidate_cpu` are the CPU seconds that
    this process needs to launch an iteration. See `recapture.tools.speed.device_time`.
    """

    eager: Samples
    candidate: Samples
    eager_cpu: NonNegative
    candidate_cpu: NonNegative


class Costs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a configuration costs, as counts that need no statistics; None where this torch or machine does not tell.

    `saved` is the bytes that an iteration saves for its backward pass, without parameters, buffers and inputs;
    `eager_saved` those of eager. `code` is the characters of generated code. `instructions` are those of this process
    and its compilers, outside the kernel, while it compiled with empty caches, and `compile_cpu` is their CPU time in
    seconds, which is no count: it varies by a few per cent.
    """

    graphs: Count | None = None
    breaks: Count | None = None
    recompiles: Count | None = None
    kernels: Count | None = None
    saved: Count | None = None
    eager_saved: Count | None = None
    code: Count | None = None
    instructions: Count | None = None
    compile_cpu: NonNegative | None = None


class Conditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of the machine while a process was timing; None for values that the machine does not report.

    Clocks are in MHz, temperature in °C, power in W: (minimum, median, maximum) of the samples. `throttled` maps the
    driver's reasons for a lower clock to the share of samples with each. `others` is the number of other processes on
    the GPU, `cpu_others` the number of cores that other work used, `steal` the share of time the hypervisor took.
    """

    sm_clock: tuple[float, float, float] | None = None
    memory_clock: tuple[float, float, float] | None = None
    temperature: tuple[float, float, float] | None = None
    power: tuple[float, float, float] | None = None
    throttled: dict[str, float] = {}
    samples: int = 0
    others: int | None = None
    threads: int | None = None
    affinity: int | None = None
    governor: str | None = None
    allocator: str | None = None
    load: float | None = None
    cpu_others: float | None = None
    steal: float | None = None

    @property
    def _beside(self) -> list[str]:
        """Other work on the CPU, which launches the kernels, while a GPU was timed."""
        if not self.samples or self.cpu_others is None or self.cpu_others <= OTHER_CORES:
            return []
        return [f"other work used {self.cpu_others:.1f} cores"]

    @property
    def shared(self) -> list[str]:
        """Messages about other work on the timed device; empty if there was none."""
        if self.samples:  # a GPU
            return [f"shared: {self.others} other processes on the GPU"] if self.others else []
        messages = []
        if self.cpu_others is not None and self.cpu_others > 0.25:
            messages.append(f"shared: other work used {self.cpu_others:.1f} cores")
        if self.steal is not None and self.steal > 0.05:
            messages.append(f"shared: the hypervisor took {self.steal:.0%} of the CPU")
        return messages

    @property
    def marks(self) -> list[str]:
        """Messages about conditions that make the timing doubtful; empty for an idle machine."""
        return (
            [f"throttled: {reason} ({share:.0%})" for reason, share in self.throttled.items()]
            + self.shared
            + self._beside
        )


class Process(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The timing of one process: the workload's eager, the candidate, and its eager twin if the arithmetic differs.

    The twin is eager with the candidate's arithmetic. Samples with the same index were taken in one round, in random
    order. `overhead` is the share of wall time outside timed iterations. `yardstick` is the seconds of a fixed piece of
    work before and after the rounds (`recapture.tools.speed.yardstick`); None in files of versions that had none.
    """

    start: Start
    eager_start: Start
    eager: Series
    twin: Series | None
    candidate: Series
    overhead: NonNegative
    conditions: Conditions
    device_time: DeviceTime | None = None
    yardstick: Samples | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures of a row; ratios are eager ÷ candidate, so that a larger ratio is faster, with a 95 % interval.

    `speedup` is relative to the workload's own eager, `over_twin` to eager with the same arithmetic. Times are medians
    in seconds per iteration. `kernel` is the GPU time in kernels per iteration, under a profiler. `device` and
    `eager_device` are the GPU's own time per iteration without one, and `device_speedup` is their ratio. Memory is the
    peak in bytes. Break-even is the number of iterations after which the compile time is recovered; None means never.
    """

    speedup: Interval
    finding: Finding
    p_value: NonNegative
    over_twin: Interval | None
    seconds: Quotient
    eager_seconds: Quotient
    kernel: NonNegative | None
    eager_kernel: NonNegative | None
    memory: Count | None
    eager_memory: Count | None
    break_even_cold: NonNegative | None
    break_even_warm: NonNegative | None
    device: NonNegative | None = None
    eager_device: NonNegative | None = None
    device_speedup: Interval | None = None


class Deviation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Error of a group of values (result, gradients, …) against float64, relative to their norm, with eager's error."""

    group: str
    eager: float
    candidate: float
    allowed: float


class Reasons(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reasons that torch reported for a compiled run below full speed."""

    graphs: int | None = None
    break_reasons: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()
    cudagraphs: tuple[str, ...] = ()
    recorded: int | None = None
    """Number of CUDA graphs recorded during timing, where none should be."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published speedup and its result here; `holds` is None if the interval contains the bound."""

    id: str
    expected: str
    published: str
    holds: bool | None


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration of one workload. Without figures, `verdict`, `reason` and `error` explain why.

    What is right and has no figures was not timed: its costs alone were counted.
    """

    workload: str
    configuration: Configuration
    verdict: Verdict
    phase: str | None = None
    reason: str | None = None
    error: ErrorInfo | None = None
    what: Literal["model", "step"] = "model"
    """What was compiled: the model, or the whole training step."""
    cold: Start | None = None
    warm: Start | None = None
    deviations: tuple[Deviation, ...] = ()
    measured: Measured | None = None
    reasons: Reasons = Reasons()
    claims: tuple[Claimed, ...] = ()
    flags: dict[str, str | bool] = {}
    processes: Annotated[tuple[Process, ...], msgspec.Meta(max_length=MOST_PROCESSES)] = ()
    own_dtype: str | None = None
    """The workload's own arithmetic, used by its eager; None if unknown."""
    hash: str | None = None
    """Hash of the workload, which shows whether it was edited since; None if unknown."""
    spent: dict[str, NonNegative] = {}
    """Seconds that measuring the row took, by what they were spent on (`recapture.tools.speed.spent`)."""
    costs: Costs | None = None
    """What compiling and running cost in counts; None in files of versions that did not count."""
    again: bool = False
    """Whether the row is from an earlier run, and its new measurement has not finished."""

    @property
    def key(self) -> tuple[str, Configuration]:
        """The workload's name and the configuration, which identify a row within a file."""
        return self.workload, self.configuration

    @property
    def right(self) -> bool:
        """Whether the configuration computes the same results as eager."""
        return self.verdict in RIGHT

    @property
    def counted(self) -> bool:
        """Whether the configuration is right and was not timed, so that its costs alone are known."""
        return self.right and self.measured is None


class Speedups(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``speedups-<gpu>.json``; `method` describes the measurement in a few lines."""

    schema: Literal[1] = SCHEMA_VERSION
    environment: Environment
    method: dict[str, str | int | float]
    planned: Count
    rows: tuple[Row, ...]


def read_speedups(path: Path) -> Speedups:
    """Read one file of speedups.

    Raises UsageError, naming file and field, for content that this version does not understand and for samples without
    a valid ratio.
    """
    return _FORMAT.read(path)


def write_speedups(path: Path, speedups: Speedups) -> None:
    """Write a file atomically, with one line per row, so that `git diff` shows rows."""
    rows = b",\n".join(msgspec.json.encode(row) for row in speedups.rows)
    head = msgspec.structs.replace(speedups, rows=())
    text = msgspec.json.format(msgspec.json.encode(head), indent=1)
    before, _, after = text.rpartition(b"[]")  # rows is the last field
    write_atomically(path, before + b"[\n" + rows + b"\n]" + after + b"\n")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file; `SCHEMA_PATH` is a copy that ships."""
    return schema_of(Speedups, f"recapture speedups, version {SCHEMA_VERSION}")


def shipped_schema() -> tuple[Path, str]:
    """Return the path and the content of the schema that ships."""
    return SCHEMA_PATH, schema_text(json_schema())


def find_speedups(root: Path) -> list[Path]:
    """Return the files of `recapture bench` at or below a directory, by name, without those that were set aside."""
    aside = set(root.rglob(f"{BEFORE}*"))
    return sorted(path for path in root.rglob("speedups-*.json") if path.parent not in aside)


def _check(speedups: Speedups) -> None:
    """Raise ValueError, naming row and field, for what the types do not say about a benchmark."""
    seen: set[tuple[str, Configuration]] = set()
    for number, row in enumerate(speedups.rows):
        name = f"`rows[{number}]`, {row.workload} {row.configuration}"
        if row.key in seen:
            raise ValueError(f"{name}: it appears twice")
        seen.add(row.key)
        if row.measured is not None and not row.right:
            raise ValueError(f"{name}: `verdict` is {row.verdict}, but `measured` has figures")
        for index, process in enumerate(row.processes):
            # A ratio is that of two samples of one round, so that every variant needs as many.
            rounds = len(process.eager.seconds)
            for variant, series in (("twin", process.twin), ("candidate", process.candidate)):
                if series is not None and len(series.seconds) != rounds:
                    raise ValueError(
                        f"{name}: `processes[{index}].{variant}.seconds` has {len(series.seconds)} samples, `eager` "
                        f"has {rounds}"
                    )
            times = process.device_time
            if times is not None and len(times.eager) != len(times.candidate):
                raise ValueError(
                    f"{name}: `processes[{index}].device_time.candidate` has {len(times.candidate)} samples, `eager` "
                    f"has {len(times.eager)}"
                )


_FORMAT = Format(Speedups, "benchmark", SCHEMA_VERSION, _check)
