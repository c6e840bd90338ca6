"""The section of ``conformance.md`` about guilty stages, for results of a run that searched them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.base.text import plural
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report import summary
from recapture.report.document import Inline, Table, code_list, code_span
from recapture.report.markdown_writer import table_markdown
from recapture.report.stage_words import culprit, stage_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.records.guilty_stage import GuiltyStage
    from recapture.records.record import Record


def guilty_stages(records: Sequence[Record]) -> str:
    """Return a table of the guilty stages with their workarounds and cells, those of silent wrongs first."""
    found: dict[tuple[bool, str, str], list[Record]] = {}
    for record in summary.in_report_order(records):
        stage = stage_of(record)
        if stage is not None:
            failing = record.verdict not in SILENTLY_WRONG
            found.setdefault((failing, culprit(stage), stage.workaround or ""), []).append(record)
    if not found:
        return ""
    rows: list[list[Inline]] = [
        [
            words,
            "failing" if failing else "silently wrong",
            code_span(workaround) if workaround else "none found",
            len(members),
            code_list([record.cell for record in members]),
        ]
        for (failing, words, workaround), members in sorted(found.items(), key=lambda one: (one[0][0], -len(one[1])))
    ]
    number = plural(sum(len(members) for members in found.values()), "cell")
    table = Table(["guilty", "its cells are", "workaround", "number", "cells"], rows, "lllrl")
    return (
        f"## Guilty stages\n\nThe first stage of the compiler that shows what the cell shows, for {number}: see "
        f"`recapture stage`.\n\n{table_markdown(table)}"
    )


def blame(stage: GuiltyStage | None) -> str:
    """Return a stage and its workaround as the end of a line in Markdown; empty if none is known."""
    if stage is None:
        return ""
    words = f"; guilty: **{plain(culprit(stage))}**"
    return words + (f"; workaround: {code(stage.workaround)}" if stage.workaround else "")
