"""All cells across the torch releases: failures of each compiler, and the changes of each release."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError
from recapture.base.escape import indented_json
from recapture.base.text import plural
from recapture.cases.compilers import EAGER
from recapture.records.directories import Results
from recapture.records.kinds import KINDS
from recapture.records.releases import is_bare, is_partial, labels, read_by_age, torch_version, twin, usual_cells
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report import summary
from recapture.report.cell_filter import CellFilter
from recapture.report.claim_sources import address
from recapture.report.differences import noted_numbers, silent_kinds
from recapture.report.document import Block, Heading, Inline, Item, Items, Paragraph, Span, Table, code_span
from recapture.report.markdown_writer import to_markdown as markdown
from recapture.tools.compare.cell_changes import diff
from recapture.tools.compare.changes import CATEGORIES, Change

if TYPE_CHECKING:
    from rich.console import Console

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


@dataclass(frozen=True)
class Release:
    """One column: the outcomes of the cells by compiler, and the status of each published claim.

    `silent` is the number of silently wrong cells by kind of difference, `noted` that of cells with differences that do
    not decide a verdict.
    """

    torch: str
    image: str
    compilers: dict[str, summary.Counts]
    claims: dict[str, summary.ClaimStatus]
    silent: dict[str, int]
    noted: dict[str, int]


@dataclass(frozen=True)
class Step:
    """The changes from one column to the next: the cells, ``suite::name::compiler``, by category of diff."""

    old: str
    new: str
    changes: dict[str, list[str]]


@dataclass(frozen=True)
class Overview:
    """All releases on one capability, oldest first; `cells` is the number of cells that all of them recorded.

    `left_out` has the reason for each image that is not a column, `uncounted` the number of cells of a column that some
    other column lacks, where there are any.
    """

    capability: str
    cells: int
    releases: tuple[Release, ...]
    steps: tuple[Step, ...]
    left_out: dict[str, str]
    uncounted: dict[str, int]


def overview(
    root: Path, *, check: Callable[[Results], object] | None = None, cells: CellFilter | None = None
) -> list[Overview]:
    """Return an overview of every capability that has results at or below a directory.

    `check` is called with each of the results, oldest torch first. `cells` says which of them count. Raises UsageError
    if there are none, or if reading them fails.
    """
    results = read_by_age(root, check)
    if cells is not None:
        cells.check(results)
        results = [chosen for folder in results if (chosen := cells.applied(folder)).records]
        if not results:
            raise UsageError("no results have a cell that matches")
    return [
        _overview(capability, [folder for folder in results if folder.capability == capability])
        for capability in sorted({folder.capability for folder in results})
    ]


def _overview(capability: str, results: list[Results]) -> Overview:
    columns, left_out = _columns(results)
    # A release that ran fewer cells would seem to have fewer faults.
    common = set.intersection(*(_cells(column) for column in columns))
    same = [
        Results(
            column.directory,
            tuple(row for row in column.records if (row.case, row.compiler) in common),
            column.environment,
        )
        for column in columns
    ]
    return Overview(
        capability=capability,
        cells=len(common),
        releases=tuple(map(_release, same)),
        steps=tuple(_step(old, new) for old, new in itertools.pairwise(same)),
        left_out=left_out,
        uncounted={column.image: more for column in columns if (more := len(_cells(column) - common))},
    )


def _columns(results: list[Results]) -> tuple[list[Results], dict[str, str]]:
    """Choose one column per release, with the packages of its time and with (nearly) all cells."""
    left_out = {}
    line = []
    images = {torch_version(folder) for folder in results if not is_bare(folder.image) and not twin(folder.image)}
    for folder in results:
        if twin(folder.image):
            left_out[folder.image] = "packages of another time"
        elif is_bare(folder.image) and torch_version(folder) in images:
            left_out[folder.image] = "its release has an image"
        else:
            line.append(folder)
    if not line:  # there are only twins
        line, left_out = results, {}
    # One unfinished or partial run would leave few cells that all have in common.
    usual = usual_cells(line)
    small = [folder for folder in line if is_partial(folder, usual)]
    left_out |= {folder.image: f"{len(folder.records)} of {plural(usual, 'cell')}" for folder in small}
    by_age = {folder.image: left_out[folder.image] for folder in results if folder.image in left_out}
    return [folder for folder in line if folder not in small], by_age


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
        compilers={name: summary.count(cells) for name, cells in summary.by_compiler(records).items()},
        claims={name: summary.overall_status(cells) for name, cells in claims.items()},
        silent={
            count.kind: count.cells for count in silent_kinds(row for row in records if row.verdict in SILENTLY_WRONG)
        },
        noted=dict(noted_numbers(records)),
    )


def _step(old: Results, new: Results) -> Step:
    changes = {name: list(map(_address, members)) for name, members in diff(old, new).categories() if members}
    return Step(old=old.image, new=new.image, changes=changes)


def _address(change: Change) -> str:
    return f"{change.case}::{change.compiler}"


# Rendering


def to_json(overviews: Iterable[Overview]) -> str:
    """Return overviews as JSON."""
    return indented_json({"schema": OVERVIEW_SCHEMA_VERSION, "overviews": list(overviews)})


def to_markdown(overviews: Iterable[Overview]) -> str:
    """Return overviews as GitHub Markdown."""
    return markdown(block for view in overviews for block in (*_document(view), *_listed_changes(view)))


def print_overviews(console: Console, overviews: Iterable[Overview]) -> None:
    """Print overviews, without the cells that each step changed: `recapture diff` lists them, with details."""
    from recapture.report.terminal_writer import print_document

    print_document(console, [block for view in overviews for block in _document(view)])


def _document(view: Overview) -> Iterator[Block]:
    yield Heading(["Through the releases: ", code_span(view.capability)], 1)
    releases = plural(len(view.releases), "release")
    text = f"{plural(view.cells, 'cell')} (case × compiler) that {releases} recorded."
    if view.uncounted:
        further = ", ".join(f"{cells} of {image}" for image, cells in view.uncounted.items())
        text += f" Not counted, because others lack them: {further}."
    if view.left_out:
        images: dict[str, list[str]] = {}
        for image, why in view.left_out.items():
            images.setdefault(why, []).append(image)
        text += f" Left out: {'; '.join(', '.join(names) + f' ({why})' for why, names in images.items())}."
    yield Paragraph(text)
    for title, table in _tables(view):
        yield Heading(title)
        yield table
        if title == WRONG and table.rows[0][0] == code_span(EAGER):
            yield Paragraph(OF_EAGER)


def _listed_changes(view: Overview) -> Iterator[Block]:
    """Yield the cells that each step changed, of the categories in `LISTED`."""
    names = dict(zip((release.image for release in view.releases), labels(view.releases), strict=True))
    for step in view.steps:
        items = [
            Item([f"{_words(name)}: ", *_cells_by_case(step.changes[name])]) for name in LISTED if name in step.changes
        ]
        if items:
            yield Heading(f"{names[step.old]} → {names[step.new]}", 3)
            yield Items(items)


def _tables(view: Overview) -> Iterator[tuple[str, Table]]:
    """Yield the titles and tables of both forms; a dash means that no cell says anything about the compiler."""
    heads = labels(view.releases)
    columns = "l" + "r" * len(heads)
    compilers = sorted({name for release in view.releases for name in release.compilers}, key=summary.compiler_key)
    kinds: tuple[tuple[str, Callable[[summary.Counts], int]], ...] = (
        (WRONG, lambda counts: counts.silently_wrong),
        ("Failing", lambda counts: counts.failing),
        ("Not run", lambda counts: counts.not_run),
    )
    for title, number in kinds:
        rows: list[list[Inline]] = []
        for name in compilers:
            cells = [_number(release.compilers.get(name), number) for release in view.releases]
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
            [code_span(kind), *(str(numbers(release).get(kind, 0)) for release in view.releases)]
            for kind in KINDS
            if any(kind in numbers(release) for release in view.releases)
        ]
        if rows:
            yield title, Table(["kind", *heads], rows, columns)
    if view.steps:
        categories = [name for name in CATEGORIES if any(step.changes.get(name) for step in view.steps)]
        rows = [
            [f"{was} → {now}", *(str(len(step.changes.get(name, ()))) for name in categories)]
            for (was, now), step in zip(itertools.pairwise(heads), view.steps, strict=True)
        ]
        if categories:
            yield (
                "From one release to the next",
                Table(["", *map(_words, categories)], rows, "l" + "r" * len(categories)),
            )
    ids = sorted({name for release in view.releases for name in release.claims}, key=summary.natural_key)
    if ids:
        rows = [
            [
                Span(name, link=address(name)),
                *(STATUSES[release.claims[name]] if name in release.claims else "" for release in view.releases),
            ]
            for name in ids
        ]
        yield "Published claims reproduced", Table(["claim", *heads], rows, columns)


def _number(counts: summary.Counts | None, number: Callable[[summary.Counts], int]) -> str:
    if counts is None:
        return ""
    value = number(counts)
    return "–" if counts.not_run == counts.total and value != counts.not_run else str(value)


def _words(category: str) -> str:
    return category.replace("_", " ")


def _cells_by_case(cells: Iterable[str]) -> list[str | Span]:
    """Return cells listed by case, with the compilers of each in brackets."""
    compilers: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        case, compiler = cell.rsplit("::", 1)
        compilers[case].append(compiler)
    spans: list[str | Span] = []
    for case, names in compilers.items():
        spans += [", "] if spans else []
        spans += [code_span(case), f" ({', '.join(names)})"]
    return spans
