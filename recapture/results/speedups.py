"""What a benchmark leaves: its rows, with every raw sample, and the file that holds them.

History of the file format, newest first (``SCHEMA_VERSION``):

1. first version.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - msgspec resolves annotations at run time
from typing import Any, Literal

import msgspec

from recapture.base.decode import Format
from recapture.base.files import write_atomically
from recapture.machine.environment import Environment  # noqa: TC001 - likewise
from recapture.results.records import ErrorInfo, schema_of
from recapture.results.speedup_checks import check_speedups
from recapture.results.verdicts import RIGHT, Verdict

__all__ = [
    "EAGER",
    "SCHEMA_VERSION",
    "Claimed",
    "Conditions",
    "Configuration",
    "Deviation",
    "Finding",
    "Measured",
    "Process",
    "Reasons",
    "Row",
    "Series",
    "Speedups",
    "Start",
    "json_schema",
    "read_speedups",
    "write_speedups",
]

SCHEMA_VERSION: Literal[1] = 1

Finding = Literal["faster", "slower", "no difference shown", "too noisy"]


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one process spent until it was at speed: seconds of capturing, then of each of the first calls."""

    capture: float
    calls: tuple[float, ...]
    compile_jobs: int = 1
    """How many processes were compiling at the time."""
    stages: dict[str, float] | None = None
    """Seconds of them by what torch was at, where it tells (see `torch_watch.compile_seconds`)."""

    @property
    def total(self) -> float:
        """Seconds of all of it."""
        return self.capture + sum(self.calls)


class Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The samples of one variant in one process: seconds an iteration, each the mean over `iterations` in a row."""

    iterations: int
    seconds: tuple[float, ...]


OTHER_CORES = 2.0
"""Of a host with a GPU: other work on more cores than this is told. Launching kernels needs one core of many, so that
nothing is concluded from it; but where eager waits for launches, a busy host slows it down."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of the machine while a process was timing; None where it does not tell.

    Clocks are in MHz, temperature in °C, power in W: (least, median, greatest) of the samples. `throttled` names the
    reasons the driver gave for a lower clock and the share of samples with each. `others` counts other processes on
    the GPU, `cpu_others` the cores that other work used, `steal` the share of time the hypervisor took.
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
        """What other work the processor did while a GPU was timed: it launches the kernels."""
        if not self.samples or self.cpu_others is None or self.cpu_others <= OTHER_CORES:
            return []
        return [f"other work used {self.cpu_others:.1f} cores"]

    @property
    def shared(self) -> list[str]:
        """Who else used what was timed on, in words; empty for a machine of one's own."""
        if self.samples:  # a GPU
            return [f"shared: {self.others} other processes on the GPU"] if self.others else []
        found = []
        if self.cpu_others is not None and self.cpu_others > 0.25:
            found.append(f"shared: other work used {self.cpu_others:.1f} cores")
        if self.steal is not None and self.steal > 0.05:
            found.append(f"shared: the hypervisor took {self.steal:.0%} of the CPU")
        return found

    @property
    def marks(self) -> list[str]:
        """What makes the timing doubtful, in words; empty for a quiet machine."""
        return (
            [f"throttled: {reason} ({share:.0%})" for reason, share in self.throttled.items()]
            + self.shared
            + self._beside
        )


class Process(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process's timing: the workload's eager, eager with the same arithmetic where that is another, the candidate.

    Samples of the same index were taken in one round, in random order. `overhead` is the share of the timing's wall
    time that was not spent in timed iterations.
    """

    start: Start
    eager_start: Start
    eager: Series
    twin: Series | None
    candidate: Series
    overhead: float
    conditions: Conditions


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures of a row; ratios are eager ÷ candidate, so that more is faster, with a 95 % interval.

    `speedup` is against the workload's own eager, `over_twin` against eager with the same arithmetic. Times are medians
    in seconds an iteration. `kernel` is GPU time in kernels an iteration. Memory is the peak in bytes. Break-even is
    after how many iterations the time spent compiling is paid back; None: never.
    """

    speedup: tuple[float, float, float]
    finding: Finding
    p_value: float
    over_twin: tuple[float, float, float] | None
    seconds: float
    eager_seconds: float
    kernel: float | None
    eager_kernel: float | None
    memory: int | None
    eager_memory: int | None
    break_even_cold: float | None
    break_even_warm: float | None


class Deviation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a group of values (result, gradients, …) is from float64, relative to their norm, and eager's own."""

    group: str
    eager: float
    candidate: float
    allowed: float


class Reasons(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What torch told about a compiled run that is not at full speed."""

    graphs: int | None = None
    break_reasons: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()
    cudagraphs: tuple[str, ...] = ()
    recorded: int | None = None
    """CUDA graphs recorded while timing, when none should be."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published speedup and what became of it here; `holds` is None where the interval straddles the bound."""

    id: str
    expected: str
    published: str
    holds: bool | None


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration of one workload. Without figures, `verdict` says why; `reason` and `error` say more."""

    workload: str
    configuration: Configuration
    verdict: Verdict
    phase: str | None = None
    reason: str | None = None
    error: ErrorInfo | None = None
    what: Literal["model", "step"] = "model"
    """What the compiler was given: the model, or the whole training step."""
    cold: Start | None = None
    warm: Start | None = None
    deviations: tuple[Deviation, ...] = ()
    measured: Measured | None = None
    reasons: Reasons = Reasons()
    claims: tuple[Claimed, ...] = ()
    flags: dict[str, str | bool] = {}
    processes: tuple[Process, ...] = ()
    own_dtype: str | None = None
    """The workload's own arithmetic, which its eager has; None: unknown."""
    hash: str | None = None
    """The workload's, which tells whether it was edited since; None: unknown."""
    again: bool = False
    """Whether it is from before: it was to be measured again, and that has not ended."""

    @property
    def key(self) -> tuple[str, Configuration]:
        """The workload's name and the configuration: what one row of a file is told from another by."""
        return self.workload, self.configuration

    @property
    def right(self) -> bool:
        """Whether the configuration computes what eager does."""
        return self.verdict in RIGHT


class Speedups(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of ``speedups-<gpu>.json``; `method` says in a line each how it was measured."""

    schema: Literal[1] = SCHEMA_VERSION
    environment: Environment
    method: dict[str, str | int | float]
    planned: int
    rows: tuple[Row, ...]


def read_speedups(path: Path) -> Speedups:
    """Read one file.

    Raises UsageError, naming file and field, for what this version does not understand and for samples from which no
    ratio follows (see `recapture.results.speedup_checks`).
    """
    return _FORMAT.read(path)


def write_speedups(path: Path, speedups: Speedups) -> None:
    """Write a file atomically: a line for every row, so that `git diff` shows rows."""
    rows = b",\n".join(msgspec.json.encode(row) for row in speedups.rows)
    head = msgspec.structs.replace(speedups, rows=())
    text = msgspec.json.format(msgspec.json.encode(head), indent=1)
    before, _, after = text.rpartition(b"[]")  # rows is the last field
    write_atomically(path, before + b"[\n" + rows + b"\n]" + after + b"\n")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file; a copy ships in ``recapture/schema``."""
    return schema_of(Speedups, f"recapture speedups, version {SCHEMA_VERSION}")


EAGER = "eager"


_AUTOTUNED = frozenset({"compile:max-autotune", "compile:max-autotune-no-cudagraphs"})


class Configuration(msgspec.Struct, frozen=True, order=True):
    """One way to run a workload; `str()` of it is its name in reports."""

    compiler: str
    dtype: str
    layout: str = "contiguous"
    dynamic: bool = False

    def __str__(self) -> str:
        parts = [self.compiler, self.dtype, *([self.layout] if self.layout != "contiguous" else [])]
        return " ".join([*parts, *(["dynamic"] if self.dynamic else [])])

    @property
    def autotunes(self) -> bool:
        """Whether compiling means to time candidates on the device."""
        return self.compiler in _AUTOTUNED

    @property
    def eager(self) -> Configuration:
        """Eager with the same arithmetic."""
        return Configuration(EAGER, self.dtype, self.layout)


_FORMAT = Format(Speedups, "benchmark", SCHEMA_VERSION, check_speedups)
