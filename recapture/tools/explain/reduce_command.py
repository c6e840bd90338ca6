"""``recapture reduce``: the smallest program with the same verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.base.text import duration_text, one_line, plural
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import OutputFile, require_torch, takes
from recapture.command.output import echo, print_json
from recapture.tools.explain.reduce.reducing import ReduceOptions

if TYPE_CHECKING:
    from recapture.tools.explain.reduce.program import Program, Size
    from recapture.tools.explain.reduce.reducing import Reduced
    from recapture.tools.explain.script.choice import TriedScript


ENDINGS = {
    "finished": "nothing smaller was found",
    "time limit": "stopped at the time limit, so it may get smaller",
    "interrupted": "interrupted, so it may get smaller",
}
"""How a search ended, in words."""


@click.command("reduce")
@click.argument("cell", metavar="SUITE::CASE::COMPILER")
@takes(options=ReduceOptions, where=ImageOptions)
@click.option(
    "--output",
    type=OutputFile(program=True),
    metavar="FILE",
    help="Also write the script that needs torch alone to this file.",
)
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


def reduction_text(reduced: Reduced, script: TriedScript | None) -> str:
    """Return the report of a reduction: size before and after, tries, and the program in both forms.

    `script` is the program without recapture; None if it was not made.
    """
    lines = [
        f"{reduced.cell} on {reduced.device}: {one_line(reduced.fault)}",
        f"{_size(reduced.before)} → {_size(reduced.after)}; {_tries(reduced)}; {ENDINGS[reduced.ending]}",
        *([f"stage: {reduced.stage}, searched with {reduced.searched_with}"] if reduced.stage else []),
        _kept(reduced),
        "",
        "# the smallest program as a case",
        reduced.case.rstrip(),
    ]
    if script is not None:
        lines += ["", f"# the same without recapture ({script.ending})", script.text.rstrip()]
    return "\n".join(lines) + "\n"


def _tries(reduced: Reduced) -> str:
    count = "1 try" if reduced.tries == 1 else f"{reduced.tries} tries"
    return f"{count} in {duration_text(reduced.seconds)}, {reduced.tries_per_second:.1f} a second"


def _kept(reduced: Reduced) -> str:
    if reduced.holds is None:
        return "verdict: not checked again, because the reduction was interrupted"
    if reduced.holds:
        return f"verdict: {reduced.verdict} again when it ran once more, with the same difference or error"
    return "verdict: not kept by any smaller program, so this is the whole case"


def _size(size: Size) -> str:
    return f"{plural(size.lines, 'line')}, {plural(size.bytes, 'byte')}"


def reduction_data(reduced: Reduced, script: TriedScript | None) -> dict[str, Any]:
    """Return a reduction as JSON-compatible data."""
    return {
        "schema": 1,
        "cell": reduced.cell,
        "device": reduced.device,
        "verdict": str(reduced.verdict),
        "fault": reduced.fault,
        "stage": reduced.stage,
        "searched_with": reduced.searched_with,
        "before": {"lines": reduced.before.lines, "bytes": reduced.before.bytes},
        "after": {"lines": reduced.after.lines, "bytes": reduced.after.bytes},
        "tries": reduced.tries,
        "seconds": reduced.seconds,
        "tries_per_second": round(reduced.tries_per_second, 2),
        "ending": reduced.ending,
        "verdict_kept": reduced.holds,
        "case": reduced.case,
        "script": None if script is None else script.text,
        "script_runs": None if script is None else script.ending,
    }
