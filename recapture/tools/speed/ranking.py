"""Ranks the configurations of a workload, and checks how far its rows are comparable."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.tools.speed.speedups import Measured, Row

MOVED = 1.25
"""Ratio of eager's times in different rows from which the difference is reported.

A row's speedup does not change if eager and the candidate slow down together. If they wait for different parts of the
machine (eager for the processor, a CUDA graph for the GPU), the speedup also depends on the machine's state.
"""


class Best(NamedTuple):
    """The best configuration, and those whose intervals overlap with that of the largest speedup."""

    row: Row
    measured: Measured
    ties: list[Row]


def best_first(rows: Sequence[Row]) -> list[Row]:
    """Sort a workload's rows: the best, the other measured rows by speedup, then those that failed."""
    winner = best(rows)

    def rank(row: Row) -> tuple[bool, bool, float, str]:
        is_best = winner is not None and row is winner.row
        speedup = row.measured.speedup[0] if row.measured else 0.0
        return (not is_best, row.measured is None, -speedup, str(row.configuration))

    return sorted(rows, key=rank)


def best(rows: Sequence[Row]) -> Best | None:
    """Return the best of a workload's rows, or None if none is faster than eager.

    Rows whose 95 % interval overlaps with that of the largest speedup count as equal; the best of them is the row that
    recovers its compile time after the fewest iterations.
    """
    faster = [(row, row.measured) for row in rows if row.measured and row.measured.finding == "faster"]
    if not faster:
        return None
    faster.sort(key=lambda pair: -pair[1].speedup[0])
    least = faster[0][1].speedup[1]
    alike = [(row, one) for row, one in faster if one.speedup[2] >= least]

    def cost(pair: tuple[Row, Measured]) -> float:
        even = pair[1].break_even_cold
        return float("inf") if even is None else even

    chosen, measured = min(alike, key=cost)
    return Best(chosen, measured, [row for row, _ in alike if row is not chosen])


def eager_elsewhere(row: Row, rows: Sequence[Row]) -> float | None:
    """Return eager's median seconds in a workload's other rows, or None if it agrees with `row`'s."""
    others = [one.measured.eager_seconds for one in rows if one.measured is not None and one is not row]
    if row.measured is None or not others:
        return None
    usual, here = median(others), row.measured.eager_seconds
    return usual if max(usual, here) > MOVED * min(usual, here) else None
