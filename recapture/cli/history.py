"""``recapture history``: a cell, or all of them, through the torch releases."""

from __future__ import annotations

from pathlib import Path

import click

from recapture.cli.options import console, how_to_print

__all__ = ["history"]


@click.command()
@click.argument("cell", required=False)
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Where the results of all images are.",
)
@how_to_print
def history(cell: str | None, results: Path, form: str) -> None:
    """Show how CELL ended with every torch release that has results, and where that changed.

    CELL is SUITE::NAME::COMPILER; a case alone (SUITE::NAME, or only NAME) stands for all its cells. Without CELL,
    show how many cells go wrong or fail under each compiler with every release, and what each release changed.
    """
    from recapture.analysis import history as analysis
    from recapture.analysis.overview import overview
    from recapture.report import history as histories
    from recapture.report import overview as overviews

    if cell is None:
        found = overview(results)
        if form == "text":
            overviews.print_overviews(console(), found)
        else:
            click.echo((overviews.to_json if form == "json" else overviews.to_markdown)(found), nl=False)
        return
    found = analysis.history(cell, results)
    if form == "json":
        click.echo(histories.to_json(found), nl=False)
    elif form == "markdown":
        click.echo(histories.to_markdown(found), nl=False)
    else:
        histories.print_histories(console(), found)
