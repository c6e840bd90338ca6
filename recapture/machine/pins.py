"""The pins of every image: its table in docker/images.toml and its lock in docker/locks."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.files import read_regular
from recapture.base.paths import data_folder
from recapture.base.text import shorten
from recapture.base.toml_file import load_toml

LARGEST_LOCK = 4 << 20
"""Bytes of the largest lock that is read: those of the project take 50 KB."""


class Tools(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How recapture's own dependencies are locked: the date, the platform, and the packages that are locked otherwise.

    Those in `with_torch` come with torch, those in `outside_images` are in no image.
    """

    cutoff: dt.date
    platform: str
    with_torch: tuple[str, ...] = ()
    outside_images: tuple[str, ...] = ()


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of images.toml; the comment at the top of that file explains each field."""

    name: str
    python: str
    torch: str
    torchvision: str
    triton: str
    numpy: str
    scipy: str
    setuptools: str
    cuda: str
    cudnn: str
    base: str
    capabilities: tuple[str, ...]
    driver: int
    cutoff: dt.date
    drifted_from: str | None = None
    newer: dict[str, dt.date] = {}

    def __post_init__(self) -> None:
        # A version that cannot be compared would otherwise fail far from its table.
        for name in ("torch", "python"):
            try:
                Version(getattr(self, name))
            except InvalidVersion as error:
                raise ValueError(f"image {self.name}: {name}: {error}") from None

    @property
    def tag(self) -> str:
        """The built image's name in a container engine: ``recapture:torch2.11.0-cu130``."""
        return f"recapture:{self.name}"

    @property
    def pinned(self) -> dict[str, str]:
        """The packages under test and their exact versions, in the order of images.toml."""
        names = ("torch", "torchvision", "triton", "numpy", "scipy", "setuptools")
        return {name: getattr(self, name) for name in names}


class Pins(msgspec.Struct, frozen=True):
    """The whole of images.toml."""

    tools: Tools
    images: dict[str, Image]


class _PinsFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of images.toml."""

    tools: Tools
    images: dict[str, dict[str, Any]]


def docker_directory() -> Path:
    """Return the folder that holds images.toml and locks/: docker/ of a checkout, or the copy inside the wheel."""
    return data_folder("docker", marker="images.toml")


def load_pins(path: Path | None = None) -> Pins:
    """Read images.toml, by default the project's own; raises UsageError naming the place of a mistake in it."""
    path = docker_directory() / "images.toml" if path is None else path
    return load_toml(path, "the images' pins", _pins)


def _pins(content: dict[str, Any]) -> Pins:
    file = msgspec.convert(content, _PinsFile)
    images = {name: msgspec.convert({"name": name, **table}, Image) for name, table in file.images.items()}
    return Pins(file.tools, images)


def load_images(path: Path | None = None) -> dict[str, Image]:
    """Return every image by name, oldest torch first."""
    return load_pins(path).images


def find_image(name: str) -> Image:
    """Return the image of that name, or of that release of torch, as `find_release` does.

    Raises UsageError, with the most similar known name, for an unknown name.
    """
    images = load_images()
    if name[:1].isdigit():
        return find_release(name)
    if name not in images:
        raise UsageError(f"no image {name!r}{did_you_mean(name, images)} (`recapture images list` names them all)")
    return images[name]


def find_release(text: str) -> Image:
    """Return the image of a torch release such as ``2.6.0`` or ``2.6``, or the image of that name.

    Of several images the newest is meant, and none that is drifted. Raises UsageError, with the most similar release,
    if there is none.
    """
    images = load_images()
    if text in images:
        return images[text]
    main = {image.torch: image for image in images.values() if image.drifted_from is None}
    matching = [image for release, image in main.items() if release == text or release.startswith(f"{text}.")]
    # Every release begins with an empty text.
    if not matching or not text:
        raise UsageError(
            f"no image has torch {text!r}{did_you_mean(text, main)} (`recapture images list` names them all)"
        )
    return matching[-1]


def find_releases(text: str) -> tuple[Image, ...]:
    """Return the images of a list such as ``2.6.0,2.11.0``, or of ``all`` releases; none of these is drifted."""
    if text.strip() == "all":
        return tuple(image for image in load_images().values() if image.drifted_from is None)
    return tuple(find_release(name.strip()) for name in text.split(","))


def lock_path(name: str) -> Path:
    """Return the path of an image's lock; the file need not exist."""
    return docker_directory() / "locks" / f"{name}.txt"


def normalise(name: str) -> str:
    """Return a distribution's name as package indexes compare it: lower case, with single hyphens."""
    return str(canonicalize_name(name))


def lock_text(path: Path) -> str:
    """Return the text of a lock. Raises UsageError, naming the file, if it cannot be read or is no text."""
    try:
        return _lock_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file") from None


def _lock_bytes(path: Path) -> bytes:
    return read_regular(Path(os.path.realpath(path)), most=LARGEST_LOCK)


def read_lock(path: Path) -> dict[str, str]:
    """Return the packages of a lock as ``{normalised name: version}``.

    Raises UsageError, naming the file and the line, for a line that pins no version.
    """
    pins: dict[str, str] = {}
    for number, line in enumerate(lock_text(path).splitlines(), 1):
        if line[:1].isalnum():  # the others are comments and hashes
            try:
                requirement = Requirement(line.rstrip("\\ "))
                (pin,) = requirement.specifier
                if pin.operator != "==":
                    raise ValueError
            except (ValueError, RecursionError):  # InvalidRequirement is a ValueError
                raise UsageError(f"{path}, line {number}: {shorten(line, 100)!r} pins no version") from None
            pins[normalise(requirement.name)] = pin.version
    return pins


def lock_hash(path: Path) -> str:
    """Return the hash that identifies a lock: ``sha256:`` and the hash of the file's bytes."""
    return f"sha256:{hashlib.sha256(_lock_bytes(path)).hexdigest()}"


def parse_capability(text: str) -> tuple[int, int]:
    """Return (major, minor) of a GPU's compute capability written as ``7.0``, ``sm_70`` or ``70``.

    Raises UsageError for any other text.
    """
    match = re.fullmatch(r"(\d+)\.(\d)|(?:sm_)?(\d+)(\d)[af]?", text.strip())
    if not match:
        raise UsageError(f"not a GPU capability: {text!r}; write it as 7.0 or sm_70")
    major, minor = (match[1], match[2]) if match[1] else (match[3], match[4])
    return int(major), int(minor)


def can_run_on(image: Image, capability: str, *, driver: int | None = None) -> str | None:
    """Return why the image cannot run on a GPU of this capability, or None if it can.

    `driver` is the first number of the NVIDIA driver's version. A wheel without PTX runs on the major capabilities that
    it was compiled for, from the compiled minor number up.
    """
    major, minor = parse_capability(capability)
    compiled = [parse_capability(text) for text in image.capabilities]
    if not any(major == has_major and minor >= has_minor for has_major, has_minor in compiled):
        return f"its torch has no machine code for capability {major}.{minor}, only for {_runs(compiled)}"
    if driver is not None and driver < image.driver:
        return f"its CUDA {image.cuda} needs NVIDIA driver {image.driver} or newer, this one is {driver}"
    return None


def _runs(compiled: list[tuple[int, int]]) -> str:
    """Return the range of capabilities that code compiled for these runs on, as ``7.0-7.x, 8.0-8.x``."""
    lowest: dict[int, int] = {}
    for major, minor in compiled:
        lowest[major] = min(minor, lowest.get(major, minor))
    return ", ".join(f"{major}.{minor}-{major}.x" for major, minor in lowest.items())
