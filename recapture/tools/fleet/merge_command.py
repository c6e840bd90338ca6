"""``recapture merge``: joins the shards of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from recapture.base.errors import UsageError
from recapture.command.options import PathParameter, json_flag
from recapture.command.output import echo, echo_error, print_json
from recapture.tools.fleet.merge import merge_folders


@click.command()
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", type=PathParameter())
@click.option(
    "--results",
    type=PathParameter(),
    default=Path("results"),
    show_default=True,
    help="Folder for the merged results of all images.",
)
@click.option("--incomplete", is_flag=True, help="Write what is there, even if planned cells are missing.")
@json_flag
@click.pass_context
def merge(
    context: click.Context, directories: tuple[Path, ...], results: Path, *, incomplete: bool, as_json: bool
) -> None:
    """Join the parts of a run, such as shards, into results as of one machine.

    DIR is a results directory, or a folder with several, also of several images. Parts may overlap if they agree. The
    exit status is 2, and nothing is written for that image, if planned cells are missing.
    """
    outcome = merge_folders(directories, results, incomplete=incomplete)
    for line in outcome.warnings:
        echo_error(line)
    if as_json:
        print_json(dataclasses.asdict(outcome))
    for line in () if as_json else outcome.merged:
        echo(line)
    for line in outcome.missing:
        echo_error(f"missing: {line}")
    if not outcome.merged and not outcome.missing:
        raise UsageError("there is nothing to merge")
    if outcome.missing and not incomplete:
        context.exit(2)
