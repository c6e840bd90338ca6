"""``recapture diff``: what changed between two results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recapture.analysis.changes import CATEGORIES
from recapture.base.errors import UsageError
from recapture.cli.options import PathParameter, console, how_to_print, kind_option
from recapture.cli.output import echo, echo_json

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["diff"]

FAIL_ON_EXIT_STATUS = 1


@click.command()
@click.argument("old", type=PathParameter())
@click.argument("new", type=PathParameter())
@how_to_print
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "wrong", "failing", "slower", "any", "notes"]),
    multiple=True,
    help=(
        "Exit with status 1 on: a right cell that became worse or is missing; a cell that became silently wrong, or "
        "failing; a configuration that is certainly slower, or no longer right; any change of an outcome; a change of "
        "notes alone. Only shown cells count. May be given several times."
    ),
)
@click.option(
    "--category",
    "categories",
    type=click.Choice(list(CATEGORIES)),
    metavar="CATEGORY",
    multiple=True,
    help="Show only changed cells of this category, such as newly_wrong. May be given several times.",
)
@kind_option("Show only changed cells with a difference of this kind on either side")
@click.pass_context
def diff(
    context: click.Context,
    old: Path,
    new: Path,
    form: str,
    fail_on: tuple[str, ...],
    categories: tuple[str, ...],
    kinds: tuple[str, ...],
) -> None:
    """Show what changed between two results, cell by cell, and in speed.

    OLD and NEW are results directories (results/IMAGE/CAPABILITY), or directories of images with exactly one common
    capability.
    """
    from recapture.analysis.cell_changes import compare
    from recapture.analysis.changes import found
    from recapture.analysis.diff_filter import restricted
    from recapture.analysis.pairing import locate
    from recapture.report.diff import print_diff, to_json, to_markdown

    changes = restricted(compare(*locate(old, new)), kinds=kinds, categories=categories)
    if form == "json":
        echo_json(to_json(changes))
    elif form == "markdown":
        echo(to_markdown(changes), nl=False)
    else:
        print_diff(console(), changes)
    if "slower" in fail_on and not changes.speeds:
        raise UsageError("--fail-on slower, but no speeds were compared")
    if any(found(changes, name) for name in fail_on):
        context.exit(FAIL_ON_EXIT_STATUS)
