"""Writes the locks: every package of an image with its wheel hashes, resolved by uv as of a cut-off date."""

from __future__ import annotations

import hashlib
import re
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError
from recapture.base.toml_file import read_toml
from recapture.images.uv import find_uv, unreachable_index
from recapture.machine.pins import docker_directory, lock_path, lock_text, normalise

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

    from recapture.machine.pins import Image, Tools

# Exact pins alone do not exclude source builds; resolving only wheels does.
_OPTIONS = ("--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate", "--no-emit-index-url")
_OLDEST_PYTHON = "3.10"


class LockPlan(NamedTuple):
    """The inputs of one lock: its file and purpose, the lines to resolve, uv's options, and facts for its header."""

    path: Path
    purpose: str
    requirements: tuple[str, ...]
    options: tuple[str, ...]
    facts: tuple[str, ...]

    @property
    def inputs_digest(self) -> str:
        """Hash of everything that determines the lock; a lock whose header has another hash is out of date."""
        text = "\n".join([*self.requirements, *self.options])
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    @property
    def header(self) -> str:
        """The comment at the top of the lock."""
        lines = [f"{self.purpose}, written by `recapture images lock`: do not edit.", *self.facts]
        return "".join(f"# {line}\n" for line in [*lines, f"inputs: {self.inputs_digest}"])


def image_plan(image: Image, tools: Tools) -> LockPlan:
    """Return the plan of an image's lock: the packages under test, pinned exactly, and recapture's dependencies."""
    elsewhere = {*tools.with_torch, *tools.outside_images}
    own = [
        str(requirement)
        for requirement in _pyproject()["project"]["dependencies"]
        if _name(requirement) not in elsewhere
    ]
    later = {_name(requirement): tools.cutoff for requirement in own} | image.newer
    options = ["--python-version", image.python, "--python-platform", tools.platform, *_OPTIONS]
    options += ["--exclude-newer", _instant(image.cutoff)]
    for name, day in sorted(later.items()):
        options += ["--exclude-newer-package", f"{name}={_instant(day)}"]
    facts = [f"python: {image.python}", f"platform: {tools.platform}", f"cut-off: {image.cutoff}"]
    facts += [f"cut-off of {name}: {day}" for name, day in sorted(image.newer.items())]
    facts.append(f"cut-off of recapture's own dependencies: {tools.cutoff}")
    pins = [f"{name}=={version}" for name, version in image.pinned.items()]
    return LockPlan(
        lock_path(image.name), f"The lock of image {image.name}", (*pins, *own), tuple(options), tuple(facts)
    )


def build_plan(tools: Tools) -> LockPlan:
    """Return the plan of the lock for building recapture's wheel in the Dockerfile, the same for every Python."""
    requirements = tuple(str(requirement) for requirement in _pyproject()["build-system"]["requires"])
    options = ("--universal", "--python-version", _OLDEST_PYTHON, *_OPTIONS, "--exclude-newer", _instant(tools.cutoff))
    path = docker_directory() / "build-requirements.txt"
    purpose = "The lock of what builds recapture's wheel for the images"
    return LockPlan(path, purpose, requirements, options, (f"cut-off: {tools.cutoff}",))


def read_inputs_digest(lock: Path) -> str | None:
    """Return the digest in a lock's header, or None if it has none."""
    header = re.search(r"^# inputs: (sha256:[0-9a-f]{64})$", lock_text(lock), re.MULTILINE)
    return header[1] if header else None


def write_lock(plan: LockPlan) -> int:
    """Resolve with uv and write the lock; return the number of packages.

    Raises EnvironmentUnfitError if uv or the package index cannot be reached, RecaptureError if resolving fails.
    """
    done = subprocess.run(
        [find_uv("write locks"), "pip", "compile", "-", "--quiet", *plan.options],
        input="\n".join(plan.requirements),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        message = " ".join(done.stderr.split())
        if unreachable_index(message):
            raise EnvironmentUnfitError(f"{plan.path.name}: uv cannot reach the package index: {message}")
        raise RecaptureError(f"{plan.path.name}: nothing resolves: {message}")
    plan.path.parent.mkdir(parents=True, exist_ok=True)
    plan.path.write_text(plan.header + done.stdout, encoding="utf-8")
    return len(re.findall(r"^\S+==", done.stdout, re.MULTILINE))


def _pyproject() -> dict[str, Any]:
    path = docker_directory().parent / "pyproject.toml"
    if not path.is_file():
        raise UsageError("locks are written in a checkout of recapture: an installed package has no pyproject.toml")
    return read_toml(path)


def _instant(day: dt.date) -> str:
    """Return a day's first moment with its time zone, because uv interprets a date in the local time zone."""
    return f"{day}T00:00:00Z"


def _name(requirement: str) -> str:
    try:
        return normalise(Requirement(requirement).name)
    except InvalidRequirement:
        raise UsageError(f"pyproject.toml: not a requirement: {requirement!r}") from None
