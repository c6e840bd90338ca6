"""The work that the options of `recapture plan` and `recapture matrix` describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.errors import UsageError
from recapture.base.option_fields import declared
from recapture.cases.collection import shipped_suites
from recapture.cases.compilers import builtin_compilers
from recapture.command.in_images import typed_words
from recapture.command.matrix_options import MatrixOptions
from recapture.run.durations import committed_results
from recapture.run.plan import check_compilers
from recapture.tools.fleet.slurm_script import SlurmOptions
from recapture.tools.fleet.work import work_of

if TYPE_CHECKING:
    import click

    from recapture.run.plan import RunOptions
    from recapture.tools.fleet.work import MatrixWork

OWN = ("results", "shard", "durations", "resume", "device", "form", "as_json", "folder", "registry")
"""Options that are the plan's, or that each task gets anew."""


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
    return work_of(
        matrix.images,
        options,
        via=matrix.inside,
        arguments=typed_words(context, *without),
        shards=matrix.shards,
        gpus=matrix.gpus,
        results=committed_results(),
    )
