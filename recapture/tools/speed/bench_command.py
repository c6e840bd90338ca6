"""The command that measures speed: ``recapture bench``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from recapture.base.errors import UsageError
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import json_flag, require_torch, takes
from recapture.command.output import print_json
from recapture.tools.speed.report_addition import BenchmarkFile
from recapture.tools.speed.selection import BenchOptions

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 180
"""Width of the tables in columns if the output is not a terminal."""


@click.command("bench")
@takes(options=BenchOptions, where=ImageOptions)
@click.option("--channels-last", is_flag=True, help="The same as --layout channels-last.")
@click.option("--list", "list_only", is_flag=True, help="Show the workloads and do nothing.")
@json_flag
@takes(benchmark=BenchmarkFile)
@click.pass_context
def bench_command(
    context: click.Context,
    options: BenchOptions,
    where: ImageOptions,
    *,
    channels_last: bool,
    list_only: bool,
    as_json: bool,
    benchmark: BenchmarkFile,
) -> int:
    """Measure the speed of compilers over eager on workloads, after checking the results.

    WORKLOAD is a workload's name, FILE a file of workloads, and FILE::WORKLOAD one workload of a file; ::COMPILER after
    a workload selects one compiler. Without arguments, every workload for the device is measured. Each configuration
    that computes the same as eager gets a speedup with an interval, and its compile cost; with --costs only the latter,
    and rows that were timed before stay as they are.
    """
    from recapture.report.terminal_writer import SafeConsole, line_width
    from recapture.tools.speed.bench_progress import BenchProgress
    from recapture.tools.speed.benchmark import run_benchmark
    from recapture.tools.speed.operators import print_profile
    from recapture.tools.speed.report import print_speedups
    from recapture.tools.speed.spent import spent_text

    if options.gpus > 1 and options.device != "cuda":
        raise UsageError("--gpus is for --device cuda")
    if (options.shapes or options.train) and not options.models:
        raise UsageError(f"{'--input' if options.shapes else '--train'} is for a model named with --model")
    if where.images:
        if benchmark.benchmark_file is not None:
            raise UsageError("--benchmark-json is for one environment: `recapture report` writes it for several")
        return run_in_images(context, where, results=options.results, device=options.device)
    if channels_last:
        options = dataclasses.replace(options, layouts=(*options.layouts, "channels-last"))
    # A layout may be named twice, also by --channels-last: each row is measured once.
    options = dataclasses.replace(options, layouts=tuple(dict.fromkeys(options.layouts)))
    options = options.counting() if options.costs else options
    options = options.quickly() if options.quick else options
    console = SafeConsole(highlight=False)
    if line_width(console) is None:  # a file or a pipe has no width
        console = SafeConsole(highlight=False, width=PIPE_WIDTH)
    if list_only:
        _list_workloads(options, console, as_json=as_json)
        return 0
    require_torch()
    errors = SafeConsole(stderr=True, highlight=False)
    with BenchProgress(errors) as progress:
        summary = run_benchmark(options, progress, lambda line: errors.print(line, markup=False))
    benchmark.write([summary.speedups])
    if as_json:
        print_json(summary.speedups)
        return 0
    print_speedups(console, summary.speedups, summary.workloads)
    for profile in summary.profiles:
        print_profile(console, profile)
    if summary.spent:
        console.print(f"time: {spent_text(summary.spent)}", markup=False, soft_wrap=True)
    console.print(f"results: {summary.path.with_suffix('.md')}", markup=False, soft_wrap=True)
    return 0


def _list_workloads(options: BenchOptions, console: Console, *, as_json: bool) -> None:
    from recapture.tools.speed.benchmark import list_workloads

    workloads = list_workloads(options)
    if as_json:
        print_json([{"workload": info.spec.name, "summary": info.summary, "error": info.error} for info in workloads])
        return
    for info in workloads:
        text = info.summary or info.error
        console.print(info.spec.name + (f": {text}" if text else ""), markup=False, soft_wrap=True)
