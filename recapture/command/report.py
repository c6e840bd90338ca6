"""``recapture report``: renders reports from the records."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from recapture.base.errors import UsageError
from recapture.base.text import printable
from recapture.command.options import (
    PathParameter,
    benchmark_file,
    benchmark_format,
    console,
    json_flag,
    keyword_option,
    kind_option,
    suite_option,
)
from recapture.command.output import echo, echo_error, print_json, warn_if_misfiled, write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from recapture.report.cell_filter import CellFilter
    from recapture.tools.speed.benchmark_json import BenchmarkFormat
    from recapture.tools.speed.speedups import Speedups

HTML = "conformance.html"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    from recapture.base.files import write_atomically

    with _writing(path):
        write_atomically(path, printable(text).encode())


def _derived(path: Path) -> Speedups:
    """Read measured speedups; if this version computes other statistics from the samples, update the file."""
    from recapture.tools.speed.figures import derive
    from recapture.tools.speed.results_file import writing
    from recapture.tools.speed.speedups import read_speedups, write_speedups

    def derived(speedups: Speedups) -> Speedups:
        return msgspec.structs.replace(speedups, rows=tuple(map(derive, speedups.rows)))

    on_file = read_speedups(path)
    if importlib.util.find_spec("scipy") is None:  # only read
        return on_file
    found = derived(on_file)
    if found == on_file:
        return on_file
    with writing(path):
        now = read_speedups(path)
        if now != on_file:  # another process changed it
            found = derived(now)
        write_speedups(path, found)
    return found


def _render_one(found: list[Path], cells: CellFilter, output: Path, *, as_html: bool) -> None:
    """Render the one results directory in a list to a file or to standard output."""
    from recapture.base.files import write_output
    from recapture.records.directories import read_results
    from recapture.report.html_page import render_html
    from recapture.report.markdown import render_conformance

    if len(found) > 1:
        raise UsageError(f"--output takes one results directory, and there are {len(found)}: {found[0]}, {found[1]} …")
    every = read_results(found[0])
    cells.check([every])
    results = cells.applied(every)
    render = render_html if as_html else render_conformance
    text = render(results.records, results.environment)
    warn_if_misfiled(results)
    if output == Path("-"):
        echo(text, nl=False)
    else:
        with _writing(output):
            write_output(output, printable(text).encode())


def _print_moves(
    roots: tuple[Path, ...], cells: CellFilter, before: str | None, after: str | None, *, as_json: bool
) -> None:
    """Print what becomes of cases that move from one compiler to another, in each results directory."""
    from recapture.records.releases import read_by_age
    from recapture.tools.check.migration import moves
    from recapture.tools.check.migration_report import moves_counts, moves_text

    if before is None or after is None:
        raise UsageError("--from and --to belong together")
    every = list({one.directory: one for root in roots for one in read_by_age(root)}.values())
    cells.check(every)
    found = []
    for one in every:
        try:
            found.append(moves(cells.applied(one).records, before, after, str(one.directory)))
        except UsageError as error:
            if len(every) == 1:
                raise
            echo_error(str(error))
    if not found:
        raise UsageError(f"no results have both {before!r} and {after!r}")
    if as_json:
        print_json(found)
    else:
        echo(moves_text(found[0]) if len(found) == 1 else "\n".join(map(moves_counts, found)))


@click.command()
@click.argument("directories", nargs=-1, type=PathParameter(), metavar="[DIRECTORY]...")
@click.option("--html", "as_html", is_flag=True, help=f"Also write {HTML}, a self-contained page.")
@click.option(
    "--output",
    type=PathParameter(allow_dash=True),
    help="Write the report to this file, not beside the records; - is standard output. For one results directory only.",
)
@suite_option
@keyword_option
@kind_option("Render only cells with a difference of this kind, and write no file unless --output names one")
@click.option("--from", "before", metavar="COMPILER", help="With --to: what becomes of code that leaves this compiler.")
@click.option("--to", "after", metavar="COMPILER", help="With --from: the compiler that the code goes to.")
@click.option("--quiet", is_flag=True, help="Do not print the summary.")
@click.option("--interrupted", is_flag=True, help="First close interrupted runs, which can then not be resumed.")
@json_flag
@benchmark_file
@benchmark_format
def report(
    directories: tuple[Path, ...],
    as_html: bool,
    output: Path | None,
    suites: tuple[str, ...],
    matches: Callable[[str], bool] | None,
    kinds: tuple[str, ...],
    before: str | None,
    after: str | None,
    quiet: bool,
    interrupted: bool,
    as_json: bool,
    benchmark_file: Path | None,
    form: BenchmarkFormat,
) -> None:
    """Render reports from the records in DIRECTORY and in every results directory below it (default: results).

    The ratios of speedups are recomputed from their samples. With --suite, -k or --kind, no file is written unless
    --output names one. With --from and --to, nothing is written either: of one directory, every case that is no longer
    right is shown, of several the counts. --json prints the records, or the moves, instead of the summary.
    """
    from recapture.records.directories import find_results, find_speedups, read_results
    from recapture.records.record import PARTIAL
    from recapture.report.cell_filter import CellFilter
    from recapture.run.result_files import settle

    cells = CellFilter(suites, matches, kinds)
    if cells and as_html and output is None:
        raise UsageError("--suite, -k and --kind with --html need --output: the page beside the records has all cells")
    roots = directories or (Path("results"),)
    if before is not None or after is not None:
        _print_moves(roots, cells, before, after, as_json=as_json)
        return
    if interrupted:
        for directory in roots:
            for partial in sorted(directory.rglob(PARTIAL)):
                settle(partial.parent)
    timed = list(dict.fromkeys(path for directory in roots for path in find_speedups(directory)))
    found = [path for directory in roots for path in find_results(directory, needed=not timed or output is not None)]
    found = list(dict.fromkeys(found))
    if output is not None:
        _render_one(found, cells, output, as_html=as_html)
        return
    out = None if quiet or as_json else console()
    if suites:
        cells.check(map(read_results, found))
    shown = [_report_records(path, cells, out, first=path == found[0], as_html=as_html) for path in found]
    measured = [] if cells else [_report_speeds(path, out) for path in timed]
    if benchmark_file is not None:
        write_file(benchmark_file, _benchmarks(measured, form))
    if as_json:
        print_json({"results": shown, "speedups": measured})


def _report_records(
    path: Path, cells: CellFilter, out: Console | None, *, first: bool, as_html: bool
) -> dict[str, object]:
    """Write the reports beside some records, print their summary, and return them."""
    from recapture.records.artifact_folders import left_artifacts
    from recapture.records.directories import read_results
    from recapture.report.html_page import render_html
    from recapture.report.markdown import write_report
    from recapture.report.terminal import print_summary

    if not cells:
        write_report(path)
    results = cells.applied(read_results(path))
    warn_if_misfiled(results)
    if as_html:
        folders = left_artifacts(path, results.records)
        _write(path / HTML, render_html(results.records, results.environment, folders))
    if out is not None:
        if not first:
            out.print()
        print_summary(out, results.records, results.environment, path)
    return {"directory": str(path), "environment": results.environment, "records": results.records}


def _report_speeds(path: Path, out: Console | None) -> Speedups:
    """Write the report beside some speedups, print their tables, and return them."""
    from recapture.tools.speed.report import print_speedups, render_speedups

    speedups = _derived(path)
    _write(path.with_suffix(".md"), render_speedups(speedups))
    if out is not None:
        out.print()
        print_speedups(out, speedups)
    return speedups


def _benchmarks(measured: list[Speedups], form: BenchmarkFormat) -> str:
    from recapture.tools.speed.benchmark_json import benchmark_json

    if not measured:
        raise UsageError("--benchmark-json: there are no measured speedups in these results")
    return benchmark_json(measured, form)
