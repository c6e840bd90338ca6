"""What differs between two failures of one cell, in a few words."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from recapture.base.text import one_line, shorten
from recapture.records.difference import Difference
from recapture.records.record import Record
from recapture.report.differences import identity, place

MOST_WORDS = 400
"""Number of words of a message that are compared."""

ALIKE = 0.35
"""Smallest share of common words for which single words are shown instead of both messages."""


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
