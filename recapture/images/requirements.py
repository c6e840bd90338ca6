"""A user's own packages on top of an image: requirements files, compared with the image's lock and installed by uv.

They are installed into a layer: a small virtual environment with the packages that the image lacks, which finds the
others in the environment below it, named by a file ``.pth``. A layer is stored and removed like the environments.

What protects an installation is kept. The options of the files (indices, ``--find-links``, ``--no-index``, …) are those
of the installation, which demands a hash for every package that has one: the user's, where there is one, else those
that the resolution saw.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.text import shorten
from recapture.images.interpreter import Interpreter
from recapture.images.requirement_lines import HASH, file_of, is_file, lines_of, meaning_here, real_path
from recapture.images.uv import find_uv, run_uv
from recapture.machine.pins import lock_path, lock_text, normalise, read_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recapture.machine.pins import Image

LAYER = "+with"
"""What follows the name of the image in the name of a layer."""

LAYER_BYTES = 2 << 30
"""Bytes that must be free for a new layer."""

_BELOW = "recapture_environment_below.pth"

IMAGE_FILE = "recapture_layer.pth"
"""The file of a layer that makes the Python of a container's image find it."""

_DEPENDS = re.compile(
    r"(?P<who>[\w.-]+(?:==[\w.+!-]+)?|all versions of [\w.-]+) depends on (?P<what>[\w.-]+[<>=!~][^\s,]*)"
)


@dataclass(frozen=True)
class Requirements:
    """Requirements files of a user, with what they say: `lines` are pairs of a file and a line.

    `labels` are pairs of a file that recapture wrote itself and what messages call it.
    """

    files: tuple[Path, ...]
    lines: tuple[tuple[Path, str], ...] = ()
    labels: tuple[tuple[Path, str], ...] = ()

    @classmethod
    def read(cls, files: Sequence[Path]) -> Requirements:
        """Read files and those that they name with ``-r`` and ``-c``.

        Raises UsageError, naming the file and the line, for what is not a requirement.
        """
        paths = tuple(real_path(path) for path in files)
        requirements = Requirements(paths, lines_of(paths))
        for _ in requirements.named():
            pass  # each is parsed, so that a mistake is found before anything is installed
        return requirements

    def digest(self, lock: Path) -> str:
        """Return the hash of a lock and these requirements: what decides which packages a layer has."""
        return hashlib.sha256("\n".join([lock_text(lock), *self.identity]).encode()).hexdigest()

    @property
    def identity(self) -> list[str]:
        """The lines, and what decides here which packages they are."""
        lines = [line for _, line in self.lines]
        return [*lines, *meaning_here(lines)]

    @property
    def options(self) -> list[str]:
        """The lines with options for the whole installation, such as ``--index-url``."""
        return [line for _, line in self.lines if line.startswith("-") and not re.match(r"(-e|--editable)\b", line)]

    @property
    def hashes(self) -> dict[str, set[str]]:
        """The hashes of the files that the user allows, by the package's name, or by the file of a path or address."""
        hashes: dict[str, set[str]] = {}
        for _, line in self.lines:
            if allowed := HASH.findall(line):
                name = None if is_file(line) else re.match(r"[\w.-]+", line)
                key = file_of(line) if name is None else normalise(name[0])
                hashes.setdefault(key, set()).update(allowed)
        return hashes

    @property
    def demands_hashes(self) -> bool:
        """Whether every package needs a hash of the user's."""
        return "--require-hashes" in self.options

    @property
    def names(self) -> str:
        """What messages call the files."""
        labels = dict(self.labels)
        return ", ".join(dict.fromkeys(labels.get(path, path.name) for path in self.files))

    def named(self) -> Iterator[tuple[Path, Requirement]]:
        """Yield the requirements that name a package; options, folders and addresses are left to uv.

        Raises UsageError for a line that is not a requirement.
        """
        for path, line in self.lines:
            text = HASH.sub("", line).strip()
            if text.startswith("-") or is_file(text):
                continue
            try:
                yield path, Requirement(text)
            except (InvalidRequirement, RecursionError) as error:
                why = str(error).splitlines()[0] if isinstance(error, InvalidRequirement) else "nested too deeply"
                raise UsageError(f"{path.name}: {shorten(text, 100)!r} is not a requirement: {why}") from None


