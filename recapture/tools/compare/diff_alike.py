"""The changes of a diff that many cells share, shown once with the number of cells."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from recapture.base.text import plural
from recapture.report.differences import changed_note, notes_of
from recapture.tools.compare.changed_words import changed_words, only_wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recapture.tools.compare.changes import Change

WORDS_LIMIT = 100
"""Characters of the words that only one side of a failure has."""

MOST_LINES = 10
"""Number of shared changes that are shown."""

MOST_ALIKE = 20
"""Number of cells whose notes changed alike that are shown one by one."""


def told_apart(category: str, members: tuple[Change, ...]) -> tuple[list[Change], list[Change]]:
    """Return the changes to show one by one, and those to show in short.

    In short are failures that only changed the wording of their message, and a change of notes that many cells share.
    """
    told: list[Change] = []
    alike: list[Change] = []
    notes = Counter(map(_notes_that_changed, members)) if category == "noted_differently" else Counter()
    for one in members:
        wording = category == "failing_differently" and one.old and one.new and only_wording(one.old, one.new)
        shared = category == "noted_differently" and notes[_notes_that_changed(one)] > MOST_ALIKE
        (alike if wording or shared else told).append(one)
    return told, alike


def in_short(category: str, members: Iterable[Change]) -> list[str]:
    """Return a line for each change that cells share, with their number; the commonest first."""
    cells: dict[str, list[Change]] = {}
    for one in members:
        if one.old is None or one.new is None:
            continue
        if category == "noted_differently":
            words = changed_note(one.old, one.new, WORDS_LIMIT)
        elif one.old.error and one.new.error:
            words = f"{one.new.error.type}: {changed_words(one.old.error.message, one.new.error.message, WORDS_LIMIT)}"
        else:
            continue
        cells.setdefault(words, []).append(one)
    if category == "noted_differently":
        return _lines("whose notes changed alike", "changes of notes", cells)
    return _lines("with the same failure in other words", "changes of wording", cells)


def _lines(what: str, changes: str, cells: dict[str, list[Change]]) -> list[str]:
    if not cells:
        return []
    ranked = sorted(cells.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = [f"{plural(sum(map(len, cells.values())), 'cell')} {what}:"]
    for words, found_cells in ranked[:MOST_LINES]:
        first = f"{found_cells[0].case}::{found_cells[0].compiler}"
        more = f" and {len(found_cells) - 1} more" if len(found_cells) > 1 else ""
        lines.append(f"{words} ({first}{more})")
    rest = ranked[MOST_LINES:]
    if rest:
        lines.append(f"and {plural(sum(len(one) for _, one in rest), 'cell')} with {len(rest)} other {changes}")
    return lines


def _notes_that_changed(change: Change) -> frozenset[tuple[str, ...]]:
    """Return what identifies the notes that only one side of a change has."""
    if change.old is None or change.new is None:
        return frozenset()
    return frozenset(notes_of(change.old).keys() ^ notes_of(change.new).keys())
