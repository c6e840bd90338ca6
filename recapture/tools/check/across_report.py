"""A check on several releases for people: the answers first, then a table of compilers by releases, then the gaps."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from recapture.base.escape import markdown_text as plain
from recapture.base.text import one_line, plural
from recapture.report.document import Table, code_span
from recapture.report.markdown_writer import table_markdown
from recapture.report.summary import LEGEND
from recapture.report.terminal_writer import terminal_lines
from recapture.tools.check.check_report import check_html
from recapture.tools.check.ci_report import annotation_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.tools.check.across_answers import AcrossReport

GAP = "?"
"""The character of a release that was not checked."""

_MEANINGS = {**LEGEND, GAP: "not checked"}

_COLOURS = {"P": "#1b7f3b", "p": "#1b7f3b", "w": "#b00020", "W": "#b00020"}
"""Colours of marks on the page; others have the colour of text."""


def across_text(report: AcrossReport) -> str:
    """Return the report for a terminal: what changes, what does not, what was not checked, and the table."""
    return "\n".join([*_answer(report), "", *(line.plain for line in terminal_lines(_table(report))), _legend(report)])


def across_markdown(report: AcrossReport) -> str:
    """Return the report as Markdown, for the summary of a CI job."""
    heading, *lines = _answer(report)
    items = "\n".join(f"- {plain(line)}" for line in lines)
    table = _table(report)
    marked = Table(table.headers, [[code_span(str(name)), *marks] for name, *marks in table.rows], table.align)
    return f"## {plain(heading)}\n\n{items}\n\n{table_markdown(marked)}\n\n{plain(_legend(report))}\n"


def across_annotations(report: AcrossReport, found: Sequence[str]) -> list[str]:
    """Return GitHub's workflow commands: an error for each line that ``--fail-on`` found, a warning for each gap."""
    gaps = [f"{one.release}: not checked: {one.gap}" for one in report.gaps]
    commands = [("error", line) for line in found] + [("warning", line) for line in gaps]
    return [f"::{kind}::{annotation_text(f'{report.target}: {line}')}" for kind, line in commands]


def across_html(report: AcrossReport) -> str:
    """Return the report as a piece of HTML, with the page of each release below; every text in it is escaped."""
    heading, *lines = (html.escape(one_line(line)) for line in _answer(report))
    table = _table(report)
    heads = "".join(f"<th>{html.escape(one_line(str(one)))}</th>" for one in table.headers)
    rows = "".join(
        "<tr>" + "".join(f"<td{_style(str(cell))}>{html.escape(one_line(str(cell)))}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    details = "".join(
        f"<details><summary>{html.escape(one.release)}</summary>{check_html(one.report)}</details>"
        for one in report.releases
        if one.report is not None
    )
    items = "".join(f"<li>{line}</li>" for line in lines)
    return (
        f"<p><b>{heading}</b></p><ul>{items}</ul><table>"
        f"<tr>{heads}</tr>{rows}</table><p>{html.escape(_legend(report))}</p>{details}"
    )


def across_page(report: AcrossReport) -> str:
    """Return a self-contained page of a report."""
    title = html.escape(one_line(report.target))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>recapture: {title}</title>'
        "<style>body{font-family:system-ui,sans-serif}td,th{padding:.2em .6em;text-align:left}</style>"
        f"<body>{across_html(report)}</body></html>\n"
    )


def _style(mark: str) -> str:
    return f' style="color:{_COLOURS[mark]};font-weight:bold"' if mark in _COLOURS else ""


def _answer(report: AcrossReport) -> list[str]:
    """Return the lines before the table; the first is the headline."""
    lines = [report.headline, *report.changes]
    if report.constants and report.changes:
        lines.append(f"the same everywhere: {report.constants}")
    elif report.constants:
        lines.append(report.constants)
    lines += [f"{one.release}: not checked: {one.gap}" for one in report.gaps]
    lines += report.other_inputs
    tried = next((one.report for one in report.releases if one.report is not None), None)
    if tried is not None:
        lines.append(f"tried: {tried.inputs_in_words}")
    return lines


def _table(report: AcrossReport) -> Table:
    names = [one.release for one in report.releases]
    rows = [[compiler, *report.marks(compiler)] for compiler in report.compilers]
    return Table(["", *names], rows, "lc")


def _legend(report: AcrossReport) -> str:
    seen = {mark for compiler in report.compilers for mark in report.marks(compiler)}
    words = " · ".join(f"{mark} {said}" for mark, said in _MEANINGS.items() if mark in seen)
    return words or f"{plural(len(report.gaps), 'release')} not checked"
