"""Published claims as data: what a source says about a compiler, and whether the results confirm it.

A claim about a cell (`Claim`) and one about a speedup (`SpeedClaim`) are written in one grammar::

    expected    = outcome, then any number of conditions and at most one range, separated by spaces
    outcome     = alternatives joined by "|"          of a cell
                | a bound such as ">=1.5" or "<1"     of a speedup: the ratio eager ÷ compiled
    alternative = a verdict ("pass"), a group of verdicts ("right", "silently_wrong", "failing"),
                  or an error with its phase and type: "error", "error:TraceError", "error(call)",
                  "error(call):RuntimeError"
    condition   = "graphs=3", "graph_breaks=1", "recompiles=0"  (of a cell: counts)
                | "reason~word", "message~word"                 (of a cell: a break reason, the error's message)
    range       = "torch>=2.2,<2.10"                            (the releases of torch that the claim is about)

A claim does not apply to a release outside its range: there `holds` is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from recapture.records.verdicts import FAILING, NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.torch_api.compat import installed_torch

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

GROUPS = {"right": RIGHT, "silently_wrong": SILENTLY_WRONG, "failing": FAILING}
"""Groups of verdicts that a claim can name."""

COUNTS = ("graphs", "graph_breaks", "recompiles")
"""Counts in a record that a condition can compare."""

_CONDITION = re.compile(r"(?P<key>\w+)(?P<op>=|~)(?P<value>\S+)")
_ERROR = re.compile(r"error(?:\((?P<phase>reference|capture|call)\))?(?::(?P<type>\w+))?")
_BOUND = re.compile(r"(?P<op>>=|<=|>|<)(?P<value>\d+(?:\.\d+)?)")
_RANGE = re.compile(r"torch(?=[<>=!~])(?P<releases>\S+)")


class _ErrorResult(Protocol):
    """The exception of a cell, as far as a claim can name it."""

    @property
    def type(self) -> str: ...

    @property
    def message(self) -> str: ...


class _CellResult(Protocol):
    """What a claim is compared with: a record, described here by its fields, because a case needs no records."""

    @property
    def verdict(self) -> Verdict: ...

    @property
    def phase(self) -> str | None: ...

    @property
    def error(self) -> _ErrorResult | None: ...

    @property
    def break_reasons(self) -> Sequence[str]: ...


class ClaimSyntaxError(ValueError):
    """The expected outcome of a claim does not follow the grammar of this module."""


class _Parsed(NamedTuple):
    outcome: str
    conditions: list[re.Match[str]]
    releases: SpecifierSet | None


@dataclass(frozen=True)
class Claim:
    """What one source says about one cell; `expected` is written in the grammar of this module."""

    id: str
    expected: str

    def __post_init__(self) -> None:
        parsed = _parse(self.id, self.expected)
        for alternative in parsed.outcome.split("|"):
            if alternative not in GROUPS and alternative not in set(Verdict) and not _ERROR.fullmatch(alternative):
                raise ClaimSyntaxError(f"claim {self.id}: unknown outcome {alternative!r}")

    def holds(self, record: _CellResult, torch: str | None = None) -> bool | None:
        """Return whether the record confirms the claim.

        None if this cannot be decided: the cell was not run, a count is unknown, or the claim is not about this
        release. `torch` is the version that the record was made with, by default the installed one.
        """
        parsed = _parse(self.id, self.expected)
        alternatives = parsed.outcome.split("|")
        if not _is_about(parsed, torch) or (record.verdict in NOT_RUN and record.verdict not in alternatives):
            return None
        if not any(_matches(alternative, record) for alternative in alternatives):
            return False
        results = [_condition_holds(condition, record) for condition in parsed.conditions]
        if False in results:
            return False
        return None if None in results else True


@dataclass(frozen=True)
class SpeedClaim:
    """A published speedup: `expected` bounds the ratio eager ÷ compiled, `published` is the source's figure.

    A figure measured on one GPU does not hold on another, so `expected` states a bound that should hold on every GPU,
    in the grammar of this module.
    """

    id: str
    expected: str
    published: str

    def __post_init__(self) -> None:
        parsed = _parse(self.id, self.expected)
        if parsed.conditions or not _BOUND.fullmatch(parsed.outcome):
            raise ClaimSyntaxError(f"claim {self.id}: a bound is written as '>=1.5' or '<1', not {self.expected!r}")

    @property
    def ranged(self) -> bool:
        """Whether the claim is limited to a range of torch releases."""
        return _parse(self.id, self.expected).releases is not None

    def holds(self, low: float, high: float, torch: str | None = None) -> bool | None:
        """Return True if the whole interval of the ratio satisfies the bound, False if none of it does, else None.

        Also None if the claim is not about this release; `torch` is as in `Claim.holds`.
        """
        parsed = _parse(self.id, self.expected)
        match = _BOUND.fullmatch(parsed.outcome)
        if match is None or not _is_about(parsed, torch):
            return None
        bound = float(match["value"])
        satisfied, failed = {
            ">=": (low >= bound, high < bound),
            ">": (low > bound, high <= bound),
            "<=": (high <= bound, low > bound),
            "<": (high < bound, low >= bound),
        }[match["op"]]
        return True if satisfied else False if failed else None


def parse_claims(claims: Mapping[str, object] | None) -> dict[str, tuple[Claim, ...]]:
    """Parse the ``claims=`` argument of `@case`, which maps a compiler's name to one ``(id, expected)`` or a list.

    Raises ClaimSyntaxError for any other value.
    """
    parsed: dict[str, tuple[Claim, ...]] = {}
    if claims is not None and not isinstance(claims, Mapping):
        raise ClaimSyntaxError(f"claims are not a dict from compiler to (id, expected) but {claims!r}"[:300])
    for compiler, value in (claims or {}).items():
        if not isinstance(compiler, str):
            raise ClaimSyntaxError(f"claims name a compiler by a string, not by {compiler!r}"[:300])
        pairs: Iterable[object] = value if isinstance(value, list) else [value]
        row = []
        for pair in pairs:
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
                raise ClaimSyntaxError(f"claim of {compiler!r} is not an (id, expected) pair: {pair!r}")
            row.append(Claim(*pair))
        parsed[compiler] = tuple(row)
    return parsed


def _parse(name: str, expected: str) -> _Parsed:
    """Split an expected outcome into its parts. Raises ClaimSyntaxError. The caller checks the outcome itself."""
    # Imported only where claims are read: a case alone must need nothing but torch.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    outcome, *words = expected.split() or [""]
    conditions: list[re.Match[str]] = []
    releases: SpecifierSet | None = None
    for word in words:
        spread, condition = _RANGE.fullmatch(word), _CONDITION.fullmatch(word)
        if spread is not None and releases is None:
            try:
                releases = SpecifierSet(spread["releases"])
            except InvalidSpecifier:
                raise ClaimSyntaxError(f"claim {name}: unknown range of releases {word!r}") from None
        elif condition is not None and _is_known(condition):
            conditions.append(condition)
        else:
            raise ClaimSyntaxError(f"claim {name}: unknown condition {word!r}")
    return _Parsed(outcome, conditions, releases)


def _is_known(condition: re.Match[str]) -> bool:
    key, op, value = condition["key"], condition["op"], condition["value"]
    counted = op == "=" and key in COUNTS and value.isascii() and value.isdigit()
    return counted or (op == "~" and key in ("reason", "message"))


def _is_about(parsed: _Parsed, torch: str | None) -> bool:
    if parsed.releases is None:
        return True
    version = (installed_torch() if torch is None else torch).partition("+")[0]
    return parsed.releases.contains(version, prereleases=True)


def _matches(alternative: str, record: _CellResult) -> bool:
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


def _condition_holds(condition: re.Match[str], record: _CellResult) -> bool | None:
    key, value = condition["key"], condition["value"]
    if key in COUNTS:
        count: int | None = getattr(record, key)
        return None if count is None else count == int(value)
    if key == "reason":
        return any(value in reason for reason in record.break_reasons)
    return record.error is not None and value in record.error.message
