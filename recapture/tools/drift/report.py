"""A comparison of two sides as lines on a terminal, as Markdown, and as one HTML page with a picture of the digits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recapture.base.escape import html_text
from recapture.base.text import plural
from recapture.report.document import Block, Heading, Inline, Item, Items, Paragraph, Span, Table, code_span
from recapture.report.html_writer import to_html
from recapture.report.markdown_writer import to_markdown as markdown
from recapture.tools.drift.answer import SHORT_DTYPES, DriftReport, FirstPlace
from recapture.tools.drift.facts import SAME_BITS, VERDICTS, Part, Raised, SideReport

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

MOST_PARTS = 20
"""Number of parts that are listed; the JSON has all."""

ALL_DIGITS = 16.0
"""Digits that stand for the same bits."""

_STYLES = {"changed": "bold red", "refuses": "bold red", "form": "red", "rounding": "yellow", "same bits": "green"}

_CSS = """
:root{color-scheme:light dark;--text:#222;--back:#fff;--grid:#ddd;--line:#2b6cb0;--mark:#c53030}
@media(prefers-color-scheme:dark){:root{--text:#ddd;--back:#16181c;--grid:#3a3f47;--line:#7ab8f5;--mark:#ff8a80}}
body{font-family:system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:var(--text);
background:var(--back);overflow-wrap:anywhere}
table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{text-align:left;padding:.25em .7em;border-bottom:1px solid #8884;overflow-wrap:normal}
td:first-child,td:nth-child(n+3){white-space:nowrap}
.picture{overflow-x:auto}svg{width:100%;min-width:40em;height:auto}
svg text{font-size:12px;fill:var(--text)}svg .grid{stroke:var(--grid)}
svg polyline{fill:none;stroke:var(--line);stroke-width:1.5}svg circle{fill:var(--line)}
svg .mark{stroke:var(--mark)}svg text.mark{stroke:none;fill:var(--mark)}
"""

MOST_POINTS = 400
"""Operators up to which each is a point that shows its name under the pointer; more are a line alone."""

PICTURE = (960, 320)
"""Width and height of the picture, in its own units."""

MARGIN = (46, 16, 20, 40)
"""Left, right, upper and lower margin of the picture."""


def print_report(console: Console, report: DriftReport) -> None:
    """Print the report on a terminal, or to a pipe."""
    from recapture.report.terminal_writer import print_document

    print_document(console, list(_blocks(report)))


def to_markdown(report: DriftReport) -> str:
    """Return the report as GitHub Markdown."""
    return markdown([Heading(f"Drift of {report.target}", 1), *_blocks(report)])


def to_page(report: DriftReport) -> str:
    """Return a self-contained HTML page."""
    picture = f"<h2>Agreeing digits, operator by operator</h2>\n{_picture(report)}\n" if report.layers else ""
    title = html_text(f"Drift of {report.target}")
    return (
        f"<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width,initial-scale=1'><title>{title}</title>\n"
        f"<style>{_CSS}</style>\n"
        f"<h1>{title}</h1>\n{to_html(_blocks(report))}\n{picture}</html>\n"
    )


def _blocks(report: DriftReport) -> Iterator[Block]:
    yield Paragraph(report.sentence, style="bold")
    unstable = [name for name, side in zip(report.sides, report.about, strict=True) if not side.stable]
    if unstable:
        yield Paragraph(f"{' and '.join(unstable)} gave something else when called again: nothing can be compared.")
    yield from _unequal_calls(report)
    parts = _worst_first(report)
    if parts:
        yield Table(
            ["part", "verdict", "digits", "elements that differ"], [_row(part) for part in parts[:MOST_PARTS]], "llrr"
        )
        meanings = "; ".join(f"{name}: {VERDICTS[name]}" for name in dict.fromkeys(part.verdict for part in parts))
        yield Paragraph(meanings, style="dim")
        if len(parts) > MOST_PARTS:
            yield Paragraph(f"{len(parts) - MOST_PARTS} more parts differ: see --json.", style="dim")
    if report.place is not None:
        yield Heading("First place")
        yield Items([Item(line) for line in _place_lines(report, report.place)])
    elif report.layers and report.verdict != SAME_BITS:
        yield Paragraph(
            "No watched operator gives other results for the same inputs: what differs is outside of operators, or in "
            "one that torch replaces by another while operators are watched, as it does with batch norms."
        )
    if report.training is not None:
        difference = report.training
        yield Items([Item(f"loss at step {difference.step}: {difference.old or '–'} → {difference.new or '–'}")])
    if report.raised:
        yield Items([Item(_exception_line(name, error)) for name, error in report.raised])
    if lines := list(_cause_lines(report)):
        yield Heading("Because of what")
        yield Items([Item(line) for line in lines])
    if lines := list(_about_lines(report)):
        yield Heading("What else differs")
        yield Items([Item(line) for line in lines])


def _exception_line(name: str, error: Raised) -> str:
    step = "" if error.step is None else f", step {error.step}"
    return f"{name}{step}: {error.type}: {error.message}".rstrip(": ")


def _unequal_calls(report: DriftReport) -> Iterator[Block]:
    """Say which sides give other bits in each call: kernels that add in the order in which threads finish."""
    for name, side in zip(report.sides, report.about, strict=True):
        if side.stable and not side.repeats:
            yield Paragraph(f"{name} gives other bits in each call, within rounding.")


def _worst_first(report: DriftReport) -> list[Part]:
    """Return the parts that differ."""
    order = list(VERDICTS)
    parts = [part for part in report.parts if part.verdict != SAME_BITS]
    return sorted(parts, key=lambda part: (order.index(part.verdict), part.digits or 0.0))


def _row(part: Part) -> list[Inline]:
    sides = f" ({part.old} → {part.new})" if part.old or part.new else ""
    digits = "" if part.digits is None else "all" if part.digits >= ALL_DIGITS else f"{part.digits:.1f}"
    elements = "" if part.elements is None else "{} of {}".format(*part.elements)
    return [code_span(part.name), Span(f"{part.verdict}{sides}", style=_STYLES[part.verdict]), digits, elements]


def _place_lines(report: DriftReport, place: FirstPlace) -> Iterator[str]:
    yield f"{place.name} {place.where}".rstrip()
    difference = place.difference
    if difference is not None:
        at = f" at {list(difference.at)}" if difference.at else ""
        count = "{} of {}".format(*difference.elements)
        yield f"farthest apart{at}: {difference.old} → {difference.new}; {count} elements differ"
        size = "rounding explains it" if difference.rounding else "rounding does not explain it"
        digits = "" if difference.digits is None else f", {difference.digits:.1f} digits agree"
        yield f"for the same inputs: {size}{digits}"
        if place.short_dtype:
            yield f"it computes in {place.short_dtype}, whose numbers have {SHORT_DTYPES[place.short_dtype]} digits"
        if difference.errors is not None:
            yield "distance from the result in float64: {:.2g} → {:.2g} of its largest element".format(
                *difference.errors
            )
    if place.explains == "same bits":
        yield "with the old result put in there, the new side gives the old bits: this place alone explains the end"
    elif place.explains == "rounding":
        yield "with the old result put in there, what is left is rounding: this place explains the end"
    elif place.explains is not None:
        yield "with the old result put in there, the sides still differ: this place alone does not explain the end"
    if place.others:
        yield f"{plural(place.others, 'further operator')} with the same inputs and other results"
    spread = report.about[1].spread
    if report.amplified is not None and report.amplified >= 1:
        condition = "" if spread is None else f"; noise of one rounding in each operator leaves {spread:.1f} digits"
        yield f"what follows is amplification: {report.amplified:.1f} digits are lost on the way to the end{condition}"


def _cause_lines(report: DriftReport) -> Iterator[str]:
    for name, verdict in zip(report.sides, report.against_eager, strict=False):
        yield f"{name} compared with eager mode of its own: {verdict}"
    for trial in report.trials:
        change = "with the old version of" if trial.kind == "package" else "without"
        digits = "" if trial.digits is None or trial.verdict == SAME_BITS else f", {trial.digits:.1f} digits agree"
        yield f"{change} {trial.name}: {trial.verdict or f'not tried: {trial.problem}'}{digits}"
    release = report.release
    if release is not None:
        yield f"the first release that differs is {release.first}; {release.last} does not"
        if release.untried:
            yield f"no environment is there for {', '.join(release.untried)}, between the two: --bisect makes them"


def _about_lines(report: DriftReport) -> Iterator[str]:
    old, new = report.about
    if report.streams:
        yield f"random numbers under the same seed: {', '.join(report.streams)}"
    if report.initial:
        more = f" and {len(report.initial) - 3} more" if len(report.initial) > 3 else ""
        names = ", ".join(report.initial[:3])
        yield f"initial weights under the same seed: {names}{more}; the same bytes were used here"
    for name in sorted({*old.packages, *new.packages}):
        versions = (old.packages.get(name), new.packages.get(name))
        if versions[0] != versions[1]:
            yield f"{name} {versions[0] or 'absent'} → {versions[1] or 'absent'}"
    for name in old.settings:
        if old.settings[name] != new.settings.get(name):
            yield f"{name} {old.settings[name]} → {new.settings.get(name, 'unknown')}"


def _picture(report: DriftReport) -> str:
    """Return an SVG of the agreeing digits of each pair of operators, with the first place marked."""
    width, height = PICTURE
    left, right, top, bottom = MARGIN
    count = max(len(report.layers) - 1, 1)

    def across(number: float) -> float:
        return left + number / count * (width - left - right)

    def down(digits: float) -> float:
        return top + (ALL_DIGITS - digits) / ALL_DIGITS * (height - top - bottom)

    lines = [
        f"<line class='grid' x1='{left}' x2='{width - right}' y1='{down(digits):.1f}' y2='{down(digits):.1f}'/>"
        f"<text x='{left - 8}' y='{down(digits) + 4:.1f}' text-anchor='end'>{'bits' if digits == 16 else digits}</text>"
        for digits in (0, 4, 8, 12, 16)
    ]
    points = " ".join(f"{across(number):.1f},{down(layer.digits):.1f}" for number, layer in enumerate(report.layers))
    lines.append(f"<polyline points='{points}'/>")
    if report.marked is not None and report.place is not None:
        place = across(report.marked)
        beside = f"x='{place + 6:.1f}'" if place < width / 2 else f"x='{place - 6:.1f}' text-anchor='end'"
        lines.append(
            f"<line class='mark' x1='{place:.1f}' x2='{place:.1f}' y1='{top}' y2='{height - bottom}'/>"
            f"<text class='mark' {beside} y='{height - bottom - 8}'>first place: {html_text(report.place.name)}</text>"
        )
    if len(report.layers) <= MOST_POINTS:
        lines += [
            f"<circle cx='{across(number):.1f}' cy='{down(layer.digits):.1f}' r='3'>"
            f"<title>{html_text(layer.name)}: {_digits_text(layer.digits)}</title></circle>"
            for number, layer in enumerate(report.layers)
        ]
    axis = f"<text x='{left}' y='{height - 10}'>{len(report.layers)} operators in the order of their calls</text>"
    label = "Digits to which the results of each operator agree"
    return (
        f"<div class='picture'><svg viewBox='0 0 {width} {height}' role='img' aria-label='{label}'>"
        f"{''.join(lines)}{axis}</svg></div>"
    )


def _digits_text(digits: float) -> str:
    return "the same bits" if digits >= ALL_DIGITS else f"{digits:.1f} digits agree"


def saved_text(report: SideReport, folder: Path) -> str:
    """Return what is printed after a side was saved."""
    return f"saved this side (torch {report.torch}) in {folder}: compare another one with --against {folder}"
