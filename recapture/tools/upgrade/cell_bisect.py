"""Finds the release, or the package, that turned a cell bad: from records where there are some, else by running it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError
from recapture.base.files import write_atomically
from recapture.base.text import plural, shorten
from recapture.images.environments import Environments, environments_folder, size_limit
from recapture.images.interpreter import exit_status
from recapture.machine.hardware import cores
from recapture.machine.pins import Image, lock_hash, lock_path, lock_text, read_lock
from recapture.records.directories import read_results
from recapture.records.record import CONFORMANCE, Record
from recapture.report.history import PackageChange, TurnEntry, TurnKind, is_bad, turning_points
from recapture.report.summary import measured
from recapture.tools.upgrade.shipped_records import SHIPPED_SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from recapture.tools.upgrade.package_versions import PackageRelease

MOST_AT_ONCE = 4
"""The most environments that run beside each other: more make a search hardly shorter, and each takes about 1 GB."""

UNKNOWN = "unknown "
"""How `plan_cells` begins what it says about a case or a compiler that no file declares."""

REASON = 300
"""Characters of the reason why a run left no record."""

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
        """What the cell is everywhere, if it does not change."""
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
        while images := _next_images(line, search, runs):
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
    known = {image.name: records[image.name] for image in line if image.name in records}
    if not known:
        return {}
    *_, newest = known.values()
    return {name: record for name, record in known.items() if record.case_hash == newest.case_hash}


def may_run(line: Sequence[Image], records: Mapping[str, Record]) -> list[Image]:
    """Return the images in which a search along these may run the cell, because no record decides there."""
    sides, gaps = _undecided(line, ReleaseSearch(_of_one_source(line, records)))
    return list({image.name: image for part in (*sides, *gaps) for image in part}.values())


def _undecided(line: Sequence[Image], search: ReleaseSearch) -> tuple[list[list[Image]], list[list[Image]]]:
    """Return the images not yet tried: those outside all that decide, outermost first, and between two that differ."""
    tried = search.records.keys() | search.failed.keys()
    decided = [
        (number, bad)
        for number, image in enumerate(line)
        if (bad := is_bad(search.records.get(image.name))) is not None
    ]
    first, last = (decided[0][0], decided[-1][0]) if decided else (len(line), -1)
    sides = [[image for image in side if image.name not in tried] for side in (line[:first], line[last + 1 :][::-1])]
    gaps = [
        between
        for (start, was), (end, now) in itertools.pairwise(decided)
        if was != now and (between := [image for image in line[start + 1 : end] if image.name not in tried])
    ]
    return [side for side in sides if side], gaps


def _next_images(line: Sequence[Image], search: ReleaseSearch, runs: ImageRuns) -> list[Image]:
    """Return the images to run next, whose records decide most: the ends, or some between two that differ."""
    sides, gaps = _undecided(line, search)
    if ends := list({side[0].name: side[0] for side in sides}.values()):
        together = ends[: runs.at_once]
        return together if all(map(runs.is_ready, together)) else ends[:1]
    if not gaps:
        return []
    share = max(1, runs.at_once // len(gaps))
    together = [image for between in gaps for image in _spread(between, share)][: runs.at_once]
    return together if all(map(runs.is_ready, together)) else list(_spread(gaps[0], 1))


def _spread(images: Sequence[Image], number: int) -> Iterator[Image]:
    """Yield so many of the images, or all if there are fewer, that divide them into parts of about the same length."""
    places = {len(images) * part // (number + 1) for part in range(1, number + 1)}
    yield from (images[place] for place in sorted(places))


def _add(search: ReleaseSearch, image: Image, outcome: Record | RecaptureError) -> None:
    if isinstance(outcome, RecaptureError):
        search.failed[image.name] = str(outcome)
        return
    if any(record.case_hash == SHIPPED_SOURCE for record in search.records.values()):
        outcome = msgspec.structs.replace(outcome, case_hash=SHIPPED_SOURCE)  # the same suites were recorded
    if any(record.case_hash != outcome.case_hash for record in search.records.values()):
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
        return "; ".join(f"{', '.join(map(str, culprit.packages))}: {culprit.sure}" for culprit in self.culprits)


def search_packages(
    changed: Iterable[PackageChange], bad_with: Callable[[frozenset[str]], bool | None]
) -> PackageSearch:
    """Find which of the packages that differ between a right and a bad environment turns a cell bad.

    `bad_with` says whether the cell is bad in the right environment with these packages of the bad one, or None if that
    cannot be decided. If only one package differs, nothing has to run.
    """
    changes = {change.name: change for change in changed}
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

    others = tuple(sorted(everything - set(SUSPECTS)))
    groups = [(name,) for name in SUSPECTS if name in changes] + ([others] if others else [])
    for group in groups:
        if trial(group):
            bad_without = trial(everything - set(group))
            needed = None if bad_without is None else not bad_without
            search.culprits.append(Culprit(tuple(changes[name] for name in group), alone=True, needed=needed))
            if needed:
                return search
    if search.culprits:
        return search
    together: set[str] = set()
    for group in groups:
        together |= set(group)
        if together == everything or trial(together):
            bad_without = trial(everything - set(group))
            needed = None if bad_without is None else not bad_without
            search.culprits.append(Culprit(tuple(changes[name] for name in group), alone=False, needed=needed))
            break
    return search


class CellPlace(NamedTuple):
    """Where a cell runs: the environment of an image, or of a lock that is mixed from two; `name` is for messages."""

    name: str
    image: Image
    mixed: Path | None = None

    @property
    def lock(self) -> Path:
        """The lock that the environment is made from."""
        return self.mixed or lock_path(self.image.name)


def recorded_cell(address: str) -> str:
    """Return how records name the cell of an address, ``suite::name::compiler`` or ``path/file.py::name::compiler``."""
    place, _, name = address.partition("::")
    return f"{Path(place).stem if place.endswith('.py') else place}::{name}"


@dataclass(frozen=True)
class CellRuns:
    """Runs the cell ``suite::name::compiler`` in environments, and keeps the records in the cache folder."""

    cell: str
    device: str
    keep: int | None
    show: Callable[[str], object]

    @property
    def environments(self) -> Environments:
        """The environments that the cell runs in."""
        return Environments(root=environments_folder(), limit=size_limit(), keep=self.keep, show=self.show)

    @property
    def recorded(self) -> str:
        """The cell as records name it: the suite of a file is its name without the ending."""
        return recorded_cell(self.cell)

    @property
    def _folder(self) -> Path:
        return environments_folder().parent / "bisect"

    def with_packages(self, image: Image, other: Image, names: Collection[str]) -> CellPlace:
        """Return an image that has the other image's version of these packages."""
        name = f"{image.name} with {', '.join(sorted(names))} of {other.name}"
        return self._with_entries(name, image, lock_text(lock_path(other.name)), names)

    def with_release(self, image: Image, release: PackageRelease) -> CellPlace:
        """Return an image that has another release of one package."""
        name = f"{image.name} with {release.name} {release.version}"
        return self._with_entries(name, image, release.entry, (release.name,))

    def _with_entries(self, name: str, image: Image, other: str, names: Collection[str]) -> CellPlace:
        """Return an image with the entries of these packages in the text of another lock."""
        text = mixed_lock(lock_text(lock_path(image.name)), other, names)
        lock = self._folder / f"{image.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(lock, text.encode())
        return CellPlace(name, image, lock)

    def run_one(self, place: CellPlace) -> Record:
        """Return the cell's record in one place, or raise why there is none."""
        (outcome,) = self.run([place])
        if isinstance(outcome, RecaptureError):
            raise outcome
        return outcome

    def run(self, places: Sequence[CellPlace]) -> list[Record | RecaptureError]:
        """Run the cell in all places beside each other; return its record in each, or the reason why there is none.

        Raises UsageError if no file declares the case or the compiler, because then no place has it.
        """
        with contextlib.ExitStack() as stack:
            started = [self._start(place, stack) for place in places]
            return [
                process if isinstance(process, RecaptureError) else self._record(place, process)
                for place, process in zip(places, started, strict=True)
            ]

    def _start(self, place: CellPlace, stack: contextlib.ExitStack) -> subprocess.Popen[bytes] | RecaptureError:
        self.show(f"running {self.cell} in {place.name}")
        words = ("--device", self.device, "--results", str(self._results(place)), "--resume", self.cell)
        try:
            interpreter = stack.enter_context(self.environments.use(place.image, place.mixed))
        except RecaptureError as error:
            return error
        self._results(place).mkdir(parents=True, exist_ok=True)
        errors = stack.enter_context(self._error_file(place).open("wb"))
        return stack.enter_context(interpreter.start("run", *words, stdout=subprocess.DEVNULL, stderr=errors))

    def _record(self, place: CellPlace, process: subprocess.Popen[bytes]) -> Record | RecaptureError:
        """Return the cell's record when the run has ended, or why there is none."""
        try:
            status = exit_status(process)
            rows = [
                row
                for path in sorted(self._results(place).glob(f"*/*/{CONFORMANCE}"))
                for row in read_results(path.parent).records
                if row.cell == self.recorded and row.device == self.device
            ]
        except RecaptureError as error:
            return error
        if not rows:
            errors = self._error_file(place).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = shorten(errors[-1].removeprefix("recapture: "), REASON) if errors else ""
            if status == UsageError.exit_status and last.startswith(UNKNOWN):
                raise UsageError(last)
            why = f": {last}" if last else ""
            return EnvironmentUnfitError(f"the run ended with status {status} and without a record{why}")
        self.show(f"{place.name}: {measured(rows[-1])}")
        return rows[-1]

    def _results(self, place: CellPlace) -> Path:
        return self._folder / lock_hash(place.lock).partition(":")[2][:12]

    def _error_file(self, place: CellPlace) -> Path:
        """Return the file with what a run wrote to its standard error."""
        return self._results(place) / "stderr.txt"


