"""One plot for each published claim about speed: where it holds, release by release, with 95 % intervals, as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from recapture.base.text import ratio_text
from recapture.records.releases import version_key
from recapture.report.claim_sources import sentence
from recapture.report.document import Heading, Inline, Paragraph, Table, code_span, verbatim
from recapture.report.markdown_writer import to_markdown
from recapture.report.summary import natural_key
from recapture.tools.speed.report import claim_status
from recapture.tools.speed.speedups import Claimed, Interval, Row, Speedups

WIDTH, HEIGHT = 760, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 42, 64
"""Margins around the axes, in pixels."""

COLOURS = {"reproduced": "#2a7d4f", "not reproduced": "#b3261e", "inconclusive": "#8a6d00"}
"""The colour of an interval by the status of the claim there."""

MARKS = ("●", "■", "▲", "◆", "▼", "✚", "★", "○", "□", "△")
"""The mark of each line of a plot: a workload in one configuration on one device."""

TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""The speedups that the axis may name."""


class ClaimPoint(NamedTuple):
    """A claim in one row of one benchmark; `speedup` is None where the row has no figure."""

    release: str
    line: str
    speedup: Interval | None
    status: str


class ClaimHistory(NamedTuple):
    """A claim in all benchmarks, the oldest release first; `bound` is what it says, such as ``>=1.5``."""

    id: str
    bound: str
    points: tuple[ClaimPoint, ...]

    @property
    def releases(self) -> list[str]:
        """The releases with a row, oldest first."""
        return list(dict.fromkeys(point.release for point in self.points))

    @property
    def lines(self) -> list[str]:
        """The lines of the plot, by name."""
        return sorted({point.line for point in self.points})


def claim_histories(benchmarks: Iterable[Speedups]) -> list[ClaimHistory]:
    """Return each claim that the rows of some benchmarks name."""
    points: dict[str, list[ClaimPoint]] = {}
    bounds: dict[str, str] = {}
    for speedups in benchmarks:
        for row in speedups.rows:
            for claim in row.claims:
                bounds[claim.id] = claim.expected
                points.setdefault(claim.id, []).append(_point(speedups, row, claim))
    return [
        ClaimHistory(name, bounds[name], tuple(sorted(points[name], key=lambda p: (version_key(p.release), p.line))))
        for name in sorted(points, key=natural_key)
    ]


def _point(speedups: Speedups, row: Row, claim: Claimed) -> ClaimPoint:
    environment = speedups.environment
    hardware = (environment.gpu.name if environment.gpu else environment.cpu.model) or environment.capability
    speedup = None if row.measured is None else row.measured.speedup
    release = environment.torch.version.partition("+")[0]
    return ClaimPoint(release, f"{row.workload} {row.configuration}, {hardware}", speedup, claim_status(row, claim))


def claim_svg(history: ClaimHistory) -> str:
    """Return the plot of a claim: speedups over eager on a logarithmic axis, releases from left to right."""
    timed = [point.speedup for point in history.points if point.speedup is not None]
    bound = float(match[0]) if (match := re.search(r"[\d.]+", history.bound)) else 1.0
    low = min([0.8, bound, *(speedup[1] for speedup in timed)]) * 0.9
    high = max([1.25, bound, *(speedup[2] for speedup in timed)]) * 1.1
    height = HEIGHT + 16 * len(history.lines)

    def down(ratio: float) -> float:
        share = (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low))
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)

    across = f'x1="{LEFT}" x2="{WIDTH - RIGHT}"'
    view = f'viewBox="0 0 {WIDTH} {height}" role="img" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {view}>',
        f"<title>{escape(f'{history.id}: {sentence(history.id)}')}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-weight="bold">',
        f"{escape(history.id)}: speedup over eager, should be {escape(history.bound)}</text>",
    ]
    ticks = [tick for tick in TICKS if low <= tick <= high]
    parts += [f'<line {across} y1="{down(tick)}" y2="{down(tick)}" stroke="#ddd"/>' for tick in ticks]
    parts += [f'<text x="{LEFT - 6}" y="{down(tick) + 4}" text-anchor="end">{tick:g}×</text>' for tick in ticks]
    parts.append(f'<line {across} y1="{down(bound)}" y2="{down(bound)}" stroke="#555" stroke-dasharray="6 4"/>')
    parts += _marks(history, down)
    parts += [
        f'<text x="{LEFT}" y="{HEIGHT - 4 + 16 * place}">{MARKS[place % len(MARKS)]} {escape(line)}</text>'
        for place, line in enumerate(history.lines, 1)
    ]
    legend = "  ".join(f'<tspan fill="{colour}">{status}</tspan>' for status, colour in COLOURS.items())
    parts.append(f'<text x="{WIDTH - RIGHT}" y="20" text-anchor="end">{legend}</text></svg>')
    return "\n".join(parts) + "\n"


def _marks(history: ClaimHistory, down: Callable[[float], float]) -> Iterator[str]:
    """Yield the names of the releases, and a mark with its interval for each figure."""
    step = (WIDTH - LEFT - RIGHT) / max(len(history.releases), 1)
    lines = history.lines
    for place, release in enumerate(history.releases):
        middle = LEFT + (place + 0.5) * step
        yield f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(release)}</text>'
        for point in history.points:
            if point.release != release:
                continue
            line = lines.index(point.line)
            across = f"{middle + step * 0.7 * ((line + 0.5) / len(lines) - 0.5):.1f}"
            colour = COLOURS.get(point.status, "#666")
            title = escape(f"torch {release}, {point.line}: {point.status}")
            if point.speedup is None:
                yield f'<text x="{across}" y="{HEIGHT - BOTTOM - 4}" text-anchor="middle" fill="{colour}">'
                yield f"×<title>{title}</title></text>"
                continue
            ratio, least, most = point.speedup
            yield (
                f'<line x1="{across}" x2="{across}" y1="{down(least)}" y2="{down(most)}" stroke="{colour}" '
                f'stroke-width="2"/><text x="{across}" y="{down(ratio) + 4}" text-anchor="middle" fill="{colour}">'
                f"{MARKS[line % len(MARKS)]}<title>{title}, {escape(ratio_text(point.speedup))}</title></text>"
            )


def claim_page(histories: Sequence[ClaimHistory]) -> str:
    """Return the page, as GitHub Markdown, that shows the plots, which are files beside it, and has their figures."""
    head = to_markdown(
        [
            Heading("Published speedups through the releases", 1),
            Paragraph(
                "A claim is reproduced where the whole 95 % interval satisfies what should hold everywhere. Speedups "
                "are over eager in the same process."
            ),
        ]
    )
    return "\n".join([head, *map(_section, histories)])


def _section(history: ClaimHistory) -> str:
    rows: list[list[Inline]] = [
        [
            point.release,
            code_span(point.line),
            "" if point.speedup is None else verbatim(ratio_text(point.speedup)),
            point.status,
        ]
        for point in history.points
    ]
    text = to_markdown([Heading(f"{history.id}: should be {history.bound}"), Paragraph(sentence(history.id))])
    table = Table(["torch", "workload, configuration and device", verbatim("speedup [95 %]"), "status"], rows)
    return f"{text}\n![{history.id}]({file_name(history)})\n\n{to_markdown([table])}"


def file_name(history: ClaimHistory) -> str:
    """Return the name of a claim's file; a user's claim may have any text for its name."""
    return re.sub(r"[^\w.-]", "_", history.id).strip(".") + ".svg"
