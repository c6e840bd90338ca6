"""Renders all cells across the torch releases: failures of each compiler, and the changes of each release."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.base.text import plural
from recapture.records.kinds import KINDS
from recapture.records.releases import labels
from recapture.report import summary
from recapture.report.claim_sources import address
from recapture.report.document import Inline, Span, Table, code_span
from recapture.report.markdown_writer import table_markdown
from recapture.report.terminal_writer import say, say_all, say_table
from recapture.tools.compare.changes import CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console

    from recapture.tools.compare.overview import Overview, Release


OVERVIEW_SCHEMA_VERSION = 2
"""Version of the JSON form."""

LISTED = ("newly_wrong", "newly_failing", "fixed")
"""Categories of a step whose cells are listed; `recapture diff` lists all cells, with details."""

STATUSES = {
    summary.ClaimStatus.REPRODUCED: "yes",
    summary.ClaimStatus.PARTLY: "partly",
    summary.ClaimStatus.NOT_REPRODUCED: "no",
    summary.ClaimStatus.NOT_RUNNABLE: "–",
}
"""Text of each status in the table of claims."""

WRONG = "Silently wrong"
"""Title of the first table."""

OF_EAGER = "eager goes wrong where a case is compared with another function: a rewrite that computes something else."
"""Note below the first table if it has a row for eager."""


def to_json(overviews: Iterable[Overview]) -> str:
    """Return overviews as JSON."""
    document = {"schema": OVERVIEW_SCHEMA_VERSION, "overviews": list(overviews)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_markdown(overviews: Iterable[Overview]) -> str:
    """Return overviews as GitHub Markdown."""
    sections = []
    for one in overviews:
        sections.append(f"# Through the releases: {code(one.capability)}\n\n{plain(_scope(one))}")
        for title, table in _tables(one):
            sections.append(f"## {plain(title)}\n\n{table_markdown(table)}")
            sections += map(plain, _notes(title, table))
        names = dict(zip((release.image for release in one.releases), labels(one.releases), strict=True))
        for step in one.steps:
            lines = [f"- {_words(name)}: {_by_case(step.changes[name])}" for name in LISTED if name in step.changes]
            if lines:
                sections.append(f"### {plain(f'{names[step.old]} → {names[step.new]}')}\n\n" + "\n".join(lines))
    return "\n\n".join(sections) + "\n"


def print_overviews(console: Console, overviews: Iterable[Overview]) -> None:
    """Print the tables of overviews."""
    for number, one in enumerate(overviews):
        if number:
            say(console)
        say(console, f"{one.capability}: {_scope(one)}", "bold")
        for title, table in _tables(one):
            say(console)
            say(console, title, "bold")
            say_table(console, table)
            say_all(console, _notes(title, table))


def _scope(one: Overview) -> str:
    releases = plural(len(one.releases), "release")
    text = f"{plural(one.cells, 'cell')} (case × compiler) that {releases} recorded."
    if one.uncounted:
        further = ", ".join(f"{cells} of {image}" for image, cells in one.uncounted.items())
        text += f" Not counted, because others lack them: {further}."
    if one.left_out:
        text += f" Left out: {', '.join(f'{image} ({why})' for image, why in one.left_out.items())}."
    return text


def _tables(one: Overview) -> Iterator[tuple[str, Table]]:
    """Yield the titles and tables of both forms; a dash means that no cell says anything about the compiler."""
    heads = labels(one.releases)
    columns = "l" + "r" * len(heads)
    compilers = sorted({name for release in one.releases for name in release.compilers}, key=summary.compiler_key)
    kinds: tuple[tuple[str, Callable[[summary.Counts], int]], ...] = (
        (WRONG, lambda counts: counts.silently_wrong),
        ("Failing", lambda counts: counts.failing),
        ("Not run", lambda counts: counts.not_run),
    )
    for title, number in kinds:
        rows: list[list[Inline]] = []
        for name in compilers:
            cells = [_cell(release.compilers.get(name), number) for release in one.releases]
            if any(cell not in ("0", "–") for cell in cells):
                rows.append([code_span(name), *cells])
        if rows:
            yield title, Table(["compiler", *heads], rows, columns)
    by_kind: tuple[tuple[str, Callable[[Release], dict[str, int]]], ...] = (
        ("Silently wrong, by kind of difference", lambda release: release.silent),
        ("Cells with differences that do not decide a verdict, by kind", lambda release: release.noted),
    )
    for title, numbers in by_kind:
        rows = [
            [code_span(kind), *(str(numbers(release).get(kind, 0)) for release in one.releases)]
            for kind in KINDS
            if any(kind in numbers(release) for release in one.releases)
        ]
        if rows:
            yield title, Table(["kind", *heads], rows, columns)
    if one.steps:
        seen = [name for name in CATEGORIES if any(step.changes.get(name) for step in one.steps)]
        rows = [
            [f"{was} → {now}", *(str(len(step.changes.get(name, ()))) for name in seen)]
            for (was, now), step in zip(itertools.pairwise(heads), one.steps, strict=True)
        ]
        if seen:
            yield "From one release to the next", Table(["", *map(_words, seen)], rows, "l" + "r" * len(seen))
    ids = sorted({name for release in one.releases for name in release.claims}, key=summary.natural_key)
    if ids:
        rows = [
            [
                Span(name, link=address(name)),
                *(STATUSES[release.claims[name]] if name in release.claims else "" for release in one.releases),
            ]
            for name in ids
        ]
        yield "Published claims reproduced", Table(["claim", *heads], rows, columns)


def _notes(title: str, table: Table) -> list[str]:
    return [OF_EAGER] if title == WRONG and table.rows[0][0] == code_span("eager") else []


def _cell(counts: summary.Counts | None, number: Callable[[summary.Counts], int]) -> str:
    if counts is None:
        return ""
    value = number(counts)
    return "–" if counts.not_run == counts.total and value != counts.not_run else str(value)


def _words(category: str) -> str:
    return category.replace("_", " ")


def _by_case(cells: Iterable[str]) -> str:
    """Return cells listed by case, with the compilers of each in brackets."""
    found: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        case, compiler = cell.rsplit("::", 1)
        found[case].append(compiler)
    return ", ".join(f"{code(case)} ({', '.join(map(plain, compilers))})" for case, compilers in found.items())
