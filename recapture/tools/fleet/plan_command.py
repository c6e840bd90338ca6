"""``recapture plan``: how the work of a matrix divides, and what the example files for clusters need to know of it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import msgspec
from rich.console import Console

from recapture.base.errors import UsageError
from recapture.base.option_fields import declared
from recapture.base.paths import data_folder
from recapture.base.text import duration_text, plural
from recapture.cases.collection import shipped_suites
from recapture.cases.compilers import builtin_compilers
from recapture.cases.source import defined_names
from recapture.command.in_images import typed_words
from recapture.command.matrix_options import MatrixOptions
from recapture.command.options import PathParameter, console, takes
from recapture.command.output import echo, echo_json, echo_source, print_json
from recapture.report.document import Inline, Table
from recapture.report.terminal_writer import say, say_table
from recapture.run.plan import RunOptions, check_compilers
from recapture.tools.fleet.engines import github_matrix, kubernetes_patches
from recapture.tools.fleet.slurm import SlurmOptions, plain_folder, sbatch_commands
from recapture.tools.fleet.work import MatrixWork, prepare, work_of

OWN = ("results", "shard", "durations", "resume", "device", "form", "as_json", "folder", "registry")
"""Options that are the plan's, or that each task gets anew."""


@click.command()
@takes(options=RunOptions, matrix=MatrixOptions, slurm=SlurmOptions)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "slurm", "github", "kubernetes"]),
    default="text",
    show_default=True,
    help="Output format: a table, data, or what a file of examples/fleet needs.",
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

    SUITE, FILE, CELL and the options are those of `recapture run`. The files in examples/fleet run the tasks on a
    cluster. Format slurm prepares the folder and prints the command lines that submit shard.sbatch, github prints the
    matrix for the strategy of matrix.yml, kubernetes a patch of job.yaml for each Job, a line each.
    """
    form = "json" if as_json else form
    if (folder is not None) != (form == "slurm"):
        raise UsageError("--format slurm needs a --folder on a disk that all nodes share, and no other format does")
    if not re.fullmatch(r"[A-Za-z0-9._:/-]*", registry) or "://" in registry:
        raise UsageError("--registry is the beginning of an image's name, such as registry.example/team/")
    work = typed_work(context, options, matrix)
    if form == "json":
        print_json(work)
    elif form == "slurm" and folder is not None:
        folder = plain_folder(folder)
        prepare(folder, work)
        for words, _ in sbatch_commands(folder, work, slurm):
            echo(shlex.join(words))
    elif form == "github":
        echo_json(msgspec.json.encode(github_matrix(work, minutes=slurm.minutes)).decode() + "\n")
    elif form == "kubernetes":
        for patch in kubernetes_patches(work, registry=registry, minutes=slurm.minutes):
            echo_source(msgspec.json.encode(patch).decode() + "\n")
    else:
        _print_work(console(), work)


def typed_work(context: click.Context, options: RunOptions, matrix: MatrixOptions) -> MatrixWork:
    """Return the work that a command line describes; raises UsageError for what no run would accept."""
    for name in ("shard", "durations"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} is for one part of a run: --shards says how many parts there are")
    if set(options.selection.suites) <= set(shipped_suites()):  # these declare no compilers
        check_compilers(options, builtin_compilers())
    if matrix.gpus and options.device != "cuda":
        raise UsageError("--gpu is for --device cuda")
    if options.device == "cuda" and not matrix.gpus:
        raise UsageError("--device cuda needs the type of GPU: name it with --gpu, such as h100")
    without = (*OWN, *declared(MatrixOptions), *declared(SlurmOptions))
    work = work_of(
        matrix.images,
        options,
        via=matrix.inside,
        arguments=typed_words(context, *without),
        shards=matrix.shards,
        gpus=matrix.gpus,
        results=data_folder("results"),
    )
    if all(image.cells is None for image in work.images):  # no run has recorded what is selected
        _check_selection(options)
    return work


def _check_selection(options: RunOptions) -> None:
    """Raise UsageError if no case is selected, as far as can be seen without importing a suite.

    That is not far for suites that are the user's: their cases may be made by a loop, or imported.
    """
    suites = options.selection.suites
    if not set(suites) <= set(shipped_suites()):
        return
    defined = (
        (suite.name, name)
        for suite in suites
        for name in defined_names(suite.path.read_text(encoding="utf-8"), imports=False)
    )
    keyword = options.keyword or (lambda _: True)
    if not any(options.selection.admits_case(suite, name) and keyword(f"{suite}::{name}") for suite, name in defined):
        raise UsageError("nothing to plan: no case matches the selection")


def _print_work(terminal: Console, work: MatrixWork) -> None:
    """Print one row for each image, and the number of tasks; the durations are those of one core."""
    rows: list[list[Inline]] = [
        [
            image.name,
            image.python,
            "?" if image.cells is None else str(image.cells),
            "?" if image.seconds is None else duration_text(image.seconds),
            str(image.shards),
            "?" if image.seconds is None else duration_text(image.seconds / image.shards),
        ]
        for image in work.images
    ]
    say_table(
        terminal,
        Table(["image", "Python", "recorded cells", "time on one core", "shards", "time of each"], rows, "llrrrr"),
    )
    say(terminal, f"{plural(len(work.images), 'image')}, {plural(len(work.tasks), 'task')}")
    for line in work.left_out:
        say(terminal, f"left out: {line}")
