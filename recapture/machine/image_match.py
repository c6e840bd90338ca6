"""Matches an installation to a pinned image, by its Python and every package of the image's lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from packaging.version import Version

SHOWN_MISMATCHES = 8


class PinnedImage(NamedTuple):
    """What identifies an image: its Python, its torch, and every package of its lock."""

    name: str
    python: str
    torch: str
    lock_hash: str
    packages: Mapping[str, str]


class ImageMatch(NamedTuple):
    """The name to file results under; if no image matches, `lock_hash` is None and `mismatches` is not empty."""

    image: str
    lock_hash: str | None
    mismatches: list[str]


def image_for(
    packages: Mapping[str, str], python_version: str, images: Iterable[PinnedImage], *, cuda: str | None
) -> ImageMatch:
    """Return the image that matches an installation, or a name beginning with ``bare-``.

    An image matches if Python's minor version agrees and every package of the image's lock is installed in exactly
    that version; additional packages are allowed. `packages` maps normalised names to versions. `cuda` is the CUDA
    version that torch was built for, None for a CPU build.
    """
    torch = _public(packages["torch"]) if "torch" in packages else "unknown"
    nearest: tuple[str, list[str]] | None = None
    for image in images:
        if _public(image.torch) != torch:
            continue
        mismatches = _mismatches(packages, python_version, image)
        if not mismatches:
            return ImageMatch(image.name, image.lock_hash, [])
        # The image with the fewest differences says best what to install.
        if nearest is None or len(mismatches) < len(nearest[1]):
            nearest = (image.name, mismatches)
    bare = f"bare-torch{torch}-{'cu' + cuda.replace('.', '') if cuda else 'cpu'}"
    if nearest is None:
        return ImageMatch(bare, None, [f"no image pins torch {torch}"])
    name, mismatches = nearest
    listed = mismatches[:SHOWN_MISMATCHES]
    if len(mismatches) > len(listed):
        listed.append(f"and {len(mismatches) - len(listed)} more")
    return ImageMatch(bare, None, [f"nearest image: {name}", *listed])


def _mismatches(packages: Mapping[str, str], python_version: str, image: PinnedImage) -> list[str]:
    differing = []
    locked = Version(image.python).release[:2]
    if Version(python_version).release[:2] != locked:
        differing.append(f"Python {python_version}, locked {'.'.join(map(str, locked))}")
    # The packages under test come first: a reader looks for them.
    order = ("torch", "torchvision", "triton", "numpy", "scipy", "setuptools")
    ranked = sorted(image.packages, key=lambda name: (order.index(name) if name in order else len(order), name))
    for name in ranked:
        have, pinned = packages.get(name), image.packages[name]
        if have is None:
            differing.append(f"{name} not installed, locked {pinned}")
        elif have != pinned:
            differing.append(f"{name} {have}, locked {pinned}")
    return differing


def _public(version: str) -> str:
    """Return a version without its local part, which names the CUDA build: ``2.11.0+cu130`` gives ``2.11.0``."""
    return Version(version).public


def pinned_images(*, torch: str) -> list[PinnedImage]:
    """Return the images that pin a torch version and have a lock, drifted twins included."""
    from recapture.machine.pins import load_images, lock_hash, lock_path, read_lock

    entries = []
    for image in load_images().values():
        if _public(image.torch) != _public(torch):
            continue
        path = lock_path(image.name)
        if path.is_file():
            entries.append(PinnedImage(image.name, image.python, image.torch, lock_hash(path), read_lock(path)))
    return entries
