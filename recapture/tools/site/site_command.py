"""``recapture site``: static pages in which people look up what works with which compiler, since when."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from recapture import data
from recapture.base.errors import UsageError
from recapture.command.options import PathParameter, json_flag
from recapture.command.output import echo, print_json

MARK = ".recapture-site"
"""A file in a folder that this command wrote, which it may therefore empty."""


@click.command()
@click.option(
    "--data",
    "data_file",
    type=PathParameter(),
    help="Build from this file of `recapture data`.  [default: the results; without them, the installed data]",
)
@click.option(
    "--results",
    type=PathParameter(),
    default=Path("results"),
    show_default=True,
    help="Folder with the results of all images.",
)
@click.option(
    "--output", type=PathParameter(), default=Path("build/site"), show_default=True, help="Folder for the site."
)
@json_flag
def site_command(data_file: Path | None, results: Path, output: Path, *, as_json: bool) -> None:
    """Build the site: a page for each behaviour, release, upgrade, compiler, model, workload and known issue.

    The pages are static files, which work from a folder and without a network: open index.html. They are made from
    the document of `recapture data` alone.
    """
    from recapture.tools.site.collect import collect
    from recapture.tools.site.data_package import write_files
    from recapture.tools.site.pages import site_files

    started = time.monotonic()
    if data_file is not None:
        content = data.load(data_file)
    elif results.is_dir():
        content = data.decode(data.encode(collect(results)))
    else:
        content = data.load()
    _make_room(output)
    files = dict(site_files(content))
    write_files(output, {MARK: b"", **files})
    pages = sum(name.endswith(".html") for name in files)
    largest = max(len(text) for name, text in files.items() if name.endswith(".html"))
    if as_json:
        print_json({"folder": str(output), "pages": pages, "largest_page_bytes": largest})
        return
    seconds = time.monotonic() - started
    echo(f"{output / 'index.html'}: {pages} pages, the largest {largest / 1000:.0f} kB, in {seconds:.0f} s")


def _make_room(output: Path) -> None:
    """Empty a folder that this command wrote earlier; raises UsageError for a folder with other files."""
    if not output.exists():
        return
    if not output.is_dir():
        raise UsageError(f"cannot write the site to {output}: it is not a folder")
    if not any(output.iterdir()):
        return
    if not (output / MARK).is_file():
        raise UsageError(f"cannot write the site to {output}: the folder has files that `recapture site` did not write")
    try:
        shutil.rmtree(output)
    except OSError as error:
        raise UsageError(f"cannot write the site to {output}: {error.strerror}") from None
