"""Finds the release, or the package, that turned a cell bad: from records where there are some, else by running it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from recapture.base.errors import RecaptureError
from recapture.base.text import plural
from recapture.machine.pins import lock_path, read_lock
from recapture.report.history import PackageChange, TurnEntry, TurnKind, is_bad, turning_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from recapture.machine.pins import Image
    from recapture.records.record import Record

SUSPECTS = ("scipy", "numpy", "setuptools", "triton", "torchvision")
"""Packages that are tried one by one, in this order; the others are tried together."""


class Boundary(NamedTuple):
    """Two images between which a cell turns: the kind of turn, both images with their records, and what differs.

    `undecided` are the images between the two that say nothing about the cell.
    """

    kind: TurnKind
    before: str
    image: str
    old: Record
    new: Record
    undecided: tuple[str, ...]
    changed: tuple[PackageChange, ...]
    others: int

    @property
    def sure(self) -> str:
        """How sure it is that the image after the boundary made the change."""
        if not self.undecided:
            return "sure: none lies between the two"
        return f"not sure: between the two lie {', '.join(self.undecided)}, without a record that decides"


@dataclass
class ReleaseSearch:
    """The outcome over releases: the records by image, which of them were made now, failures to run, and boundaries."""

    records: dict[str, Record] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    boundaries: list[Boundary] = field(default_factory=list)

    @property
    def always(self) -> Literal["right", "bad", "unknown"] | None:
        """What the cell is everywhere, if it never turns."""
        if self.boundaries:
            return None
        states = {is_bad(record) for record in self.records.values()} - {None}
        return "unknown" if not states else "bad" if states == {True} else "right"


class ImageRuns(Protocol):
    """Runs a cell in images, at most `at_once` of them beside each other."""

    @property
    def at_once(self) -> int:
        """The most images that `run` takes."""

    def is_ready(self, image: Image) -> bool:
        """Whether the image's environment is there."""

    def run(self, images: Sequence[Image]) -> list[Record | RecaptureError]:
        """Return the cell's record in each image, or why there is none."""


def search_releases(line: Sequence[Image], records: Mapping[str, Record], runs: ImageRuns | None) -> ReleaseSearch:
    """Find every boundary of a cell along images, oldest first, running it where no record decides between two.

    `records` are those on file, by image; those of an edited case are ignored. Without `runs`, the records must
    suffice. Images run beside each other only where their environments are there: to make one costs more than the time
    that a further run saves.
    """
    search = ReleaseSearch(_of_one_source(line, records))
    if runs is not None:
        while images := _wanted(line, search, runs):
            for image, outcome in zip(images, runs.run(images), strict=True):
                _add(search, image, outcome)
    entries = [TurnEntry(image.name, search.records.get(image.name), None) for image in line]
    names = [image.name for image in line]
    by_name = {image.name: image for image in line}
    for turn in turning_points(entries, every=True):
        if turn.before is None:
            continue
        first, last = names.index(turn.before), names.index(turn.image)
        changed, others = lock_changes(by_name[turn.before], by_name[turn.image])
        search.boundaries.append(
            Boundary(
                turn.kind,
                turn.before,
                turn.image,
                search.records[turn.before],
                search.records[turn.image],
                tuple(names[first + 1 : last]),
                changed,
                others,
            )
        )
    return search


def _of_one_source(line: Sequence[Image], records: Mapping[str, Record]) -> dict[str, Record]:
    """Return the records in these images of the case's newest source: an edited case is another one."""
    there = {image.name: records[image.name] for image in line if image.name in records}
    if not there:
        return {}
    *_, newest = there.values()
    return {name: one for name, one in there.items() if one.case_hash == newest.case_hash}


