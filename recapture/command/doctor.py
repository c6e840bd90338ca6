"""The command ``recapture doctor``: checks whether results from this machine are valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from recapture.base.columns import terminal_columns
from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.text import plural
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import takes
from recapture.command.output import echo, print_json

if TYPE_CHECKING:
    from recapture.machine.doctor.register import Check

PIPE_WIDTH = 120
"""Width of the table in columns if the output is not a terminal."""


@click.command()
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Device to check.")
@takes(where=ImageOptions)
@click.option("--json", "as_json", is_flag=True, help="Print the checks as a JSON list.")
@click.pass_context
def doctor(context: click.Context, where: ImageOptions, device: str, as_json: bool) -> int:
    """Check this machine and installation for faults that would look like a compiler's.

    Exit status 0 if there is none, 3 if there is one.
    """
    if as_json and len(where.images) > 1:
        raise UsageError("--json prints the checks of one installation: name one image")
    if where.images:
        return run_in_images(context, where, results=None, device=device)
    from recapture.machine.doctor import examine

    checks = examine(device)
    if as_json:
        print_json(checks)
    else:
        echo(checks_table(checks), nl=False)
    if any(check.status == "fault" for check in checks):
        context.exit(EnvironmentUnfitError.exit_status)
    return 0


def checks_table(checks: Sequence[Check]) -> str:
    """Return a table of the checks, as wide as the terminal, and a last line with the number of problems."""
    from recapture.report.document import Table
    from recapture.report.terminal_writer import terminal_lines

    rows = [[check.name, check.status, check.found, check.mend] for check in checks]
    width = terminal_columns(PIPE_WIDTH)
    headers = ["check", "status", "found", "fix"]
    if not any(check.mend for check in checks):  # an empty column would leave less room for the others
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    lines = terminal_lines(Table(headers, rows), width=width, wrapped=(2, 3))
    faults, warnings, unknown = (
        sum(check.status == status for check in checks) for status in ("fault", "warning", "unknown")
    )
    counts = [plural(faults, "fault")] if faults else []
    counts += [plural(warnings, "warning")] if warnings else []
    counts += [f"{unknown} unknown"] if unknown else []
    return "\n".join([*(line.plain for line in lines), "", ", ".join(counts) or "nothing is wrong", ""])
