"""What happens to code that leaves one compiler for another: on a user's target, and over the cells of results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.text import plural, shorten
from recapture.cases.compiler import Family
from recapture.cases.compilers import builtin_compilers, plain_compiler
from recapture.records.verdicts import NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.document import Inline, Table
from recapture.report.summary import first_line, suite_of
from recapture.report.terminal_writer import terminal_lines
from recapture.tools.check.answers import ASK_MIGRATE, OF_SIZE, ON_DATA, CheckReport
from recapture.tools.check.report import row_lines, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recapture.records.record import Record
    from recapture.tools.check.obstacles import Obstacle

TODAY = (plain_compiler(Family.SCRIPT), plain_compiler(Family.TRACE))
"""The compilers of TorchScript, which code leaves."""

NEXT = (
    plain_compiler(Family.DYNAMO),
    plain_compiler(Family.EXPORT),
    *(
        name
        for name, compiler in builtin_compilers().items()
        if compiler.family == Family.EXPORT and compiler.sees_held_out
    ),
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
"""Characters of torch's reason for refusing a line, and of the reason of a group."""

SHOWN_CASES = 6
"""Cases that are named of each group."""

_HAPPENS = {"refused": "refuses it", "break": "breaks the graph", "constant": "records a constant"}
"""What happens at an obstacle, in words."""


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
        lines = len([line for line in self.lines if line.file])
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


def lines_in_the_way(obstacles: tuple[Obstacle, ...], left: tuple[str, ...] = ()) -> tuple[LineInTheWay, ...]:
    """Return obstacles by line, in the order of the source; those without a line come last.

    A line that stops only compilers which the code leaves is in nobody's way.
    """
    places: dict[tuple[str, int, str], list[Obstacle]] = {}
    for obstacle in obstacles:
        places.setdefault((obstacle.file, obstacle.line, obstacle.text), []).append(obstacle)
    lines = []
    for (file, line, text), group in sorted(places.items(), key=lambda item: (not item[0][0], item[0])):
        if all(obstacle.compiler in left for obstacle in group):
            continue
        reasons: dict[str, list[str]] = {}
        for obstacle in group:
            reasons.setdefault(obstacle.reason, []).append(f"{obstacle.compiler} {_HAPPENS[obstacle.kind]}")
        rewrites = [hint for obstacle in group for hint in hints(obstacle.reason, text, obstacle.following)]
        lines.append(
            LineInTheWay(
                file=file,
                line=line,
                text=text,
                reasons=tuple((", ".join(dict.fromkeys(names)), reason) for reason, names in reasons.items()),
                rewrites=tuple(dict.fromkeys(rewrites)),
            )
        )
    return tuple(lines)


def migration_text(report: MigrationReport) -> str:
    """Return the report of a target for a terminal."""
    rows = {
        row.compiler: msgspec.structs.replace(row, advice="" if row.advice == ASK_MIGRATE else row.advice)
        for row in report.report.rows
    }
    lines = [*wrapped(report.sentence), ""]
    others = [name for name in rows if name not in (*TODAY, *NEXT)]
    for heading, names in (("TorchScript today", TODAY), ("instead", (*NEXT, *others))):
        below = [line for name in names if name in rows for line in row_lines(rows[name], "  ")]
        lines += [f"{heading}:", *below] if below else []
    if report.lines:
        lines += ["", "in the way:"]
        lines += [line for obstacle in report.lines for line in _obstacle_lines(obstacle)]
    return "\n".join(lines)


def _obstacle_lines(obstacle: LineInTheWay) -> Iterator[str]:
    place = f"{obstacle.file}:{obstacle.line}: {obstacle.text}" if obstacle.file else "torch does not name the line:"
    yield from wrapped(place, "  ")
    for compilers, reason in obstacle.reasons:
        yield from wrapped(f"{compilers}: {shorten(reason, REASON)}", "    ")
    for hint in obstacle.rewrites:
        yield from wrapped(f"rewrite of {hint}", "    ")


# --- rewrites: a construct that compilers refuse or get wrong, and the case of the collection with what works --------


