"""``recapture reduce``: the smallest program with the same verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import PathParameter, require_torch, takes
from recapture.command.output import echo, print_json
from recapture.tools.explain.reduce.reducing import ReduceOptions

if TYPE_CHECKING:
    from recapture.tools.explain.reduce.program import Program


@click.command("reduce")
@click.argument("cell", metavar="SUITE::CASE::COMPILER")
@takes(options=ReduceOptions, where=ImageOptions)
@click.option("--output", type=PathParameter(), metavar="FILE", help="Also write the program without recapture here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def reduce_command(
    context: click.Context,
    cell: str,
    options: ReduceOptions,
    where: ImageOptions,
    output: Path | None,
    *,
    as_json: bool,
) -> int:
    """Reduce a wrong or failing cell to the smallest program with the same verdict.

    The program keeps the kind of the difference and its place, or the exception and how its message begins. It is
    printed as a case, and as a script that needs torch alone and exits with 1 if it shows the fault. Ctrl-C and
    SIGTERM, like the time limit, keep the smallest program so far.
    """
    if where.images:
        if len(where.images) > 1 and (as_json or output is not None):
            raise UsageError("--json and --output are for the program of one installation: name one image")
        if where.via == "docker" and output is not None:
            raise UsageError("--output cannot be written from a container: use --via venv, or what is printed")
        return run_in_images(context, where, results=None, device=options.device)
    from recapture.tools.explain.reduce.reducing import open_reduction
    from recapture.tools.explain.reduce.report import reduction_data, reduction_text
    from recapture.tools.explain.script.choice import choose

    require_torch()
    if output is not None:
        write_atomically(output, b"")  # a path that cannot be written must not cost a reduction

    def advanced(program: Program) -> None:
        if not as_json:
            size = program.size
            echo(f"{size.lines} lines, {size.bytes} bytes", err=True)

    with open_reduction(cell, options) as reduction:
        reduced = reduction.run(advanced)
        script = choose(reduction, reduced.program, reduced.result) if reduced.ending != "interrupted" else None
    if output is not None:
        write_atomically(output, (script.text if script else reduced.case).encode(errors="backslashreplace"))
    if as_json:
        print_json(reduction_data(reduced, script))
    else:
        echo(reduction_text(reduced, script), nl=False)
    if reduction.interruption is not None:  # it ends the command, now that the program is printed
        raise reduction.interruption
    return 0
