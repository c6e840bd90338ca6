"""``recapture repro``: prints one cell as a stand-alone script, or as the text of an issue for PyTorch."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recapture.base.errors import Termination, UsageError
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import Range, check_device, json_flag, require_torch, takes
from recapture.command.output import echo_source, print_json

if TYPE_CHECKING:
    from recapture.report.history import CellHistory

REDUCE_SECONDS = 120.0
"""Seconds that the reduction before an issue may take."""


@click.command("repro")
@click.argument("cell", metavar="SUITE::CASE::COMPILER")
@click.option(
    "--device", default="cpu", callback=check_device, metavar="cpu|cuda", help="Device of the script. [default: cpu]"
)
@click.option(
    "--upstream",
    is_flag=True,
    help="Run the cell, and print the text of an issue in the form of PyTorch's bug template.",
)
@click.option("--reduce", "smaller", is_flag=True, help="With --upstream: reduce the program first.")
@click.option(
    "--seconds",
    type=Range(0.0, None),
    metavar="S",
    help=f"With --reduce: the time limit of the search. [default: {REDUCE_SECONDS:g}]",
)
@takes(where=ImageOptions)
@json_flag
@click.pass_context
def repro_command(
    context: click.Context,
    cell: str,
    device: str,
    where: ImageOptions,
    *,
    upstream: bool,
    smaller: bool,
    seconds: float | None,
    as_json: bool,
) -> int:
    """Print one cell as a stand-alone script that needs only torch.

    With --upstream, print the text of an issue: a short script that exits with 1 if the fault shows, what it does with
    each backend of torch.compile, the releases that are recorded, and the versions. The script was run before.
    """
    if (smaller and not upstream) or (seconds is not None and not smaller):
        raise UsageError("--reduce needs --upstream, and --seconds needs --reduce")
    if where.images:
        if len(where.images) > 1:
            raise UsageError("a script is for one installation: name one image")
        return run_in_images(context, where, results=None, device=device)
    require_torch()
    if upstream:
        kind, text = "issue", _issue(cell, device, REDUCE_SECONDS if seconds is None else seconds, smaller=smaller)
    else:
        from recapture.tools.explain.script.printing import script

        kind, text = "script", script(cell, device)
    if as_json:
        print_json({"cell": cell, "device": device, kind: text})
    else:
        echo_source(text)
    return 0


def _issue(cell: str, device: str, seconds: float, *, smaller: bool) -> str:
    """Return the text of an issue about a cell. Ctrl-C during its reduction goes on with the best program so far."""
    from recapture.tools.explain.reduce.reducing import ReduceOptions, open_reduction
    from recapture.tools.explain.script.upstream import gather, issue_text

    with open_reduction(cell, ReduceOptions(device=device, seconds=seconds)) as reduction:
        reduced = reduction.run(lambda _: None) if smaller else None
        if isinstance(reduction.interruption, Termination):
            raise reduction.interruption
        reduction.runner.pool.end_left_over()  # `gather` also uses the pool without a driver
        facts = gather(reduction, reduced)
    return issue_text(facts, _histories(cell))


def _histories(cell: str) -> list[CellHistory] | None:
    """Return what is recorded about a cell; None if nothing is."""
    from recapture.report.history import history

    with contextlib.suppress(UsageError):  # no results, or none of this cell
        return history(cell, Path("results"))
    return None
