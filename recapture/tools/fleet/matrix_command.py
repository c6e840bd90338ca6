"""``recapture matrix``: every suite in every image, on this machine or on a Slurm cluster."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import click

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.option_fields import declared
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.matrix_options import MatrixOptions
from recapture.command.options import PathParameter, json_flag, takes
from recapture.command.output import echo, print_json
from recapture.run.plan import RunOptions
from recapture.tools.fleet.merge import merge_folders
from recapture.tools.fleet.plan_command import typed_work
from recapture.tools.fleet.slurm import SlurmOptions, SlurmRun, plain_folder
from recapture.tools.fleet.work import prepare


@click.command("matrix")
@takes(options=RunOptions, matrix=MatrixOptions, slurm=SlurmOptions)
@click.option(
    "--via",
    type=click.Choice(["here", "venv", "docker", "slurm"]),
    help="This machine, with this Python, environments or containers; or a Slurm cluster.  [default: venv]",
)
@click.option("--keep", type=click.IntRange(1), metavar="N", help="The most environments on disk, 5 to 7 GB each.")
@click.option("--folder", type=PathParameter(), help="Folder on a shared disk for what the shards write; for slurm.")
@json_flag
@click.pass_context
def matrix_command(
    context: click.Context,
    options: RunOptions,
    matrix: MatrixOptions,
    slurm: SlurmOptions,
    via: Literal["here", "venv", "docker", "slurm"] | None,
    keep: int | None,
    folder: Path | None,
    *,
    as_json: bool,
) -> int:
    """Run the suites in all images; run again, it continues where it was.

    With --via slurm, every part becomes a task of a job array. This command shows the progress and merges; interrupted
    and run again with the same options, it finds its jobs. Exit status 3 means that parts are missing, which are named.
    --json prints one document for each image, or with --via slurm what was merged and what is missing.
    """
    if via == "slurm":
        if folder is None:
            raise UsageError("--via slurm needs a --folder on a disk that all nodes share")
        return _on_slurm(context, options, matrix, slurm, folder, as_json=as_json)
    for name in ("folder", "shards", "gpu_lists", *declared(SlurmOptions)):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.partition('_lists')[0].replace('_', '-')} is for --via slurm")
    if options.shard is not None:
        raise UsageError("--shard is for `recapture run`: it is one part of a run")
    where = ImageOptions(lists=(matrix.images,), via=via, keep=keep)
    without = ("folder", *declared(MatrixOptions), *declared(SlurmOptions), "resume")
    return run_in_images(
        context, where, results=options.results, device=options.device, resume=True, command="run", without=without
    )


def _on_slurm(
    context: click.Context,
    options: RunOptions,
    matrix: MatrixOptions,
    slurm: SlurmOptions,
    folder: Path,
    *,
    as_json: bool,
) -> int:
    def show(text: str) -> None:
        echo(f"recapture: {text}", err=True)

    work = typed_work(context, options, matrix)
    folder = plain_folder(folder)
    prepare(folder, work)
    try:
        SlurmRun(folder, work, slurm, show).run()
    except KeyboardInterrupt:
        show("the jobs go on: run this again to wait for them and merge, or end them with scancel")
        raise
    outcome = merge_folders([folder], options.results)
    if as_json:
        print_json(dataclasses.asdict(outcome))
    for line in (*outcome.warnings, *outcome.merged):
        show(line)
    for line in outcome.missing:
        show(f"missing: {line}")
    return EnvironmentUnfitError.exit_status if outcome.missing else 0
