"""``recapture stage``: which stage of a compiler is guilty of a wrong or failing cell."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recapture.base.errors import UsageError
from recapture.base.option_fields import argument, option
from recapture.cases.collection import Selection, find_suites
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import require_torch, takes
from recapture.command.output import echo, echo_json
from recapture.records.verdicts import RIGHT
from recapture.run.cell_options import CellOptions
from recapture.tools.explain.run_options import BUDGET, EXPLAIN

if TYPE_CHECKING:
    from recapture.run.runner import RunSummary
    from recapture.tools.explain.stage_search import SearchedCell


@dataclass(frozen=True, kw_only=True)
class StageOptions(CellOptions):
    """The options of `recapture stage`."""

    selection: Selection = argument("CELL...", parse=find_suites)
    budget: int = option("--budget", default=BUDGET, between=(1, 100), help="The most extra cells for each cell.")


@click.command("stage")
@takes(options=StageOptions, where=ImageOptions)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.pass_context
def stage_command(context: click.Context, options: StageOptions, where: ImageOptions, *, as_json: bool) -> int:
    """Find the guilty stage of wrong or failing cells, and the switch that makes them right.

    CELL is SUITE::CASE::COMPILER; a case, a suite or a file means all its cells. Each cell runs again with its compiler
    stopped after a stage, and then with parts of the guilty stage switched off. Nothing is recorded: `recapture run
    --explain` does that.
    """
    if as_json and len(where.images) > 1:
        raise UsageError("--json prints the cells of one installation: name one image")
    if not options.selection.addresses:
        raise UsageError("name a cell, a case or a suite")
    if where.images:
        return run_in_images(context, where, results=None, device=options.device)
    from recapture.report.terminal_writer import SafeConsole, say
    from recapture.tools.explain.stage_report import print_searched_cell, searched_json

    require_torch()
    summary, searched = _searched(options)
    if as_json:
        echo_json(searched_json(searched))
        return 0
    console = SafeConsole(highlight=False)
    for number, cell in enumerate(searched):
        if number:
            say(console)
        print_searched_cell(console, cell)
    searched_cells = {cell.record.cell for cell in searched}
    for record in summary.selected:
        if record.cell not in searched_cells:
            why = "no stage is guilty" if record.verdict in RIGHT else "it says nothing about the compiler"
            say(console, f"{record.cell}: {record.verdict}, {why}")
    return 0


def _searched(options: StageOptions) -> tuple[RunSummary, list[SearchedCell]]:
    """Run the cells and search their stages, with the records in a temporary folder."""
    from recapture.report.run_progress import RunProgress
    from recapture.report.terminal_writer import SafeConsole
    from recapture.run.plan import RunOptions
    from recapture.run.runner import run_cells
    from recapture.tools.explain.stage_search import StageRecorder

    stages = StageRecorder(options.budget)
    with tempfile.TemporaryDirectory(prefix="recapture-stage-") as folder:
        run = RunOptions(
            **options.for_cells,
            selection=options.selection,
            results=Path(folder),
            examiner=EXPLAIN,
        )
        with RunProgress(SafeConsole(stderr=True)) as progress:
            summary = run_cells(run, progress, lambda text: echo(f"recapture: {text}", err=True), afterwards=[stages])
    return summary, stages.searched
