"""Migrations for people: what a target does under the compilers of today and tomorrow, and what becomes of suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.text import plural, shorten
from recapture.report.document import Table
from recapture.report.terminal_writer import terminal_lines
from recapture.tools.check.check_report import row_lines
from recapture.tools.check.migration import MOVES, NEXT, TODAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recapture.report.document import Inline
    from recapture.tools.check.migration import LineInTheWay, MigrationReport, MoveKind, Moves

SHOWN_CASES = 6
"""Cases that are named of each group."""

WIDTH = 150
"""Characters of torch's reason for refusing a line."""


def migration_text(report: MigrationReport) -> str:
    """Return the report of a target for a terminal."""
    rows = {row.compiler: row for row in report.report.rows}
    lines = [report.sentence, ""]
    others = [name for name in rows if name not in (*TODAY, *NEXT)]
    for heading, names in (("TorchScript today", TODAY), ("instead", (*NEXT, *others))):
        found = [f"  {line}" for name in names if name in rows for line in row_lines(rows[name])]
        lines += [f"{heading}:", *found] if found else []
    if report.lines:
        lines += ["", "in the way:"]
        for one in report.lines:
            lines += [f"  {text}" for text in _obstacle(one)]
    return "\n".join(lines)


def _obstacle(one: LineInTheWay) -> Iterator[str]:
    yield f"{one.file}:{one.line}  {one.text}" if one.file else "torch does not tell the line:"
    for who, reason in one.reasons:
        yield f"    {who}: {shorten(reason, WIDTH)}"
    for hint in one.rewrites:
        yield f"    rewrite of {hint}"


def moves_counts(found: Moves) -> str:
    """Return the counts of one directory in one line."""
    if not found.moves:
        return f"{found.directory}: {found.before} → {found.after}: no case was judged under both"
    counts = ", ".join(f"{found.count(kind)} {_words(kind)}" for kind in MOVES)
    left = f"; {plural(found.left_out, 'case')} not compared" if found.left_out else ""
    return f"{found.directory}: {found.before} → {found.after}: {counts}{left}"


def moves_text(found: Moves) -> str:
    """Return one directory's moves for a terminal: counts, by suite, refused groups, and what is silently wrong."""
    lines = [moves_counts(found), ""]
    rows: list[list[Inline]] = [[suite, *(found.count(kind, suite) for kind in MOVES)] for suite in found.suites]
    table = Table(["suite", *map(_words, MOVES)], rows, "lr")
    lines += [line.plain for line in terminal_lines(table)]
    if found.refused:
        refused = found.count("now_refused")
        lines += ["", f"now refused: {plural(refused, 'case')} in {plural(len(found.refused), 'group')}"]
    for group in found.refused:
        lines += [f"  {len(group.cases)}  {group.reason}", f"     {_some(group.cases)}"]
        lines += [f"     rewrite of {hint}" for hint in group.rewrites]
    for kind in ("now_wrong", "newly_right"):
        moved = found.of_kind(kind)
        if moved:
            lines += ["", f"{_words(kind)}: {MOVES[kind]}"]
            lines += [f"  {one.case}: {one.before} → {one.after}{_because(one.reason)}" for one in moved]
    return "\n".join(lines)


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _some(cases: tuple[str, ...]) -> str:
    more = len(cases) - SHOWN_CASES
    return ", ".join(cases[:SHOWN_CASES]) + (f" and {more} more" if more > 0 else "")


def _words(kind: MoveKind) -> str:
    return kind.replace("_", " ")
