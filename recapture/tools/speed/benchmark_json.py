"""Speedups in the JSON of other tools: PyTorch's benchmark database (v3), and github-action-benchmark.

PyTorch's format is that of the table ``oss_ci_benchmark_v3`` in the repository pytorch/test-infra; what its uploader
fills in itself (the time, the commit and the workflow) is left out. github-action-benchmark reads an array of entries
with a name, a unit and a value, with its tool ``customSmallerIsBetter``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from recapture.base.escape import indented_json
from recapture.base.text import one_line
from recapture.machine.environment import Environment
from recapture.tools.speed.speedups import Measured, Row, Speedups

BenchmarkFormat = Literal["pytorch", "github-action-benchmark"]

FORMATS: tuple[BenchmarkFormat, ...] = ("pytorch", "github-action-benchmark")

MARKED = "recapture"
"""Name of the benchmark in PyTorch's database, and of where a model comes from."""


def benchmark_json(benchmarks: Sequence[Speedups], form: BenchmarkFormat) -> str:
    """Return the rows that have figures as the JSON of another tool: an array with an object for each figure."""
    entries = _pytorch if form == "pytorch" else _github_action_benchmark
    metrics = [entry for speedups in benchmarks for entry in entries(speedups)]
    return indented_json(metrics)


def _measured(speedups: Speedups) -> Iterator[tuple[Row, Measured]]:
    for row in speedups.rows:
        if row.measured is not None:
            yield row, row.measured


# --- PyTorch --------------------------------------------------------------------------------------------------------


def _pytorch(speedups: Speedups) -> Iterator[dict[str, Any]]:
    environment = speedups.environment
    for row, measured in _measured(speedups):
        common = {
            "benchmark": {
                "name": MARKED,
                "mode": "training" if _trains(row) else "inference",
                "dtype": row.configuration.dtype,
                "extra_info": {"device": environment.device, "image": environment.image, "verdict": str(row.verdict)},
            },
            "model": {
                "name": one_line(row.workload),
                "type": "workload",
                "backend": row.configuration.compiler,
                "origins": [MARKED],
                "extra_info": {
                    "layout": row.configuration.layout,
                    "dynamic": str(row.configuration.dynamic).lower(),
                },
            },
            "runners": [_runner(environment)],
            "dependencies": _dependencies(environment),
        }
        for metric in _metrics(row, measured):
            yield {**common, "metric": metric}


def _trains(row: Row) -> bool:
    """Whether an iteration is a training step: it was compiled as a whole, or its gradients were compared."""
    return row.what == "step" or any(deviation.group != "result" for deviation in row.deviations)


def _metrics(row: Row, measured: Measured) -> Iterator[dict[str, Any]]:
    """Yield the figures of a row; several values are those of its processes."""
    low, high = (f"{end:.4g}" for end in measured.speedup[1:])
    interval = {"interval_low": low, "interval_high": high, "confidence": "0.95", "finding": measured.finding}
    yield _metric("speedup", [measured.speedup[0]], interval)
    yield _metric("latency_s", _medians(row) or [measured.seconds])
    yield _metric("eager_latency_s", [measured.eager_seconds])
    for name, start in (("cold_compilation_time_s", row.cold), ("warm_compilation_time_s", row.warm)):
        if start is not None:
            yield _metric(name, [start.total])
    if measured.memory is not None:
        yield _metric("peak_memory_bytes", [float(measured.memory)])


def _metric(name: str, values: list[float], extra: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": name, "benchmark_values": values, "extra_info": extra or {}}


def _medians(row: Row) -> list[float]:
    """Return the median time of an iteration in each process, in seconds."""
    return [statistics.median(process.candidate.seconds) for process in row.processes]


def _runner(environment: Environment) -> dict[str, Any]:
    gpu = environment.gpu
    runner: dict[str, Any] = {
        "name": MARKED,
        "type": environment.capability,
        "cpu_info": environment.cpu.model or "unknown",
        "cpu_count": environment.cpu.cores or 0,
        "extra_info": {"platform": environment.platform, "python": environment.python},
    }
    if environment.cpu.memory:
        runner["avail_mem_in_gb"] = environment.cpu.memory >> 30
    if gpu is not None and environment.device == "cuda":
        runner |= {"gpu_info": gpu.name, "gpu_count": 1}
    return runner


def _dependencies(environment: Environment) -> dict[str, Any]:
    torch = environment.torch
    packages = {"torch": {"repo": "pytorch/pytorch", "version": torch.version, "extra_info": {}}}
    if torch.git_version:
        packages["torch"]["sha"] = torch.git_version
    for name in ("triton", "torchvision"):
        if name in environment.packages:
            packages[name] = {"version": environment.packages[name], "extra_info": {}}
    return packages


# --- github-action-benchmark ----------------------------------------------------------------------------------------


def _github_action_benchmark(speedups: Speedups) -> Iterator[dict[str, Any]]:
    environment = speedups.environment
    for row, measured in _measured(speedups):
        medians = _medians(row)
        spread = (max(medians) - min(medians)) / 2 if medians else 0.0
        ratio, low, high = measured.speedup
        yield {
            "name": f"{one_line(row.workload)} / {row.configuration}",
            "unit": "s/iteration",
            "value": measured.seconds,
            "range": f"± {spread:.3g}",
            "extra": f"{ratio:.2f}× as fast as eager [{low:.2f}, {high:.2f}]: {measured.finding}\n"
            f"torch {environment.torch.version} on {environment.capability}",
        }
