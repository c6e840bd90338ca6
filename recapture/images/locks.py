"""Writing the locks: every package of an image with the hashes of its wheels, resolved by uv as of a cut-off day."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from recapture.errors import EnvironmentUnfitError, RecaptureError, UsageError
from recapture.images.pins import docker_directory, normalise, read_toml

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

    from recapture.images.pins import Image, Tools

__all__ = ["header", "inputs_digest", "own_requirements", "read_inputs_digest", "requirements", "write_lock"]

# What an exact pin alone does not fix: resolving for wheels only keeps source builds out of images and environments.
_OPTIONS = ("--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate", "--no-emit-index-url")


def own_requirements() -> list[str]:
    """Return recapture's own runtime requirements, from pyproject.toml of the checkout."""
    path = docker_directory().parent / "pyproject.toml"
    if not path.is_file():
        raise UsageError("locks are written from a checkout of recapture: an installed package has no pyproject.toml")
    listed = read_toml(path)["project"]["dependencies"]
    return [str(requirement) for requirement in listed]


def requirements(image: Image, own: list[str]) -> list[str]:
    """Return the lines uv resolves for an image: the packages under test, exactly, and recapture's own."""
    return [f"{name}=={version}" for name, version in image.pinned.items()] + own


def inputs_digest(image: Image, tools: Tools, own: list[str]) -> str:
    """Return the hash of everything a lock is made from; a lock whose header has another is out of date."""
    text = "\n".join([*requirements(image, own), *_arguments(image, tools, own)])
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def header(image: Image, tools: Tools, own: list[str]) -> str:
    """Return the comment at the head of a lock: for what, as of when, and from which inputs it was made."""
    later = "".join(f"\n# cut-off of {name}: {day}" for name, day in sorted(image.newer.items()))
    return (
        f"# The lock of image {image.name}, written by `recapture images lock`: edit docker/images.toml, not this.\n"
        f"# python: {image.python}\n"
        f"# platform: {tools.platform}\n"
        f"# cut-off: {image.cutoff}{later}\n"
        f"# cut-off of recapture's own dependencies: {tools.cutoff}\n"
        f"# inputs: {inputs_digest(image, tools, own)}\n"
    )


def read_inputs_digest(lock: Path) -> str | None:
    """Return the digest that a lock's header records, or None when it has none."""
    found = re.search(r"^# inputs: (sha256:[0-9a-f]{64})$", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else None


def write_lock(image: Image, tools: Tools, lock: Path) -> int:
    """Resolve an image with uv and write its lock; return the number of packages.

    Raises EnvironmentUnfitError without uv or without a reachable package index, RecaptureError when nothing resolves.
    """
    uv = shutil.which("uv")
    if uv is None:
        raise EnvironmentUnfitError("uv is not on PATH: install it (`pip install uv`) to write locks")
    own = own_requirements()
    done = subprocess.run(
        [uv, "pip", "compile", "-", "--quiet", *_arguments(image, tools, own)],
        input="\n".join(requirements(image, own)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        if re.search(r"error sending request|failed to fetch|dns error|timed out", said, re.IGNORECASE):
            raise EnvironmentUnfitError(f"{image.name}: uv cannot reach the package index: {said}")
        raise RecaptureError(f"{image.name}: nothing resolves: {said}")
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(header(image, tools, own) + done.stdout, encoding="utf-8")
    return done.stdout.count("==")


def _arguments(image: Image, tools: Tools, own: list[str]) -> list[str]:
    """Return uv's options for an image; days are spelled with their zone, for uv reads a bare one in the local zone."""
    later: dict[str, dt.date] = {_name(requirement): tools.cutoff for requirement in own} | image.newer
    arguments = ["--python-version", image.python, "--python-platform", tools.platform, *_OPTIONS]
    arguments += ["--exclude-newer", f"{image.cutoff}T00:00:00Z"]
    for name, day in sorted(later.items()):
        arguments += ["--exclude-newer-package", f"{name}={day}T00:00:00Z"]
    return arguments


def _name(requirement: str) -> str:
    """Return the normalised name of the distribution a requirement asks for."""
    found = re.match(r"\s*([A-Za-z0-9][\w.-]*)", requirement)
    if not found:
        raise UsageError(f"pyproject.toml: not a requirement: {requirement!r}")
    return normalise(found[1])
