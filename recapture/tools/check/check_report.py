"""A check of user code for people: lines on a terminal, Markdown, and a table for a notebook or page."""

from __future__ import annotations

import html
import textwrap
from typing import TYPE_CHECKING

from recapture.base.text import one_line, shorten
from recapture.records.verdicts import Verdict
from recapture.report.document import Table, code_span
from recapture.report.markdown_writer import table_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recapture.tools.check.answers import CheckReport, CheckRow

NAME_WIDTH = 18
"""Characters of the column of compilers."""

WIDTH = 80
"""Characters of the longest line on a terminal."""

_CSS = """
.recapture{font-family:system-ui,sans-serif;border-collapse:collapse}
.recapture td,.recapture th{text-align:left;padding:.25em .7em;border-bottom:1px solid #8884;vertical-align:top}
.recapture .wrong{color:#b00020;font-weight:bold}
.recapture .right,.recapture .broken{color:#1b7f3b}
"""


def check_line(row: CheckRow) -> str:
    """Return the line of a compiler in the table: its name and its verdict, within the width of a terminal."""
    words = " ".join(filter(None, (row.words, f"({row.speed})" if row.speed else "")))
    return shorten_kept(f"{row.compiler:{NAME_WIDTH}} {words}".rstrip(), WIDTH)


def row_lines(row: CheckRow) -> list[str]:
    """Return a compiler's line, and below it the reason and what to do."""
    return [check_line(row), *_indented(_why(row)), *_indented(_what_to_do(row))]


def closing_lines(report: CheckReport) -> list[str]:
    """Return the lines below the table: the answer in one sentence, what was tried, and what could not be compared."""
    return [report.sentence, f"tried: {report.inputs_in_words}", *(f"note: {remark}" for remark in report.remarks)]


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
            lines += ["", f"{', '.join(row.compiler for row in rows)}:"]
            for text in filter(None, (why, advice, note, *dict.fromkeys(more))):
                lines += _indented(text)
    if verbose:
        for heading, inputs in (("refused by eager", report.refused), ("not tried", report.unaffordable)):
            if inputs:
                lines += ["", f"{heading}:"]
                lines += [line for name, reason in inputs for line in _indented(f"{name}: {reason}")]
    return "".join(f"{line}\n" for line in lines)


def _why(row: CheckRow) -> str:
    return row.reason if row.verdict != Verdict.PASS else ""


def _what_to_do(row: CheckRow) -> str:
    return f"to do: {row.advice}" if row.advice else ""


def _indented(text: str) -> list[str]:
    """Return a text as lines within the width of a terminal, indented below a name; a long word is not cut."""
    return textwrap.wrap(
        one_line(text), WIDTH, initial_indent="    ", subsequent_indent="      ", break_long_words=False
    )


def shorten_kept(text: str, width: int) -> str:
    """Return a line of at most `width` characters with its columns kept."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _cells(report: CheckReport) -> Iterator[tuple[str, ...]]:
    timed = any(row.speedup is not None for row in report.rows)
    for row in report.rows:
        cells = (row.compiler, row.words, shorten(row.reason, 200), "; ".join(filter(None, (row.advice, row.note))))
        yield (*cells, row.speed) if timed else cells


def _headers(report: CheckReport) -> list[str]:
    timed = any(row.speedup is not None for row in report.rows)
    return ["compiler", "verdict", "reason", "what to do", *(["speed"] if timed else [])]


def check_markdown(report: CheckReport) -> str:
    """Return a report as Markdown, for the summary of a CI job."""
    rows = [[code_span(name), *rest] for name, *rest in _cells(report)]
    table = table_markdown(Table(_headers(report), rows, "l"))
    refused = [f"- {_escaped(name)}: {_escaped(why)}" for name, why in report.refused]
    dropped = ["", "Inputs that eager itself refuses:", "", *refused] if refused else []
    heading = f"## {_escaped(report.sentence)}"
    return "\n".join([heading, "", f"Tried: {_escaped(report.inputs_in_words)}.", "", table, *dropped, ""])


def _escaped(text: str) -> str:
    from recapture.base.escape import markdown_text as plain

    return plain(one_line(text))


def check_html(report: CheckReport) -> str:
    """Return a report as a piece of HTML, which a notebook shows; every text in it is escaped."""
    heads = "".join(f"<th>{html.escape(one)}</th>" for one in _headers(report))
    rows = "".join(
        f'<tr class="{Verdict(row.verdict).facts.tone}">'
        + "".join(f"<td>{html.escape(one_line(cell))}</td>" for cell in cells)
        + "</tr>"
        for row, cells in zip(report.rows, _cells(report), strict=True)
    )
    inputs = ", ".join(map(one_line, report.inputs)) or "none"
    remarks = "".join(f"<p>Note: {html.escape(one_line(remark))}</p>" for remark in report.remarks)
    return (
        f"<style>{_CSS}</style><p><b>{html.escape(one_line(report.sentence))}</b></p>"
        f'<table class="recapture"><tr>{heads}</tr>{rows}</table>'
        f"<p>Tried: {html.escape(report.inputs_in_words)}. Held-out inputs: {html.escape(inputs)}.</p>{remarks}"
    )


def check_page(report: CheckReport) -> str:
    """Return a self-contained page of a report."""
    title = html.escape(one_line(report.target))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>recapture: {title}</title>'
        f"<body>{check_html(report)}</body></html>\n"
    )
