"""Runs one cell in an image's environment, or in one with other versions of some packages, and reads its record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.analysis.summary import measured
from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.files import write_atomically
from recapture.images.environments import Environments, environments_folder, size_limit
from recapture.machine.pins import lock_hash, lock_path, lock_text
from recapture.results.directories import read_results
from recapture.results.records import CONFORMANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from recapture.images.interpreter import Interpreter
    from recapture.images.package_versions import PackageRelease
    from recapture.machine.pins import Image
    from recapture.results.records import Record

__all__ = ["CellRuns", "mixed_lock"]


@dataclass(frozen=True)
class CellRuns:
    """Runs the cell ``suite::name::compiler`` in environments, and keeps the records in the cache folder."""

    cell: str
    device: str
    keep: int | None
    show: Callable[[str], object]

    @property
    def _environments(self) -> Environments:
        return Environments(root=environments_folder(), limit=size_limit(), keep=self.keep, show=self.show)

    @property
    def _folder(self) -> Path:
        return environments_folder().parent / "bisect"

    def in_image(self, image: Image) -> Record | None:
        """Return the cell's record in an image; None if it has no such cell. Raises as `Environments.use` does."""
        self.show(f"running {self.cell} in {image.name}")
        with self._environments.use(image) as interpreter:
            return self._run(interpreter, lock_hash(lock_path(image.name)))

    def with_packages(self, image: Image, other: Image, names: Collection[str]) -> Record | None:
        """Return the cell's record in an image that has the other image's version of these packages."""
        self.show(f"running {self.cell} in {image.name} with {', '.join(sorted(names))} of {other.name}")
        return self._with_entries(image, lock_text(lock_path(other.name)), names)

    def with_release(self, image: Image, release: PackageRelease) -> Record | None:
        """Return the cell's record in an image that has another release of one package."""
        self.show(f"running {self.cell} in {image.name} with {release.name} {release.version}")
        return self._with_entries(image, release.entry, (release.name,))

    def _with_entries(self, image: Image, other: str, names: Collection[str]) -> Record | None:
        """Return the cell's record in an image with the entries of these packages in the text of another lock."""
        self._folder.mkdir(parents=True, exist_ok=True)
        text = mixed_lock(lock_text(lock_path(image.name)), other, names)
        lock = self._folder / f"{image.name}-mixed.txt"
        write_atomically(lock, text.encode())
        with self._environments.use(image, lock) as interpreter:
            return self._run(interpreter, lock_hash(lock))

    def _run(self, interpreter: Interpreter, lock: str) -> Record | None:
        results = self._folder / lock.partition(":")[2][:12]
        words = ("--device", self.device, "--results", str(results), "--resume", self.cell)
        without_its_report = {"stdout": lambda _: None}
        status = interpreter.recapture("run", *words, write=without_its_report)
        rows = [
            row
            for path in sorted(results.glob(f"*/*/{CONFORMANCE}"))
            for row in read_results(path.parent).records
            if row.cell == self.cell and row.device == self.device
        ]
        if not rows and status != UsageError.exit_status:
            raise EnvironmentUnfitError(f"the run ended with status {status} and without a record")
        if not rows:
            return None
        self.show(f"it is {measured(rows[-1])}")
        return rows[-1]


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
