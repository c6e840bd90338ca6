"""``recapture run``: cases through compilers, a record for every cell."""

from __future__ import annotations

from pathlib import Path

import click

from recapture.cli.options import MOST_GIB, WEEK, Range, check_device, cores, require_torch

__all__ = ["run_command"]

DEFAULT_TIMEOUT = 300.0
DEFAULT_MEMORY_GIB = 8.0


@click.command("run")
@click.argument("what", nargs=-1, metavar="[SUITE|FILE|CELL]...")
@click.option("-k", "keyword", metavar="EXPR", help="Only cases whose suite::name matches: words, and, or, not.")
@click.option("--compiler", "compilers", multiple=True, metavar="NAME", help="Only this compiler; may be given often.")
@click.option("--device", default="cpu", callback=check_device, metavar="cpu|cuda", help="Where to run. [default: cpu]")
@click.option("--jobs", type=click.IntRange(1), help="Cells at a time. [default: the cores]")
@click.option("--timeout", type=Range(0.1, WEEK), default=DEFAULT_TIMEOUT, show_default=True, help="Seconds a cell.")
@click.option("--memory", type=Range(0.1, MOST_GIB), default=DEFAULT_MEMORY_GIB, show_default=True, help="GiB a cell.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--resume", is_flag=True, help="Run only what is missing, was edited, or failed by the machine.")
@click.option("--start-times", is_flag=True, help="Show how long each stage took before the first cell.")
@click.option("--worker", type=click.Choice(["auto", "fork", "fresh"]), default="auto", help="How cells get a process.")
def run_command(
    what: tuple[str, ...],
    keyword: str | None,
    compilers: tuple[str, ...],
    device: str,
    jobs: int | None,
    timeout: float,
    memory: float,
    results: Path,
    resume: bool,
    start_times: bool,
    worker: str,
) -> int:
    """Run cases through compilers and record a verdict for every cell.

    SUITE is a suite's name, FILE a file or folder of cases, CELL an address (suite::case or suite::case::compiler);
    without any of them every suite runs.
    """
    import msgspec
    from rich.console import Console

    from recapture.base.start_times import described
    from recapture.conformance.plan import RunOptions, check_compilers
    from recapture.conformance.runner import GIB, run_cells
    from recapture.declare.collection import find_suites, shipped_suites
    from recapture.declare.compilers import builtin_compilers
    from recapture.declare.name_filter import matcher
    from recapture.report.markdown import write_report
    from recapture.report.terminal import RunProgress, print_summary

    words = [
        *what,
        *(["-k", keyword] if keyword else []),
        *(part for name in compilers for part in ("--compiler", name)),
    ]
    options = RunOptions(
        selection=find_suites(what),
        keyword=matcher(keyword) if keyword else None,
        compilers=compilers,
        device=device,
        jobs=jobs or cores(),
        timeout=timeout,
        memory=int(memory * GIB),
        results=results,
        resume=resume,
        worker=worker,  # type: ignore[arg-type]
        words=tuple(words),
    )
    if set(options.selection.suites) <= set(shipped_suites()):  # they bring no compilers of their own
        check_compilers(options, builtin_compilers())
    require_torch()
    console = Console()
    with RunProgress(Console(stderr=True)) as progress:
        summary = run_cells(options, progress, lambda text: click.echo(f"recapture: {text}", err=True))
    if start_times:
        click.echo(f"recapture: {described()}", err=True)
    write_report(summary.directory)
    if options.whole:
        print_summary(console, summary.records, summary.environment, summary.directory)
    else:
        number = len(summary.selected)
        environment = msgspec.structs.replace(summary.environment, planned=number, recorded=number)
        print_summary(console, summary.selected, environment, summary.directory)
    console.print(f"results: {summary.directory}", soft_wrap=True, highlight=False, markup=False)
    if not options.whole and len(summary.records) > len(summary.selected):
        there = f"{len(summary.records)} records in all: recapture report {summary.directory} shows them"
        console.print(there, soft_wrap=True, highlight=False, markup=False)
    for suite in summary.failed_suites:
        click.echo(f"recapture: suite {suite.name!r} was not run: {suite.error}", err=True)
    return 2 if summary.failed_suites else 0
