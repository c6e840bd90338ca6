"""The versions of one package that can replace an image's own, each as an entry of a lock; uv asks the index."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.text import shorten
from recapture.images.uv import find_uv, unreachable_index
from recapture.machine.pins import load_pins, lock_path, normalise, read_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recapture.machine.pins import Image


class PackageRelease(NamedTuple):
    """A version of a package, and its entry in a lock, with the hashes of its wheels."""

    name: str
    version: str
    entry: str


def releases_from(image: Image, requested: str) -> list[PackageRelease]:
    """Return the releases of a package from the one after the image's own to another, in this order.

    `requested` is the package, and the last version unless that is the newest: ``scipy`` or ``scipy==1.17.1``. An older
    version than the image's own is possible. Pre-releases and releases without a wheel for the image's Python are left
    out. Raises UsageError if the image has no such package or the index no such version, and EnvironmentUnfitError if
    the index cannot be reached.
    """
    name, last = _parsed(requested)
    locked = read_lock(lock_path(image.name))
    if name not in locked:
        raise UsageError(f"the lock of {image.name} has no {name}")
    if name == "torch":
        raise UsageError("a release of torch needs packages of its own: name two images with --good and --bad")
    own = locked[name]
    if last is not None and Version(last) == Version(own):
        raise UsageError(f"{image.name} has {name} {own} itself")
    older = last is not None and Version(last) < Version(own)
    lower = f">={last}" if older else f">{own}"
    upper = f"<{own}" if older else f"<={last}" if last else ""
    releases = list(_descending(image, name, lower, upper))
    if not releases or (last is not None and Version(last) not in {Version(release.version) for release in releases}):
        what = f"{name} {last}" if last else f"{name} newer than {own}"
        raise UsageError(f"the package index has no {what} with a wheel for Python {image.python}")
    return releases if older else releases[::-1]


def _parsed(requested: str) -> tuple[str, str | None]:
    try:
        requirement = Requirement(requested)
    except InvalidRequirement:
        raise UsageError(f"--package {requested!r} is not NAME or NAME==VERSION") from None
    pins = list(requirement.specifier)
    exact = len(pins) == 1 and pins[0].operator == "==" and "*" not in pins[0].version
    if requirement.url or requirement.extras or requirement.marker or (pins and not exact):
        raise UsageError(f"--package {requested!r} is not NAME or NAME==VERSION")
    return normalise(requirement.name), pins[0].version if pins else None


def _descending(image: Image, name: str, lower: str, upper: str) -> Iterator[PackageRelease]:
    """Yield the releases between two bounds, the newest first."""
    while newest := _newest(image, name + ",".join(filter(None, (lower, upper)))):
        yield newest
        upper = f"<{newest.version}"


def _newest(image: Image, requirement: str) -> PackageRelease | None:
    """Return the newest release that fits a requirement, or None if there is none."""
    options = ("--quiet", "--no-deps", "--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate")
    platform = ("--python-version", image.python, "--python-platform", load_pins().tools.platform)
    done = subprocess.run(
        [find_uv("find versions"), "pip", "compile", "-", *options, "--no-emit-index-url", *platform],
        input=requirement,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0 and (begin := re.match(r"([\w.-]+)==(\S+)", done.stdout)):
        return PackageRelease(begin[1], begin[2], done.stdout)
    if unreachable_index(done.stderr):
        raise EnvironmentUnfitError(f"uv cannot reach the package index: {shorten(done.stderr, 300)}")
    if "No solution found" in done.stderr:
        return None
    raise EnvironmentUnfitError(f"uv failed: {shorten(done.stderr, 300)}")
