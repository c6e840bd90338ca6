"""Published claims as data: what a source says a compiler does with a case, and whether a record bears it out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.results.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recapture.results.records import Record

__all__ = ["Claim", "ClaimSyntaxError", "parse_claims"]

GROUPS = {"right": RIGHT, "silently_wrong": SILENTLY_WRONG, "failing": FAILING}
"""Words that stand for several verdicts."""

COUNTS = ("graphs", "graph_breaks", "recompiles")
INCONCLUSIVE = frozenset({Verdict.NOT_APPLICABLE, Verdict.ENVIRONMENT, Verdict.UNSTABLE})

_CONDITION = re.compile(r"(?P<key>\w+)(?P<op>=|~)(?P<value>\S+)")
_ERROR = re.compile(r"error(?:\((?P<phase>reference|capture|call)\))?(?::(?P<type>\w+))?")


class ClaimSyntaxError(ValueError):
    """A claim's expected outcome is not written in the grammar of `Claim`."""


@dataclass(frozen=True)
class Claim:
    """One source's word on one cell.

    `expected` is alternatives joined by ``|``, then conditions that must hold as well, separated by spaces:

    - an alternative is a verdict (``pass``), a group (``right``, ``silently_wrong``, ``failing``), or an error with its
      phase and type: ``error``, ``error:TraceError``, ``error(call)``, ``error(call):RuntimeError``;
    - a condition is ``graphs=3``, ``graph_breaks=1``, ``recompiles=0``, or ``reason~word`` (some break reason contains
      the word) or ``message~word`` (the error's message does).
    """

    id: str
    expected: str

    def __post_init__(self) -> None:
        head, *conditions = self.expected.split() or [""]
        for alternative in head.split("|"):
            known = alternative in GROUPS or alternative in set(Verdict) or _ERROR.fullmatch(alternative)
            if not known:
                raise ClaimSyntaxError(f"claim {self.id}: unknown outcome {alternative!r}")
        for condition in conditions:
            match = _CONDITION.fullmatch(condition)
            if match is None:
                raise ClaimSyntaxError(f"claim {self.id}: unknown condition {condition!r}")
            key, op, value = match["key"], match["op"], match["value"]
            counted = op == "=" and key in COUNTS and value.isascii() and value.isdigit()
            matched = op == "~" and key in ("reason", "message")
            if not (counted or matched):
                raise ClaimSyntaxError(f"claim {self.id}: unknown condition {condition!r}")

    def holds(self, record: Record) -> bool | None:
        """Whether the record bears the claim out; None where it says nothing (not run, or a count unknown)."""
        head, *conditions = self.expected.split()
        alternatives = head.split("|")
        if record.verdict in INCONCLUSIVE and record.verdict not in alternatives:
            return None
        if not any(_matches(alternative, record) for alternative in alternatives):
            return False
        results = [_condition_holds(condition, record) for condition in conditions]
        if False in results:
            return False
        return None if None in results else True


def parse_claims(claims: Mapping[str, object] | None) -> dict[str, tuple[Claim, ...]]:
    """Read the ``claims=`` argument of `@case`: compiler name to one ``(id, expected)`` pair or a list of them."""
    parsed: dict[str, tuple[Claim, ...]] = {}
    if claims is not None and not isinstance(claims, Mapping):
        raise ClaimSyntaxError(f"claims are not a dict from compiler to (id, expected) but {claims!r}"[:300])
    for compiler, value in (claims or {}).items():
        if not isinstance(compiler, str):
            raise ClaimSyntaxError(f"claims are made of a compiler by its name, not of {compiler!r}"[:300])
        pairs: Iterable[object] = value if isinstance(value, list) else [value]
        row = []
        for pair in pairs:
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
                raise ClaimSyntaxError(f"claim of {compiler!r} is not an (id, expected) pair: {pair!r}")
            row.append(Claim(*pair))
        parsed[compiler] = tuple(row)
    return parsed


def _matches(alternative: str, record: Record) -> bool:
    if alternative in GROUPS:
        return record.verdict in GROUPS[alternative]
    error = _ERROR.fullmatch(alternative)
    if error is None:
        return record.verdict == alternative
    if record.verdict is not Verdict.ERROR:
        return False
    if error["phase"] and error["phase"] != record.phase:
        return False
    return not error["type"] or (record.error is not None and record.error.type.split(".")[-1] == error["type"])


def _condition_holds(condition: str, record: Record) -> bool | None:
    match = _CONDITION.fullmatch(condition)
    if match is None:  # checked when the claim was made
        raise ClaimSyntaxError(condition)
    key, value = match["key"], match["value"]
    if key in COUNTS:
        count: int | None = getattr(record, key)
        return None if count is None else count == int(value)
    if key == "reason":
        return any(value in reason for reason in record.break_reasons)
    return record.error is not None and value in record.error.message
