"""Where the time of a benchmark went: the seconds of each step of a process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from recapture.base.text import duration_text

REFERENCE, COLD, WARM, GATE, TIMING, PROBES, OTHER = (
    "eager and float64 reference",
    "compile cold",
    "compile warm",
    "gate",
    "timing",
    "memory, costs and profile",
    "starting processes",
)
"""The steps of a process, in their order; `OTHER` is what is left of its time."""

STEPS = (COLD, WARM, REFERENCE, GATE, TIMING, PROBES, OTHER)
"""The steps in the order in which they are shown."""


class Stopwatch:
    """Adds up the seconds of steps; a step inside another one counts only for itself."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count the block's seconds for a step."""
        outside, self._inside = self._inside, 0.0
        begin = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - begin
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed - self._inside
            self._inside = outside + elapsed


def with_other(seconds: Mapping[str, float], whole: float) -> dict[str, float]:
    """Return the steps of a process that took `whole` seconds, the rest of which was spent on starting it."""
    return {**seconds, OTHER: max(0.0, whole - sum(seconds.values()))}


def total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of the steps of several processes or rows, in seconds, in the order in which they are shown."""
    sums: dict[str, float] = {}
    for part in parts:
        for name, seconds in part.items():
            sums[name] = sums.get(name, 0.0) + seconds
    return {name: round(sums[name], 2) for name in (*STEPS, *sorted(sums.keys() - set(STEPS))) if sums.get(name)}


def spent_text(spent: dict[str, float]) -> str:
    """Return where the time of a benchmark went, the most first; empty if it measured nothing."""
    parts = sorted(spent.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {duration_text(seconds)}" for name, seconds in parts if round(seconds) > 0)
