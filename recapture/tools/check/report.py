"""A check in all its forms: lines on a terminal, Markdown, HTML, JUnit's XML, and the annotations of GitHub."""

from __future__ import annotations

import textwrap
from datetime import datetime
from typing import TYPE_CHECKING

from recapture.base.escape import html_text, workflow_property, workflow_text
from recapture.base.text import one_line, plural, shorten
from recapture.records.verdicts import SILENTLY_WRONG, Verdict, mark_of
from recapture.report.document import (
    Block,
    Fold,
    Heading,
    Inline,
    Item,
    Items,
    Paragraph,
    Span,
    Table,
    code_span,
    strong,
)
from recapture.report.html_writer import to_html
from recapture.report.junit import JUnitCase, junit
from recapture.report.markdown_writer import to_markdown
from recapture.report.summary import LEGEND
from recapture.report.terminal_writer import terminal_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.tools.check.across import AcrossReport
    from recapture.tools.check.answers import CheckReport, CheckRow

NAME_WIDTH = 18
"""Characters of the column of compilers."""

WIDTH = 80
"""Characters of the longest line on a terminal."""

LONGEST_ANNOTATION = 1000
"""Characters of the longest part of an annotation; a report that was kept may quote anything."""

GAP = "?"
"""The character of a release that was not checked."""

_MEANINGS = {**LEGEND, GAP: "not checked"}

# What is silently wrong is the one thing in bold in a table.
_CSS = """
.recapture{font-family:system-ui,sans-serif}
.recapture h2{font-size:1em}
.recapture table{border-collapse:collapse}
.recapture td,.recapture th{text-align:left;padding:.25em .7em;border-bottom:1px solid #8884;vertical-align:top}
.recapture td b{color:#b00020}
"""


# --- lines on a terminal ---------------------------------------------------------------------------------------------


def check_line(row: CheckRow, indent: str = "") -> str:
    """Return the line of a compiler in the table: its name and its verdict, within the width of a terminal."""
    words = " ".join(filter(None, (row.words, f"({row.speed})" if row.speed else "")))
    return _cut(f"{indent}{row.compiler:{NAME_WIDTH}} {words}".rstrip())


def row_lines(row: CheckRow, indent: str = "") -> list[str]:
    """Return a compiler's line, and below it the reason and what to do."""
    below = [line for text in (_why(row), _what_to_do(row)) for line in wrapped(text, f"{indent}    ")]
    return [check_line(row, indent), *below]


def closing_lines(report: CheckReport) -> list[str]:
    """Return the lines below the table: the answer in one sentence, what was tried, and what could not be compared."""
    sentences = [report.sentence, f"tried: {report.inputs_in_words}", *(f"note: {text}" for text in report.remarks)]
    sentences += [operator.sentence for operator in report.operators]
    return [line for sentence in sentences for line in wrapped(sentence)]


def check_details(report: CheckReport, *, verbose: bool = False) -> str:
    """Return why compilers are not right, and what to do: compilers with the same reason and advice stand together.

    If `verbose`, all differences and graph breaks are listed, and the inputs that eager refuses.
    """
    lines: list[str] = []
    groups: dict[tuple[str, str, str], list[CheckRow]] = {}
    for row in report.rows:
        groups.setdefault((_why(row), _what_to_do(row), row.note), []).append(row)
    for (why, advice, note), rows in groups.items():
        more = [line for row in rows for line in (*row.differences, *row.break_reasons)] if verbose else []
        if why or advice or note or more:
            lines += ["", *wrapped(f"{', '.join(row.compiler for row in rows)}:")]
            for text in filter(None, (why, advice, note, *dict.fromkeys(more))):
                lines += _indented(text)
    if verbose:
        for heading, inputs in (("refused by eager", report.refused), ("not tried", report.unaffordable)):
            if inputs:
                lines += ["", f"{heading}:"]
                lines += [line for name, reason in inputs for line in _indented(f"{name}: {reason}")]
    return "".join(f"{line}\n" for line in lines)


def across_text(report: AcrossReport) -> str:
    """Return a check on several releases: what changes, what does not, what was not checked, and the table."""
    answers = [line for sentence in _across_answers(report) for line in wrapped(sentence)]
    table = [line.plain for line in terminal_lines(_marks(report))]
    return "\n".join([*answers, "", *table, *wrapped(_legend(report))])


