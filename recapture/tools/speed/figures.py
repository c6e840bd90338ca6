"""The figures of a row, computed from the samples of its processes."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.cases.claim import SpeedClaim
from recapture.tools.speed import intervals
from recapture.tools.speed.speedups import Claimed, Measured, Process, Row, Start

if TYPE_CHECKING:
    from recapture.tools.speed.job import Outcome


def measure(processes: tuple[Process, ...], outcomes: list[Outcome], starts: list[Start | None]) -> Measured:
    """Return the figures of timed processes; `starts` are the cold start and the warm start, None if unknown."""
    eager = median(median(one.eager.seconds) for one in processes)
    candidate = median(median(one.candidate.seconds) for one in processes)
    even = [_break_even(start, processes[0].eager_start, eager, candidate) for start in starts]
    return Measured(
        **_ratios(processes),
        seconds=candidate,
        eager_seconds=eager,
        kernel=_middle([one.kernel for one in outcomes]),
        eager_kernel=_middle([one.eager_kernel for one in outcomes]),
        memory=max((one.memory for one in outcomes if one.memory is not None), default=None),
        eager_memory=max((one.eager_memory for one in outcomes if one.eager_memory is not None), default=None),
        break_even_cold=even[0],
        break_even_warm=even[1],
    )


def derive(row: Row) -> Row:
    """Return a row with ratios, finding and claims recomputed from its samples by this version."""
    if row.measured is None or not row.processes:
        return row
    measured = msgspec.structs.replace(row.measured, **_ratios(row.processes))
    claims = tuple(_claimed(one, measured, row.processes) for one in row.claims)
    return msgspec.structs.replace(row, measured=measured, claims=claims)


def _claimed(one: Claimed, measured: Measured, processes: tuple[Process, ...]) -> Claimed:
    """Return a claim judged again; one about a range of releases stays as recorded, with torch's version known."""
    claim = SpeedClaim(one.id, one.expected, one.published)
    return one if claim.ranged else msgspec.structs.replace(one, holds=claim_holds(claim, measured, processes))


def claim_holds(claim: SpeedClaim, measured: Measured, processes: tuple[Process, ...]) -> bool | None:
    """Return whether a claim holds; None if the interval contains its bound, or if the device was shared."""
    return None if _shared(processes) else claim.holds(*measured.speedup[1:])


def _shared(processes: tuple[Process, ...]) -> bool:
    return any(one.conditions.shared for one in processes)


def _ratios(processes: tuple[Process, ...]) -> dict[str, Any]:
    """Return the fields of `Measured` that depend only on the samples."""
    found = intervals.compare([(one.eager.seconds, one.candidate.seconds) for one in processes])
    # An interval describes the spread of samples, not a bias by other work: a shared device allows no conclusion.
    twins = [(one.twin.seconds, one.candidate.seconds) for one in processes if one.twin is not None]
    over = intervals.compare(twins) if twins else None
    return {
        "speedup": (_short(found.ratio), _short(found.low), _short(found.high)),
        "finding": "too noisy" if _shared(processes) else found.finding,
        "p_value": _short(found.p_value),
        "over_twin": None if over is None else (_short(over.ratio), _short(over.low), _short(over.high)),
    }


def _break_even(start: Start | None, eager_start: Start, eager: float, candidate: float) -> float | None:
    """Return the iterations that save the compile time minus the time of eager's first calls; None means never."""
    if start is None or candidate >= eager:
        return None
    cost = start.total - eager_start.total
    return max(0.0, round(cost / (eager - candidate), 1))


def _middle(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return _short(median(known)) if known else None


def _short(value: float) -> float:
    return float(f"{value:.5g}")
