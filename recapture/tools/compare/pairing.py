"""Finds the two results directories to compare: the given ones, or those of two images' common capability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.errors import UsageError
from recapture.records.directories import BEFORE, find_results, find_speedups, holds_results
from recapture.tools.speed.speed_changes import speedups_of

if TYPE_CHECKING:
    from pathlib import Path


def locate(old: Path, new: Path) -> tuple[Path, Path]:
    """Return the two results directories to compare.

    Each path may also be an image's directory, ``results/<image>``, or contain exactly one. Then the capability is that
    of the other path, or the only one that both images have. Raises UsageError if there are no results, or if the
    choice is ambiguous.
    """
    before, after = _capabilities(old), _capabilities(new)
    if len(before) == 1 == len(after) and "" in (*before, *after):
        return next(iter(before.values())), next(iter(after.values()))
    # The name of a results directory determines the capability of the other path.
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
    """Return a path's results directories by capability; the key is empty if the path itself is one."""
    if holds_results(directory) or speedups_of(directory):
        return {"": directory}
    timed = {path.parent for path in find_speedups(directory) if not path.parent.name.startswith(BEFORE)}
    found = sorted({*find_results(directory, needed=not timed), *timed})
    images = {path.parent for path in found}
    if len(images) > 1:
        names = ", ".join(sorted(image.name for image in images))
        raise UsageError(f"{directory} holds several images' results, name one: {names}")
    return {path.name: path for path in found}
