"""Where a cell turns bad, right, and bad again along the releases, and what else changed there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from recapture.records.releases import is_bare, twin
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG
from recapture.report import environment_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.machine.environment import Environment
    from recapture.records.record import Record

TurnKind = Literal["first_bad", "fixed", "bad_again"]

IN_WORDS: dict[TurnKind, str] = {"first_bad": "first bad in", "fixed": "fixed in", "bad_again": "bad again in"}
"""Words for the kinds of turns, before the name of a release."""

PACKAGES = ("torch", "python", "numpy", "scipy", "triton", "torchvision", "setuptools", "cuda", "C++ compiler")
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
    releases = [one for one in line if every or not (twin(one.image) or is_bare(one.image))]
    ever_bad = False
    for number, seen in enumerate(releases):
        bad = is_bad(seen.record)
        if bad is None or seen.record is None:
            continue
        before = last
        if last is not None and last[1].record is not None and last[1].record.case_hash != seen.record.case_hash:
            before, ever_bad = None, False
            turns.clear()
        if before is None and bad:
            turns.append(Turn("first_bad", seen.image, None))
        elif before is not None and bad != before[2]:
            kind: TurnKind = "fixed" if not bad else "bad_again" if ever_bad else "first_bad"
            changed = package_changes(before[1].environment, seen.environment)
            turns.append(Turn(kind, seen.image, before[1].image, number - before[0] - 1, changed))
        ever_bad = ever_bad or bad
        last = (number, seen, bad)
    return turns
