"""A user's requirements files: read, compared with the lock of an image, and resolved beside it by uv."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.files import read_regular
from recapture.base.text import shorten
from recapture.images.uv import run_uv
from recapture.machine.pins import lock_path, lock_text, normalise, read_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recapture.machine.pins import Image

LARGEST = 1 << 20
"""Bytes of the largest requirements file that is read."""

_OTHER_FILE = re.compile(r"(?:-r|--requirement|-c|--constraint)[\s=]+(?P<path>.+)")
_DEPENDS = re.compile(
    r"(?P<who>[\w.-]+(?:==[\w.+!-]+)?|all versions of [\w.-]+) depends on (?P<what>[\w.-]+[<>=!~][^\s,]*)"
)


@dataclass(frozen=True)
class Requirements:
    """Requirements files of a user, with what they say: `lines` are pairs of a file and a line."""

    files: tuple[Path, ...]
    lines: tuple[tuple[Path, str], ...] = ()

    @classmethod
    def read(cls, files: Sequence[Path]) -> Requirements:
        """Read files and those that they name with ``-r`` and ``-c``.

        Raises UsageError, naming the file and the line, for what is no requirement.
        """
        paths = tuple(_real(one) for one in files)
        found = Requirements(paths, tuple(line for path in paths for line in _lines(path, ())))
        for _ in found.named():
            pass  # each is parsed, so that a mistake is found before anything is installed
        return found

    def digest(self, lock: Path) -> str:
        """Return the hash of a lock and these requirements: what decides which packages a layer has."""
        text = "\n".join([lock_text(lock), *(line for _, line in self.lines)])
        return hashlib.sha256(text.encode()).hexdigest()

    def named(self) -> Iterator[tuple[Path, Requirement]]:
        """Yield the requirements that name a package; options, folders and addresses are left to uv."""
        for path, line in self.lines:
            text = re.sub(r"\s+--hash[=\s]\S+", "", line)
            if text.startswith(("-", ".", "/")) or re.match(r"[\w+]+://", text):
                continue
            try:
                yield path, Requirement(text)
            except (InvalidRequirement, RecursionError) as error:
                why = str(error).splitlines()[0] if isinstance(error, InvalidRequirement) else "nested too deeply"
                raise UsageError(f"{path.name}: {shorten(text, 100)!r} is no requirement: {why}") from None


def _real(path: Path) -> Path:
    """Return a path without links; unlike `Path.resolve`, also where links lead in a circle."""
    return Path(os.path.realpath(path))


def _lines(path: Path, above: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    """Yield the lines of a requirements file without comments, those of the files that it names in their place."""
    if path in above:
        return
    try:
        text = read_regular(path, most=LARGEST).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"--with {path}: not a text file") from None
    except UsageError as error:
        raise UsageError(f"--with: {error}") from None
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        words = re.sub(r"(^|\s)#.*", "", line).strip()
        other = _OTHER_FILE.fullmatch(words)
        if other is not None:
            yield from _lines(_real(path.parent / other["path"].strip().strip("'\"")), (*above, path))
        elif words:
            yield path, words


def check_against(image: Image, requirements: Requirements) -> None:
    """Raise UsageError, naming both, if a requirement excludes the version that the image pins."""
    locked = read_lock(lock_path(image.name))
    there = {"python_version": image.python, "python_full_version": f"{image.python}.0", "sys_platform": "linux"}
    for path, one in requirements.named():
        pinned = locked.get(normalise(one.name))
        if pinned is None or (one.marker is not None and not one.marker.evaluate(there)):
            continue
        if one.url is not None or not one.specifier.contains(pinned, prereleases=True):
            raise UsageError(
                f"{path.name} asks for {shorten(str(one), 100)}, and {image.name} pins {normalise(one.name)}=={pinned}"
            )


def resolve(
    uv: str, image: Image, python: Path, requirements: Requirements, folder: Path, variables: Mapping[str, str]
) -> str:
    """Return the packages that the requirements need, at versions that fit the image's lock, as a requirements file.

    `folder` is for temporary files. Raises UsageError, in one line, if there are no such versions.
    """
    locked = read_lock(lock_path(image.name))
    constraints, found = folder / "constraints.txt", folder / "resolved.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in locked.items()), encoding="utf-8")
    words = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", str(python)]
    words += ["--constraints", str(constraints), "--output-file", str(found), *map(str, requirements.files)]
    try:
        run_uv(words, folder=Path.cwd(), environment=variables)
    except EnvironmentUnfitError as error:
        conflict = _conflict(str(error), locked, image)
        if not conflict:
            raise
        names = ", ".join(dict.fromkeys(one.name for one in requirements.files))
        raise UsageError(f"{names} does not fit {image.name}: {conflict}") from None
    return found.read_text(encoding="utf-8")


def _conflict(said: str, locked: Mapping[str, str], image: Image) -> str:
    """Return the two requirements at odds in what uv said; its own words where these cannot be found."""
    if "No solution found" not in said and "unsatisfiable" not in said:
        return ""
    for found in _DEPENDS.finditer(said):
        try:
            needed = Requirement(found["what"].rstrip(".,"))
        except InvalidRequirement:
            continue
        pinned = locked.get(normalise(needed.name))
        if pinned is not None and not needed.specifier.contains(pinned, prereleases=True):
            return f"{found['who']} depends on {needed}, and {image.name} pins {normalise(needed.name)}=={pinned}"
    return said.partition("╰─▶")[2].strip() or said


def without_locked(resolved: str, image: Image) -> str:
    """Return the lines of a resolved file whose packages the image does not have."""
    locked = read_lock(lock_path(image.name))
    kept = []
    for line in resolved.splitlines():
        name = re.match(r"[\w.-]+(?=\s*(?:\[[^\]]*\])?\s*(?:==|@))", line)
        if line.strip() and (name is None or normalise(name[0]) not in locked):
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)
