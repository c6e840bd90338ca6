"""``recapture plan``: the work of a matrix as data, and as a job array, a workflow, or Kubernetes Jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from recapture.base.errors import UsageError
from recapture.command.matrix_options import MatrixOptions
from recapture.command.options import PathParameter, takes
from recapture.command.output import echo, echo_json, echo_source
from recapture.run.plan import RunOptions
from recapture.tools.fleet.matrix_work import typed_work
from recapture.tools.fleet.slurm_script import SlurmOptions

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.tools.fleet.work import MatrixWork


@click.command()
@takes(options=RunOptions, matrix=MatrixOptions, slurm=SlurmOptions)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "slurm", "github", "kubernetes"]),
    default="text",
    show_default=True,
    help="Output format: a table, data, or what an engine reads.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--folder", type=PathParameter(), help="Folder on a shared disk for what the shards write; for slurm.")
@click.option("--registry", default="", metavar="TEXT", help="What comes before the images' tags; for kubernetes.")
@click.pass_context
def plan(
    context: click.Context,
    options: RunOptions,
    matrix: MatrixOptions,
    slurm: SlurmOptions,
    form: str,
    folder: Path | None,
    registry: str,
    *,
    as_json: bool,
) -> None:
    """Print the work of a matrix: one task for each image, type of GPU and part.

    SUITE, FILE, CELL and the options are those of `recapture run`. With --format slurm, the folder is prepared and the
    script of the array is printed.
    """
    form = "json" if as_json else form
    if (folder is not None) != (form == "slurm"):
        raise UsageError("--format slurm needs a --folder on a disk that all nodes share, and no other format does")
    work = typed_work(context, options, matrix)
    if form == "json":
        echo_json(msgspec.json.format(msgspec.json.encode(work), indent=2).decode() + "\n")
    elif form == "slurm" and folder is not None:
        _slurm(work, folder, slurm)
    elif form == "github":
        from recapture.tools.fleet.github import github_workflow

        echo_source(github_workflow(work, minutes=slurm.minutes))
    elif form == "kubernetes":
        from recapture.tools.fleet.kubernetes import kubernetes_jobs

        echo_source(kubernetes_jobs(work, registry=registry, minutes=slurm.minutes))
    else:
        from recapture.command.options import console
        from recapture.tools.fleet.work_table import print_work

        print_work(console(), work)


def _slurm(work: MatrixWork, folder: Path, options: SlurmOptions) -> None:
    from recapture.tools.fleet.folder import prepare
    from recapture.tools.fleet.slurm import write_scripts
    from recapture.tools.fleet.slurm_script import array_scripts

    scripts = array_scripts(folder, work, options)  # refused before anything is made
    prepare(folder, work)
    write_scripts(folder, work, options)
    for name, (text, _) in scripts.items():
        echo(f"recapture: {folder / name}", err=True)
        if len(scripts) == 1:
            echo_source(text)
