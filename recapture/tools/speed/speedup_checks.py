"""Validates a benchmark's figures and samples, so that ratios can be computed from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.decode import too_large
from recapture.machine.environment import check_environment

if TYPE_CHECKING:
    from recapture.tools.speed.speedups import Configuration, Measured, Process, Row, Series, Speedups, Start

FIRST_CALLS = 2
"""Number of first calls that reports show separately; every process makes at least this many."""

FASTEST, SLOWEST = 1e-9, 1e6
"""Shortest and longest credible seconds per iteration: limited by clock resolution and by deadlines."""

MOST_PROCESSES = 100
"""Largest number of timed processes of a row, 20 times the default of `bench`.

The time and memory to compute a row's ratios grow with them.
"""

MOST_SAMPLES = 1000
"""Largest number of samples of one variant in one process; `recapture.tools.speed.timing` takes at most 400."""


def check_speedups(speedups: Speedups) -> None:
    """Raise ValueError, naming row and field, for a benchmark with impossible values."""
    check_environment(speedups.environment)
    if too_large(speedups.planned):
        raise ValueError("`planned` is negative or out of range")
    seen: set[tuple[str, Configuration]] = set()
    for number, row in enumerate(speedups.rows):
        if row.key in seen:
            raise ValueError(f"`rows[{number}]`: {row.workload} {row.configuration} appears twice")
        seen.add(row.key)
        try:
            _check_row(row)
        except ValueError as error:
            raise ValueError(f"`rows[{number}]`, {row.workload} {row.configuration}: {error}") from None


def _check_row(row: Row) -> None:
    if row.measured is not None:
        _check_measured(row.measured)
        if not row.right:
            raise ValueError(f"`verdict` is {row.verdict}, but `measured` has figures")
    for name, start in (("cold", row.cold), ("warm", row.warm)):
        if start is not None:
            _check_start(name, start)
    if len(row.processes) > MOST_PROCESSES:
        raise ValueError(f"`processes` has {len(row.processes)} items, more than {MOST_PROCESSES}")
    for number, process in enumerate(row.processes):
        _check_process(f"processes[{number}]", process)


def _check_measured(measured: Measured) -> None:
    for name in ("speedup", "over_twin", "seconds", "eager_seconds"):
        value = getattr(measured, name)
        numbers = value if isinstance(value, tuple) else () if value is None else (value,)
        if not all(FASTEST / SLOWEST <= one <= SLOWEST / FASTEST for one in numbers):
            raise ValueError(f"`measured.{name}` is not positive, or out of range")
    for name in ("p_value", "kernel", "eager_kernel", "memory", "eager_memory", "break_even_cold", "break_even_warm"):
        if too_large(getattr(measured, name)):
            raise ValueError(f"`measured.{name}` is negative or out of range")


def _check_start(name: str, start: Start) -> None:
    if len(start.calls) < FIRST_CALLS:
        raise ValueError(f"`{name}.calls` has {len(start.calls)} of the {FIRST_CALLS} first calls")
    if any(map(too_large, (start.capture, *start.calls, *(start.stages or {}).values()))):
        raise ValueError(f"`{name}` has seconds that are negative or out of range")


def _check_process(name: str, process: Process) -> None:
    """Raise ValueError for samples without a valid ratio: missing, unequal in number, zero or negative."""
    _check_start(f"{name}.start", process.start)
    _check_start(f"{name}.eager_start", process.eager_start)
    rounds = len(process.eager.seconds)
    for variant in ("eager", "twin", "candidate"):
        series: Series | None = getattr(process, variant)
        if series is None:
            continue
        if not series.seconds:
            raise ValueError(f"`{name}.{variant}.seconds` is empty")
        if len(series.seconds) > MOST_SAMPLES:
            raise ValueError(f"`{name}.{variant}.seconds` has {len(series.seconds)} samples, more than {MOST_SAMPLES}")
        if len(series.seconds) != rounds:
            raise ValueError(f"`{name}.{variant}.seconds` has {len(series.seconds)} samples, `eager` has {rounds}")
        if not all(FASTEST <= one <= SLOWEST for one in series.seconds):
            raise ValueError(f"`{name}.{variant}.seconds` has a sample that is not positive, or out of range")
        if series.iterations < 1:
            raise ValueError(f"`{name}.{variant}.iterations` is less than 1")
    if too_large(process.overhead):
        raise ValueError(f"`{name}.overhead` is negative or out of range")
