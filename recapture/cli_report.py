"""The commands that read results: ``recapture report``, ``recapture diff`` and ``recapture history``."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from recapture.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from recapture.bench.rows import Speedups

__all__ = ["diff", "history", "report"]

HTML = "conformance.html"
FAIL_ON_EXIT_STATUS = 1

_how_to_print = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="How to print it.",
)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    from recapture.records import write_atomically

    with _writing(path):
        write_atomically(path, text.encode())


def _derived(path: Path) -> Speedups:
    """Read measured speedups; where the statistics have changed since, the samples decide, and the file follows."""
    from recapture.bench.figures import derive
    from recapture.bench.filing import writing
    from recapture.bench.rows import read_speedups, write_speedups

    def derived(speedups: Speedups) -> Speedups:
        return msgspec.structs.replace(speedups, rows=tuple(map(derive, speedups.rows)))

    on_file = read_speedups(path)
    if importlib.util.find_spec("scipy") is None or derived(on_file) == on_file:  # without it results are only read
        return on_file
    with writing(path):
        found = derived(read_speedups(path))
        write_speedups(path, found)
    return found


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path), metavar="[DIRECTORY]...")
@click.option("--html", "as_html", is_flag=True, help=f"Also write {HTML}, one page that needs nothing else.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Write the report there, not beside the records; - is standard output. For one results directory only.",
)
@click.option("--quiet", is_flag=True, help="Do not print the summary.")
@click.option(
    "--interrupted", is_flag=True, help="First finish runs that were interrupted and will not be resumed, as they are."
)
def report(directories: tuple[Path, ...], as_html: bool, output: Path | None, quiet: bool, interrupted: bool) -> None:
    """Render reports from the records in DIRECTORY, and in every results directory below it (default: results).

    The ratios of speedups are computed again from their samples.
    """
    from recapture.bench.report import render_speedups
    from recapture.bench.terminal import print_speedups
    from recapture.ledger import settle
    from recapture.records import PARTIAL
    from recapture.report.html import render_html
    from recapture.report.markdown import render_conformance, write_report
    from recapture.report.terminal import print_summary
    from recapture.results import find_results, find_speedups, read_results

    roots = directories or (Path("results"),)
    if interrupted:
        for directory in roots:
            for partial in sorted(directory.rglob(PARTIAL)):
                settle(partial.parent)
    timed = list(dict.fromkeys(path for directory in roots for path in find_speedups(directory)))
    found = [path for directory in roots for path in find_results(directory, needed=not timed or output is not None)]
    found = list(dict.fromkeys(found))
    if output is not None:
        if len(found) > 1:
            raise UsageError(
                f"--output takes one results directory, and there are {len(found)}: {found[0]}, {found[1]} …"
            )
        results = read_results(found[0])
        render = render_html if as_html else render_conformance
        text = render(results.records, results.environment)
        if output == Path("-"):
            click.echo(text, nl=False)
        else:
            _write(output, text)
        return
    console = _console()
    for number, path in enumerate(found):
        write_report(path)
        results = read_results(path)
        if as_html:
            _write(path / HTML, render_html(results.records, results.environment))
        if not quiet:
            if number:
                console.print()
            print_summary(console, results.records, results.environment, path)
    for path in timed:
        speedups = _derived(path)
        _write(path.with_suffix(".md"), render_speedups(speedups))
        if not quiet:
            console.print()
            print_speedups(console, speedups)


@click.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@_how_to_print
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "wrong", "failing", "slower", "any"]),
    multiple=True,
    help=(
        "Exit with status 1 on: a right cell that is worse off or gone; a cell that is silently wrong, or failing, and "
        "was not; a configuration that is slower beyond doubt, or no longer right; any change. May be given several "
        "times."
    ),
)
@click.pass_context
def diff(context: click.Context, old: Path, new: Path, form: str, fail_on: tuple[str, ...]) -> None:
    """Show what changed between two results, cell by cell, and in speed.

    OLD and NEW are results directories (results/IMAGE/CAPABILITY), or images' directories that have one capability in
    common.
    """
    from recapture import diff as differences

    changes = differences.compare(*differences.locate(old, new))
    if form == "json":
        click.echo(differences.to_json(changes), nl=False)
    elif form == "markdown":
        click.echo(differences.to_markdown(changes), nl=False)
    else:
        differences.print_diff(_console(), changes)
    if "slower" in fail_on and not changes.speeds:
        raise UsageError("--fail-on slower, but no speeds were compared")
    if any(differences.found(changes, name) for name in fail_on):
        context.exit(FAIL_ON_EXIT_STATUS)


@click.command()
@click.argument("cell", required=False)
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Where the results of all images are.",
)
@_how_to_print
def history(cell: str | None, results: Path, form: str) -> None:
    """Show how CELL ended with every torch release that has results, and where that changed.

    CELL is SUITE::NAME::COMPILER; a case alone (SUITE::NAME, or only NAME) stands for all its cells. Without CELL,
    show how many cells go wrong or fail under each compiler with every release, and what each release changed.
    """
    from recapture import history as histories
    from recapture import overview

    if cell is None:
        overviews = overview.overview(results)
        if form == "text":
            overview.print_overviews(_console(), overviews)
        else:
            click.echo((overview.to_json if form == "json" else overview.to_markdown)(overviews), nl=False)
        return
    found = histories.history(cell, results)
    if form == "json":
        click.echo(histories.to_json(found), nl=False)
    elif form == "markdown":
        click.echo(histories.to_markdown(found), nl=False)
    else:
        histories.print_histories(_console(), found)