def check_against(image: Image, requirements: Requirements, mixed: Path | None = None) -> None:
    """Raise UsageError, naming both, if a requirement excludes the version or the file that the image pins.

    `mixed` is another lock, which takes the place of the image's.
    """
    lock = mixed or lock_path(image.name)
    locked, entries = read_lock(lock), entries_of(lock_text(lock))
    marker_values = {
        "python_version": image.python,
        "python_full_version": f"{image.python}.0",
        "sys_platform": "linux",
    }
    for path, requirement in requirements.named():
        name = normalise(requirement.name)
        pinned = locked.get(name)
        if pinned is None or not _applies(path, requirement, marker_values):
            continue
        if requirement.url is not None or not requirement.specifier.contains(pinned, prereleases=True):
            raise UsageError(
                f"{path.name} asks for {shorten(str(requirement), 100)}, and {image.name} pins {name}=={pinned}"
            )
        allowed, installed = requirements.hashes.get(name), set(HASH.findall(entries.get(name, "")))
        if allowed and installed and not allowed & installed:
            raise UsageError(f"{path.name} allows no file of {name} {pinned} that {image.name} pins: the hashes differ")


def _applies(path: Path, requirement: Requirement, marker_values: Mapping[str, str]) -> bool:
    """Whether the marker of a requirement of a file holds. Raises UsageError for one that means nothing."""
    try:
        return requirement.marker is None or requirement.marker.evaluate(dict(marker_values))
    except (
        ValueError,
        TypeError,
        LookupError,
    ) as error:  # such as an order of words, or a name that only other files may use
        why = shorten(str(error), 100)
        raise UsageError(
            f"{path.name}: the marker of {shorten(str(requirement), 100)!r} means nothing: {why}"
        ) from None


def build_layer(
    image: Image,
    base: Interpreter,
    requirements: Requirements,
    partial: Path,
    variables: Mapping[str, str],
    mixed: Path | None = None,
) -> None:
    """Make a layer in the folder `partial`; raises UsageError or EnvironmentUnfitError, in one line.

    `mixed` is the lock of the environment below, if that is not the image's own.
    """
    lock = mixed or lock_path(image.name)
    uv = find_uv("make environments")
    create = (uv, "venv", "--quiet", "--no-project", "--no-python-downloads", "--relocatable")
    run_uv((*create, "--python", str(base.python), str(partial)), folder=partial.parent, environment=variables)
    resolved = _resolve(uv, image, lock, base.python, requirements, partial, variables, mixed=mixed is not None)
    install(
        beyond_lock(resolved, lock), requirements, partial, ("--python", str(partial / "bin" / "python")), variables
    )


def install(
    entries: Mapping[str, str],
    requirements: Requirements,
    folder: Path,
    place: Sequence[str],
    variables: Mapping[str, str],
) -> None:
    """Install these entries of a resolved file, with the options and hashes of the requirements.

    `place` are the words for uv that say where; `folder` is for temporary files. Raises UsageError if a file is not
    one that the requirements allow, and EnvironmentUnfitError where uv fails.
    """
    words = (find_uv("install packages"), "pip", "install", "--quiet", "--no-deps", *place)
    options = "".join(f"{line}\n" for line in requirements.options)
    hashed, others = to_install(entries, requirements)
    for name, text, more in (("packages.txt", hashed, ("--require-hashes",)), ("sources.txt", others, ())):
        if not text:
            continue
        (folder / name).write_text(options + text, encoding="utf-8")
        try:
            run_uv((*words, *more, "-r", str(folder / name)), folder=Path.cwd(), environment=variables)
        except EnvironmentUnfitError as error:
            if "hash mismatch" in str(error).lower():
                raise UsageError(f"{requirements.names}: {error}") from None
            raise


def put_on_environment(layer: Path, base: Interpreter) -> None:
    """Make the Python of a layer find the packages of the environment below it."""
    (own,) = layer.glob("lib/python*/site-packages")
    (below,) = base.python.parent.parent.glob("lib/python*/site-packages")
    (own / _BELOW).write_text(f"import site; site.addsitedir({str(below)!r})\n", encoding="utf-8")


def put_on_image(layer: Path, place: Path, python: str) -> None:
    """Make a layer one for the Python of a container's image, which then is the Python of the layer's programs.

    `place` is where the layer will be, and `IMAGE_FILE` in it what that Python must have in its own site-packages.
    """
    (own,) = layer.glob("lib/python*/site-packages")
    inside = place / own.relative_to(layer)
    (layer / IMAGE_FILE).write_text(f"import site; site.addsitedir({str(inside)!r})\n", encoding="utf-8")
    (layer / "pyvenv.cfg").unlink()
    program = layer / "bin" / "python"
    program.unlink()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)


def layer_on(base: Interpreter, folder: Path, held: int) -> Interpreter:
    """Return the Python of a layer; `held` is the lock that keeps the layer."""
    variables = dict(base.variables)
    variables["VIRTUAL_ENV"] = str(folder)
    variables["PATH"] = os.pathsep.join([str(folder / "bin"), variables["PATH"]])
    return Interpreter(folder / "bin" / "python", variables, (*base.keep_open, held))


