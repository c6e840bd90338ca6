"""All cells through the torch releases: what goes wrong under each compiler, and what each release changed."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from recapture.analysis import summary
from recapture.analysis.changes import CATEGORIES
from recapture.analysis.overview import Overview
from recapture.base.text import plural
from recapture.report.history import grid
from recapture.report.markdown import code, plain, table
from recapture.results.releases import labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console


__all__ = ["print_overviews", "to_json", "to_markdown"]

OVERVIEW_SCHEMA_VERSION = 1

LISTED = ("newly_wrong", "newly_failing", "fixed")
"""The categories of a step whose cells are named; `recapture diff` names all of them, with what they said."""

STATUSES = {
    summary.ClaimStatus.REPRODUCED: "yes",
    summary.ClaimStatus.PARTLY: "partly",
    summary.ClaimStatus.NOT_REPRODUCED: "no",
    summary.ClaimStatus.NOT_RUNNABLE: "–",
}

Table = tuple[str, list[str], list[list[str]]]
"""A title, headers, and rows."""

WRONG = "Silently wrong"

OF_EAGER = "eager goes wrong where a case is compared with another function: a rewrite that computes something else."


def to_json(overviews: Iterable[Overview]) -> str:
    """Return overviews as JSON."""
    document = {"schema": OVERVIEW_SCHEMA_VERSION, "overviews": list(overviews)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_markdown(overviews: Iterable[Overview]) -> str:
    """Return overviews as GitHub Markdown."""
    sections = []
    for one in overviews:
        sections.append(f"# Through the releases: {code(one.capability)}\n\n{plain(_scope(one))}")
        for title, headers, rows in _tables(one):
            first = code if headers[0] == "compiler" else plain
            cells = [[first(row[0]), *map(plain, row[1:])] for row in rows]
            align = "l" + "r" * (len(headers) - 1)
            sections.append(f"## {plain(title)}\n\n" + table(list(map(plain, headers)), cells, align=align))
            sections += map(plain, _notes(title, rows))
        names = dict(zip((release.image for release in one.releases), labels(one.releases), strict=True))
        for step in one.steps:
            lines = [f"- {_words(name)}: {_by_case(step.changes[name])}" for name in LISTED if name in step.changes]
            if lines:
                sections.append(f"### {plain(f'{names[step.old]} → {names[step.new]}')}\n\n" + "\n".join(lines))
    return "\n\n".join(sections) + "\n"


def print_overviews(console: Console, overviews: Iterable[Overview]) -> None:
    """Print the tables of overviews."""

    def say(line: str = "", style: str | None = None) -> None:
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    for number, one in enumerate(overviews):
        if number:
            say()
        say(f"{one.capability}: {_scope(one)}", "bold")
        for title, headers, rows in _tables(one):
            say()
            say(title, "bold")
            for line in (*grid(headers, rows), *_notes(title, rows)):
                say(line)


def _scope(one: Overview) -> str:
    releases = plural(len(one.releases), "release")
    text = f"{plural(one.cells, 'cell')} (case × compiler) that {releases} recorded."
    if one.left_out:
        text += f" Left out: {', '.join(f'{image} ({why})' for image, why in one.left_out.items())}."
    return text


def _tables(one: Overview) -> Iterator[Table]:
    """Yield what both forms show; a dash stands where no cell says anything about the compiler."""
    heads = labels(one.releases)
    compilers = sorted({name for release in one.releases for name in release.compilers}, key=summary.compiler_key)
    kinds: tuple[tuple[str, Callable[[summary.Counts], int]], ...] = (
        (WRONG, lambda counts: counts.silently_wrong),
        ("Failing", lambda counts: counts.failing),
        ("Not run", lambda counts: counts.not_run),
    )
    for title, number in kinds:
        rows = [[name, *(_cell(release.compilers.get(name), number) for release in one.releases)] for name in compilers]
        rows = [row for row in rows if any(cell not in ("0", "–") for cell in row[1:])]
        if rows:
            yield title, ["compiler", *heads], rows
    if one.steps:
        seen = [name for name in CATEGORIES if any(step.changes.get(name) for step in one.steps)]
        rows = [
            [f"{was} → {now}", *(str(len(step.changes.get(name, ()))) for name in seen)]
            for (was, now), step in zip(itertools.pairwise(heads), one.steps, strict=True)
        ]
        if seen:
            yield "From one release to the next", ["", *map(_words, seen)], rows
    ids = sorted({name for release in one.releases for name in release.claims}, key=summary.natural_key)
    if ids:
        yield (
            "Published claims reproduced",
            ["claim", *heads],
            [
                [name, *(STATUSES[release.claims[name]] if name in release.claims else "" for release in one.releases)]
                for name in ids
            ],
        )


def _notes(title: str, rows: list[list[str]]) -> list[str]:
    return [OF_EAGER] if title == WRONG and rows[0][0] == "eager" else []


def _cell(counts: summary.Counts | None, number: Callable[[summary.Counts], int]) -> str:
    if counts is None:
        return ""
    value = number(counts)
    return "–" if counts.not_run == counts.total and value != counts.not_run else str(value)


def _words(category: str) -> str:
    return category.replace("_", " ")


def _by_case(addresses: Iterable[str]) -> str:
    """Name cells case by case, the compilers of each in brackets."""
    found: dict[str, list[str]] = defaultdict(list)
    for address in addresses:
        case, compiler = address.rsplit("::", 1)
        found[case].append(compiler)
    return ", ".join(f"{code(case)} ({', '.join(map(plain, compilers))})" for case, compilers in found.items())
