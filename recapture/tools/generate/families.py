"""Findings grouped into families: cells that do not pass in the same way, probably for one cause."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.text import one_line, shorten
from recapture.records.verdicts import SILENTLY_WRONG

if TYPE_CHECKING:
    from recapture.records.record import Record

BY_SUSPECT = frozenset({"value", "gradient", "shape", "mutation", "exception", "alias", "dtype"})
"""Kinds of differences that depend on the operator or the step; the others are the compiler's way with any."""

LONGEST_SIGNATURE = 160
"""Characters of a signature."""

_REPLACED = (
    (re.compile(r"torch\.return_types\.\w+"), "a named tuple of torch"),
    (re.compile(r"\b(aten|prims|torchvision)[.:]+\w+([.:]+\w+)*"), r"\1.…"),
    (re.compile(r"\b0x[0-9a-f]+\b|-?\b\d+(\.\d+)?(e[+-]?\d+)?\b"), "N"),
    (re.compile(r"\b([su]|zuf|size|arg|t|out)N?_?\d+\b"), "x"),
    (re.compile(r"\[(N(, N)*)?\]|\((N(, N)*,?)?\)"), "sizes"),
    (re.compile(r", grad_fn=<\w+>"), ""),
    (re.compile(r"\bx(, x)+\b"), "x"),
)
"""What differs between the members of a family, and what stands for it."""


class FamilyKey(NamedTuple):
    """What the members of a family share.

    `outcome` is the group of the verdict, `kind` that of the headline difference, or the type of the exception.
    `suspect` is the operator, or the step of a program of Python, that is likely at fault; empty where it does not
    matter.
    """

    outcome: str
    kind: str
    signature: str
    suspect: str

    def __str__(self) -> str:
        """The family in one line."""
        return f"{self.outcome}: {self.kind}: {self.signature}" + (f" ({self.suspect})" if self.suspect else "")


def family_of(record: Record, suspect: str) -> FamilyKey:
    """Return the family of a cell that does not pass."""
    if record.verdict in SILENTLY_WRONG:
        difference = record.differences[0]
        place = re.match(r"[a-z_]*", difference.where)
        when = "after the capture" if difference.input in ("capture", "original") else ""
        sides = "" if difference.kind in ("value", "gradient", "mutation") else difference.detail
        parts = (place.group() if place else "", difference.unlike or "", when, sides)
        by_suspect = difference.kind in BY_SUSPECT
        outcome = record.verdict.facts.group
        return FamilyKey(
            outcome, difference.kind, signature(" ".join(filter(None, parts))), suspect if by_suspect else ""
        )
    if record.error is not None:
        return FamilyKey(
            f"error at {record.phase}", record.error.type, signature(_first_lines(record.error.message)), ""
        )
    return FamilyKey(str(record.verdict), record.phase or "", signature(record.reason or ""), suspect)


def _first_lines(message: str) -> str:
    """Return the first line of a message, and the second where the first only says that something was raised."""
    lines = [line for line in message.split("\n") if line.strip()]
    return " ".join(lines[: 2 if lines and lines[0].rstrip().endswith(":") else 1])


def signature(text: str) -> str:
    """Return a text without what differs between the members of a family: names of operators, sizes, numbers."""
    text = one_line(text)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return shorten(text, LONGEST_SIGNATURE)
