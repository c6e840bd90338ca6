"""The speeds and costs of a workload across the torch releases: since when it is slower, hungrier or longer to compile.

`recapture.tools.compare` calls `speed_history` by name for an address that is no cell's, and prints what it returns.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recapture.base.errors import UsageError
from recapture.base.text import ratio_text, time_text
from recapture.records.releases import is_bare, labels, version_key
from recapture.report.cost_words import change_text, value_text
from recapture.report.document import Block, Heading, Inline, Item, Items, Paragraph, Table, code_span, verbatim
from recapture.tools.speed.cost_changes import values
from recapture.tools.speed.speed_changes import compared, hardware_change
from recapture.tools.speed.speedups import Row, Speedups, find_speedups, read_speedups

CERTAIN = {"slower": "slower", "faster": "faster"}
"""Categories of changes of speed that are certain, in words."""


SHOWN_COSTS = {
    "memory": "peak memory",
    "saved": "saved",
    "graphs": "graphs",
    "kernels": "kernels",
    "code": "code",
    "instructions": "instructions",
}
"""The costs that the table has, with their headers."""


@dataclass(frozen=True)
class Point:
    """A configuration in one benchmark."""

    speedups: Speedups
    row: Row

    @property
    def torch(self) -> str:
        """The torch version."""
        return self.speedups.environment.torch.version

    @property
    def image(self) -> str:
        """The image's name."""
        return self.speedups.environment.image


@dataclass(frozen=True)
class Step:
    """What changed from one benchmark with figures to the next: fields of `SpeedChange`."""

    before: Point
    after: Point
    change: dict[str, Any]


@dataclass(frozen=True)
class SpeedHistory:
    """A configuration of a workload on one kind of device, oldest torch first, with the steps between its figures."""

    workload: str
    configuration: str
    device: str
    points: tuple[Point, ...]
    steps: tuple[Step, ...]

    def blocks(self) -> Iterator[Block]:
        """Yield this history as a part of a document."""
        yield Heading([code_span(self.workload), " ", code_span(self.configuration), f" on {self.device}"])
        names = labels(self.points)
        yield Table(
            ["torch", "outcome", verbatim("speedup [95 %]"), "median", "compile, cold", *SHOWN_COSTS.values()],
            [_line(name, point) for name, point in zip(names, self.points, strict=True)],
            "lllr",
        )
        by_point = dict(zip(map(id, self.points), names, strict=True))
        lines = [line for step in self.steps for line in _changes(step, by_point)]
        if lines:
            yield Items([Item(line) for line in lines])
        else:
            yield Paragraph("No change was shown." if self.steps else "There is nothing to compare with.")

    def fields(self) -> dict[str, Any]:
        """Return this history as plain data."""
        return {
            "workload": self.workload,
            "configuration": self.configuration,
            "device": self.device,
            "entries": [
                {
                    "torch": point.torch,
                    "image": point.image,
                    "verdict": str(point.row.verdict),
                    "measured": point.row.measured,
                    "cold": point.row.cold,
                    "warm": point.row.warm,
                    "costs": point.row.costs,
                }
                for point in self.points
            ],
            "steps": [{"old": step.before.image, "new": step.after.image, **step.change} for step in self.steps],
        }


def speed_history(address: str, root: Path) -> list[SpeedHistory]:
    """Return the histories of a workload, or of ``WORKLOAD::COMPILER``; none if no benchmark has such a workload.

    Raises UsageError if reading the benchmarks fails, or if the workload was measured and the compiler was not.
    """
    name, _, compiler = address.partition("::")
    benchmarks = [(path, read_speedups(path)) for path in find_speedups(root)] if root.is_dir() else []
    benchmarks = [pair for pair in benchmarks if any(row.workload == name for row in pair[1].rows)]
    if not benchmarks:
        return []
    histories = []
    for device in sorted({path.stem for path, _ in benchmarks}):
        of_device = [speedups for path, speedups in benchmarks if path.stem == device]
        of_device.sort(key=_age)
        keys = dict.fromkeys(
            row.configuration
            for speedups in of_device
            for row in speedups.rows
            if row.workload == name and compiler in ("", row.configuration.compiler, str(row.configuration))
        )
        for configuration in sorted(keys):
            points = [
                Point(speedups, row)
                for speedups in of_device
                for row in speedups.rows
                if row.key == (name, configuration) and not row.again
            ]
            if not points:  # all of them wait to be measured again
                continue
            steps = tuple(_steps(points))
            label = device.removeprefix("speedups-")
            histories.append(SpeedHistory(name, str(configuration), label, tuple(points), steps))
    if not histories:
        raise UsageError(f"{name} was not measured with {compiler}")
    return histories


def _age(speedups: Speedups) -> tuple[Any, ...]:
    environment = speedups.environment
    return version_key(environment.torch.version), is_bare(environment.image), environment.image


def _steps(points: Sequence[Point]) -> Iterator[Step]:
    """Yield the steps between neighbours of those that are right, of the same workload.

    Where the one before was not timed, the speed is compared with the last one that was; the costs are not, again.
    """
    if importlib.util.find_spec("scipy") is None:  # an installation that only reads results
        return
    before: Point | None = None
    timed: Point | None = None
    for point in points:
        if not point.row.right:
            continue
        if before is not None and before.row.hash == point.row.hash:
            yield Step(before, point, _change(before, point))
        if point.row.measured is not None:
            if timed is not None and timed is not before and timed.row.hash == point.row.hash:
                yield Step(timed, point, _change(timed, point) | {"costs": []})
            timed = point
        before = point


def _change(before: Point, after: Point) -> dict[str, Any]:
    seconds = not hardware_change(before.speedups, after.speedups)
    return compared(before.row, after.row, device=after.speedups.environment.device, seconds=seconds)


def _line(name: str, point: Point) -> list[Inline]:
    row, device = point.row, point.speedups.environment.device
    measured = row.measured
    if not row.right:
        return [name, str(row.verdict), *[""] * (3 + len(SHOWN_COSTS))]
    costs = values(row, device)
    return [
        name,
        "not timed" if measured is None else measured.finding,
        "" if measured is None else verbatim(ratio_text(measured.speedup)),
        "" if measured is None else time_text(measured.seconds),
        time_text(row.cold.total) if row.cold else "",
        *(value_text(cost, costs[cost]) if cost in costs else "" for cost in SHOWN_COSTS),
    ]


def _changes(step: Step, names: dict[int, str]) -> Iterator[str]:
    """Yield what is certain about a step, and that its speed is inconclusive if it is."""
    since = f"since {names[id(step.after)]}, after {names[id(step.before)]}"
    category, ratio = step.change["category"], step.change.get("change")
    by = f" ({ratio_text(ratio)})" if ratio else ""
    over = " over eager" if step.change["basis"] == "speedup" else ""
    if category in CERTAIN:
        yield f"{CERTAIN[category]}{over} {since}{by}"
    elif category == "too_noisy":
        yield f"speed{over} inconclusive {since}{by}"
    for cost in step.change["costs"]:
        if cost["category"] != "differs":
            yield f"{since}: {change_text(cost['cost'], cost['category'], cost['old'], cost['new'])}"
