"""``recapture repro``: one cell as a script of its own."""

from __future__ import annotations

import click

from recapture.cli.options import check_device, require_torch

__all__ = ["repro_command"]


@click.command("repro")
@click.argument("cell", metavar="SUITE::CASE::COMPILER")
@click.option(
    "--device", default="cpu", callback=check_device, metavar="cpu|cuda", help="Device of the script. [default: cpu]"
)
def repro_command(cell: str, device: str) -> int:
    """Print one cell as a stand-alone script that needs torch alone."""
    from recapture.conformance.printing import script

    require_torch()
    click.echo(script(cell, device).encode(), nl=False)  # UTF-8, as Python reads it
    return 0
