"""The verdicts of a cell across the torch releases: where they changed, and where the cell turned bad or right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from recapture.base.errors import UsageError, did_you_mean
from recapture.machine.environment import Environment
from recapture.records.directories import Results
from recapture.records.eager_calls import EagerChange, change_of_calls
from recapture.records.eager_file import CaseKey, EagerRow
from recapture.records.record import Record
from recapture.records.releases import is_bare, read_by_age, torch_version, twin
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG
from recapture.report import environment_facts, summary
from recapture.report.differences import kinds_in_words

TurnKind = Literal["first_bad", "fixed", "bad_again"]

IN_WORDS: dict[TurnKind, str] = {"first_bad": "first bad in", "fixed": "fixed in", "bad_again": "bad again in"}
"""Words for the kinds of turns, before the name of a release."""

PACKAGES = ("torch", "python", "numpy", "scipy", "triton", "torchvision", "setuptools", "cuda", "C++ compiler", "judge")
"""Names of the facts that are compared where a cell turns."""


class PackageChange(msgspec.Struct, frozen=True):
    """A package with another version on the two sides of a turn; None if a side does not have it."""

    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        """The change in words."""
        return f"{self.name} {self.old or 'absent'} → {self.new or 'absent'}"


class Turn(msgspec.Struct, frozen=True):
    """A turn of a cell: the image where it is other than before, and the image before, which is None at the beginning.

    `skipped` is the number of images between the two that say nothing about the cell. `changed` are the packages that
    differ, as far as both environments are known.
    """

    kind: TurnKind
    image: str
    before: str | None
    skipped: int = 0
    changed: tuple[PackageChange, ...] = ()


class TurnEntry(NamedTuple):
    """A cell in one image: its record, if there is one, and the image's environment, if it is known."""

    image: str
    record: Record | None
    environment: Environment | None


@dataclass(frozen=True)
class Entry:
    """The outcome of a cell in one image; `record` is None if the image has results, but not this cell.

    `changed` means that the outcome differs from the previous entry and that another version of the judge does not
    explain it, `edited` that the case's source differs.
    """

    torch: str
    image: str
    record: Record | None
    changed: bool
    edited: bool


@dataclass(frozen=True)
class EagerTurn:
    """Eager itself gave something else in an image than in the one before."""

    before: str
    image: str
    change: EagerChange


@dataclass(frozen=True)
class CellHistory:
    """One cell on one capability, oldest torch first; `turns` say where it turned bad, right, and bad again.

    `eager` says where eager itself gave something else than before, whatever the compiler did.
    """

    case: str
    compiler: str
    capability: str
    entries: tuple[Entry, ...]
    turns: tuple[Turn, ...] = ()
    eager: tuple[EagerTurn, ...] = ()


def history(cell: str, root: Path, *, check: Callable[[Results], object] | None = None) -> list[CellHistory]:
    """Return the histories that match an address, from all the results below a directory.

    `cell` is ``suite::name::compiler``, or a case with all its cells, ``suite::name`` or only ``name``, or
    ``name::compiler``. `check` is called with each of the results, oldest torch first. Raises UsageError, with the most
    similar address, if no results have such a cell.
    """
    results = read_by_age(root, check)
    records = [record for folder in results for record in folder.records]
    addresses = matching_cells(cell, {(record.case, record.compiler) for record in records})
    histories = []
    for capability in sorted({folder.capability for folder in results}):
        column = [folder for folder in results if folder.capability == capability]
        eager = [folder.eager() for folder in column]
        by_image = [{(record.case, record.compiler): record for record in folder.records} for folder in column]
        for case, compiler in addresses:
            row = [cells.get((case, compiler)) for cells in by_image]
            if any(row):
                line = [TurnEntry(folder.image, record, folder.environment) for folder, record in zip(column, row)]  # noqa: B905
                turns = tuple(turning_points(line))
                entries, changes = tuple(_entries(column, row)), tuple(_eager_turns(column, eager, case))
                histories.append(CellHistory(case, compiler, capability, entries, turns, changes))
    return histories