class Rewrite(NamedTuple):
    """A construct, how it is recognised, and the case of the collection that does without it.

    `reason` and `line` are patterns for torch's reason and for the line of source; one that is empty fits anything.
    `original` is the case, or the function in the file of the rewrite, that has the construct. `since` is the first
    torch release that has what the rewrite needs.
    """

    construct: str
    advice: str
    case: str
    original: str
    reason: str = ""
    line: str = ""
    since: str = ""


REWRITES = (
    Rewrite(
        "a loop that a value ends with break",
        "run every step and keep the old value with torch.where",
        "control_flow_python::masks_instead_of_breaking",
        "control_flow_python::breaks_out_of_a_loop",
        reason=ON_DATA,
        line=r"^(el)?if\b.*\n\s*break\b",
    ),
    Rewrite(
        "a while loop whose end depends on a value",
        "use the operator while_loop",
        "higher_order::while_loop_as_a_rewrite",
        "higher_order::double_until_large",
        reason=ON_DATA,
        line=r"^while\b",
        since="2.5",
    ),
    Rewrite(
        "a branch on a value",
        "compute both sides and choose with torch.where",
        "control_flow_python::both_paths_and_a_choice",
        "control_flow_python::chooses_a_function_by_value",
        reason=ON_DATA,
        line=r"^(el)?if\b|\bif\b.+\belse\b|^return .*\bif\b",
    ),
    Rewrite(
        "a branch on a value whose sides are costly",
        "use torch.cond",
        "higher_order::cond_as_a_rewrite",
        "higher_order::branch_instead_of_cond",
        reason=ON_DATA,
        line=r"^(el)?if\b|\bif\b.+\belse\b|^return .*\bif\b",
        since="2.4",
    ),
    Rewrite(
        "tensors sorted by their values in Python",
        "stack them and index with argsort",
        "containers::sorts_rows_by_value",
        "containers::sorts_tensors_by_value",
        line=r"\bsorted\(|\.sort\(key",
    ),
    Rewrite(
        "an assignment through a mask",
        "use torch.where",
        "mutation::selects_by_a_mask",
        "mutation::assigns_through_a_mask",
        line=r"\w\[[^\]]*(<|>|==|!=|mask|~)[^\]]*\] *[-+*/]?=[^=]",
    ),
    Rewrite(
        "a result whose size depends on the values",
        "keep the size, and let the mask be a weight",
        "data_dependent::mean_of_the_positive_by_weights",
        "data_dependent::mean_of_the_positive",
        reason=OF_SIZE,
    ),
    Rewrite(
        "a write into the diagonal or another view",
        "use diagonal_scatter, or another of the scatter functions",
        "mutation::scatters_the_diagonal",
        "mutation::writes_the_diagonal",
        line=r"\.(diagonal|diag|unbind|select|narrow)\(.*\)(\[[^\]]*\])?\.?(\w+_\(| *[-+*/]?=[^=])",
    ),
    Rewrite(
        "a tensor detached in place",
        "use detach, which gives another tensor",
        "autograd::detached_copy",
        "autograd::detach_in_place",
        line=r"\.detach_\(",
    ),
    Rewrite(
        "a counter or another state outside the function",
        "pass the state in as a tensor and return the new one",
        "side_effects::state_in_and_out",
        "side_effects::counts_on_an_object",
        reason=r"python value of type '(dict|list|set)'|closed over global|global variable|side effect",
    ),
)
"""The rewrites, the most specific first."""


def rewrites_for(reason: str, line: str, following: str = "") -> list[Rewrite]:
    """Return the rewrites that fit torch's reason and a line of source, with the line below it; the best first."""
    text = f"{line.strip()}\n{following.strip()}"
    fitting = [
        rewrite
        for rewrite in REWRITES
        if re.search(rewrite.reason, reason, re.IGNORECASE) and re.search(rewrite.line, text, re.IGNORECASE)
    ]
    return fitting[:2]  # the table has the most specific first; more would hide what fits best


