"""``recapture report``: renders reports from the records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recapture.base.errors import UsageError
from recapture.command.command_table import of_tools
from recapture.command.options import (
    PathParameter,
    console,
    json_flag,
    keyword_option,
    kind_option,
    suite_option,
    takes,
)
from recapture.command.output import echo, print_json, warn_if_misfiled, write_beside, write_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from recapture.command.report_addition import ReportAddition
    from recapture.report.cell_filter import CellFilter

HTML = "conformance.html"

ADDITIONS: dict[str, type[ReportAddition]] = {tool.__name__: tool for tool in of_tools("additions to report")}
"""What tools add, by the name of the class: options, and files that they render."""


def _render_one(directories: list[Path], cells: CellFilter, output: Path, *, as_html: bool) -> None:
    """Render the one results directory in a list to a file or to standard output."""
    from recapture.records.directories import read_results
    from recapture.report.conformance_report import render_conformance
    from recapture.report.html_page import render_html

    if len(directories) > 1:
        some = f"{directories[0]}, {directories[1]} …"
        raise UsageError(f"--output takes one results directory, and there are {len(directories)}: {some}")
    every = read_results(directories[0])
    cells.check([every])
    results = cells.applied(every)
    render = render_html if as_html else render_conformance
    text = render(results.records, results.environment)
    warn_if_misfiled(results)
    if output == Path("-"):
        echo(text, nl=False)
    else:
        write_file(output, text)


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
@click.option("--quiet", is_flag=True, help="Do not print the summary.")
@click.option("--interrupted", is_flag=True, help="First close interrupted runs, which can then not be resumed.")
@json_flag
@takes(**ADDITIONS)
def report(
    directories: tuple[Path, ...],
    as_html: bool,
    output: Path | None,
    suites: tuple[str, ...],
    matches: Callable[[str], bool] | None,
    kinds: tuple[str, ...],
    quiet: bool,
    interrupted: bool,
    as_json: bool,
    **added: ReportAddition,
) -> None:
    """Render reports from the records in DIRECTORY and in every results directory below it (default: results).

    The ratios of speedups are recomputed from their samples. With --suite, -k or --kind, no file is written unless
    --output names one. With --from and --to, nothing is written either: of one directory, every case that is no longer
    right is shown, of several the counts. --json prints the records, or the moves, instead of the summary.
    """
    from recapture.records.directories import find_results, read_results
    from recapture.records.record import PARTIAL
    from recapture.report.cell_filter import CellFilter
    from recapture.run.result_files import settle

    cells = CellFilter(suites, matches, kinds)
    if cells and as_html and output is None:
        raise UsageError("--suite, -k and --kind with --html need --output: the page beside the records has all cells")
    roots = directories or (Path("results"),)
    tools = list(added.values())
    if any(tool.print_instead(roots, cells, as_json=as_json) for tool in tools):
        return
    if interrupted:
        for directory in roots:
            for partial in sorted(directory.rglob(PARTIAL)):
                settle(partial.parent)
    files = [list(dict.fromkeys(path for directory in roots for path in tool.find(directory))) for tool in tools]
    needed = not any(files) or output is not None
    folders = [path for directory in roots for path in find_results(directory, needed=needed)]
    folders = list(dict.fromkeys(folders))
    if output is not None:
        _render_one(folders, cells, output, as_html=as_html)
        return
    out = None if quiet or as_json else console()
    if suites:
        cells.check(map(read_results, folders))
    documents = [_report_records(path, cells, out, first=path == folders[0], as_html=as_html) for path in folders]
    document: dict[str, object] = {"results": documents}
    for tool, paths in zip(tools, files, strict=True):
        rendered = [] if cells else [tool.render(path, out) for path in paths]
        tool.finish(rendered)
        document |= {tool.key: rendered} if tool.key else {}
    if as_json:
        print_json(document)


def _report_records(
    path: Path, cells: CellFilter, out: Console | None, *, first: bool, as_html: bool
) -> dict[str, object]:
    """Write the reports beside some records, print their summary, and return them."""
    from recapture.records.artifact_folders import left_artifacts
    from recapture.records.directories import read_results
    from recapture.report.conformance_report import write_report
    from recapture.report.html_page import render_html
    from recapture.report.terminal_summary import print_summary

    if not cells:
        write_report(path)
    results = cells.applied(read_results(path))
    warn_if_misfiled(results)
    if as_html:
        folders = left_artifacts(path, results.records)
        write_beside(path / HTML, render_html(results.records, results.environment, folders))
    if out is not None:
        if not first:
            out.print()
        print_summary(out, results.records, results.environment, path)
    return {"directory": str(path), "environment": results.environment, "records": results.records}
