"""The command that measures speed: ``recapture bench``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from recapture.base.errors import UsageError
from recapture.cli.options import MOST_GIB, WEEK, Range

__all__ = ["bench_command"]

DEFAULT_MEMORY_GIB = 64.0
PIPE_WIDTH = 180


@click.command("bench")
@click.argument("what", nargs=-1, metavar="[WORKLOAD|FILE]...")
@click.option("--list", "list_only", is_flag=True, help="Show the workloads and do nothing.")
@click.option("--model", "models", multiple=True, metavar="SPEC", help="torchvision:NAME or package.module:factory.")
@click.option("--input", "shapes", multiple=True, metavar="SHAPE", help="Shape of an input of --model, as 8x3x224x224.")
@click.option("--train", is_flag=True, help="Measure training steps of --model, not inference.")
@click.option("--compiler", "compilers", multiple=True, metavar="NAME", help="Only this compiler; may be given often.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help="fp32, fp32-strict, tf32, bf16 or amp.")
@click.option("--layout", "layouts", multiple=True, metavar="NAME", help="contiguous or channels-last.")
@click.option("--channels-last", is_flag=True, help="The same as --layout channels-last.")
@click.option("--dynamic", is_flag=True, help="Symbolic sizes from the first call on (torch.compile).")
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda")
@click.option("--processes", type=click.IntRange(1), default=5, show_default=True, help="Timed processes a row.")
@click.option("--seconds", type=Range(0.1, WEEK), default=2.5, show_default=True, help="Seconds of timing a process.")
@click.option("--timeout", type=Range(1, WEEK), default=1800.0, show_default=True, help="Seconds a process may take.")
@click.option("--memory", type=Range(0.1, MOST_GIB), default=DEFAULT_MEMORY_GIB, show_default=True, help="GiB of RAM.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads of torch. [default: the cores]")
@click.option(
    "--compile-jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Rows that compile at a time; those that autotune do so alone.",
)
@click.option(
    "--gpus", type=click.IntRange(1), default=1, show_default=True, help="Time on one, compile on the others."
)
@click.option("--profile", is_flag=True, help="Also write operator tables and traces, under profiles/.")
@click.option("--worker", type=click.Choice(["auto", "fork", "fresh"]), default="auto", help="How rows get a process.")
@click.option("--resume", is_flag=True, help="Measure only what has no row yet, or was edited.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
def bench_command(
    what: tuple[str, ...],
    list_only: bool,
    models: tuple[str, ...],
    shapes: tuple[str, ...],
    train: bool,
    compilers: tuple[str, ...],
    dtypes: tuple[str, ...],
    layouts: tuple[str, ...],
    channels_last: bool,
    dynamic: bool,
    device: str,
    processes: int,
    seconds: float,
    timeout: float,
    memory: float,
    threads: int | None,
    compile_jobs: int,
    gpus: int,
    profile: bool,
    worker: str,
    resume: bool,
    results: Path,
) -> int:
    """Measure the speed of workloads under compilers against eager: right first, then fast.

    WORKLOAD is a workload's name, FILE a file of workloads; FILE::WORKLOAD is one of them, and ::COMPILER after either
    that compiler alone. Without any, every workload meant for the device is measured. Each configuration that computes
    what eager does gets a speedup with an interval, and the cost of getting there.
    """
    from rich.console import Console

    from recapture.bench.benchmark import list_workloads, run_benchmark
    from recapture.bench.selection import BenchOptions
    from recapture.declare.workload_sources import shapes_of
    from recapture.report.publisher import FilePublisher
    from recapture.report.speedups_terminal import BenchProgress, print_speedups

    if device not in ("cpu", "cuda"):
        raise UsageError(f"unknown device {device!r}: it is cpu or cuda")
    if gpus > 1 and device != "cuda":
        raise UsageError("--gpus is for --device cuda")
    if (shapes or train) and not models:
        raise UsageError(f"{'--input' if shapes else '--train'} is for a model named with --model")
    try:
        sizes = tuple(shapes_of(one) for one in shapes)
    except ValueError as error:
        raise UsageError(str(error)) from None
    options = BenchOptions(
        names=what,
        models=models,
        shapes=sizes,
        train=train,
        compilers=compilers,
        dtypes=dtypes,
        layouts=tuple(dict.fromkeys((*layouts, *(("channels-last",) if channels_last else ())))),
        dynamic=dynamic,
        device=device,
        processes=processes,
        seconds=seconds,
        timeout=timeout,
        memory=int(memory * (1 << 30)),
        threads=threads or len(os.sched_getaffinity(0)),
        compile_jobs=compile_jobs,
        gpus=gpus,
        profile=profile,
        worker="fork" if worker == "fork" else "fresh" if worker == "fresh" else "auto",
        resume=resume,
        results=results,
    )
    console = Console(highlight=False)
    if not console.is_terminal:  # a file or a pipe has room
        console = Console(highlight=False, width=PIPE_WIDTH)
    if list_only:
        for info in list_workloads(options):
            text = info.summary or info.error
            console.print(info.spec.name + (f": {text}" if text else ""), markup=False, soft_wrap=True)
        return 0
    errors = Console(stderr=True, highlight=False)
    with BenchProgress(errors) as progress:
        summary = run_benchmark(options, progress, FilePublisher(), lambda line: errors.print(line, markup=False))
    print_speedups(console, summary.speedups, summary.workloads)
    console.print(f"results: {summary.path.with_suffix('.md')}", markup=False, soft_wrap=True)
    return 0
