"""Which two results directories are meant: given ones, or the one capability that two images have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.analysis.speed_changes import speedups_of
from recapture.base.errors import UsageError
from recapture.results.directories import BEFORE, find_results, find_speedups, holds_results

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["locate"]


def locate(old: Path, new: Path) -> tuple[Path, Path]:
    """Return the two results directories to compare.

    Either may be an image's directory, ``results/<image>``, or hold that of one image alone: then the capability is the
    other's, or the only one that both images have. Raises UsageError where nothing is there, and where it is not clear
    which one is meant.
    """
    before, after = _capabilities(old), _capabilities(new)
    if len(before) == 1 == len(after) and "" in (*before, *after):
        return next(iter(before.values())), next(iter(after.values()))
    # A results directory by itself: its own name says which capability of the other is meant.
    before, after = (
        {path.resolve().name: path for path in side.values()} if "" in side else side for side in (before, after)
    )
    common = sorted(before.keys() & after.keys())
    if len(common) == 1:
        return before[common[0]], after[common[0]]
    if common:
        raise UsageError(f"{old} and {new} both hold {', '.join(common)}: say which, as in {before[common[0]]}")
    have = [", ".join(sorted(side)) for side in (before, after)]
    raise UsageError(f"{old} ({have[0]}) and {new} ({have[1]}) have no capability in common: name a directory of each")


def _capabilities(directory: Path) -> dict[str, Path]:
    """Return the results directories meant by a path, by capability; by the empty name where the path itself is one."""
    if holds_results(directory) or speedups_of(directory):
        return {"": directory}
    timed = {path.parent for path in find_speedups(directory) if not path.parent.name.startswith(BEFORE)}
    found = sorted({*find_results(directory, needed=not timed), *timed})
    images = {path.parent for path in found}
    if len(images) > 1:
        names = ", ".join(sorted(image.name for image in images))
        raise UsageError(f"{directory} holds several images' results, name one: {names}")
    return {path.name: path for path in found}
