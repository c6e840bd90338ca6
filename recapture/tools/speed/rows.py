"""A planned row of a benchmark, and the `Row` made from the reports of its processes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from recapture.cases.claim import SpeedClaim
from recapture.cases.compilers import EAGER
from recapture.cases.workload_sources import WorkloadInfo
from recapture.machine.describe import variables
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG
from recapture.tools.speed.figures import claim_holds, measure
from recapture.tools.speed.speedups import Claimed, Configuration, Measured, Process, Reasons, Row, Start
from recapture.tools.speed.spent import total
from recapture.torch_api.compat import OWN_VARIABLES

if TYPE_CHECKING:
    from recapture.tools.speed.job import Outcome

COMPILER_VARIABLES = (
    rf"(?!(?:{'|'.join(sorted(OWN_VARIABLES))})$)"
    r"(?:TORCHINDUCTOR_|TORCHDYNAMO_|TORCH_COMPILE_|AOT_|TRITON_|PYTORCH_JIT|PYTORCH_\w*ALLOC_CONF)"
)
"""Pattern of the environment variables that compilers and the allocator read, except those that a run sets itself."""


@dataclass
class PlannedRow:
    """A workload under a configuration, with the reports of its processes so far.

    `cache` is the folder of its compile caches, `cold` the outcome of the process that compiled with empty caches,
    `processes` are the outcomes of the timed processes, and `row` is the final row. `identity` is that of what is
    measured (`recapture.tools.speed.phases`). `compiles` is whether a process compiles before the timed ones.
    """

    info: WorkloadInfo
    configuration: Configuration
    cache: str
    cold: Outcome | None = None
    processes: list[Outcome] = field(default_factory=list)
    row: Row | None = None
    identity: str = ""
    compiles: bool = False

    @property
    def key(self) -> tuple[str, Configuration]:
        """The workload's name and the configuration, like `Row.key`."""
        return (self.info.spec.name, self.configuration)

    def __str__(self) -> str:
        return f"{self.info.spec.name} {self.configuration}"

    @property
    def hash(self) -> str | None:
        """Hash of the workload and, if its file declares the compiler, of the compiler; None if unknown."""
        own = self.info.compilers.get(self.configuration.compiler)
        if own is None or self.info.hash is None:
            return self.info.hash
        return hashlib.sha256(f"{self.info.hash} {own}".encode()).hexdigest()[:12]

    @property
    def compiles_alone(self) -> bool:
        """Whether nothing else may compile at the same time."""
        return self.configuration.autotunes


class PlannedProcess(NamedTuple):
    """One process of a row, which compiles and checks the values and, with `timing`, also measures.

    `gpu` is the index of the GPU among the visible ones; None leaves the choice to torch.
    """

    row: PlannedRow
    timing: bool
    gpu: int | None = None

    @property
    def key(self) -> tuple[str, Configuration]:
        """The key of the process's row."""
        return self.row.key


def make_row(planned: PlannedRow, outcome: Outcome, *, compile_jobs: int) -> Row:
    """Return the row of a workload under a configuration; `outcome` is that of its last process.

    `compile_jobs` is the number of rows that compiled at the same time as this one. Only a row with correct values gets
    figures.
    """
    right = outcome.verdict in RIGHT
    parts = _distinct(planned, outcome)
    starts = _starts(planned, compile_jobs)
    processes = tuple(map(_process, planned.processes)) if right else ()
    measured = measure(processes, planned.processes, starts) if processes else None
    last = planned.processes[-1] if planned.processes else outcome
    what: Literal["model", "step"] = "step" if outcome.what == "step" else "model"
    return Row(
        workload=planned.info.spec.name,
        configuration=planned.configuration,
        verdict=outcome.verdict,
        phase=None if right else outcome.phase,
        reason=outcome.reason,
        error=outcome.error,
        what=what,
        cold=starts[0],
        warm=starts[1],
        deviations=outcome.deviations,
        measured=measured,
        reasons=_reasons(planned, last),
        claims=() if right and measured is None else _claims(planned, outcome, measured, processes),
        flags={**last.flags, **variables(COMPILER_VARIABLES)},
        processes=processes,
        own_dtype=planned.info.dtype,
        hash=planned.hash,
        spent=total(part.spent for part in parts),
        costs=next((part.costs for part in parts if part.costs is not None), None),
    )


def _distinct(planned: PlannedRow, last: Outcome) -> list[Outcome]:
    """Return the outcomes of all processes of a row; the last of them is one of the others, unless it was given up."""
    parts = [planned.cold, *planned.processes, last]
    return list({id(part): part for part in parts if part is not None}.values())


def _starts(planned: PlannedRow, compile_jobs: int) -> list[Start | None]:
    """Return the start with empty caches, and the start with warm caches if it followed a cold one."""
    first = planned.processes[0] if planned.processes else None
    cold, warm = (first, None) if planned.cold is None else (planned.cold, first)
    jobs = 1 if planned.cold is None else compile_jobs
    return [
        None
        if process_outcome is None or process_outcome.start is None
        else msgspec.structs.replace(process_outcome.start, compile_jobs=count)
        for process_outcome, count in ((cold, jobs), (warm, 1))
    ]


def _reasons(planned: PlannedRow, last: Outcome) -> Reasons:
    """Return the reasons of graph breaks from the cold process, and those of slow runs from the last timed process."""
    if planned.cold is None:
        return last.reasons
    return msgspec.structs.replace(
        planned.cold.reasons,
        cudagraphs=tuple(dict.fromkeys([*planned.cold.reasons.cudagraphs, *last.reasons.cudagraphs])),
        recorded=last.reasons.recorded,
    )


def _claims(
    planned: PlannedRow, outcome: Outcome, measured: Measured | None, processes: tuple[Process, ...]
) -> tuple[Claimed, ...]:
    """Return the workload's claims on this compiler; none if the arithmetic or sizes are not the workload's own."""
    if planned.configuration.dynamic or planned.configuration.eager != Configuration(EAGER, planned.info.dtype):
        return ()
    failed = outcome.verdict in FAILING or outcome.verdict in SILENTLY_WRONG
    failed = failed and outcome.phase != "reference"  # otherwise eager itself failed
    claims = []
    for name, expected, published in planned.info.claims.get(planned.configuration.compiler, []):
        # A compiler that fails or is wrong does not reach what is published; one that did not run shows nothing.
        holds = False if failed else None
        if measured is not None:
            holds = claim_holds(SpeedClaim(name, expected, published), measured, processes)
        claims.append(Claimed(id=name, expected=expected, published=published, holds=holds))
    return tuple(claims)


def _process(outcome: Outcome) -> Process:
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
        conditions=outcome.cpu,
        device_time=outcome.device_time,
        yardstick=outcome.yardstick,
    )
