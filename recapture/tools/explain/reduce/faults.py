"""What must stay the same while a program gets smaller: the verdict, and everything that tells one fault from another.

A smaller program may be wrong for another reason than the one at hand. So a reduction keeps more than the verdict: the
kind of the first difference and its place, how numbers differ, or the class of an exception and how its message begins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from recapture.records.kinds import KINDS
from recapture.records.verdicts import SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from recapture.records.difference import Difference
    from recapture.records.record import ErrorInfo, Record
    from recapture.run.cell import CellResult


WORDS = 8
"""Words of a message's first line that must stay the same; numbers, quoted names and addresses do not count."""

_COMPARED = {
    "value",
    "type",
    "structure",
    "items",
    "keys",
    "dtype",
    "device",
    "layout",
    "flags",
    "property",
    "raises",
    "setting",
}
"""What differences are unlike in whose sides identify a fault; others have places there, or no more than one pair."""

_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?j?")
_CHANGING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|\d+(?:\.\d+)?|…")
_DYNAMO = "torch._dynamo"
"""Module of the exceptions whose first line is only a title: the next line says what happened."""


class Fault(msgspec.Struct, frozen=True):
    """What identifies a fault.

    `phase` and `on` (``example``, ``held_out``, ``capture`` or ``original``) are where it shows. `kinds` are the kinds
    of all silent differences. `kind`, `place` and `sides` describe the first: ``value``, ``result[0]``, and how its two
    sides look, such as a number against NaN. `type` and `words` are those of an exception; `how` is the way in which a
    process died, or in which eager is unstable.
    """

    verdict: Verdict
    phase: str | None = None
    on: str | None = None
    kinds: tuple[str, ...] = ()
    kind: str | None = None
    place: str | None = None
    sides: str | None = None
    type: str | None = None
    words: str | None = None
    how: str | None = None

    def __str__(self) -> str:
        """The fault on one line."""
        if self.kind is not None:
            return f"{self.verdict}: {self.kind} of {self.place} on {self.on}"
        if self.type is not None:
            return f"{self.verdict} in {self.phase}: {self.type}: {self.words}"
        return f"{self.verdict}: {self.how}" if self.how else str(self.verdict)


def fault_of(result: CellResult | Record) -> Fault:
    """Return what identifies the fault that a cell shows."""
    where = None if result.phase is None else str(result.phase)
    on = None if result.input is None else result.input.split("[")[0]
    if result.verdict in SILENTLY_WRONG:
        first = next(difference for difference in result.differences if difference.input == result.input)
        kinds = tuple(sorted({difference.kind for difference in result.differences}))
        return Fault(result.verdict, None, on, kinds, first.kind, first.where, _sides(first))
    if result.error is not None:
        return Fault(result.verdict, where, on, type=result.error.type, words=_words(result.error))
    return Fault(result.verdict, where, on, how=None if result.reason is None else _CHANGING.sub("#", result.reason))


def same_fault(expected: Fault, actual: Fault) -> bool:
    """Whether a smaller program shows the wanted fault.

    It must show it in the same place, or in one that contains it: ``result`` for ``result[0]``. It may show fewer kinds
    of differences and no other ones.
    """
    alike = all(
        getattr(expected, name) == getattr(actual, name)
        for name in ("verdict", "phase", "on", "kind", "sides", "type", "words", "how")
    )
    return alike and set(actual.kinds) <= set(expected.kinds) and _is_shorter(actual.place, expected.place)


def _is_shorter(place: str | None, expected: str | None) -> bool:
    """Whether a place has the steps of the wanted one, or some of them, and begins at the same thing."""
    if place is None or expected is None:
        return place == expected
    steps, others = _steps(place), _steps(expected)
    following = iter(others)
    return steps[0] == others[0] and all(any(step == other for other in following) for step in steps)


def _steps(place: str) -> list[str]:
    """Return the steps of a path such as ``result['a'][0]``; the number of an argument or an element may change."""
    return re.sub(r"\[\d+\]", "[#]", place).replace("[", " [").replace(".", " .").split()


def _sides(difference: Difference) -> str | None:
    """Return how the two sides of a difference look, with ``#`` for every finite number."""
    # Where sizes and texts differ, they are what gets smaller.
    if KINDS[difference.kind].shrinks or difference.unlike not in _COMPARED:
        return None
    if difference.eager is None and difference.other is None:
        return None
    sides = [_NUMBER.sub(_sort_of_number, side or "") for side in (difference.eager, difference.other)]
    return f"{difference.bits or ''} {sides[0]} / {sides[1]}"


def _sort_of_number(text: re.Match[str]) -> str:
    before = text.string[: text.start()]
    return text[0] if before[-1:].isalpha() else "#"  # float32 is a name


def _words(error: ErrorInfo) -> str:
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    compared = lines[:2] if error.type.startswith(_DYNAMO) or (lines and lines[0].endswith(":")) else lines[:1]
    return " | ".join(" ".join(_CHANGING.sub("#", line).split()[:WORDS]) for line in compared)
