"""What changed in a cell, in words: not two long messages that are nearly the same, nor one change for each cell."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from recapture.base.text import one_line, plural, shorten
from recapture.records.difference import Difference
from recapture.records.record import Record
from recapture.report.differences import changed_note, identity, notes_of, place
from recapture.tools.compare.changes import Change

MOST_WORDS = 400
"""Number of words of a message that are compared."""

ALIKE = 0.35
"""Smallest share of common words for which single words are shown instead of both messages."""

WORDS_LIMIT = 100
"""Characters of the words that only one side of a failure has."""

MOST_LINES = 10
"""Number of shared changes that are shown."""

MOST_ALIKE = 20
"""Number of cells whose notes changed alike that are shown one by one."""


class Words(NamedTuple):
    """The words that only the old text has, and those that only the new text has; ``…`` stands for common words."""

    old: str
    new: str

    def __str__(self) -> str:
        """Both, with an arrow."""
        return f"{self.old or '(nothing)'} → {self.new or '(nothing)'}"


def changed_words(old: str, new: str, limit: int) -> Words:
    """Return the words that differ between two texts, in at most `limit` characters on each side."""
    before, after = one_line(old).split()[:MOST_WORDS], one_line(new).split()[:MOST_WORDS]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < ALIKE:
        return Words(shorten(old, limit), shorten(new, limit))
    gone: list[str] = []
    come: list[str] = []
    blocks = [block for block in matcher.get_opcodes() if block[0] != "equal"]
    for _, start, end, begin, stop in blocks:
        gone.append(" ".join(before[start:end]))
        come.append(" ".join(after[begin:stop]))
    return Words(shorten(_joined(gone), limit), shorten(_joined(come), limit))


def _joined(parts: list[str]) -> str:
    return " … ".join(part for part in parts if part)


def only_wording(old: Record, new: Record) -> bool:
    """Whether two failures of a cell differ in nothing but the text of the error's message."""
    return (
        old.error is not None
        and new.error is not None
        and (old.verdict, old.phase, old.input, old.error.type, old.reason)
        == (new.verdict, new.phase, new.input, new.error.type, new.reason)
        and set(map(identity, old.differences)) == set(map(identity, new.differences))
    )


def failure_words(old: Record, new: Record, limit: int) -> str:
    """Return what differs between two failures of a cell beside their verdict, phase and error's type."""
    parts = []
    if old.input != new.input and old.input and new.input:
        parts.append(f"{place(old.input)} → {place(new.input)}")
    if old.error is not None and new.error is not None and old.error.message != new.error.message:
        parts.append(str(changed_words(old.error.message, new.error.message, limit)))
    elif old.error is None and new.error is not None:
        parts.append(shorten(new.error.message, limit))
    elif old.error is not None and new.error is None and not new.differences:
        parts.append(f"before: {shorten(old.error.message, limit)}")
    before, after = ({_where(difference): difference.detail for difference in side.differences} for side in (old, new))
    gone = [name for name in before if name not in after]
    come = [f"{name}: {detail}" if detail else name for name, detail in after.items() if name not in before]
    if come:
        parts.append(shorten(f"now {'; '.join(come)}", limit))
    if gone:
        parts.append(shorten(f"no longer {'; '.join(gone)}", limit))
    if old.reason != new.reason and (old.reason or new.reason):
        parts.append(str(changed_words(old.reason or "", new.reason or "", limit)))
    return "; ".join(parts)


def _where(difference: Difference) -> str:
    label, where, kind, bits = identity(difference)
    return f"{kind} of {where} {place(label)}" + (f" ({bits})" if bits != "value" else "")


# Changes that many cells share


def told_apart(category: str, members: tuple[Change, ...]) -> tuple[list[Change], list[Change]]:
    """Return the changes to show one by one, and those to show once with the number of their cells.

    The latter are failures that only changed the wording of their message, and a change of notes that many cells share.
    """
    told: list[Change] = []
    alike: list[Change] = []
    notes = Counter(map(_notes_that_changed, members)) if category == "noted_differently" else Counter()
    for change in members:
        wording = (
            category == "failing_differently" and change.old and change.new and only_wording(change.old, change.new)
        )
        shared = category == "noted_differently" and notes[_notes_that_changed(change)] > MOST_ALIKE
        (alike if wording or shared else told).append(change)
    return told, alike


def changed_alike(category: str, members: Iterable[Change]) -> list[str]:
    """Return a line for each change that cells share, with their number; the commonest first."""
    cells: dict[str, list[Change]] = {}
    for change in members:
        if change.old is None or change.new is None:
            continue
        if category == "noted_differently":
            words = changed_note(change.old, change.new, WORDS_LIMIT)
        elif change.old.error and change.new.error:
            differing = changed_words(change.old.error.message, change.new.error.message, WORDS_LIMIT)
            words = f"{change.new.error.type}: {differing}"
        else:
            continue
        cells.setdefault(words, []).append(change)
    if category == "noted_differently":
        return _lines("whose notes changed alike", "changes of notes", cells)
    return _lines("with the same failure in other words", "changes of wording", cells)


def _lines(what: str, changes: str, cells: dict[str, list[Change]]) -> list[str]:
    if not cells:
        return []
    ranked = sorted(cells.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = [f"{plural(sum(map(len, cells.values())), 'cell')} {what}:"]
    for words, members in ranked[:MOST_LINES]:
        first = f"{members[0].case}::{members[0].compiler}"
        more = f" and {len(members) - 1} more" if len(members) > 1 else ""
        lines.append(f"{words} ({first}{more})")
    others = ranked[MOST_LINES:]
    if others:
        number = plural(sum(len(members) for _, members in others), "cell")
        lines.append(f"and {number} with {len(others)} other {changes}")
    return lines


def _notes_that_changed(change: Change) -> frozenset[tuple[str, ...]]:
    """Return what identifies the notes that only one side of a change has."""
    if change.old is None or change.new is None:
        return frozenset()
    return frozenset(notes_of(change.old).keys() ^ notes_of(change.new).keys())
