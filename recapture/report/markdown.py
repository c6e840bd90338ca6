"""``conformance.md``: a results directory as GitHub Markdown, with the same bytes for the same records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.analysis import environment_facts, summary
from recapture.analysis.differences import how_far, kinds_of, noted_by_compiler, place, silent_kinds
from recapture.analysis.groups import (
    break_groups,
    failure_groups,
    not_run_groups,
    noted_groups,
    remark_groups,
    together,
)
from recapture.analysis.matrix import in_matrix
from recapture.analysis.summary import ClaimStatus
from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.base.text import one_line, plural, shorten
from recapture.report.claim_sources import address, sentence
from recapture.report.markup import code, html_text, plain
from recapture.report.tables import Cell, Span, Table, code_span, strong, to_markdown
from recapture.results.directories import REPORT, read_results
from recapture.results.kinds import KINDS
from recapture.results.verdicts import SILENTLY_WRONG

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from recapture.analysis.groups import Group
    from recapture.machine.environment import Environment
    from recapture.results.records import Difference, Record

__all__ = ["render_conformance", "write_report"]

MESSAGE_LIMIT = 200
"""Characters of a message in a report; the records have the complete message."""

DIFFERENCES_SHOWN = 4
"""Number of differences shown for one silently wrong cell; the records have all of them."""


def render_conformance(records: Sequence[Record], environment: Environment | None) -> str:
    """Return the conformance report of one results directory, without dates, times or paths."""
    shown, left_out = in_matrix(records)
    sections = [
        _head(records, environment),
        _environment(environment),
        _uncollected(environment),
        _counts(shown),
        _claims(records),
        _silent_wrongs(records),
        _matrices(shown),
        plain(left_out),
        _failures(records),
        _breaks(records),
        _noted(shown, records),
        _remarks(records),
        _not_run(records),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def write_report(directory: Path) -> Path:
    """Write ``conformance.md`` beside the records of a results directory and return its path.

    Raises UsageError if the records cannot be read or the report cannot be written.
    """
    results = read_results(directory)
    path = directory / REPORT
    try:
        write_atomically(path, render_conformance(results.records, results.environment).encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    return path


def _head(records: Sequence[Record], environment: Environment | None) -> str:
    where = environment_facts.place(records, environment)
    title = f"# Conformance: {code(where.image)} on {code(where.capability)}"
    verdicts = ", ".join(f"{number} {code(verdict)}" for verdict, number in summary.counts_by_verdict(records).items())
    accounting, complete = environment_facts.accounting(records, environment)
    accounting = f"Cells: {accounting if complete else f'**{accounting}**'}: {verdicts or 'none'}."
    total = summary.count(records)
    answer = (
        f"**{total.right} right, {total.silently_wrong} silently wrong, {total.failing} failing, "
        f"{total.not_run} not run.** Right means: what eager does, on the example the compiler captured with and on "
        "every held-out input."
    )
    return f"{title}\n\n{accounting}\n\n{answer}"


def _environment(environment: Environment | None) -> str:
    if environment is None:
        return "## Environment\n\nNot recorded."
    rows = [(plain(name), plain(shorten(value, MESSAGE_LIMIT))) for name, value in environment_facts.brief(environment)]
    lines = [f"- {name}: {value}" for name, value in rows]
    why = environment_facts.why_bare(environment)
    if why:
        lines.append(f"- bare, not the image, because {plain(shorten(why, 2 * MESSAGE_LIMIT))}")
    lines += [
        f"- **at fault: {plain(shorten(check, MESSAGE_LIMIT))}**"
        for check in environment_facts.failing_checks(environment, lasting=True)
    ]
    lines += [
        f"- warning: {plain(shorten(check, MESSAGE_LIMIT))}"
        for check in environment_facts.warnings(environment, lasting=True)
    ]
    return "## Environment\n\n" + "\n".join(lines)


def _uncollected(environment: Environment | None) -> str:
    missing = environment_facts.uncollected(environment)
    if not missing:
        return ""
    lines = [f"- {code(name)}: {code(shorten(error, MESSAGE_LIMIT))}" for name, error in missing]
    return "## Suites that could not be collected\n\nNothing below says anything about their cases.\n\n" + "\n".join(
        lines
    )


def _counts(records: Sequence[Record]) -> str:
    if not records:
        return ""
    suites = summary.suites_in_order(records)
    by_compiler: dict[str, dict[str, list[Record]]] = {}
    by_suite: dict[str, list[Record]] = {}
    for record in records:
        suite = summary.suite_of(record.case)
        by_compiler.setdefault(record.compiler, {}).setdefault(suite, []).append(record)
        by_suite.setdefault(suite, []).append(record)
    rows: list[list[Cell]] = []
    for compiler in summary.compilers_in_order(records):
        mine = by_compiler[compiler]
        every = [record for cells in mine.values() for record in cells]
        rows.append([code_span(compiler), _four(every), *(_four(mine.get(suite, [])) for suite in suites)])
    rows.append(["all", _four(records), *(_four(by_suite[suite]) for suite in suites)])
    headers: list[str | Span] = ["compiler", "all suites", *map(code_span, suites)]
    return "## Counts\n\nright/**silently wrong**/failing/not run\n\n" + to_markdown(Table(headers, rows, "lr"))


def _four(records: Sequence[Record]) -> Cell:
    if not records:
        return ""
    counts = summary.count(records)
    wrong = strong(str(counts.silently_wrong)) if counts.silently_wrong else "0"
    return [f"{counts.right}/", wrong, f"/{counts.failing}/{counts.not_run}"]  # spaces would allow line breaks


def _claims(records: Sequence[Record]) -> str:
    by_id = summary.claims_by_id(records)
    if not by_id:
        return ""
    overall = {claim: summary.overall_status(members) for claim, members in by_id.items()}
    tally = ", ".join(
        f"{number} {status}" for status in ClaimStatus if (number := sum(one is status for one in overall.values()))
    )
    counted = (ClaimStatus.REPRODUCED, ClaimStatus.NOT_REPRODUCED, ClaimStatus.NOT_RUNNABLE)
    claims = Table(
        ["claim", "status", *map(str, counted), "what it says"],
        [
            [
                Span(claim, link=address(claim)),
                _status(overall[claim]),
                *(sum(cell.status is status for cell in members) for status in counted),
                sentence(claim),
            ]
            for claim, members in by_id.items()
        ],
        "llrrrl",
    )
    details = Table(
        ["claim", "status", "case", "compiler", "expected", "measured"],
        [
            [
                Span(cell.id, link=address(cell.id)),
                _status(cell.status),  # early in the row: a narrow page hides the last columns
                code_span(cell.record.case),
                code_span(cell.record.compiler),
                code_span(cell.expected),
                code_span(summary.measured(cell.record, cell.expected)),
            ]
            for members in by_id.values()
            for cell in members
        ],
    )
    return (
        f"## Published claims\n\n{plural(len(by_id), 'claim')}: {tally}. The numbers count cells; "
        f"a cell that could not run here does not count against its claim.\n\n{to_markdown(claims)}\n\n"
        f"### Claim by claim\n\n{to_markdown(details)}"
    )


def _status(status: ClaimStatus) -> Span:
    fine = status in (ClaimStatus.REPRODUCED, ClaimStatus.NOT_RUNNABLE)
    return Span(str(status)) if fine else strong(str(status))


def _silent_wrongs(records: Sequence[Record]) -> str:
    by_case = summary.silent_wrongs(records)
    number = sum(len(cells) for cells in by_case.values())
    if not number:
        return "## Silently wrong\n\nNo cell." if records else ""
    lines = []
    for case, cells in by_case.items():
        lines.append(f"- {code(case)} ({', '.join(kinds_of(one for record in cells for one in record.differences))})")
        alike: dict[tuple[object, ...], list[Record]] = {}
        for record in cells:
            alike.setdefault((record.verdict, record.differences), []).append(record)
        for members in alike.values():
            names = ", ".join(code(record.compiler) for record in members)
            said = _differences(members[0].differences) or plain(members[0].reason or "no difference is recorded")
            lines.append(f"  - {names} ({members[0].verdict}): {said}")
    wrong_cases = plural(len(by_case), "case")
    return (
        f"## Silently wrong\n\n{plural(number, 'cell')} of {wrong_cases} did something else than eager "
        f"and said nothing.\n\n{_kinds_table(records)}\n\n" + "\n".join(lines)
    )


def _kinds_table(records: Sequence[Record]) -> str:
    """Return the table of the silent differences by kind."""
    wrong = [record for record in records if record.verdict in SILENTLY_WRONG]
    rows: list[list[Cell]] = [
        [code_span(one.kind), one.cells, one.cases, KINDS[one.kind]] for one in silent_kinds(wrong)
    ]
    return to_markdown(Table(["kind of difference", "cells", "cases", "meaning"], rows, "lrrl"))


def _differences(differences: Sequence[Difference]) -> str:
    """Return the first differences, naming each input once."""
    parts = []
    last = None
    for one in differences[:DIFFERENCES_SHOWN]:
        on = f"{_on(one.input)}: " if one.input != last else ""
        far = f" ({plain(far)})" if (far := how_far(one)) else ""
        detail = f" {code(shorten(one.detail, MESSAGE_LIMIT))}" if one.detail.strip() else ""
        parts.append(f"{on}{code(one.where)} {plain(one.kind)}{far}{detail}")
        last = one.input
    if len(differences) > DIFFERENCES_SHOWN:
        parts.append(f"and {len(differences) - DIFFERENCES_SHOWN} more")
    return "; ".join(parts)


def _on(label: str) -> str:
    """Return an input in words, with the name of an argument as code."""
    words = place(label)
    return f"on {code(label)}" if words == f"on {label}" else plain(words)


def _matrices(records: Sequence[Record]) -> str:
    if not records:
        return ""
    marks: dict[tuple[str, str], Span] = {}
    by_suite: dict[str, list[Record]] = {}
    for record in records:
        one = summary.mark(record)
        marks[record.case, record.compiler] = strong(one) if record.verdict in SILENTLY_WRONG else Span(one)
        by_suite.setdefault(summary.suite_of(record.case), []).append(record)
    legend = "; ".join(f"{f'**{one}**' if one in 'Ww' else one} {words}" for one, words in summary.LEGEND.items())
    sections = [f"## Matrix\n\n{legend}; empty: no such cell."]
    for suite in summary.suites_in_order(records):
        cells = by_suite[suite]
        compilers = summary.compilers_in_order(cells)
        rows: list[list[Cell]] = [
            [code_span(case.split("::", 1)[-1]), *(marks.get((case, name), "") for name in compilers)]
            for case in sorted({record.case for record in cells})
        ]
        # A break after the family keeps seventeen columns within the width of a page.
        names = (one_line(name).replace(":", ":\n").replace("jit.", "jit.\n") for name in compilers)
        sections.append(f"### {code(suite)}\n\n" + to_markdown(Table(["case", *names], rows, "lc")))
    return "\n\n".join(sections)


def _failures(records: Sequence[Record]) -> str:
    groups = failure_groups(records)
    if not groups:
        return ""
    number = sum(len(group.records) for group in groups)
    return f"## Failing\n\n{plural(number, 'cell')}, {plural(len(groups), 'different failure')}.\n\n" + "\n".join(
        map(_folded, groups)
    )


def _breaks(records: Sequence[Record]) -> str:
    groups = break_groups(records)
    return "## Graph breaks\n\n" + "\n".join(map(_folded, groups)) if groups else ""


def _noted(shown: Sequence[Record], records: Sequence[Record]) -> str:
    """Return the differences that decide no verdict: counted by compiler and kind, then one by one."""
    groups = noted_groups(records)
    if not groups:
        return ""
    by_compiler = noted_by_compiler(summary.by_compiler(shown))
    kinds = [kind for kind in KINDS if any(numbers[kind] for numbers in by_compiler.values())]
    rows: list[list[Cell]] = [
        [code_span(name), *(numbers[kind] or "" for kind in kinds)] for name, numbers in by_compiler.items()
    ]
    table = to_markdown(Table(["compiler", *map(code_span, kinds)], rows, "lr"))
    return (
        "## Differences that do not decide a verdict\n\nThe numbers count cells. A case can make some of these "
        f"differences decide, with `strict=`.\n\n{table}\n\n" + "\n".join(map(_folded, groups))
    )


def _remarks(records: Sequence[Record]) -> str:
    groups = remark_groups(records)
    if not groups:
        return ""
    return "## Right, with a remark\n\nRemarks that do not change the verdict.\n\n" + "\n".join(map(_folded, groups))


def _not_run(records: Sequence[Record]) -> str:
    groups = not_run_groups(records)
    if not groups:
        return ""
    return "## Not run\n\nWhy these cells say nothing about their compiler.\n\n" + "\n".join(map(_folded, groups))


def _folded(group: Group) -> str:
    """Return a group as one line that expands to its cells, in HTML, because a summary cannot contain Markdown."""
    title = f"<b>{html_text(group.title)}</b> " if group.title not in ("graph break", "note") else ""
    text = f"<code>{html_text(shorten(group.text, MESSAGE_LIMIT))}</code>" if group.text else ""
    cells = "\n".join(
        f"<li><code>{html_text(case)}</code>: {', '.join(f'<code>{html_text(name)}</code>' for name in names)}</li>"
        for case, names in together(group.records).items()
    )
    number = plural(len(group.records), "cell")
    return f"<details><summary>{number}: {title}{text}</summary>\n<ul>\n{cells}\n</ul>\n</details>"
