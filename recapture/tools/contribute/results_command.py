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
    problems = sum(len(one.problems) for one in verified)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in verified])
    else:
        for one in verified:
            where = f"{one.image} on {one.capability} ({one.hardware}), torch {one.torch}"
            echo(f"{one.directory}: {plural(one.cells, 'cell')} of {where}")
            echo(
                f"    lock {one.lock_hash or 'none'}, image {one.image_digest}, suites {one.suite_commit or 'unknown'}"
            )
            for problem in one.problems:
                echo(f"    {problem.rule}: {problem.message}")
        echo(f"{plural(len(verified), 'result')}, {plural(problems, 'problem')}")
    return REFUSED if problems else 0