def _resolve(
    uv: str,
    image: Image,
    lock: Path,
    python: Path,
    requirements: Requirements,
    folder: Path,
    variables: Mapping[str, str],
    *,
    mixed: bool,
) -> str:
    """Return the packages that the requirements need, at versions that fit the lock, with hashes.

    `folder` is for temporary files. The packages of a `mixed` lock are those of two releases, and exclude each other by
    what they require: the lock decides, as it did when it was installed. Raises UsageError, in one line, if there are
    no such versions.
    """
    locked = read_lock(lock)
    constraints, resolved = folder / "constraints.txt", folder / "resolved.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in locked.items()), encoding="utf-8")
    words = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
    words += ["--python", str(python), "--constraints", str(constraints), "--output-file", str(resolved)]
    words += ["--override", str(constraints)] if mixed else []
    try:
        run_uv((*words, *map(str, requirements.files)), folder=Path.cwd(), environment=variables)
    except EnvironmentUnfitError as error:
        conflict = _conflict(str(error), locked, image)
        if not conflict:
            raise
        raise UsageError(f"{requirements.names} does not fit {image.name}: {conflict}") from None
    return resolved.read_text(encoding="utf-8")


def _conflict(message: str, locked: Mapping[str, str], image: Image) -> str:
    """Return the two requirements at odds in uv's message; its own words where these cannot be found."""
    if "No solution found" not in message and "unsatisfiable" not in message:
        return ""
    for match in _DEPENDS.finditer(message):
        try:
            needed = Requirement(match["what"].rstrip(".,"))
        except InvalidRequirement:
            continue
        if needed.name == "Python":
            return f"{match['who']} needs {needed}, and {image.name} has Python {image.python}"
        pinned = locked.get(normalise(needed.name))
        if pinned is not None and not needed.specifier.contains(pinned, prereleases=True):
            return f"{match['who']} depends on {needed}, and {image.name} pins {normalise(needed.name)}=={pinned}"
    return message.partition("╰─▶")[2].strip() or message


def to_install(entries: Mapping[str, str], requirements: Requirements) -> tuple[str, str]:
    """Return the text of these entries of a resolved file, by name: those with hashes, and those without.

    The user's own hashes replace those of the index. Folders and repositories have no hash. Raises UsageError for a
    package without a hash of the user's where the requirements demand hashes for all.
    """
    allowed_hashes = requirements.hashes
    of_files = {file_of(line) for _, line in requirements.lines if HASH.search(line) and is_file(line)}
    unused = of_files - {file_of(entry) for entry in entries.values()}
    hashed = others = ""
    for name, entry in entries.items():
        allowed = allowed_hashes.get(name) or allowed_hashes.get(file_of(entry))
        if requirements.demands_hashes and not allowed:
            raise UsageError(f"{requirements.names} demands hashes, and has none for {name}")
        if not allowed and unused and version_of(entry) is None:
            raise UsageError(
                f"{requirements.names} has a hash for {min(unused)}, and whether that is {shorten(name, 100)} cannot "
                "be told: name the package before the file, as in `name @ file:///…`"
            )
        if allowed:
            begin = HASH.sub("", entry.replace("\\\n", " ")).strip()
            hashed += " ".join([begin, *(f"--hash={text}" for text in sorted(allowed))]) + "\n"
        elif HASH.search(entry):
            hashed += entry
        else:
            others += entry
    return hashed, others


def beyond_lock(resolved: str, lock: Path) -> dict[str, str]:
    """Return the entries of a resolved file for packages that a lock lacks, by name."""
    locked = read_lock(lock)
    return {name: entry for name, entry in entries_of(resolved).items() if name not in locked}


def version_of(entry: str) -> str | None:
    """Return the version that an entry of `entries_of` names; None for a folder or an address."""
    match = re.match(r"[^=@\s]+==([\w.!+-]+)", entry)
    return None if match is None else match[1]


def entries_of(text: str) -> dict[str, str]:
    """Return the entries of a lock, or of what uv resolved, with their hashes.

    An entry is under the name of its package, one of a folder or repository without a name under its own text.
    """
    entries: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if line[:1].isspace() and key:
            entries[key] += f"{line}\n"
        elif line.strip() and not line.startswith("#"):
            name = re.match(r"[\w.-]+(?=\s*(?:\[[^\]]*\])?\s*(?:==|@))", line)
            key = line.rstrip(" \\") if name is None else normalise(name[0])
            entries[key] = f"{line}\n"
    return entries
