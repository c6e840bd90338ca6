"""Functions that children of the pool run for a benchmark: run one of its processes, and collect workloads."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from recapture.cases.compilers import builtin_compilers
from recapture.pool.protocol import task_name

builtin_compilers()  # imports their modules once, in the server


def run_job(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Run one process of a benchmark: `Job` → `Outcome`."""
    from recapture.tools.speed.job import Job, measure

    return msgspec.json.encode(measure(msgspec.json.decode(payload, type=Job), enter))


def collect(payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Describe the workloads of a file, or a named model: `ModelSpec` → list of `WorkloadInfo`."""
    from recapture.cases.workload_sources import ModelSpec, collect_workloads

    return msgspec.json.encode(collect_workloads(msgspec.json.decode(payload, type=ModelSpec)))


MEASURE = task_name(run_job)
WORKLOADS = task_name(collect)
