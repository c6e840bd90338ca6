"""The terminal summary at the end of a run or a report: counts, matrix, silent wrongs, failures, claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from recapture.base.text import one_line, plural, shorten
from recapture.cases.compilers import plain_name
from recapture.machine.environment import Environment
from recapture.records.directories import REPORT
from recapture.records.record import Record
from recapture.report import environment_facts, summary
from recapture.report.differences import commonest_difference, culprit, noted_numbers, silent_kinds, stage_of
from recapture.report.document import Inline, Span, Table
from recapture.report.groups import FEWEST, Group, failure_groups, static_refusals, suspects
from recapture.report.summary import ClaimStatus, in_matrix
from recapture.report.terminal_writer import GAP, line_width, say, say_all, say_wrapped, terminal_lines

MARK_STYLES = summary.COLOURS | {"wrong": "bold white on red"}
"""The style of a mark in the matrix, by the tone of its verdict."""

MATRIX_CASES = 100
"""Largest number of cases for which the matrix is printed; for more, counts by compiler replace it."""

CELLS_EXPLAINED = 10
"""Largest number of silently wrong cells with one line each; more are grouped by case."""

WRONG_CASES_NAMED = 20
"""Number of silently wrong cases in the summary; the report beside the records has all of them."""

FAILURES_NAMED = 10
"""Number of different failures in the summary; the report beside the records has all of them."""

CLAIMS_NAMED = 12
"""Number of claims of one status in the summary."""

LINE_LIMIT = 160
"""Characters of a line of a table where there is no terminal, as in a pipe or a log."""

MESSAGE_LIMIT = 160
"""Characters of a message: why a suite is missing, what is wrong with the machine, what differs."""

SUSPECTS_NAMED = 5
"""Number of cases with a suspect reference in the summary."""

REASON_LIMIT = 200
"""Characters shown of the difference in a silently wrong cell."""

COMPILERS_ROOM = 16
"""Smallest width in columns for the compilers of a silently wrong case, on any terminal."""

CASE_ROOM = 20
"""Smallest width in columns for the name of a silently wrong case."""


def print_summary(
    console: Console, records: Sequence[Record], environment: Environment | None, directory: Path
) -> None:
    """Print counts, the matrix, the silently wrong cases, the most common failures, and the claims.

    If the console is too narrow for the matrix, counts by compiler replace it. `directory` contains the report, which
    is named wherever something is left out.
    """
    where = environment_facts.place(records, environment)
    say(console, f"{where.image} on {where.capability}", "bold")
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in summary.counts_by_verdict(records).items())
    accounting, complete = environment_facts.accounting(records, environment)
    say_wrapped(console, f"{accounting}: {verdicts or 'none'}", "" if complete else "bold red")
    for name, error in environment_facts.uncollected(environment):
        say_wrapped(console, f"suite {name} could not be collected: {shorten(error, MESSAGE_LIMIT)}", "bold red")
    for check in environment_facts.failing_checks(environment):
        say_wrapped(console, f"the machine is at fault: {shorten(check, MESSAGE_LIMIT)}", "bold red")
    in_tables, left_out = in_matrix(records)
    if records and not _print_matrix(console, in_tables):
        _print_counts(console, in_tables)
    if left_out:
        say_wrapped(console, left_out)
    _print_silent_wrongs(console, summary.silent_wrongs(records), directory / REPORT)
    _print_suspects(console, [suspect.case for suspect in suspects(records)])
    _print_failures(console, failure_groups(records), directory / REPORT)
    for refusals in static_refusals(records):
        say_wrapped(console, str(refusals))
    _print_noted(console, records)
    _print_claims(console, records)


def _print_matrix(console: Console, records: Sequence[Record]) -> bool:
    """Print the matrix with a column of one character for each compiler; return False if it does not fit."""
    compilers = summary.compilers_in_order(records)
    cases = sorted({record.case for record in records})
    gap = len(str(len(compilers)))  # two-digit numbers need two columns
    widest = max(len(case) - len(summary.suite_of(case)) for case in cases)
    if len(cases) > MATRIX_CASES or widest + 4 + (gap + 1) * len(compilers) > console.width:
        return False
    cells = {(record.case, record.compiler): record for record in records}
    rows: list[list[Inline]] = []
    suite = ""
    for case in cases:
        if summary.suite_of(case) != suite:
            suite = summary.suite_of(case)
            rows.append([Span(suite, style="bold")])
        marks = (cells.get((case, name)) for name in compilers)
        rows.append([f"  {case.split('::', 1)[-1]}", *(_styled(record) if record else "" for record in marks)])
    numbers = [Span(str(number), style="dim") for number in range(1, len(compilers) + 1)]
    say(console)
    say_all(console, terminal_lines(Table(["", *numbers], rows, "lr"), gap=1))
    say(console)
    say_all(console, _filled([f"{number} {name}" for number, name in enumerate(compilers, 1)], console.width), "dim")
    marks_shown = {summary.mark(record) for record in records}
    say_all(
        console,
        _filled([f"{mark} {words}" for mark, words in summary.LEGEND.items() if mark in marks_shown], console.width),
        "dim",
    )
    return True


def _print_counts(console: Console, records: Sequence[Record]) -> None:
    """Print a line for each compiler, without wrapping or cutting."""
    by_compiler: dict[str, list[Record]] = {}
    for record in records:
        by_compiler.setdefault(record.compiler, []).append(record)
    rows: list[list[Inline]] = []
    for compiler in summary.compilers_in_order(records):
        counts = summary.count(by_compiler[compiler])
        wrong = Span(str(counts.silently_wrong), style="bold red" if counts.silently_wrong else "")
        rows.append([compiler, counts.right, wrong, counts.failing, counts.not_run])
    headers: list[str | Span] = ["", *(Span(name, style="dim") for name in ("right", "wrong", "failing", "not run"))]
    say(console)
    say_all(console, terminal_lines(Table(headers, rows, "lr")))


def _print_silent_wrongs(console: Console, by_case: dict[str, list[Record]], report: Path) -> None:
    """Print a line for each silently wrong cell or, if there are many, for the cases with the most cells."""
    number = sum(map(len, by_case.values()))
    if not number:
        return
    if number <= CELLS_EXPLAINED:
        say(console, f"\nsilently wrong: {number}", "bold red")
        for record in (record for cells in by_case.values() for record in cells):
            stage = stage_of(record)
            guilty = f" (guilty: {culprit(stage)})" if stage is not None else ""
            line = f"{summary.mark(record)} {record.cell}{guilty}: {summary.explain(record, REASON_LIMIT)}"
            say(console, shorten(line, width) if (width := line_width(console)) else one_line(line))
        return
    heading = f"silently wrong: {plural(number, 'cell')} of {plural(len(by_case), 'case')}{_by_kind(by_case)}"
    say(console)
    say_wrapped(console, heading, "bold red")
    ordered = sorted(by_case.items(), key=lambda item: (-len(item[1]), item[0]))
    named = [_WrongCase(case, cells) for case, cells in ordered[:WRONG_CASES_NAMED]]
    say_all(console, terminal_lines(_wrong_table(named, line_width(console) or LINE_LIMIT)))
    others = ordered[WRONG_CASES_NAMED:]
    if others:
        cells_left = plural(sum(len(cells) for _, cells in others), "cell")
        say_wrapped(console, f"and {plural(len(others), 'more case')} ({cells_left}): see {report}")


def _print_suspects(console: Console, cases: Sequence[str]) -> None:
    """Print the cases in which eager itself may be at fault."""
    if cases:
        more = f" and {len(cases) - SUSPECTS_NAMED} more" if len(cases) > SUSPECTS_NAMED else ""
        names = ", ".join(one_line(case) for case in cases[:SUSPECTS_NAMED])
        reason = f"{FEWEST} or more unrelated compilers show the same difference"
        say_wrapped(console, f"reference suspect, {reason}: {names}{more}")


def _by_kind(by_case: dict[str, list[Record]]) -> str:
    """Return the number of silently wrong cells by kind of difference, in brackets."""
    kinds = silent_kinds(record for cells in by_case.values() for record in cells)
    return f" ({', '.join(f'{count.kind} {count.cells}' for count in kinds)})" if kinds else ""


def _print_noted(console: Console, records: Sequence[Record]) -> None:
    """Print the number of cells with differences that do not decide a verdict, by kind."""
    numbers = noted_numbers(records)
    if not numbers:
        return
    cells = plural(sum(bool(record.noted) for record in records), "cell")
    kinds = ", ".join(f"{kind} {number}" for kind, number in numbers.items())
    say(console)
    say_wrapped(console, f"differences that do not decide a verdict: {cells} ({kinds})", "bold")


class _WrongCase:
    """The content of the line of a silently wrong case."""

    def __init__(self, case: str, cells: Sequence[Record]) -> None:
        self.case = one_line(case)
        self.compilers = [record.compiler for record in cells]
        self.difference, others = commonest_difference(cells)
        self.difference = shorten(self.difference, MESSAGE_LIMIT)
        self.more = f" (+{others} more)" if others else ""


def _wrong_table(cases: Sequence[_WrongCase], width: int) -> Table:
    """Return the table of silently wrong cases; to fit a width in characters, what is less important is shortened."""
    headers = ("cells", "case", "what differs", "compilers")

    def room(names: Sequence[str], differences: Sequence[str]) -> int:
        columns = (headers[:1], [headers[1], *names], [headers[2], *differences])
        return width - sum(max(map(len, column)) + GAP for column in columns)

    names = [wrong_case.case for wrong_case in cases]
    differences = [wrong_case.difference + wrong_case.more for wrong_case in cases]
    if room(names, differences) < COMPILERS_ROOM:
        differences = [wrong_case.difference for wrong_case in cases]
        lacking = COMPILERS_ROOM - room(names, differences)
        limit = max(max(map(len, names)) - lacking, CASE_ROOM)
        names = [shorten(name, limit) for name in names]
    left = max(room(names, differences), COMPILERS_ROOM)
    rows: list[list[Inline]] = [
        [len(wrong_case.compilers), name, difference, _fitting(wrong_case.compilers, left)]
        for wrong_case, name, difference in zip(cases, names, differences)  # noqa: B905 - of one length
    ]
    return Table([Span(name, style="dim") for name in headers], rows, "rlll")


def _fitting(compilers: Sequence[str], room: int) -> str:
    """Return the compilers within `room` characters: by name, or by family, or the first families and how many more."""
    text = ", ".join(compilers)
    if len(text) <= room:
        return text
    families = Counter(plain_name(name) for name in compilers)
    parts = [f"{name} ×{number}" if number > 1 else name for name, number in families.items()]
    numbers = list(families.values())
    for named in range(len(parts), 0, -1):
        left = sum(numbers[named:])
        text = ", ".join(parts[:named]) + (f", +{left}" if left else "")
        if len(text) <= room:
            return text
    return shorten(text, room)


def _print_failures(console: Console, groups: Sequence[Group], report: Path) -> None:
    """Print a line for each of the most common failures, with one of its cells."""
    if not groups:
        return
    number = sum(len(group.records) for group in groups)
    ways = f", in {len(groups)} different ways" if len(groups) > 1 else ""
    say(console, f"\nfailing: {number}{ways}", "bold")
    for group in groups[:FAILURES_NAMED]:
        first = group.records[0]
        width = (line_width(console) or LINE_LIMIT) - 5
        line = f"{summary.measured(first)}, {first.cell}: {group.text}"
        say(console, f"{len(group.records):>4} {shorten(line, width)}")
    if len(groups) > FAILURES_NAMED:
        say_wrapped(console, f"and {len(groups) - FAILURES_NAMED} more: see {report}")


def _print_claims(console: Console, records: Sequence[Record]) -> None:
    by_id = summary.claims_by_id(records)
    if not by_id:
        return
    say(console, f"\npublished claims: {len(by_id)}", "bold")
    for status in ClaimStatus:
        ids = [claim for claim, cells in by_id.items() if summary.overall_status(cells) is status]
        if ids:
            more = f" and {len(ids) - CLAIMS_NAMED} more" if len(ids) > CLAIMS_NAMED else ""
            say_wrapped(console, f"{len(ids):>3} {status}: {', '.join(ids[:CLAIMS_NAMED])}{more}", indent=2)


def _styled(record: Record) -> Span:
    return Span(summary.mark(record), style=MARK_STYLES[record.verdict.facts.tone])


def _filled(parts: Sequence[str], width: int) -> list[str]:
    """Put unbroken parts on as few lines as the width allows."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines
