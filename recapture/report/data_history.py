"""What the data package says about a cell: where there is no folder of results, and no torch to run the cell with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from recapture.base.text import plural
from recapture.data import NOT_RECORDED, Data, Strip
from recapture.report.document import Block, Heading, Inline, Item, Items, Paragraph, Table, code_span
from recapture.report.history import matching_cells


class DataSpan(msgspec.Struct, frozen=True):
    """Neighbouring releases with one verdict and one text; `kinds` are those of the silent differences."""

    first: str
    last: str
    verdict: str
    short: str
    text: str | None = None
    kinds: tuple[str, ...] = ()


class DataCell(msgspec.Struct, frozen=True):
    """One cell on one capability, oldest release first."""

    case: str
    compiler: str
    capability: str
    behaviour: str | None
    spans: tuple[DataSpan, ...]


def cells_in(data: Data, address: str) -> list[DataCell]:
    """Return the cells of an address, ``suite::name::compiler``, ``suite::name`` or ``name``, by capability.

    Raises UsageError, with the most similar address, if the data have no such cell.
    """
    cells = {(name, compiler) for name, case in data.cases.items() for compiler in case.cells}
    return [
        DataCell(name, compiler, capability, data.cases[name].behaviour, tuple(_spans(data, strip)))
        for name, compiler in matching_cells(address, cells)
        for capability, strip in data.cases[name].cells[compiler].items()
    ]


class _Recorded(NamedTuple):
    """What is recorded of one release."""

    mark: str
    text: int | None
    kinds: tuple[str, ...]


def _spans(data: Data, strip: Strip) -> Iterator[DataSpan]:
    runs = {run.at: run for run in strip.runs}
    text: int | None = None
    kinds: tuple[str, ...] = ()
    recorded = []
    for place, mark in enumerate(strip.marks):
        if place in runs:
            text, kinds = runs[place].text, runs[place].kinds
        recorded.append((data.releases[place], _Recorded(mark, text, kinds)))
    for facts, group in itertools.groupby(recorded, key=lambda pair: pair[1]):
        releases = [release for release, _ in group]
        if facts.mark != NOT_RECORDED:
            meaning = data.marks[facts.mark]
            words = None if facts.text is None else data.texts[facts.text]
            yield DataSpan(releases[0], releases[-1], meaning.verdict, meaning.short, words, facts.kinds)


def blocks(data: Data, cells: list[DataCell]) -> Iterator[Block]:
    """Yield a document of some cells: their releases, then what is known of their behaviours."""
    for cell in cells:
        yield Heading([code_span(f"{cell.case}::{cell.compiler}"), f" on {cell.capability}"])
        yield Table(["releases", "outcome", "differs", "recorded"], [_row(span) for span in cell.spans])
    for name in dict.fromkeys(cell.behaviour for cell in cells if cell.behaviour is not None):
        behaviour = data.behaviours[name]
        yield Paragraph([code_span(name), f": {behaviour.sentence}"])
        lines = [f"instead: {behaviour.cure}"] if behaviour.cure else []
        lines += [f"thread: {thread}" for thread in behaviour.threads]
        if lines:
            yield Items([Item(line) for line in lines])
    newest = data.releases[-1]
    yield Paragraph(f"Recorded with {plural(len(data.releases), 'release')} up to torch {newest}.", style="dim")


def _row(span: DataSpan) -> list[Inline]:
    releases = span.first if span.first == span.last else f"{span.first} to {span.last}"
    return [releases, span.short, ", ".join(span.kinds), span.text or ""]