def matching_cells(cell: str, cells: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the cells that an address means, among some, each a case and a compiler.

    Raises UsageError, with the most similar address, if it means none.
    """
    parts = cell.split("::")

    def is_meant(case: str, compiler: str) -> bool:
        name = case.split("::", 1)[-1]
        return cell in (f"{case}::{compiler}", case, name, f"{name}::{compiler}")

    matching = sorted(
        (address for address in cells if is_meant(*address)),
        key=lambda address: (address[0], summary.compiler_key(address[1])),
    )
    if matching:
        return matching
    cases = {case for case, _ in cells}
    if len(parts) == 1:
        known = {case.split("::", 1)[-1] for case in cases}
    elif len(parts) == 2:
        known = cases | {f"{case.split('::', 1)[-1]}::{compiler}" for case, compiler in cells}
    else:
        known = {f"{case}::{compiler}" for case, compiler in cells}
    raise UsageError(f"no results have a cell {cell!r}{did_you_mean(cell, sorted(known))}")


def _entries(column: list[Results], row: list[Record | None]) -> Iterator[Entry]:
    images = [results.image for results in column]
    for number, before in enumerate(compared_with(images, [record is not None for record in row])):
        record, last = row[number], None if before is None else row[before]
        changed = False
        if record is not None and last is not None and before is not None:
            versions = {side.environment.judge_version for side in (column[before], column[number]) if side.environment}
            changed = _changed(last, record, same_judge=len(versions) < 2)
        edited = record is not None and last is not None and record.case_hash != last.case_hash
        yield Entry(torch_version(column[number]), images[number], record, changed, edited)


def _eager_turns(column: list[Results], eager: Sequence[Mapping[CaseKey, EagerRow]], case: str) -> Iterator[EagerTurn]:
    """Yield where eager itself changed, from each image to the next that has digests of the same case."""
    images = [results.image for results in column]
    rows = [next((row for key, row in by_case.items() if key.case == case), None) for by_case in eager]
    for number, before in enumerate(compared_with(images, [row is not None for row in rows])):
        row, last = rows[number], None if before is None else rows[before]
        if before is None or row is None or last is None or row.case_hash != last.case_hash:
            continue
        change = change_of_calls(last.calls, row.calls)
        if change is not None:
            yield EagerTurn(images[before], images[number], change)


def compared_with(images: Sequence[str], present: Sequence[bool]) -> Iterator[int | None]:
    """Yield the index that each entry is compared with: the last main image, or without one, the last entry.

    Drifted twins and runs outside an image are compared, too, but later entries are not compared with them: their
    changes are not changes of the next release.
    """
    last: int | None = None
    image: int | None = None
    for number, (name, is_present) in enumerate(zip(images, present)):  # noqa: B905 - of one length by construction
        yield last if image is None else image
        if is_present:
            last = number
            if not twin(name) and not is_bare(name):
                image = number


def _changed(before: Record, now: Record, *, same_judge: bool) -> bool:
    """Whether the outcome changed: the verdict, an error's phase and type, or the kinds of silent differences.

    Another version of the judge sees other kinds of differences in the same wrong result, so that they say nothing.
    """
    sides = [(summary.mark(record), summary.measured(record), kinds_in_words(record)) for record in (before, now)]
    if same_judge:
        return sides[0] != sides[1]
    both_wrong = before.verdict in SILENTLY_WRONG and now.verdict in SILENTLY_WRONG
    return not both_wrong and sides[0][:2] != sides[1][:2]


# Where a cell turns bad, right, and bad again


def is_bad(record: Record | None) -> bool | None:
    """Whether a cell is wrong or fails; None where it says nothing about its compiler, or was not recorded."""
    if record is None or record.verdict not in RIGHT | SILENTLY_WRONG | FAILING:
        return None
    return record.verdict not in RIGHT


def package_changes(old: Environment | None, new: Environment | None) -> tuple[PackageChange, ...]:
    """Return the packages that differ between two environments and may matter; none if one is not known."""
    before, after = environment_facts.comparable(old), environment_facts.comparable(new)
    if not before or not after:
        return ()
    return tuple(
        PackageChange(name, before.get(name), after.get(name))
        for name in PACKAGES
        if before.get(name) != after.get(name)
    )


def turning_points(line: Sequence[TurnEntry], *, every: bool = False) -> list[Turn]:
    """Return the turns of a cell along the images of releases, oldest first.

    Drifted twins and runs outside an image are no releases; they count with `every`. An edited case begins anew: what
    it was before says nothing about it.
    """
    turns: list[Turn] = []
    last: tuple[int, TurnEntry, bool] | None = None
    releases = [entry for entry in line if every or not (twin(entry.image) or is_bare(entry.image))]
    ever_bad = False
    for number, point in enumerate(releases):
        bad = is_bad(point.record)
        if bad is None or point.record is None:
            continue
        before = last
        if last is not None and last[1].record is not None and last[1].record.case_hash != point.record.case_hash:
            # The turns so far are those of another program.
            before, ever_bad = None, False
            turns.clear()
        if before is None and bad:
            turns.append(Turn("first_bad", point.image, None))
        elif before is not None and bad != before[2]:
            kind: TurnKind = "fixed" if not bad else "bad_again" if ever_bad else "first_bad"
            changed = package_changes(before[1].environment, point.environment)
            turns.append(Turn(kind, point.image, before[1].image, number - before[0] - 1, changed))
        ever_bad = ever_bad or bad
        last = (number, point, bad)
    return turns
