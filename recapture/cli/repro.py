"""``recapture repro``: prints one cell as a stand-alone script."""

from __future__ import annotations

import click

from recapture.cli.options import check_device, json_flag, require_torch
from recapture.cli.output import echo_source, print_json

__all__ = ["repro_command"]


@click.command("repro")
@click.argument("cell", metavar="SUITE::CASE::COMPILER")
@click.option(
    "--device", default="cpu", callback=check_device, metavar="cpu|cuda", help="Device of the script. [default: cpu]"
)
@json_flag
def repro_command(cell: str, device: str, *, as_json: bool) -> int:
    """Print one cell as a stand-alone script that needs only torch."""
    from recapture.conformance.printing import script

    require_torch()
    text = script(cell, device)
    if as_json:
        print_json({"cell": cell, "device": device, "script": text})
    else:
        echo_source(text)
    return 0
