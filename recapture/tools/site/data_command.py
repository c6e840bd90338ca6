"""``recapture data``: every verdict of every release as one document, packaged for pip and npm."""

from __future__ import annotations

from pathlib import Path

import click

from recapture import data
from recapture.command.options import PathParameter, json_flag
from recapture.command.output import echo, print_json


@click.command()
@click.option(
    "--results",
    type=PathParameter(),
    default=Path("results"),
    show_default=True,
    help="Folder with the results of all images.",
)
@click.option(
    "--output", type=PathParameter(), default=data.BUILT, show_default=True, help="Folder for the two packages."
)
@json_flag
def data_command(results: Path, output: Path, *, as_json: bool) -> None:
    """Write every verdict of every release as one JSON document, with its JSON Schema.

    The folder gets the package `recapture-data` for pip and for npm. `recapture.data.load()` reads the one in
    build/recapture-data of a checkout, or the installed one. The same results give the same bytes.
    """
    from recapture.tools.site.collect import collect
    from recapture.tools.site.data_package import write_packages

    content = collect(results)
    size = write_packages(content, output)
    cells = sum(len(case.cells) for case in content.cases.values())
    if as_json:
        print_json(
            {
                "folder": str(output),
                "schema": data.SCHEMA_VERSION,
                "version": content.version,
                "cells": cells,
                "cases": len(content.cases),
                "releases": content.releases,
                "behaviours": len(content.behaviours),
                "compressed_bytes": size,
            }
        )
        return
    echo(
        f"{output}: {cells} cells of {len(content.cases)} cases on {len(content.releases)} releases, "
        f"{len(content.behaviours)} behaviours, {size / 1000:.0f} kB compressed"
    )
