"""The command that measures speed: ``recapture bench``."""

from __future__ import annotations

import dataclasses

import click

from recapture.base.errors import UsageError
from recapture.bench.selection import BenchOptions
from recapture.cli.in_images import ImageOptions, run_in_images
from recapture.cli.options import takes

__all__ = ["bench_command"]

PIPE_WIDTH = 180
"""Width of the tables in columns if the output is not a terminal."""


@click.command("bench")
@takes(options=BenchOptions, where=ImageOptions)
@click.option("--channels-last", is_flag=True, help="The same as --layout channels-last.")
@click.option("--list", "list_only", is_flag=True, help="Show the workloads and do nothing.")
@click.pass_context
def bench_command(
    context: click.Context, options: BenchOptions, where: ImageOptions, *, channels_last: bool, list_only: bool
) -> int:
    """Measure the speed of compilers over eager on workloads, after checking the results.

    WORKLOAD is a workload's name, FILE a file of workloads, and FILE::WORKLOAD one workload of a file; ::COMPILER after
    a workload selects one compiler. Without arguments, every workload for the device is measured. Each configuration
    that computes the same as eager gets a speedup with an interval, and its compile cost.
    """
    from recapture.bench.benchmark import list_workloads, run_benchmark
    from recapture.report.console import SafeConsole
    from recapture.report.operator_table import print_profile
    from recapture.report.publisher import FilePublisher
    from recapture.report.speedups_terminal import BenchProgress, print_speedups

    if options.gpus > 1 and options.device != "cuda":
        raise UsageError("--gpus is for --device cuda")
    if (options.shapes or options.train) and not options.models:
        raise UsageError(f"{'--input' if options.shapes else '--train'} is for a model named with --model")
    if where.images:
        return run_in_images(context, where, results=options.results, device=options.device)
    if channels_last:
        options = dataclasses.replace(options, layouts=(*options.layouts, "channels-last"))
    options = dataclasses.replace(options, layouts=tuple(dict.fromkeys(options.layouts)))
    console = SafeConsole(highlight=False)
    if not console.is_terminal:  # a file or a pipe has no width
        console = SafeConsole(highlight=False, width=PIPE_WIDTH)
    if list_only:
        for info in list_workloads(options):
            text = info.summary or info.error
            console.print(info.spec.name + (f": {text}" if text else ""), markup=False, soft_wrap=True)
        return 0
    errors = SafeConsole(stderr=True, highlight=False)
    with BenchProgress(errors) as progress:
        publisher = FilePublisher()
        summary = run_benchmark(options, progress, publisher, lambda line: errors.print(line, markup=False))
    print_speedups(console, summary.speedups, summary.workloads)
    for title, folder, times in publisher.profiles:
        print_profile(console, title, folder, times)
    console.print(f"results: {summary.path.with_suffix('.md')}", markup=False, soft_wrap=True)
    return 0
