"""The figures of the site as SVG: shares of outcomes through the releases, and speedups with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recapture.data import NOT_RECORDED, Data, Speed
from recapture.tools.site.strips import tone_of

STACKED = ("right", "broken", "failing", "wrong")
"""The tones of a stacked bar, from the bottom."""


class Bar(NamedTuple):
    """One part of a stacked bar: its release, tone and number of cells; where it is, in shares of the height."""

    release: str
    tone: str
    cells: int
    top: float
    height: float


class Counts(NamedTuple):
    """The numbers of cells of one release by tone, and of all that say something about the compiler."""

    release: str
    by_tone: dict[str, int]
    total: int


def counts_by_release(data: Data, strips: Sequence[str]) -> list[Counts]:
    """Return the outcomes of some strips, release by release; releases that say nothing are left out."""
    rows = []
    for index, release in enumerate(data.releases):
        tones = [tone_of(data, marks[index]) for marks in strips]
        by_tone = {tone: tones.count(tone) for tone in STACKED}
        total = sum(by_tone.values())
        if total:
            rows.append(Counts(release, by_tone, total))
    return rows


def recorded_throughout(strips: Sequence[str]) -> list[str]:
    """Return the strips that have a record on every release on which any of them has one.

    Other suites than the ones of every release would change the numbers where nothing of torch changed.
    """
    recorded = [index for index, marks in enumerate(zip(*strips, strict=True)) if set(marks) != {NOT_RECORDED}]
    return [strip for strip in strips if all(strip[index] != NOT_RECORDED for index in recorded)]


def stacked(rows: Sequence[Counts]) -> list[list[Bar]]:
    """Return a stacked bar for each release."""
    bars = []
    for row in rows:
        parts, below = [], 0
        for tone in STACKED:
            cells = row.by_tone[tone]
            if cells:
                parts.append(Bar(row.release, tone, cells, 1 - (below + cells) / row.total, cells / row.total))
            below += cells
        bars.append(parts)
    return bars


class Interval(NamedTuple):
    """A speedup in a plot: its row, and where its point and the ends of its interval are, in shares of the width."""

    speed: Speed
    point: float
    low: float
    high: float


@dataclass(frozen=True)
class IntervalPlot:
    """Speedups on a logarithmic axis. A tick of the axis is its place, in shares of the width, and its label."""

    intervals: tuple[Interval, ...]
    ticks: tuple[tuple[float, str], ...]


TICKS = (
    (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
    (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0),
    (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 3.0),
)
"""The speedups that an axis may name, from the coarsest scale to the finest."""

ENOUGH_TICKS = 4
"""An axis has the coarsest scale that gives it so many ticks."""


def interval_plot(speeds: Sequence[Speed]) -> IntervalPlot:
    """Return the plot of all timed rows."""
    timed = [(speed, speed.speedup) for speed in speeds if speed.speedup is not None]
    if not timed:
        return IntervalPlot((), ())
    low = min(0.8, *(figures[1] for _, figures in timed)) * 0.95
    high = max(1.25, *(figures[2] for _, figures in timed)) * 1.05

    def place(ratio: float) -> float:
        return (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low))

    intervals = tuple(
        Interval(speed, place(figures[0]), place(figures[1]), place(figures[2])) for speed, figures in timed
    )
    scales = [[tick for tick in scale if low <= tick <= high] for scale in TICKS]
    ticks = next((scale for scale in scales if len(scale) >= ENOUGH_TICKS), max(scales, key=len))
    return IntervalPlot(intervals, tuple((place(tick), f"{tick:g}×") for tick in ticks))


class Point(NamedTuple):
    """A speedup on one release: where it is in a plot, in shares of the width and, from the top, of the height."""

    speed: Speed
    across: float
    point: float
    low: float
    high: float


class ReleasePlot(NamedTuple):
    """A configuration on one device through the releases; `ticks` are those of the vertical axis."""

    configuration: str
    capability: str
    hardware: str
    points: tuple[Point, ...]
    ticks: tuple[tuple[float, str], ...]


def release_plots(speeds: Sequence[Speed]) -> list[ReleasePlot]:
    """Return a plot for each configuration of a workload that was timed on several releases with the same device."""
    lines: dict[tuple[str, str, str], list[Speed]] = {}
    for speed in speeds:
        if speed.speedup is not None:
            lines.setdefault((speed.configuration, speed.capability, speed.hardware), []).append(speed)
    plots = []
    for (configuration, capability, hardware), timed in lines.items():
        if len({speed.release for speed in timed}) < 2:
            continue
        plot = interval_plot(timed)
        points = tuple(
            Point(interval.speed, (place + 0.5) / len(timed), 1 - interval.point, 1 - interval.low, 1 - interval.high)
            for place, interval in enumerate(plot.intervals)
        )
        ticks = tuple((1 - place, label) for place, label in plot.ticks)
        plots.append(ReleasePlot(configuration, capability, hardware, points, ticks))
    return plots


def by_group(speeds: Sequence[Speed], releases: Sequence[str]) -> Mapping[tuple[str, str, str], list[Speed]]:
    """Return the rows of a workload by release, capability and hardware, the newest release first."""
    groups: dict[tuple[str, str, str], list[Speed]] = {}
    for speed in sorted(speeds, key=lambda speed: -releases.index(speed.release)):
        groups.setdefault((speed.release, speed.capability, speed.hardware), []).append(speed)
    return groups
