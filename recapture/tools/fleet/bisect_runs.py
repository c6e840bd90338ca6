"""Runs one cell in environments of images, or in those with other versions of some packages, and reads its records."""

from __future__ import annotations

import contextlib
import hashlib
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError
from recapture.base.files import write_atomically
from recapture.base.text import shorten
from recapture.images.environments import Environments, environments_folder, size_limit
from recapture.images.interpreter import exit_status
from recapture.machine.hardware import cores
from recapture.machine.pins import lock_hash, lock_path, lock_text
from recapture.records.directories import read_results
from recapture.records.record import CONFORMANCE
from recapture.report.summary import measured

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from recapture.images.package_versions import PackageRelease
    from recapture.machine.pins import Image
    from recapture.records.record import Record

MOST_AT_ONCE = 4
"""The most environments that run beside each other: more make a search hardly shorter, and each takes about 1 GB."""

UNKNOWN = "unknown "
"""How `plan_cells` begins what it says about a case or a compiler that no file declares."""

REASON = 300
"""Characters of the reason why a run left no record."""


class CellPlace(NamedTuple):
    """Where a cell runs: the environment of an image, or of a lock that is mixed from two; `name` is for messages."""

    name: str
    image: Image
    mixed: Path | None = None

    @property
    def lock(self) -> Path:
        """The lock that the environment is made from."""
        return self.mixed or lock_path(self.image.name)


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
                one if isinstance(one, RecaptureError) else self._record(place, one)
                for place, one in zip(places, started, strict=True)
            ]

    def _start(self, place: CellPlace, stack: contextlib.ExitStack) -> subprocess.Popen[bytes] | RecaptureError:
        self.show(f"running {self.cell} in {place.name}")
        words = ("--device", self.device, "--results", str(self._results(place)), "--resume", self.cell)
        try:
            interpreter = stack.enter_context(self.environments.use(place.image, place.mixed))
        except RecaptureError as error:
            return error
        self._results(place).mkdir(parents=True, exist_ok=True)
        said = stack.enter_context(self._said(place).open("wb"))
        return stack.enter_context(interpreter.start("run", *words, stdout=subprocess.DEVNULL, stderr=said))

    def _record(self, place: CellPlace, process: subprocess.Popen[bytes]) -> Record | RecaptureError:
        """Return the cell's record when the run has ended, or why there is none."""
        try:
            status = exit_status(process)
            rows = [
                row
                for path in sorted(self._results(place).glob(f"*/*/{CONFORMANCE}"))
                for row in read_results(path.parent).records
                if row.cell == self.cell and row.device == self.device
            ]
        except RecaptureError as error:
            return error
        if not rows:
            said = self._said(place).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = shorten(said[-1].removeprefix("recapture: "), REASON) if said else ""
            if status == UsageError.exit_status and last.startswith(UNKNOWN):
                raise UsageError(last)
            why = f": {last}" if last else ""
            return EnvironmentUnfitError(f"the run ended with status {status} and without a record{why}")
        self.show(f"{place.name}: {measured(rows[-1])}")
        return rows[-1]

    def _results(self, place: CellPlace) -> Path:
        return self._folder / lock_hash(place.lock).partition(":")[2][:12]

    def _said(self, place: CellPlace) -> Path:
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
    mine, theirs = _entries(text), _entries(other)
    unknown = sorted(set(names) - mine.keys() - theirs.keys())
    if unknown:
        raise UsageError(f"no lock has {unknown[0]}")
    chosen = {name: entry for name, entry in mine.items() if name not in names}
    chosen |= {name: entry for name, entry in theirs.items() if name in names}
    return "".join(chosen[name] for name in sorted(chosen))


def _entries(text: str) -> dict[str, str]:
    """Return the entries of a lock, each with its hashes, by the package's name."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        begin = re.match(r"([A-Za-z0-9][\w.-]*)==", line)
        if begin:
            name = re.sub(r"[-_.]+", "-", begin[1]).lower()
            found[name] = line
        elif name and not line.startswith("#"):
            found[name] += line
    return found
