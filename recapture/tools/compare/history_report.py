"""Renders the verdicts of a cell across the torch releases, with the releases that changed it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from recapture.base.escape import indented_json
from recapture.base.text import plural
from recapture.known.transitions import transitions_of
from recapture.records.record import Record
from recapture.records.releases import labels
from recapture.report import summary
from recapture.report.differences import kinds_of
from recapture.report.document import (
    Block,
    Heading,
    Inline,
    Item,
    Items,
    Paragraph,
    Span,
    Table,
    code_list,
    code_span,
    strong,
)
from recapture.report.findings import known_lines
from recapture.report.history import IN_WORDS, CellHistory, compared_with
from recapture.report.markdown_writer import to_markdown as markdown

if TYPE_CHECKING:
    from rich.console import Console

HISTORY_SCHEMA_VERSION = 3
"""Version of the JSON form; 2 has `turns`: where a cell turned bad, right, and bad again; 3 has `eager`."""

WHY_LIMIT = 120
"""Characters shown of the reason of an outcome."""


def to_json(histories: Iterable[CellHistory]) -> str:
    """Return histories as JSON: one object per cell and capability, whose entries have the complete records."""
    return indented_json({"schema": HISTORY_SCHEMA_VERSION, "histories": list(histories)})


def to_markdown(histories: Iterable[CellHistory]) -> str:
    """Return histories as GitHub Markdown: a table for each case and capability, then the changes."""
    blocks: list[Block] = []
    for (case, capability), members in _by_case(histories).items():
        blocks += [Heading([code_span(case), " on ", code_span(capability)]), *_case(members)]
    return markdown([*blocks, Paragraph(f"{_legend(summary.LEGEND)}; → changed; empty: no such cell.")])


def print_histories(console: Console, histories: Iterable[CellHistory]) -> None:
    """Print histories: a case as a table of compilers by releases, a single cell as one line per release."""
    from recapture.report.terminal_writer import print_document

    blocks: list[Block] = []
    for (case, capability), members in _by_case(histories).items():
        if len(members) == 1:
            blocks += [Heading(f"{case}::{members[0].compiler} on {capability}"), *_cell(members[0])]
        else:
            marks = {summary.mark(entry.record) for cell in members for entry in cell.entries if entry.record}
            legend = f"{_legend(mark for mark in summary.LEGEND if mark in marks)}; → changed"
            blocks += [Heading(f"{case} on {capability}"), *_case(members), Paragraph(legend, style="dim")]
    print_document(console, blocks)


def _by_case(histories: Iterable[CellHistory]) -> dict[tuple[str, str], list[CellHistory]]:
    grouped: dict[tuple[str, str], list[CellHistory]] = {}
    for cell in histories:
        grouped.setdefault((cell.case, cell.capability), []).append(cell)
    return grouped


def _legend(marks: Iterable[str]) -> str:
    return "; ".join(f"{mark} {summary.LEGEND[mark]}" for mark in marks)


def _case(members: Sequence[CellHistory]) -> Iterator[Block]:
    """Yield the cells of one case: compilers by releases, then what changed and where, each said once."""
    matrix, absent = _matrix(members)
    yield matrix
    yield from _not_recorded(absent)
    if changes := _said_once((cell.compiler, line) for cell in members for line in _transitions(cell)):
        yield changes
    if turns := _said_once((cell.compiler, line) for cell in members for line in _turns(cell)):
        yield Paragraph("Turning points:")
        yield turns
    yield from _eager(members[0])
    yield from _known(members)


def _cell(cell: CellHistory) -> Iterator[Block]:
    """Yield one cell: a line for each release, then the reasons, each with the releases that have it."""
    heads: list[str] = []
    absent: list[str] = []
    rows: list[list[Inline]] = []
    reasons: dict[str, list[int]] = {}
    for label, entry in zip(labels(cell.entries), cell.entries, strict=True):
        if entry.record is None:
            absent.append(label)
            continue
        edited = "(the case was edited)" if entry.edited else ""
        arrow = "→" if entry.changed else " "
        outcome = Span(summary.measured(entry.record), style=summary.colour(entry.record))
        rows.append([f"{arrow} {label}", entry.image, outcome, edited])
        if why := _why(entry.record):
            reasons.setdefault(why, []).append(len(heads))
        heads.append(label)
    yield Table(["", "", "", ""], rows)
    if reasons:
        yield Items([Item(f"{_ranges(places, heads)}: {why}") for why, places in reasons.items()])
    yield from _not_recorded(absent)
    for line in _turns(cell):
        yield Paragraph(line, style="bold")
    yield from _eager(cell)
    yield from _known([cell])


def _not_recorded(names: Sequence[str]) -> Iterator[Block]:
    """Yield the releases whose results do not have the cells, each once."""
    if names:
        yield Paragraph(f"Not recorded with {', '.join(dict.fromkeys(names))}.", style="dim")


def _eager(cell: CellHistory) -> Iterator[Block]:
    """Yield where eager itself changed, which is the same for all compilers of a case."""
    names = dict(zip((entry.image for entry in cell.entries), labels(cell.entries), strict=True))
    lines = [
        f"{names[turn.before]} → {names[turn.image]}: {turn.change.words} ({turn.change.input})" for turn in cell.eager
    ]
    if lines:
        yield Paragraph("Eager itself changed:")
        yield Items([Item(line) for line in lines])


def _ranges(places: Sequence[int], heads: Sequence[str]) -> str:
    """Return releases in words, neighbours as a range: ``2.0.1 to 2.3.1 (4 releases), 2.8.0``."""
    parts = []
    # Neighbours have the same difference between a place and its number among the places.
    for _, group in itertools.groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        run = [place for _, place in group]
        first, last = heads[run[0]], heads[run[-1]]
        parts.append(first if len(run) == 1 else f"{first} to {last} ({plural(len(run), 'release')})")
    return ", ".join(parts)


def _said_once(lines: Iterable[tuple[str, str]]) -> Items | None:
    """Return lines about compilers as a list, those of several compilers once; None if there are none."""
    compilers: dict[str, list[str]] = {}
    for compiler, line in lines:
        compilers.setdefault(line, []).append(compiler)
    items = [Item([*code_list(names), ": ", line]) for line, names in compilers.items()]
    return Items(items) if items else None


def _matrix(members: Sequence[CellHistory]) -> tuple[Table, list[str]]:
    """Return the table of compilers by releases, and the releases left out because they have no such case."""
    heads = labels(members[0].entries)
    present = [any(cells) for cells in zip(*([entry.record for entry in cell.entries] for cell in members))]  # noqa: B905
    rows = []
    for cell in members:
        row: list[Inline] = [code_span(cell.compiler)]
        for entry in itertools.compress(cell.entries, present):
            mark, style = summary.mark(entry.record) if entry.record else "", summary.colour(entry.record)
            span = strong(mark, style) if mark and mark in "Ww" else Span(mark, style=style)
            row.append(["→", span] if entry.changed else span)
        rows.append(row)
    headers = ["compiler", *itertools.compress(heads, present)]
    absent = [label for label, recorded in zip(heads, present, strict=True) if not recorded]
    return Table(headers, rows, "lc"), absent


def _transitions(cell: CellHistory) -> Iterator[str]:
    heads = labels(cell.entries)
    images, present = [entry.image for entry in cell.entries], [entry.record is not None for entry in cell.entries]
    for number, before in enumerate(compared_with(images, present)):
        entry, last = cell.entries[number], None if before is None else cell.entries[before].record
        if entry.record is None or not entry.changed or before is None or last is None:
            continue
        why = summary.explain(entry.record, WHY_LIMIT)
        edited = " (the case was edited)" if entry.edited else ""
        reason = f": {why}" if why else ""
        was, now = summary.measured_with_kinds(last), summary.measured_with_kinds(entry.record)
        yield f"{heads[before]} {was} → {heads[number]} {now}{edited}{reason}"


def _turns(cell: CellHistory) -> Iterator[str]:
    """Yield where a cell turned bad, right, and bad again, with what it became and the packages that changed."""
    names = dict(zip((entry.image for entry in cell.entries), labels(cell.entries), strict=True))
    records = {entry.image: entry.record for entry in cell.entries}
    for turn in cell.turns:
        record = records[turn.image]
        outcome = f" ({summary.measured_with_kinds(record)})" if record else ""
        text = f"{IN_WORDS[turn.kind]} {names[turn.image]}{outcome}"
        if turn.before is None:
            yield f"{text}, the first release with a record"
            continue
        text += f", after {names[turn.before]}"
        if turn.skipped:
            text += f" ({plural(turn.skipped, 'release')} between say nothing)"
        yield text + (f"; changed: {', '.join(map(str, turn.changed))}" if turn.changed else "")


def _known(members: Iterable[CellHistory]) -> Iterator[Block]:
    """Yield what is known of the cells: the changes between releases, and the causes of silently wrong results."""
    lines: dict[str, None] = {}  # each once, in order
    for cell in members:
        releases = {entry.torch.partition("+")[0] for entry in cell.entries if entry.record}
        for change in transitions_of(cell.case, cell.compiler, gpu=cell.capability != "cpu"):
            if {change.last, change.first} <= releases:
                lines[change.line] = None
    records = [entry.record for cell in members for entry in cell.entries if entry.record]
    lines |= {line: None for record in records for line in known_lines(record)}
    if lines:
        yield Paragraph("Known:")
        yield Items([Item(line) for line in lines])


def _why(record: Record) -> str:
    """Return the reason of an outcome, and the kinds of the differences that do not decide it."""
    noted = ", ".join(kinds_of(record.noted))
    parts = [summary.explain(record, WHY_LIMIT), f"noted: {noted}" if noted else ""]
    return "; ".join(part for part in parts if part)
