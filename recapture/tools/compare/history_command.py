"""``recapture history``: one cell or all cells across the torch releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from recapture.base.errors import UsageError
from recapture.base.escape import indented_json
from recapture.command.command_table import of_tools
from recapture.command.options import PathParameter, console, how_to_print, keyword_option, suite_option
from recapture.command.output import echo, echo_json, warn_if_misfiled


@click.command()
@click.argument("cell", required=False)
@click.option(
    "--results",
    type=PathParameter(),
    default=Path("results"),
    show_default=True,
    help="Folder with the results of all images.",
)
@suite_option
@keyword_option
@click.option(
    "--issues", "show_issues", is_flag=True, help="Show the known public issues, documented against measured."
)
@click.option("--issue", "issues", multiple=True, metavar="NUMBER", help="Only this issue; may be given several times.")
@how_to_print
def history(
    cell: str | None,
    results: Path,
    suites: tuple[str, ...],
    matches: Callable[[str], bool] | None,
    show_issues: bool,
    issues: tuple[str, ...],
    form: str,
) -> None:
    """Show CELL's verdict with every torch release that has results, and where it changed.

    CELL is SUITE::NAME::COMPILER; a case (SUITE::NAME, or only NAME) means all its cells. A workload of `recapture
    bench` (NAME or NAME::COMPILER) means its speeds: since when it is slower, hungrier or longer to compile. Without
    CELL, show the number of cells that are wrong or fail with each compiler and release, and what each release changed;
    --suite and -k choose the cells that are counted. Where there is no folder `results`, a cell is looked up in the
    data that come with recapture.
    """
    if cell is not None and not results.exists() and results == Path("results"):
        _show_data(cell, form)
        return
    if show_issues or issues:
        if cell is not None:
            raise UsageError("--issues and --issue show known issues: they cannot be combined with a cell")
        _show_issues(issues, results, form)
        return
    from recapture.report import history as cell_history
    from recapture.report.cell_filter import CellFilter
    from recapture.tools.compare import history_report
    from recapture.tools.compare import overview as overviews

    cells = CellFilter(suites, matches)
    if cell is not None and cells:
        raise UsageError("--suite and -k choose what is counted without CELL: they cannot be combined with it")
    if cell is None:
        releases = overviews.overview(results, check=warn_if_misfiled, cells=cells)
        if form == "text":
            overviews.print_overviews(console(), releases)
        elif form == "json":
            echo_json(overviews.to_json(releases))
        else:
            echo(overviews.to_markdown(releases), nl=False)
        return
    speeds = [history for tool in of_tools("speed through releases") for history in tool(cell, results)]
    if speeds:
        _show_speeds(speeds, form)
        return
    histories = cell_history.history(cell, results, check=warn_if_misfiled)
    if form == "json":
        echo_json(history_report.to_json(histories))
    elif form == "markdown":
        echo(history_report.to_markdown(histories), nl=False)
    else:
        history_report.print_histories(console(), histories)


def _show_data(cell: str, form: str) -> None:
    """Print what the data package says about a cell: there is no folder of results."""
    from recapture import data
    from recapture.report import data_history
    from recapture.report.markdown_writer import to_markdown
    from recapture.report.terminal_writer import print_document

    content = data.load()
    cells = data_history.cells_in(content, cell)
    if form == "json":
        echo_json(indented_json({"data": content.version, "cells": cells}))
    elif form == "markdown":
        echo(to_markdown([*data_history.blocks(content, cells)]), nl=False)
    else:
        print_document(console(), [*data_history.blocks(content, cells)])


def _show_speeds(speeds: Sequence[Any], form: str) -> None:
    """Print the histories of a workload's configurations, which the tool that has speeds made."""
    from recapture.report.markdown_writer import to_markdown
    from recapture.report.terminal_writer import print_document

    if form == "json":
        echo_json(indented_json({"schema": 1, "speeds": [history.fields() for history in speeds]}))
        return
    blocks = [block for history in speeds for block in history.blocks()]
    if form == "markdown":
        echo(to_markdown(blocks), nl=False)
    else:
        print_document(console(), blocks)


def _show_issues(ids: tuple[str, ...], results: Path, form: str) -> None:
    from recapture.known.issues import chosen_issues
    from recapture.tools.compare import issues

    tables = issues.compare_issues(chosen_issues(ids), results, check=warn_if_misfiled)
    if form == "json":
        echo_json(issues.to_json(tables))
    elif form == "markdown":
        echo(issues.to_markdown(tables), nl=False)
    else:
        issues.print_issues(console(), tables)
