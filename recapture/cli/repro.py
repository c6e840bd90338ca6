"""``recapture repro``: prints one cell as a stand-alone script."""

from __future__ import annotations

import click

from recapture.cli.options import check_device, require_torch
from recapture.cli.output import echo_source

__all__ = ["repro_command"]


@click.command("repro")
@click.argument("cell", metavar="SUITE::CASE::COMPILER")
@click.option(
    "--device", default="cpu", callback=check_device, metavar="cpu|cuda", help="Device of the script. [default: cpu]"
)
def repro_command(cell: str, device: str) -> int:
    """Print one cell as a stand-alone script that needs only torch."""
    from recapture.conformance.printing import script

    require_torch()
    echo_source(script(cell, device))
    return 0
