"""All cells across the torch releases: failures of each compiler, and the changes of each release."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError
from recapture.base.text import plural
from recapture.records.directories import Results
from recapture.records.releases import is_bare, read_by_age, torch_version, twin
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report import summary
from recapture.report.differences import noted_numbers, silent_kinds
from recapture.tools.compare.cell_changes import diff

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recapture.report.cell_filter import CellFilter
    from recapture.tools.compare.changes import Change


WHOLE = 0.9
"""Smallest share of the median number of cells that a column must have, so that enough cells are common to all."""


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
        results = [kept for one in results if (kept := cells.applied(one)).records]
        if not results:
            raise UsageError("no results have a cell that matches")
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
        uncounted={one.image: more for one in columns if (more := len(_cells(one) - common))},
    )


def _columns(results: list[Results]) -> tuple[list[Results], dict[str, str]]:
    """Choose one column per release, with the packages of its time and with (nearly) all cells."""
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
    if not line:  # there are only twins
        line, left_out = results, {}
    usual = statistics.median_high(len(one.records) for one in line)
    small = {one.image: len(one.records) for one in line if len(one.records) < WHOLE * usual}
    left_out |= {image: f"{cells} of {plural(usual, 'cell')}" for image, cells in small.items()}
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
        compilers={name: summary.count(cells) for name, cells in summary.by_compiler(records).items()},
        claims={name: summary.overall_status(cells) for name, cells in claims.items()},
        silent={one.kind: one.cells for one in silent_kinds(row for row in records if row.verdict in SILENTLY_WRONG)},
        noted=dict(noted_numbers(records)),
    )


def _step(old: Results, new: Results) -> Step:
    changes = {name: list(map(_address, members)) for name, members in diff(old, new).categories() if members}
    return Step(old=old.image, new=new.image, changes=changes)


def _address(change: Change) -> str:
    return f"{change.case}::{change.compiler}"
