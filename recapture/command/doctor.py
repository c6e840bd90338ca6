"""The command ``recapture doctor``: checks whether results from this machine are valid."""

from __future__ import annotations

import click

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import takes
from recapture.command.output import echo, print_json


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
    from recapture.report.checks_table import render

    checks = examine(device)
    if as_json:
        print_json(checks)
    else:
        echo(render(checks), nl=False)
    if any(one.status == "fault" for one in checks):
        context.exit(EnvironmentUnfitError.exit_status)
    return 0
