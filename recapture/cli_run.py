"""The commands that run cells: `list`, `run` and `repro`."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import click

from recapture.errors import EnvironmentUnfitError, UsageError

__all__ = ["MOST_GIB", "WEEK", "Range", "list_command", "repro_command", "run_command"]

DEFAULT_TIMEOUT = 300.0
DEFAULT_MEMORY_GIB = 8.0

WEEK = 7 * 24 * 3600.0
"""The longest time that an option takes, in seconds."""

MOST_GIB = float(1 << 20)
"""The most memory that an option takes."""


class Range(click.FloatRange):
    """Numbers between two others; click's own range lets NaN pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that a word of the command line says."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def _device(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value not in ("cpu", "cuda"):
        raise UsageError(f"unknown device {value!r}: it is cpu or cuda")
    return value


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@click.command("run")
@click.argument("what", nargs=-1, metavar="[SUITE|FILE|CELL]...")
@click.option("-k", "keyword", metavar="EXPR", help="Only cases whose suite::name matches: words, and, or, not.")
@click.option("--compiler", "compilers", multiple=True, metavar="NAME", help="Only this compiler; may be given often.")
@click.option("--device", default="cpu", callback=_device, metavar="cpu|cuda", help="Where to run. [default: cpu]")
@click.option("--jobs", type=click.IntRange(1), help="Cells at a time. [default: the cores]")
@click.option("--timeout", type=Range(0.1, WEEK), default=DEFAULT_TIMEOUT, show_default=True, help="Seconds a cell.")
@click.option("--memory", type=Range(0.1, MOST_GIB), default=DEFAULT_MEMORY_GIB, show_default=True, help="GiB a cell.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--resume", is_flag=True, help="Run only what is missing, was edited, or failed by the machine.")
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
    worker: str,
) -> int:
    """Run cases through compilers and record a verdict for every cell.

    SUITE is a suite's name, FILE a file or folder of cases, CELL an address (suite::case or suite::case::compiler);
    without any of them every suite runs.
    """
    import msgspec
    from rich.console import Console

    from recapture.collection import find_suites, shipped_suites
    from recapture.compilers import builtin_compilers
    from recapture.keyword import matcher
    from recapture.plan import Options, check_compilers
    from recapture.report.terminal import RunProgress, print_summary
    from recapture.runner import GIB, run

    words = [
        *what,
        *(["-k", keyword] if keyword else []),
        *(part for name in compilers for part in ("--compiler", name)),
    ]
    options = Options(
        selection=find_suites(what),
        keyword=matcher(keyword) if keyword else None,
        compilers=compilers,
        device=device,
        jobs=jobs or _cores(),
        timeout=timeout,
        memory=int(memory * GIB),
        results=results,
        resume=resume,
        worker=worker,  # type: ignore[arg-type]
        words=tuple(words),
    )
    if set(options.selection.suites) <= set(shipped_suites()):  # they bring no compilers of their own
        check_compilers(options, builtin_compilers())
    _check_torch()
    console = Console()
    with RunProgress(Console(stderr=True)) as progress:
        summary = run(options, progress, lambda text: click.echo(f"recapture: {text}", err=True))
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


@click.command("list")
@click.argument("what", nargs=-1, metavar="[SUITE|FILE]...")
@click.option("-k", "keyword", metavar="EXPR", help="Only cases whose suite::name matches: words, and, or, not.")
@click.option("--compilers", "show_compilers", is_flag=True, help="List the compilers instead of the cases.")
def list_command(what: tuple[str, ...], keyword: str | None, show_compilers: bool) -> int:
    """List the cases of the suites, with what each shows."""
    from recapture.collection import find_suites
    from recapture.compilers import builtin_compilers
    from recapture.keyword import matcher
    from recapture.workbench import Workbench

    if show_compilers:
        for name, compiler in builtin_compilers().items():
            click.echo(f"{name:25} {compiler.describe()}")
        return 0
    selection = find_suites(what)
    _check_torch()
    matches = matcher(keyword) if keyword else None
    status = 0
    with Workbench(device="cpu", jobs=1) as bench:
        found = bench.collect(selection.suites)
    for info in found:
        if info.error is not None:
            click.echo(f"recapture: suite {info.name!r} cannot be collected: {info.error}", err=True)
            status = 2
        for case in info.cases:
            address = f"{info.name}::{case.name}"
            if matches is None or matches(address):
                click.echo(f"{address:45} {case.summary}")
    return status


@click.command("repro")
@click.argument("cell", metavar="SUITE::CASE::COMPILER")
@click.option(
    "--device", default="cpu", callback=_device, metavar="cpu|cuda", help="Device of the script. [default: cpu]"
)
def repro_command(cell: str, device: str) -> int:
    """Print one cell as a stand-alone script that needs torch alone."""
    from recapture.repro import script

    _check_torch()
    click.echo(script(cell, device), nl=False)
    return 0


def _check_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise EnvironmentUnfitError(f"torch is not installed for {Path(sys.executable).name}; see the README")