def rewrite_of_case(case: str) -> Rewrite | None:
    """Return the rewrite that the collection has beside a case, or None."""
    return next((rewrite for rewrite in REWRITES if rewrite.original == case), None)


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
        return sum(move.kind == kind and suite in (None, suite_of(move.case)) for move in self.moves)

    @property
    def suites(self) -> list[str]:
        """The suites of the cases, by name."""
        return sorted({suite_of(move.case) for move in self.moves})

    def of_kind(self, kind: MoveKind) -> list[Move]:
        """Return the cases of a kind."""
        return [move for move in self.moves if move.kind == kind]


def moves(records: Iterable[Record], before: str, after: str, directory: str = "") -> Moves:
    """Return what becomes of every case that moves from one compiler to another.

    Raises UsageError, with the most similar name, for a compiler without a record.
    """
    cells: dict[str, dict[str, Record]] = {}
    for record in records:
        cells.setdefault(record.case, {})[record.compiler] = record
    known = {name for by_compiler in cells.values() for name in by_compiler}
    for name in (before, after):
        if name not in known:
            raise UsageError(
                f"no record of compiler {name!r} in {directory or 'these results'}{did_you_mean(name, known)}"
            )
    pairs = {
        case: (by_compiler[before], by_compiler[after])
        for case, by_compiler in cells.items()
        if {before, after} <= by_compiler.keys()
    }
    judged = {
        case: (old, new) for case, (old, new) in sorted(pairs.items()) if not {old.verdict, new.verdict} & NOT_RUN
    }
    every = tuple(_move(case, old, new) for case, (old, new) in judged.items())
    refused = [judged[move.case][1] for move in every if move.kind == "now_refused"]
    return Moves(
        directory=directory,
        before=before,
        after=after,
        moves=every,
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
    by_reason: dict[str, list[Record]] = {}
    for record in records:
        by_reason.setdefault(_NAMES.sub("…", _why(record)), []).append(record)
    groups = []
    for rows in sorted(by_reason.values(), key=lambda rows: (-len(rows), rows[0].case)):
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


def moves_counts(counted: Moves) -> str:
    """Return the counts of one directory in one line."""
    if not counted.moves:
        return f"{counted.directory}: {counted.before} → {counted.after}: no case was judged under both"
    counts = ", ".join(f"{counted.count(kind)} {_words(kind)}" for kind in MOVES)
    left = f"; {plural(counted.left_out, 'case')} not compared" if counted.left_out else ""
    return f"{counted.directory}: {counted.before} → {counted.after}: {counts}{left}"


def moves_text(counted: Moves) -> str:
    """Return one directory's moves for a terminal: counts, by suite, refused groups, and what is silently wrong."""
    lines = [*wrapped(moves_counts(counted)), ""]
    rows: list[list[Inline]] = [[suite, *(counted.count(kind, suite) for kind in MOVES)] for suite in counted.suites]
    headings = [_words(kind).removeprefix("still ").removeprefix("now ") for kind in MOVES]  # they fit 80 columns
    table = Table(["suite", *headings], rows, "lr")
    lines += [line.plain for line in terminal_lines(table)]
    if counted.refused:
        refused = counted.count("now_refused")
        lines += ["", f"now refused: {plural(refused, 'case')} in {plural(len(counted.refused), 'group')}"]
    for group in counted.refused:
        lines += wrapped(f"{plural(len(group.cases), 'case')}: {group.reason}", "  ")
        lines += [line for text in (_some(group.cases), *_rewrites(group)) for line in wrapped(text, "    ")]
    for kind in ("now_wrong", "newly_right"):
        moved = counted.of_kind(kind)
        if moved:
            lines += ["", f"{_words(kind)}: {MOVES[kind]}"]
            lines += [line for move in moved for line in wrapped(_moved(move), "  ")]
    return "\n".join(lines)


def _rewrites(group: RefusedGroup) -> list[str]:
    return [f"rewrite of {hint}" for hint in group.rewrites]


def _moved(move: Move) -> str:
    return f"{move.case}: {move.before} → {move.after}{f' ({move.reason})' if move.reason else ''}"


def _some(cases: tuple[str, ...]) -> str:
    more = len(cases) - SHOWN_CASES
    return ", ".join(cases[:SHOWN_CASES]) + (f" and {more} more" if more > 0 else "")


def _words(kind: MoveKind) -> str:
    return kind.replace("_", " ")
