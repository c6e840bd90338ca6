"""State in a module of the user's own that is not the case's file, for `cases.contents`."""

from __future__ import annotations

counts: list[int] = []


def count() -> None:
    """Add to the state of this module."""
    counts.append(1)
