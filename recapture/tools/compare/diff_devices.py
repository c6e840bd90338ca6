"""What explains the changes of a diff from a CPU to a GPU with one release, or back, from ``suites/devices.toml``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recapture.base.text import plural
from recapture.known.devices import GROUPS, DeviceDifference, matching
from recapture.records.verdicts import outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recapture.tools.compare.changes import Change, Diff


def device_lines(changes: Diff) -> list[str]:
    """Return a line for each known difference with the number of cells that it explains, and one for the rest.

    There is none unless the two sides are a CPU and a GPU with the same release of torch, or nothing is known of it.
    """
    release = _release(changes.old.image)
    if release is None or release != _release(changes.new.image):
        return []
    cells: dict[DeviceDifference, list[Change]] = {}
    unexplained = 0
    for change in _judged(changes):
        found = _known(release, change)
        for one in found:
            cells.setdefault(one, []).append(change)
        unexplained += not found and _other_outcome(change)
    lines = [f"{plural(len(members), 'cell')}: {GROUPS[one.group]}. {one.line}" for one, members in cells.items()]
    if lines and unexplained:
        lines.append(f"{plural(unexplained, 'cell')} with another outcome: not explained")
    return lines


def _release(image: str) -> str | None:
    found = re.search(r"torch(\d+(?:\.\d+)*)", image)
    return found[1] if found else None


def _judged(changes: Diff) -> Iterator[Change]:
    for name in ("newly_wrong", "newly_failing", "failing_differently", "fixed"):
        yield from getattr(changes, name)


def _known(release: str, change: Change) -> list[DeviceDifference]:
    """Return what explains a change between two devices; nothing if both records are of one device."""
    by_device = {one.device: one for one in (change.old, change.new) if one is not None}
    if by_device.keys() != {"cpu", "cuda"}:
        return []
    return matching(release, by_device["cpu"], by_device["cuda"])


def _other_outcome(change: Change) -> bool:
    return (
        None not in (change.old, change.new)
        and len({outcome_of(one.verdict) for one in (change.old, change.new) if one is not None}) == 2
    )
