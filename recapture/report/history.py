"""The verdicts of a cell through the torch releases, with the releases that changed it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from recapture.analysis import summary
from recapture.analysis.history import CellHistory, _before
from recapture.report.markdown import code, plain, table
from recapture.results.releases import labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console


__all__ = ["grid", "print_histories", "to_json", "to_markdown"]

HISTORY_SCHEMA_VERSION = 1
WHY_LIMIT = 120


def to_json(histories: Iterable[CellHistory]) -> str:
    """Return histories as JSON: one object a cell and capability, its entries holding the records whole."""
    document = {"schema": HISTORY_SCHEMA_VERSION, "histories": list(histories)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_markdown(histories: list[CellHistory]) -> str:
    """Return histories as GitHub Markdown: a table for each case and capability, then what changed."""
    sections = []
    for (case, capability), members in _by_case(histories).items():
        headers, rows, absent = _matrix(members, wrong="**")
        cells = [[code(row[0], in_table=True), *row[1:]] for row in rows]
        text = f"## {code(case)} on {code(capability)}\n\n" + table([plain(one) for one in headers], cells, align="lc")
        changes = [f"- {code(name)}: {plain(line)}" for name, line in _transitions(members)]
        if absent:
            text += f"\n\nNot recorded with {plain(', '.join(absent))}."
        sections.append(text + ("\n\n" + "\n".join(changes) if changes else ""))
    legend = "; ".join(f"{mark} {words}" for mark, words in summary.LEGEND.items())
    return "\n\n".join([*sections, f"{legend}; → changed; empty: no such cell."]) + "\n"


def print_histories(console: Console, histories: list[CellHistory]) -> None:
    """Print histories: a case as compilers by releases, a single cell as one line a release."""
    for (case, capability), members in _by_case(histories).items():
        single = len(members) == 1
        title = f"{case}::{members[0].compiler}" if single else case
        console.print(f"{title} on {capability}", style="bold", markup=False, highlight=False, soft_wrap=True)
        if single:
            for line in _lines(members[0]):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            continue
        headers, rows, absent = _matrix(members)
        for line in grid(headers, rows):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if absent:
            line = f"not recorded with {', '.join(absent)}"
            console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
        for name, line in _transitions(members):
            console.print(f"→ {name}: {line}", markup=False, highlight=False, soft_wrap=True)
        marks = {cell.strip("→") for row in rows for cell in row[1:]}
        legend = "; ".join(f"{mark} {words}" for mark, words in summary.LEGEND.items() if mark in marks)
        console.print(f"{legend}; → changed", style="dim", markup=False, highlight=False, soft_wrap=True)


def _by_case(histories: Iterable[CellHistory]) -> dict[tuple[str, str], list[CellHistory]]:
    grouped: dict[tuple[str, str], list[CellHistory]] = {}
    for one in histories:
        grouped.setdefault((one.case, one.capability), []).append(one)
    return grouped


def _matrix(members: list[CellHistory], wrong: str = "") -> tuple[list[str], list[list[str]], list[str]]:
    """Return headers and rows of compilers by releases, and the releases left out because they have no such case."""
    heads = labels(members[0].entries)
    present = [any(cells) for cells in zip(*([entry.record for entry in one.entries] for one in members))]  # noqa: B905
    rows = []
    for one in members:
        row = [one.compiler]
        for entry in itertools.compress(one.entries, present):
            mark = summary.mark(entry.record) if entry.record else ""
            mark = f"{wrong}{mark}{wrong}" if mark and mark in "Ww" else mark
            row.append(f"→{mark}" if entry.changed else mark)
        rows.append(row)
    headers = ["compiler", *itertools.compress(heads, present)]
    return headers, rows, [label for label, here in zip(heads, present) if not here]  # noqa: B905


def grid(headers: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Return the lines of a table whose columns are as wide as their longest word: nothing is cut, whatever the width.

    A header of two words has two lines.
    """
    heads = [header.split(" ", 1) for header in headers]
    table = [[head[i] if i < len(head) else "" for head in heads] for i in range(max(map(len, heads)))]
    table += rows
    first, *widths = (max(map(len, column)) for column in zip(*table))  # noqa: B905 - of one length
    for name, *cells in table:
        row = [f"{cell:^{width}}" for cell, width in zip(cells, widths)]  # noqa: B905
        yield "  ".join([f"{name:{first}}", *row]).rstrip()


def _transitions(members: Iterable[CellHistory]) -> Iterator[tuple[str, str]]:
    for one in members:
        heads = labels(one.entries)
        images, present = [entry.image for entry in one.entries], [entry.record is not None for entry in one.entries]
        for number, before in enumerate(_before(images, present)):
            entry, last = one.entries[number], None if before is None else one.entries[before].record
            if entry.record is None or not entry.changed or before is None or last is None:
                continue
            why = summary.explain(entry.record, WHY_LIMIT)
            edited = " (the case was edited)" if entry.edited else ""
            said = f": {why}" if why else ""
            now = f"{heads[number]} {summary.measured(entry.record)}"
            yield one.compiler, f"{heads[before]} {summary.measured(last)} → {now}{edited}{said}"


def _lines(one: CellHistory) -> Iterator[str]:
    heads = labels(one.entries)
    outcomes = [summary.measured(entry.record) if entry.record else "no such cell" for entry in one.entries]
    widths = (max(map(len, heads)), max(len(entry.image) for entry in one.entries), max(map(len, outcomes)))
    for label, entry, outcome in zip(heads, one.entries, outcomes):  # noqa: B905
        why = summary.explain(entry.record, WHY_LIMIT) if entry.record else ""
        edited = "(the case was edited) " if entry.edited else ""
        yield (
            f"{'→' if entry.changed else ' '} {label:{widths[0]}}  {entry.image:{widths[1]}}  {outcome:{widths[2]}}  "
            f"{edited}{why}"
        ).rstrip()
