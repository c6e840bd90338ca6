"""``recapture results``: what is done with results that somebody sends."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from recapture.base.text import plural
from recapture.command.options import PathParameter, json_flag
from recapture.command.output import echo, print_json

REFUSED = 1
"""Exit status if something cannot be true."""


@click.group()
def results() -> None:
    """Results of other machines: verify what somebody sends."""


@results.command("verify")
@click.argument("folders", metavar="FOLDER…", nargs=-1, required=True, type=PathParameter())
@click.option(
    "--against",
    type=PathParameter(),
    default=Path("results"),
    show_default=True,
    help="The committed results to compare with.",
)
@json_flag
def verify_command(folders: tuple[Path, ...], against: Path, *, as_json: bool) -> int:
    """Refuse results that cannot be true.

    Each results directory at or below FOLDER is read whole: are its packages those of the image's lock, is every cell
    there, is every file what recapture writes for its data, and do the values agree with each other and with what
    every committed release says? The status is 1 if something cannot be true.
    """
    from recapture.records.directories import find_results
    from recapture.tools.contribute.verify import read_references, verify

    references = read_references(against)
    directories = list(dict.fromkeys(path for folder in folders for path in find_results(folder)))
    verified = [verify(directory, references) for directory in directories]
    problems = sum(len(result.problems) for result in verified)
    if as_json:
        print_json([msgspec.to_builtins(result) for result in verified])
    else:
        for result in verified:
            where = f"{result.image} on {result.capability} ({result.hardware}), torch {result.torch}"
            echo(f"{result.directory}: {plural(result.cells, 'cell')} of {where}")
            suites = result.suite_commit or "unknown"
            echo(f"    lock {result.lock_hash or 'none'}, image {result.image_digest}, suites {suites}")
            for problem in result.problems:
                echo(f"    {problem.rule}: {problem.message}")
        echo(f"{plural(len(verified), 'result')}, {plural(problems, 'problem')}")
    return REFUSED if problems else 0
