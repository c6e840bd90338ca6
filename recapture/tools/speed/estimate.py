"""How long the rest of a benchmark is likely to take, from the phases that have ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from recapture.base.text import duration_text
from recapture.tools.speed.rows import PlannedRow

Phase = tuple[PlannedRow, bool]
"""A row, and whether the phase is a timed process."""


class Estimate:
    """The seconds of phases that have ended, and what follows from them for those that have not."""

    def __init__(self) -> None:
        self._ended: list[tuple[PlannedRow, bool, float]] = []

    def add(self, row: PlannedRow, *, timing: bool, seconds: float) -> None:
        """Note the seconds that a phase took."""
        self._ended.append((row, timing, seconds))

    def text(self, phases: Iterable[Phase]) -> str:
        """Return how long these phases are likely to take, one after the other."""
        expected = [self._expected(*phase) for phase in phases]
        if not expected:
            return "nothing left"
        known = [seconds for seconds in expected if seconds is not None]
        if not known:
            return "the time left is not known yet"
        if len(known) < len(expected):
            return f"more than {duration_text(sum(known))} left: nothing like the other processes has run yet"
        return f"about {duration_text(sum(known))} left"

    def _expected(self, row: PlannedRow, timing: bool) -> float | None:
        """Return the median seconds of the phases that are the most like this one; None if there are none."""
        alike = [(other, seconds) for other, timed, seconds in self._ended if timed == timing]
        for same in (
            lambda other: other.key == row.key,
            lambda other: other.configuration == row.configuration,
            lambda other: other.info.spec.name == row.info.spec.name,
            lambda _: True,
        ):
            seconds = [seconds for other, seconds in alike if same(other)]
            if seconds:
                return median(seconds)
        return None


def phases_left(rows: Iterable[PlannedRow], processes: int) -> Iterator[Phase]:
    """Yield the phases of rows that have not ended, if no row fails; `processes` is the number of timed ones."""
    for row in rows:
        if row.row is None:
            if row.compiles and row.cold is None:
                yield row, False
            yield from [(row, True)] * max(0, processes - len(row.processes))