def wrapped(text: str, indent: str = "") -> list[str]:
    """Return a text as lines within the width of a terminal, the further ones indented; a long word is not cut."""
    further = f"{indent}  "
    return textwrap.wrap(
        one_line(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _why(row: CheckRow) -> str:
    return row.reason if row.verdict != Verdict.PASS else ""


def _what_to_do(row: CheckRow) -> str:
    return f"to do: {row.advice}" if row.advice else ""


def _indented(text: str) -> list[str]:
    """Return a text as lines that stand below a name."""
    return wrapped(text, "    ")


def _cut(text: str) -> str:
    """Return a line within the width of a terminal. Unlike `shorten`, this keeps the spaces between columns."""
    return text if len(text) <= WIDTH else text[: WIDTH - 1].rstrip() + "…"


# --- Markdown and HTML -----------------------------------------------------------------------------------------------


def check_markdown(report: CheckReport) -> str:
    """Return a report as Markdown, for the summary of a CI job."""
    return to_markdown(_check_blocks(report))


def check_html(report: CheckReport) -> str:
    """Return a report as a piece of HTML, which a notebook shows; every text in it is escaped."""
    return _piece(_check_blocks(report))


def check_page(report: CheckReport) -> str:
    """Return a self-contained page of a report."""
    return _page(report.target, check_html(report))


def across_markdown(report: AcrossReport) -> str:
    """Return a check on several releases as Markdown, for the summary of a CI job."""
    return to_markdown(_across_blocks(report))


def across_html(report: AcrossReport) -> str:
    """Return a check on several releases as a piece of HTML, with the report of each release below."""
    answers = [(answer.release, answer.report) for answer in report.releases]
    folds = [Fold(release, _check_blocks(checked)) for release, checked in answers if checked is not None]
    return _piece([*_across_blocks(report), *folds])


def across_page(report: AcrossReport) -> str:
    """Return a self-contained page of a check on several releases."""
    return _page(report.target, across_html(report))


def _piece(blocks: Sequence[Block]) -> str:
    return f'<style>{_CSS}</style><div class="recapture">{to_html(blocks)}</div>'


def _page(target: str, body: str) -> str:
    title = html_text(target)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>recapture: {title}</title>'
        f"<body>{body}</body></html>\n"
    )


def _check_blocks(report: CheckReport) -> list[Block]:
    timed = any(row.speedup is not None for row in report.rows)
    headers = ["compiler", "verdict", "reason", "what to do", *(["speed"] if timed else [])]
    rows = [_cells(row) if timed else _cells(row)[:-1] for row in report.rows]
    blocks: list[Block] = [Heading(report.sentence), Paragraph(f"Tried: {report.inputs_in_words}.")]
    blocks += [Table(headers, rows)]
    blocks += [Paragraph(f"Note: {remark}") for remark in report.remarks]
    blocks += [Items([Item(operator.sentence) for operator in report.operators])] if report.operators else []
    if report.inputs:
        blocks += [Paragraph(f"Held-out inputs: {', '.join(report.inputs)}.")]
    if report.refused:
        blocks += [Paragraph("Inputs that eager itself refuses:")]
        blocks += [Items([Item(f"{name}: {reason}") for name, reason in report.refused])]
    return blocks


def _cells(row: CheckRow) -> list[Inline]:
    verdict: Inline = strong(row.words) if Verdict(row.verdict) in SILENTLY_WRONG else row.words
    what_to_do = "; ".join(filter(None, (row.advice, row.note)))
    return [code_span(row.compiler), verdict, shorten(row.reason, 200), what_to_do, row.speed]


def _across_blocks(report: AcrossReport) -> list[Block]:
    heading, *lines = _across_answers(report)
    return [Heading(heading), Items([Item(line) for line in lines]), _marks(report), Paragraph(_legend(report))]


def _across_answers(report: AcrossReport) -> list[str]:
    """Return the sentences before the table; the first is the headline."""
    lines = [report.headline, *report.changes]
    if report.constants and report.changes:
        lines.append(f"the same everywhere: {report.constants}")
    elif report.constants:
        lines.append(report.constants)
    lines += _gaps(report)
    lines += report.other_inputs
    checked = next((answer.report for answer in report.releases if answer.report is not None), None)
    if checked is not None:
        lines.append(f"tried: {checked.inputs_in_words}")
    return lines


def _gaps(report: AcrossReport) -> list[str]:
    return [f"{answer.release}: not checked: {answer.gap}" for answer in report.gaps]


def _marks(report: AcrossReport) -> Table:
    """Return the table of compilers by releases."""
    releases = [answer.release for answer in report.releases]
    wrong = {mark_of(verdict, None).letter for verdict in SILENTLY_WRONG}
    rows = [
        [code_span(compiler), *(strong(mark) if mark in wrong else Span(mark) for mark in report.marks(compiler))]
        for compiler in report.compilers
    ]
    return Table(["", *releases], rows, "lc")


def _legend(report: AcrossReport) -> str:
    marks = {mark for compiler in report.compilers for mark in report.marks(compiler)}
    words = " · ".join(f"{mark} {meaning}" for mark, meaning in _MEANINGS.items() if mark in marks)
    return words or f"{plural(len(report.gaps), 'release')} not checked"


# --- continuous integration ------------------------------------------------------------------------------------------


def check_junit(report: CheckReport, when: datetime | None = None) -> bytes:
    """Return a report as JUnit's XML: a test case for each compiler. `when` is the time of the check in UTC."""
    cases = [
        JUnitCase(
            report.target,
            row.compiler,
            row.seconds,
            Verdict(row.verdict),
            f"{row.words}: {row.reason}",
            (*row.differences, row.advice),
        )
        for row in report.rows
    ]
    properties = {name: getattr(report, name) for name in ("target", "torch", "device", "image")}
    return junit(cases, properties, f"{report.sentence}; tried: {report.inputs_in_words}", when)


def check_annotations(report: CheckReport) -> list[str]:
    """Return GitHub's workflow commands: an error for a silently wrong compiler, a warning for a failing one."""
    levels = {"silently wrong": "error", "failing": "warning"}
    lines = []
    for row in report.rows:
        level = levels.get(Verdict(row.verdict).facts.group)
        if level is not None:
            title = workflow_property(_shortened(f"{report.target}: {row.compiler}"))
            text = _annotation(f"{row.words}: {row.reason} {row.advice}".strip())
            lines.append(f"::{level} title={title}::{text}")
    return lines


def across_annotations(report: AcrossReport, failures: Sequence[str]) -> list[str]:
    """Return GitHub's workflow commands: an error for each line that ``--fail-on`` found, a warning for each gap."""
    commands = [("error", line) for line in failures] + [("warning", line) for line in _gaps(report)]
    return [f"::{level}::{_annotation(f'{report.target}: {line}')}" for level, line in commands]


def _annotation(text: str) -> str:
    """Return text as a workflow command takes it: one line of limited length, with escapes."""
    return workflow_text(_shortened(text))


def _shortened(text: str) -> str:
    return shorten(one_line(text), LONGEST_ANNOTATION)
