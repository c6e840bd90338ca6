"""Runs a whole benchmark: the workloads, the machine, the rows, and the results file.

Each row is a configuration of a workload. If the compiler generates code, a first process compiles with empty caches
(cold) and checks the values. Then several processes, one at a time and alone on the device, compile from the warm
caches, check again, and measure. With several GPUs, the first is used for timing and the others for compiling.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from recapture.base.errors import UsageError
from recapture.base.text import plural
from recapture.machine.environment import without_private_paths
from recapture.machine.hardware import visible_gpus
from recapture.pool.worker_pool import WorkerPool
from recapture.run.preparation import begin_survey, survey
from recapture.tools.speed import tasks
from recapture.tools.speed.conditions import GpuSampler
from recapture.tools.speed.execution import RowExecution, RowProgress
from recapture.tools.speed.filing import Publisher, SpeedupsFile, set_aside_others, writing
from recapture.tools.speed.rows import PlannedRow
from recapture.tools.speed.selection import BenchOptions, check_names, choose, collect, modules_of, plan_rows, select
from recapture.tools.speed.subject import INPUT_SETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recapture.cases.workload_sources import WorkloadInfo
    from recapture.machine import doctor
    from recapture.machine.environment import Environment
    from recapture.tools.speed.speedups import Speedups

IMPORTS = (tasks.__name__, "recapture.run.tasks")
"""Modules that every server of a benchmark imports when it starts."""


@dataclass(frozen=True)
class BenchSummary:
    """The outcome of a benchmark: the results file, all its rows, and the workloads measured in this run."""

    path: Path
    speedups: Speedups
    workloads: set[str]


def run_benchmark(
    options: BenchOptions, progress: RowProgress, publisher: Publisher, warn: Callable[[str], None]
) -> BenchSummary:
    """Measure the selected rows; each finished row is written at once, so that an interruption loses at most one row.

    `publisher` renders the file of rows each time it was written, and the operators of a profiled row. `warn` receives
    one line for each warning that a user should see before the figures.
    """
    check_names(options)
    with WorkerPool(
        device=options.device,
        jobs=options.compile_jobs + 1,
        worker=options.worker,
        whole_graphs=True,
        imports=IMPORTS,
    ) as pool:
        modules = modules_of(options)
        pool.client.preload("bare", modules)
        begin_survey(pool)
        infos = collect(pool, options)
        caches = Path(pool.home.name) / "bench"
        rows = [
            PlannedRow(info, configuration, str(caches / str(number)))
            for number, (info, configuration) in enumerate(plan_rows(select(infos, options), options))
        ]
        made, environment = survey(pool)
        checks = list(made)
        check_gpus(options)
        # On the CPU, too, only import: a server that has compiled before would make cold compiles look faster.
        pool.prepare("cuda", modules)
        path = options.results / environment.image / environment.capability / f"speedups-{_slug(environment)}.json"
        for text in _warnings(checks, rows, infos):
            warn(text)
        notable = [check for check in checks if check.status in ("fault", "warning")]
        environment = without_private_paths(msgspec.structs.replace(environment, doctor=notable))
        with writing(path):
            moved = set_aside_others(path, environment)
        if moved is not None:
            folder, difference = moved
            warn(
                f"warning: {path.name} is of another machine or installation ({difference}); it was moved to "
                f"{folder.name}"
            )
        method = _method(options, "fork" if pool.client.fork else "fresh")
        file = SpeedupsFile(path, environment, method, rows, publisher, resume=options.resume)
        with GpuSampler(wanted=options.device == "cuda") as sampler:
            RowExecution(pool, options, checks, sampler, file, progress).run()
        return BenchSummary(path, file.speedups(), {row.info.spec.name for row in rows})


def _warnings(checks: list[doctor.Check], rows: list[PlannedRow], infos: list[WorkloadInfo]) -> Iterator[str]:
    autotuned = any(row.configuration.autotunes for row in rows)
    for check in checks:
        if check.status == "fault" or (check.status == "warning" and check.name == "ptxas" and autotuned):
            yield f"warning: {check.name}: {check.found}; fix: {check.mend}"
    for info in infos:
        if info.error is not None:
            yield f"warning: {Path(str(info.spec.path)).name} is left out: {info.error}"


def _method(options: BenchOptions, worker: str) -> dict[str, str | int | float]:
    """Return a description of how a run measures, for its results file."""
    return {
        "processes": options.processes,
        "seconds of timing a process": options.seconds,
        "sets of inputs in rotation": INPUT_SETS,
        "caches": "not flushed between iterations",
        "worker": worker,
        "compiling at a time": options.compile_jobs,
        "CPU threads": options.threads,
        **({"cores and allocator": options.cpu_settings} if options.device == "cpu" else {}),
        "clock": "CUDA events" if options.device == "cuda" else "monotonic",
    }


def _slug(environment: Environment) -> str:
    name = environment.gpu.name if environment.gpu is not None and environment.gpu.name else environment.capability
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def check_gpus(options: BenchOptions) -> None:
    """Raise UsageError if more GPUs are requested than are available."""
    visible = visible_gpus() if options.gpus > 1 else None
    if visible is not None and visible < options.gpus:
        raise UsageError(f"--gpus {options.gpus}, but {plural(visible, 'GPU')} can be used here")


def list_workloads(options: BenchOptions) -> list[WorkloadInfo]:
    """Return the workloads that the command line names; if none, all, including broken files."""
    check_names(options)
    with WorkerPool(device=options.device, jobs=1, worker=options.worker, imports=IMPORTS) as pool:
        pool.client.preload("bare", modules_of(options))
        found = collect(pool, options)
    mine = choose(found, options)
    return mine if options.names or options.models else found
