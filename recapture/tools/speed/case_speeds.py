"""Measures the compilers of a check: the workload that a generated case declares, a short benchmark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from recapture.base.errors import RecaptureError
from recapture.cases.compilers import builtin_compilers
from recapture.tools.speed.benchmark import run_benchmark
from recapture.tools.speed.selection import BenchOptions
from recapture.tools.speed.speedups import Speedups

PROCESSES = 3
"""Timed processes for each compiler: fewer than a recorded benchmark has, for an answer within a minute."""

SECONDS = 1.0
"""Seconds of timing in each process."""


class Timed(NamedTuple):
    """Eager's time divided by a compiler's, with the ends of its 95 % interval, and what that shows."""

    speedup: tuple[float, float, float]
    finding: str


class _Silent:
    """Shows nothing of a benchmark (implements `RowProgress`)."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def speedups_of(path: Path, compilers: tuple[str, ...], device: str, show: Callable[[str], None]) -> dict[str, Timed]:
    """Return the speed of each compiler relative to eager, for the workload that a file declares.

    A compiler without figures is left out; `show` receives the reason as one line.
    """
    usable = tuple(name for name in compilers if name in builtin_compilers())
    if not usable:
        return {}
    silent: Any = _Silent()
    options = BenchOptions(
        names=(str(path),),
        compilers=usable,
        device=device,
        processes=PROCESSES,
        seconds=SECONDS,
        results=path.parent / "speeds",
    )
    try:
        speedups: Speedups = run_benchmark(options, silent, lambda text: show(f"recapture: {text}")).speedups
    except RecaptureError as error:
        show(f"recapture: the speed was not measured: {error}")
        return {}
    figures = {}
    for row in speedups.rows:
        if row.measured is not None:
            figures[row.configuration.compiler] = Timed(row.measured.speedup, row.measured.finding)
        elif row.reason:
            show(f"recapture: {row.configuration.compiler} was not timed: {row.reason}")
    return figures