@dataclass(frozen=True)
class LineRuns:
    """Runs of a cell along images, each of which stands for a place."""

    runs: CellRuns
    place: Callable[[Image], CellPlace] = lambda image: CellPlace(image.name, image)

    @property
    def at_once(self) -> int:
        """The most places beside each other: one for each processor, up to `MOST_AT_ONCE`, and one on a GPU."""
        return 1 if self.runs.device != "cpu" else min(cores(), MOST_AT_ONCE)

    def is_ready(self, image: Image) -> bool:
        """Whether the environment of the image's place is there."""
        place = self.place(image)
        return self.runs.environments.has(place.image, place.mixed)

    def run(self, images: Sequence[Image]) -> list[Record | RecaptureError]:
        """Run the cell in the places of these images, as `CellRuns.run`."""
        return self.runs.run([self.place(image) for image in images])


def mixed_lock(text: str, other: str, names: Collection[str]) -> str:
    """Return a lock with the entries of these packages as they are in another lock, or without them if it has none.

    Raises UsageError for a package that neither lock has.
    """
    entries, other_entries = _entries(text), _entries(other)
    unknown = sorted(set(names) - entries.keys() - other_entries.keys())
    if unknown:
        raise UsageError(f"no lock has {unknown[0]}")
    chosen = {name: entry for name, entry in entries.items() if name not in names}
    chosen |= {name: entry for name, entry in other_entries.items() if name in names}
    return "".join(chosen[name] for name in sorted(chosen))


def _entries(text: str) -> dict[str, str]:
    """Return the entries of a lock, each with its hashes, by the package's name."""
    entries: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        begin = re.match(r"([A-Za-z0-9][\w.-]*)==", line)
        if begin:
            name = re.sub(r"[-_.]+", "-", begin[1]).lower()
            entries[name] = line
        elif name and not line.startswith("#"):
            entries[name] += line
    return entries
