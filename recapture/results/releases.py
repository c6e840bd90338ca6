"""In which order results stand through the torch releases, and what each is called there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recapture.results.directories import Results

__all__ = ["Named", "age", "is_bare", "labels", "torch_version", "twin", "version_key"]


class Named(Protocol):
    """Anything that stands for the results of one image."""

    @property
    def torch(self) -> str:
        """The version."""

    @property
    def image(self) -> str:
        """The image's name."""


def age(results: Results) -> tuple[Any, ...]:
    """Sort key of results: by torch release, an image before what ran outside one."""
    return (version_key(torch_version(results)), is_bare(results.image), results.image)


def torch_version(results: Results) -> str:
    """Return the torch version of some results: what was recorded, or what the image's name says."""
    if results.environment is not None:
        return results.environment.torch.version
    match = re.search(r"torch(\d[^-]*)(?:-(\w+))?", results.image)
    return "+".join(part for part in match.groups() if part) if match else results.image


def version_key(version: str) -> tuple[bool, Version, str]:
    """Sort key of torch versions: what is no version first, 2.9.1 before 2.10.0, a pre-release before its release."""
    try:
        return (True, Version(version), "")
    except InvalidVersion:
        return (False, Version("0"), version)


def is_bare(image: str) -> bool:
    """Whether results were not recorded with an image's packages."""
    return image.startswith("bare-")


def twin(image: str) -> str:
    """Return what sets an image apart from the one of its release, such as ``drifted``; empty for that one."""
    match = re.search(r"-(?:cu\d+|cpu)-(\w+)$", image)
    return match[1] if match else ""


def labels(entries: Iterable[Named]) -> list[str]:
    """Return a short name for each entry: the release, the whole version or the image where that is not enough."""
    names = [_names(entry) for entry in entries]
    return [next((one for one in mine if sum(one in other for other in names) == 1), mine[-1]) for mine in names]


def _names(entry: Named) -> tuple[str, str, str]:
    kind = " (bare)" if is_bare(entry.image) else f" {twin(entry.image)}" if twin(entry.image) else ""
    return (f"{entry.torch.split('+')[0]}{kind}", f"{entry.torch}{kind}", entry.image)
