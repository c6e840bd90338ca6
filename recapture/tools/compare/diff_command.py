"""``recapture diff``: what changed between two results."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from recapture.base.errors import UsageError
from recapture.command.options import PathParameter, console, how_to_print, kind_option
from recapture.command.output import echo, echo_json
from recapture.tools.compare.changes import CATEGORIES

FAIL_ON_EXIT_STATUS = 1


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="OLD NEW...", type=PathParameter())
@how_to_print
@click.option(
    "--fail-on",
    type=click.Choice(
        ["regression", "wrong", "failing", "slower", "hungrier", "longer-to-compile", "eager", "any", "notes"]
    ),
    multiple=True,
    help=(
        "Exit with status 1 on a regression: a right cell that is worse or missing now; on a cell that became silently "
        "wrong, or failing; on a configuration that is certainly slower or no longer right, that is hungrier (needs "
        "more memory), or that takes longer-to-compile; on eager itself that changed beyond rounding; on any change of "
        "an outcome; on a change of notes alone. Only shown cells count. May be given several times."
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
    places: tuple[Path, ...],
    form: str,
    fail_on: tuple[str, ...],
    categories: tuple[str, ...],
    kinds: tuple[str, ...],
) -> None:
    """Show what changed between two results, cell by cell, and in speed; of several results, each step to the next.

    OLD and NEW are results directories (results/IMAGE/CAPABILITY), or directories of images with exactly one common
    capability.
    """
    from recapture.tools.compare.cell_changes import compare, locate, restricted
    from recapture.tools.compare.changes import COSTS_FAIL_ON, matching_changes
    from recapture.tools.compare.diff_report import print_diff, to_json, to_markdown

    if len(places) < 2:
        raise UsageError("diff compares two results or more: name OLD and NEW")
    steps = [
        restricted(compare(*locate(old, new)), kinds=kinds, categories=categories)
        for old, new in itertools.pairwise(places)
    ]
    if form == "json":
        echo_json(to_json(*steps))
    elif form == "markdown":
        echo(to_markdown(*steps), nl=False)
    else:
        print_diff(console(), *steps)
    for name in ("slower", *COSTS_FAIL_ON):
        if name in fail_on and not any(changes.speeds for changes in steps):
            raise UsageError(f"--fail-on {name}, but no speeds were compared")
    if any(matching_changes(changes, name) for changes in steps for name in fail_on):
        context.exit(FAIL_ON_EXIT_STATUS)
