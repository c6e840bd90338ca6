"""All cells through the torch releases: what goes wrong under each compiler, and what each release changed."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from recapture.diff import CATEGORIES, diff
from recapture.history import grid
from recapture.releases import age, is_bare, labels, torch_version, twin
from recapture.report import summary
from recapture.report.markdown import code, plain, table
from recapture.results import Results, find_results, read_results
from recapture.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rich.console import Console

    from recapture.diff import Change

__all__ = ["Overview", "Release", "Step", "overview", "print_overviews", "to_json", "to_markdown"]

OVERVIEW_SCHEMA_VERSION = 1

WHOLE = 0.9
"""Results with a smaller share of the cells of the largest would leave too few that all have in common."""

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


@dataclass(frozen=True)
class Release:
    """One column: how the cells ended under each compiler, and what became of each published claim."""

    torch: str
    image: str
    compilers: dict[str, summary.Counts]
    claims: dict[str, summary.ClaimStatus]


@dataclass(frozen=True)
class Step:
    """What changed from one column to the next: the cells of each of diff's categories, ``suite::name::compiler``."""

    old: str
    new: str
    changes: dict[str, list[str]]


@dataclass(frozen=True)
class Overview:
    """All releases on one capability, oldest first; `cells` are those that every one of them recorded.

    `left_out` says of every image that is no column why.
    """

    capability: str
    cells: int
    releases: tuple[Release, ...]
    steps: tuple[Step, ...]
    left_out: dict[str, str]


def overview(root: Path) -> list[Overview]:
    """Return an overview of every capability that has results at or below a directory.

    Raises UsageError where there are none, and as reading them does.
    """
    results = sorted((read_results(path) for path in find_results(root)), key=age)
    return [
        _overview(capability, [one for one in results if one.capability == capability])
        for capability in sorted({one.capability for one in results})
    ]


def _overview(capability: str, results: list[Results]) -> Overview:
    columns, left_out = _columns(results)
    common = set.intersection(*(_cells(one) for one in columns))
    same = [
        Results(one.directory, tuple(row for row in one.records if (row.case, row.compiler) in common), one.environment)
        for one in columns
    ]
    return Overview(
        capability=capability,
        cells=len(common),
        releases=tuple(map(_release, same)),
        steps=tuple(_step(old, new) for old, new in itertools.pairwise(same)),
        left_out=left_out,
    )


def _columns(results: list[Results]) -> tuple[list[Results], dict[str, str]]:
    """Choose one line of releases, each with the packages of its own time and with (nearly) all cells."""
    left_out = {}
    line = []
    images = {torch_version(one) for one in results if not is_bare(one.image) and not twin(one.image)}
    for one in results:
        if twin(one.image):
            left_out[one.image] = "packages of another time"
        elif is_bare(one.image) and torch_version(one) in images:
            left_out[one.image] = "its release has an image"
        else:
            line.append(one)
    if not line:  # nothing but twins
        line, left_out = results, {}
    most = max(len(one.records) for one in line)
    small = {one.image: len(one.records) for one in line if len(one.records) < WHOLE * most}
    left_out |= {image: f"{cells} of {plural(most, 'cell')}" for image, cells in small.items()}
    return [one for one in line if one.image not in small], dict(sorted(left_out.items()))


def _cells(results: Results) -> set[tuple[str, str]]:
    return {(record.case, record.compiler) for record in results.records}


def _release(results: Results) -> Release:
    records = results.records
    claims = defaultdict(list)
    for cell in summary.claim_cells(records):
        claims[cell.id].append(cell)
    return Release(
        torch=torch_version(results),
        image=results.image,
        compilers={
            name: summary.count(record for record in records if record.compiler == name)
            for name in summary.compilers_in_order(records)
        },
        claims={name: summary.overall_status(cells) for name, cells in claims.items()},
    )


def _step(old: Results, new: Results) -> Step:
    changes = {name: list(map(_address, members)) for name, members in diff(old, new).categories() if members}
    return Step(old=old.image, new=new.image, changes=changes)


def _address(change: Change) -> str:
    return f"{change.case}::{change.compiler}"


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
        suite, name, compiler = address.split("::", 2)
        found[f"{suite}::{name}"].append(compiler)
    return ", ".join(f"{code(case)} ({', '.join(map(plain, compilers))})" for case, compilers in found.items())
