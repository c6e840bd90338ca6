"""The section of ``conformance.md`` about whole models: how many each compiler captures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.escape import markdown_code as code
from recapture.report.captures import captures
from recapture.report.document import Inline, Table, code_span, strong, verbatim
from recapture.report.markdown_writer import table_markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.records.record import Record
    from recapture.report.captures import Captures

HEADERS = ("compiler", "right", "share", "with breaks", "silently wrong", "failing", "graphs a model", "breaks a model")


def model_captures(records: Sequence[Record]) -> str:
    """Return a table for each suite of whole models; empty if there is none."""
    found = captures(records)
    if not found:
        return ""
    parts = [f"### {code(suite)}\n\n{_table(rows)}" for suite, rows in found.items()]
    return (
        "## Models captured\n\nRight means: on every input what eager does, with or without graph breaks. Beside each "
        "mean stands the number of models that it is taken over: those that are right and whose graphs torch reports."
        "\n\n" + "\n\n".join(parts)
    )


def _table(rows: Sequence[Captures]) -> str:
    lines: list[list[Inline]] = [
        [
            code_span(one.compiler),
            f"{one.right} of {one.tried}",
            f"{100 * one.right / one.tried:.0f} %" if one.tried else "",
            one.broken,
            strong(str(one.wrong)) if one.wrong else "0",
            one.failing,
            _mean(one.graphs, one),
            _mean(one.breaks, one),
        ]
        for one in rows
    ]
    return table_markdown(Table(HEADERS, lines, "lr"))


def _mean(value: float | None, one: Captures) -> Inline:
    return verbatim("" if value is None else f"{value:.1f} ({one.counted} of {one.tried})")
