"""The guilty stages of cells: for people, the answer first and then the steps that show it, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from recapture.base.escape import indented_json
from recapture.base.text import duration_text, plural
from recapture.report import summary
from recapture.report.differences import culprit
from recapture.report.document import Inline, Span, Table
from recapture.report.terminal_writer import say, say_table

if TYPE_CHECKING:
    from recapture.tools.explain.stage_search import SearchedCell


OUTCOMES = {"same": "the same", "right": "right", "other": "something else"}


def print_searched_cell(console: Console, cell: SearchedCell) -> None:
    """Print what was found about one cell: the guilty stage, the workaround, and a table of the steps."""
    record, report = cell.record, cell.report
    say(console, record.cell, "bold")
    if report.stage is None:
        say(console, f"  guilty: unknown, {report.unknown}")
    else:
        say(console, f"  guilty: {culprit(report.stage)}")
        if report.stage.workaround:
            words = "it then refuses" if report.stage.part == "input checks" else "workaround"
            say(console, f"  {words}: {report.stage.workaround}")
    say(console, f"  {record.verdict}: {summary.explain(record)}")
    if report.steps:
        say(console)
        rows: list[list[Inline]] = [["  the whole compiler", "", str(record.verdict)]]
        rows += [[f"  {step.words}", _styled(step.outcome), step.shown] for step in report.steps]
        say_table(console, Table(["  tried", "shows", "verdict"], rows))
        say(console, f"  {plural(len(report.steps), 'extra cell')}, {duration_text(cell.seconds)}")
    for remark in report.remarks:
        say(console, f"  note: {remark}")


def _styled(outcome: str) -> Span:
    return Span(OUTCOMES[outcome], style="green" if outcome == "right" else "")


def searched_json(searched: Sequence[SearchedCell]) -> str:
    """Return what was found about cells as JSON, indented."""
    rows: list[dict[str, Any]] = [
        {
            "cell": cell.record.cell,
            "device": cell.record.device,
            "verdict": str(cell.record.verdict),
            "stage": None if cell.report.stage is None else msgspec.to_builtins(cell.report.stage),
            "unknown": cell.report.unknown,
            "steps": [
                {"tried": step.words, "outcome": step.outcome, "verdict": step.shown} for step in cell.report.steps
            ],
            "remarks": list(cell.report.remarks),
            "seconds": cell.seconds,
        }
        for cell in searched
    ]
    document = {"schema": 1, "cells": rows}
    return indented_json(document)
