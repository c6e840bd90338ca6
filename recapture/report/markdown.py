"""``conformance.md``: a results directory as GitHub Markdown, with the same bytes for the same records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.errors import UsageError
from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.base.files import write_atomically
from recapture.base.text import one_line, plural, shorten
from recapture.records.artifact_folders import INDEX, left_artifacts
from recapture.records.directories import REPORT, read_results
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report import environment_facts, summary
from recapture.report.captures_markdown import model_captures
from recapture.report.claim_sources import address, sentence
from recapture.report.differences_markdown import MESSAGE_LIMIT, folded, noted, silent_wrongs
from recapture.report.document import Inline, Span, Table, code_span, strong
from recapture.report.groups import (
    break_groups,
    failure_groups,
    not_run_groups,
    remark_groups,
)
from recapture.report.markdown_writer import link, table_markdown
from recapture.report.matrix_size import in_matrix
from recapture.report.reasons.reason import reasons
from recapture.report.stages_markdown import guilty_stages
from recapture.report.static_shapes import static_refusals
from recapture.report.summary import ClaimStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from recapture.machine.environment import Environment
    from recapture.records.record import Record
    from recapture.report.reasons.reason import Key
    from recapture.report.reasons.sentence import Reason


def render_conformance(
    records: Sequence[Record], environment: Environment | None, artifacts: Mapping[str, str] | None = None
) -> str:
    """Return the conformance report of one results directory, without dates, times or paths.

    `artifacts` are folders with what a cell left for debugging, by the cell's address, relative to the report.
    """
    shown, left_out = in_matrix(records)
    found = reasons(records)
    sections = [
        _head(records, environment),
        _environment(environment),
        _uncollected(environment),
        _counts(shown),
        model_captures(records),
        _claims(records),
        silent_wrongs(records, found),
        guilty_stages(records),
        _artifacts(artifacts or {}),
        _matrices(shown),
        plain(left_out),
        _failures(records, found),
        _breaks(records),
        noted(shown, records),
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
        text = render_conformance(results.records, results.environment, left_artifacts(directory, results.records))
        write_atomically(path, text.encode())
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
    rows: list[list[Inline]] = []
    for compiler in summary.compilers_in_order(records):
        mine = by_compiler[compiler]
        every = [record for cells in mine.values() for record in cells]
        rows.append([code_span(compiler), _four(every), *(_four(mine.get(suite, [])) for suite in suites)])
    rows.append(["all", _four(records), *(_four(by_suite[suite]) for suite in suites)])
    headers: list[str | Span] = ["compiler", "all suites", *map(code_span, suites)]
    return "## Counts\n\nright/**silently wrong**/failing/not run\n\n" + table_markdown(Table(headers, rows, "lr"))


def _four(records: Sequence[Record]) -> Inline:
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
        f"a cell that could not run here does not count against its claim.\n\n{table_markdown(claims)}\n\n"
        f"### Claim by claim\n\n{table_markdown(details)}"
    )


def _status(status: ClaimStatus) -> Span:
    fine = status in (ClaimStatus.REPRODUCED, ClaimStatus.NOT_RUNNABLE)
    return Span(str(status)) if fine else strong(str(status))


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
        rows: list[list[Inline]] = [
            [code_span(case.split("::", 1)[-1]), *(marks.get((case, name), "") for name in compilers)]
            for case in sorted({record.case for record in cells})
        ]
        # A break after the family keeps seventeen columns within the width of a page.
        names = (one_line(name).replace(":", ":\n").replace("jit.", "jit.\n") for name in compilers)
        sections.append(f"### {code(suite)}\n\n" + table_markdown(Table(["case", *names], rows, "lc")))
    return "\n\n".join(sections)


def _artifacts(folders: Mapping[str, str]) -> str:
    if not folders:
        return ""
    lines = [f"- {link(code(cell), f'{folder}/{INDEX}')}" for cell, folder in sorted(folders.items())]
    return "## Left for debugging\n\nGraphs, IR, generated code and traces of these cells.\n\n" + "\n".join(lines)


def _failures(records: Sequence[Record], found: Mapping[Key, Reason]) -> str:
    groups = failure_groups(records)
    if not groups:
        return ""
    number = sum(len(group.records) for group in groups)
    return (
        f"## Failing\n\n{plural(number, 'cell')}, {plural(len(groups), 'different failure')}.\n\n"
        + _static_shapes(records)
        + "\n".join(folded(group, found) for group in groups)
    )


def _static_shapes(records: Sequence[Record]) -> str:
    """Return a paragraph about refusals by static shapes; empty if there are none."""
    lines = []
    for one in static_refusals(records):
        rest = f". Not captured either: {', '.join(map(code, one.limits))}" if one.limits else ""
        lines.append(f"- {plain(str(one))}{rest}.")
    return "\n".join(lines) + "\n\n" if lines else ""


def _breaks(records: Sequence[Record]) -> str:
    groups = break_groups(records)
    return "## Graph breaks\n\n" + "\n".join(map(folded, groups)) if groups else ""


def _remarks(records: Sequence[Record]) -> str:
    groups = remark_groups(records)
    if not groups:
        return ""
    return "## Right, with a remark\n\nRemarks that do not change the verdict.\n\n" + "\n".join(map(folded, groups))


def _not_run(records: Sequence[Record]) -> str:
    groups = not_run_groups(records)
    if not groups:
        return ""
    return "## Not run\n\nWhy these cells say nothing about their compiler.\n\n" + "\n".join(map(folded, groups))
