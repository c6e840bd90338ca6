"""Restricts a diff to some categories of changes, or to cells with some kinds of differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from recapture.base.text import plural
from recapture.report.differences import has_kind

if TYPE_CHECKING:
    from collections.abc import Collection

    from recapture.tools.compare.changes import Change, Diff


def restricted(changes: Diff, *, kinds: Collection[str], categories: Collection[str]) -> Diff:
    """Return a diff with only the cells of some categories whose differences, on either side, have one of some kinds.

    An empty collection does not restrict. A warning says how many changed cells are left out.
    """
    if not kinds and not categories:
        return changes
    kept: dict[str, tuple[Change, ...]] = {}
    left_out = 0
    for name, members in changes.categories():
        kept[name] = tuple(
            one for one in members if (not categories or name in categories) and (not kinds or _has_kind(one, kinds))
        )
        left_out += len(members) - len(kept[name])
    rest = f"{plural(left_out, 'other changed cell')} left out by --category or --kind"
    warnings = (*changes.warnings, rest) if left_out else changes.warnings
    return msgspec.structs.replace(changes, warnings=warnings, **kept)


def _has_kind(change: Change, kinds: Collection[str]) -> bool:
    return any(record is not None and has_kind(record, kinds) for record in (change.old, change.new))
