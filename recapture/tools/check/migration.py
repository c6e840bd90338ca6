"""What happens to code that leaves one compiler for another: on a user's target, and over the cells of results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.text import shorten
from recapture.cases.compiler import Family
from recapture.cases.compilers import builtin_compilers, plain_compiler
from recapture.records.verdicts import NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.summary import first_line, suite_of
from recapture.tools.check.answers import CheckReport
from recapture.tools.check.rewrites import rewrite_of_case, rewrites_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recapture.records.record import Record

TODAY = (plain_compiler(Family.SCRIPT), plain_compiler(Family.TRACE))
"""The compilers of TorchScript, which code leaves."""

NEXT = (
    plain_compiler(Family.DYNAMO),
    plain_compiler(Family.EXPORT),
    *(name for name, one in builtin_compilers().items() if one.family == Family.EXPORT and one.sees_held_out),
    plain_compiler(Family.AOTI),
)
"""The compilers that it can go to."""

MoveKind = Literal["still_right", "now_refused", "now_wrong", "newly_right", "still_not_right"]

MOVES: dict[MoveKind, str] = {
    "still_right": "right before and after",
    "now_refused": "right before, refused or failing after",
    "now_wrong": "right before, silently wrong after",
    "newly_right": "not right before, right after",
    "still_not_right": "right neither before nor after",
}
"""What a cell does when its code changes the compiler, with the meaning."""

_NAMES = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\b\w+(?=\.size\(\))|\d+|\bu\w*\d\b")
"""What differs between messages of one reason: quoted text, arguments, numbers and symbols."""

REASON = 140
"""Characters of the reason of a group."""


class LineInTheWay(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the user's source that stands in the way, or an empty `file` where torch does not tell the line.

    `reasons` are pairs of a compiler with what happens, and torch's reason. `rewrites` are hints in words.
    """

    file: str
    line: int
    text: str
    reasons: tuple[tuple[str, str], ...]
    rewrites: tuple[str, ...] = ()


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What TorchScript does with a target today, what the others would do, and which lines stand in the way."""

    report: CheckReport
    lines: tuple[LineInTheWay, ...] = ()
    version: Literal[1] = 1

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        words = {row.compiler: row.words for row in self.report.rows}
        today = [f"{name} {_plainly(words[name])}" for name in TODAY if name in words]
        others = [row for row in self.report.rows if row.compiler not in TODAY]
        right = [row.compiler for row in others if Verdict(row.verdict) in RIGHT]
        destination = f"it can move to {', '.join(right)}" if right else "none of the others is right as it stands"
        destination = destination if others else "no other compiler was asked for"
        lines = len([one for one in self.lines if one.file])
        way = f"; {lines} line{'s' if lines != 1 else ''} in the way" if lines else ""
        now = f"today {', '.join(today)}; " if today else ""
        return f"{self.report.target} on torch {self.report.torch}: {now}{destination}{way}"


def _plainly(words: str) -> str:
    return words.removeprefix("error: ").replace("specialized: ", "silently ").replace("wrong: wrong", "silently wrong")


def hints(reason: str, line: str, following: str = "", case: str = "") -> tuple[str, ...]:
    """Return the rewrites that fit, each in words with its case; one that belongs to `case` itself is the only one."""
    if re.search(r"Guard failed: .*size\(\)", reason):
        return ("a size of the example: export with dynamic shapes, as the compiler export:dynamic does",)
    own = rewrite_of_case(case)
    rewrites = [own] if own is not None else rewrites_for(reason, line, following)
    return tuple(
        f"{rule.construct}: {rule.advice}{f' (torch {rule.since} or newer)' if rule.since else ''}, as in {rule.case}"
        for rule in rewrites
    )


# --- over the cells of results --------------------------------------------------------------------------------------


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One case: what it does under the first and under the second compiler, and the reason of the second."""

    case: str
    kind: MoveKind
    before: str
    after: str
    reason: str = ""


class RefusedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Cases that the second compiler refuses for one reason, with the rewrites that fit."""

    reason: str
    cases: tuple[str, ...]
    rewrites: tuple[str, ...] = ()


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """All cases that both compilers were judged on, in one directory; `left_out` counts the others."""

    directory: str
    before: str
    after: str
    moves: tuple[Move, ...] = ()
    left_out: int = 0
    refused: tuple[RefusedGroup, ...] = ()

    def count(self, kind: MoveKind, suite: str | None = None) -> int:
        """Return the number of cases of a kind, of one suite or of all."""
        return sum(one.kind == kind and suite in (None, suite_of(one.case)) for one in self.moves)

    @property
    def suites(self) -> list[str]:
        """The suites of the cases, by name."""
        return sorted({suite_of(one.case) for one in self.moves})

    def of_kind(self, kind: MoveKind) -> list[Move]:
        """Return the cases of a kind."""
        return [one for one in self.moves if one.kind == kind]


def moves(records: Iterable[Record], before: str, after: str, directory: str = "") -> Moves:
    """Return what becomes of every case that moves from one compiler to another.

    Raises UsageError, with the most similar name, for a compiler without a record.
    """
    cells: dict[str, dict[str, Record]] = {}
    for record in records:
        cells.setdefault(record.case, {})[record.compiler] = record
    known = {name for found in cells.values() for name in found}
    for name in (before, after):
        if name not in known:
            raise UsageError(
                f"no record of compiler {name!r} in {directory or 'these results'}{did_you_mean(name, known)}"
            )
    pairs = {case: (found[before], found[after]) for case, found in cells.items() if {before, after} <= found.keys()}
    judged = {
        case: (old, new) for case, (old, new) in sorted(pairs.items()) if not {old.verdict, new.verdict} & NOT_RUN
    }
    listed = tuple(_move(case, old, new) for case, (old, new) in judged.items())
    refused = [judged[one.case][1] for one in listed if one.kind == "now_refused"]
    return Moves(
        directory=directory,
        before=before,
        after=after,
        moves=listed,
        left_out=len(cells) - len(judged),
        refused=tuple(_groups(refused)),
    )


def _move(case: str, old: Record, new: Record) -> Move:
    was, now = old.verdict in RIGHT, new.verdict in RIGHT
    kind: MoveKind = "still_not_right"
    if now:
        kind = "still_right" if was else "newly_right"
    elif was:
        kind = "now_wrong" if new.verdict in SILENTLY_WRONG else "now_refused"
    return Move(case=case, kind=kind, before=str(old.verdict), after=str(new.verdict), reason=_why(new))


def _why(record: Record) -> str:
    if record.error is not None:
        return shorten(f"{record.error.type.rpartition('.')[2]}: {first_line(record.error.message)}", REASON)
    if record.differences:
        return shorten(f"{record.differences[0].kind} on {record.differences[0].input}", REASON)
    return shorten(record.reason or "", REASON)


def _groups(records: Sequence[Record]) -> list[RefusedGroup]:
    """Return refused cells by reason, the largest group first; names and numbers do not tell reasons apart."""
    found: dict[str, list[Record]] = {}
    for record in records:
        text = _why(record)
        found.setdefault(_NAMES.sub("…", text), []).append(record)
    groups = []
    for rows in sorted(found.values(), key=lambda rows: (-len(rows), rows[0].case)):
        words: list[str] = []
        for row in rows:
            message = row.error.message if row.error is not None else ""
            words += hints(message, _source_line(message), case=row.case)
        cases = tuple(row.case for row in rows)
        groups.append(RefusedGroup(reason=_why(rows[0]), cases=cases, rewrites=tuple(dict.fromkeys(words))[:3]))
    return groups


def _source_line(message: str) -> str:
    """Return the last line of source that a message quotes below a place, or an empty string."""
    lines = re.findall(r'File "[^"]*", line \d+[^\n]*\n\s*([^\n]+)', message)
    return lines[-1] if lines else ""