def _wanted(line: Sequence[Image], search: ReleaseSearch, runs: ImageRuns) -> list[Image]:
    """Return the images to run next, whose records decide most: the ends, or some between two that differ."""
    tried = search.records.keys() | search.failed.keys()
    decided = [
        (number, bad)
        for number, image in enumerate(line)
        if (bad := is_bad(search.records.get(image.name))) is not None
    ]
    first, last = (decided[0][0], decided[-1][0]) if decided else (len(line), -1)
    sides = [[one for one in side if one.name not in tried] for side in (line[:first], line[last + 1 :][::-1])]
    if ends := list({side[0].name: side[0] for side in sides if side}.values()):
        together = ends[: runs.at_once]
        return together if all(map(runs.is_ready, together)) else ends[:1]
    gaps = [
        between
        for (start, was), (end, now) in itertools.pairwise(decided)
        if was != now and (between := [image for image in line[start + 1 : end] if image.name not in tried])
    ]
    if not gaps:
        return []
    each = max(1, runs.at_once // len(gaps))
    together = [image for between in gaps for image in _spread(between, each)][: runs.at_once]
    return together if all(map(runs.is_ready, together)) else list(_spread(gaps[0], 1))


def _spread(images: Sequence[Image], number: int) -> Iterator[Image]:
    """Yield so many of the images, or all if there are fewer, that divide them into parts of about the same length."""
    yield from (images[place] for place in sorted({len(images) * one // (number + 1) for one in range(1, number + 1)}))


def _add(search: ReleaseSearch, image: Image, outcome: Record | RecaptureError) -> None:
    if isinstance(outcome, RecaptureError):
        search.failed[image.name] = str(outcome)
        return
    if any(one.case_hash != outcome.case_hash for one in search.records.values()):
        search.records = {name: search.records[name] for name in search.ran}  # the records on file are of an old source
    search.records[image.name] = outcome
    search.ran.append(image.name)


def lock_changes(old: Image, new: Image) -> tuple[tuple[PackageChange, ...], int]:
    """Return the packages under test, Python and CUDA that differ between two images, and the number of others."""
    before = {"python": old.python, "cuda": old.cuda, **old.pinned}
    after = {"python": new.python, "cuda": new.cuda, **new.pinned}
    changed = tuple(
        PackageChange(name, before.get(name), after.get(name)) for name in before if before[name] != after[name]
    )
    paths = [lock_path(image.name) for image in (old, new)]
    if not all(path.is_file() for path in paths):  # of an image with another version of a package, or without a lock
        return changed, 0
    locks = [read_lock(path) for path in paths]
    differ = {name for name in locks[0].keys() | locks[1].keys() if locks[0].get(name) != locks[1].get(name)}
    return changed, len(differ - before.keys())


class Culprit(NamedTuple):
    """Packages that turn a cell bad, and how sure that is: alone, and whether the rest without them is right."""

    packages: tuple[PackageChange, ...]
    alone: bool
    needed: bool | None

    @property
    def sure(self) -> str:
        """How sure it is that these packages make the change."""
        how = "alone makes it bad" if self.alone else "makes it bad together with those before it"
        if self.needed is None:
            return f"{how}; the other changes without it were not decided"
        return f"{how}, and all other changes without it are right" if self.needed else f"{how}, but others do, too"


@dataclass
class PackageSearch:
    """The outcome over packages between two locks: what differs, the trials, and the culprits."""

    changed: tuple[PackageChange, ...]
    trials: list[tuple[tuple[str, ...], bool | None]] = field(default_factory=list)
    culprits: list[Culprit] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """The outcome in one line."""
        if not self.culprits:
            return f"none of {plural(len(self.changed), 'changed package')} could be shown to turn it bad"
        return "; ".join(f"{', '.join(map(str, one.packages))}: {one.sure}" for one in self.culprits)


def search_packages(
    changed: Iterable[PackageChange], bad_with: Callable[[frozenset[str]], bool | None]
) -> PackageSearch:
    """Find which of the packages that differ between a right and a bad environment turns a cell bad.

    `bad_with` says whether the cell is bad in the right environment with these packages of the bad one, or None if that
    cannot be decided. If only one package differs, nothing has to run.
    """
    changes = {one.name: one for one in changed}
    search = PackageSearch(tuple(changes.values()))
    everything = frozenset(changes)
    if len(changes) <= 1:
        if changes:
            search.culprits.append(Culprit(tuple(changes.values()), alone=True, needed=True))
        return search

    def trial(names: Iterable[str]) -> bool | None:
        chosen = frozenset(names)
        bad = bad_with(chosen)
        search.trials.append((tuple(sorted(chosen)), bad))
        return bad

    rest = tuple(sorted(everything - set(SUSPECTS)))
    groups = [(name,) for name in SUSPECTS if name in changes] + ([rest] if rest else [])
    for group in groups:
        if trial(group):
            needed = None if (others := trial(everything - set(group))) is None else not others
            search.culprits.append(Culprit(tuple(changes[name] for name in group), alone=True, needed=needed))
            if needed:
                return search
    if search.culprits:
        return search
    together: set[str] = set()
    for group in groups:
        together |= set(group)
        if together == everything or trial(together):
            others = trial(everything - set(group))
            needed = None if others is None else not others
            search.culprits.append(Culprit(tuple(changes[name] for name in group), alone=False, needed=needed))
            break
    return search
