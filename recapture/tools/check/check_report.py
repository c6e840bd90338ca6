"""A check of user code for people: lines on a terminal, Markdown, and a table for a notebook or page."""

from __future__ import annotations

import html
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

VERDICT_WIDTH = 34
"""Characters of the column of verdicts, at least."""

_CSS = """
.recapture{font-family:system-ui,sans-serif;border-collapse:collapse}
.recapture td,.recapture th{text-align:left;padding:.25em .7em;border-bottom:1px solid #8884;vertical-align:top}
.recapture .wrong{color:#b00020;font-weight:bold}
.recapture .right,.recapture .broken{color:#1b7f3b}
"""


def check_line(row: CheckRow, width: int | None = None) -> str:
    """Return the line of a compiler: verdict, reason, advice, and speed if it was measured."""
    reason = row.reason if row.verdict != Verdict.PASS else ""
    more = "; ".join(filter(None, (row.speed, reason, row.advice, row.note)))
    text = f"{row.compiler:{NAME_WIDTH}} {row.words:{VERDICT_WIDTH}} {more}".rstrip()
    return text if width is None else shorten_kept(text, width)


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
    return (
        f"<style>{_CSS}</style><p><b>{html.escape(one_line(report.sentence))}</b></p>"
        f'<table class="recapture"><tr>{heads}</tr>{rows}</table>'
        f"<p>Tried: {html.escape(report.inputs_in_words)}. Held-out inputs: {html.escape(inputs)}.</p>"
    )


def check_page(report: CheckReport) -> str:
    """Return a self-contained page of a report."""
    title = html.escape(one_line(report.target))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>recapture: {title}</title>'
        f"<body>{check_html(report)}</body></html>\n"
    )
