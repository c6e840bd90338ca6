"""Measures the cost of isolation: forked children against new processes, the runner's overhead, the server's memory.

Run it with ``python benchmarks/isolation.py [--cells N] [--compilers A,B]``. The cells are chosen at random; the same
``--seed`` gives the same cells.

- Cells that compile no C++ or Triton code, one at a time: seconds per cell with a new Python process for each, divided
  by seconds per cell with the fork server. The goal is a ratio of at least 20.
- A whole run of those cells: wall seconds divided by (seconds inside children / jobs). The goal is at most 1.15. The
  seconds before the first cell (importing torch, collecting, examining the machine) are shown separately.
- Peak resident memory of the server itself. The goal is less than 1 GiB.

This only measures: the exit status is 0 for any figures.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recapture.base.option_fields import GIB
from recapture.cases.collection import find_suites, shipped_suites
from recapture.cases.compilers import builtin_compilers
from recapture.pool.worker_pool import WorkerPool
from recapture.records.record import TIMINGS, Record, Timing, read_jsonl
from recapture.run.plan import RunOptions
from recapture.run.preparation import IMPORTS, collect_suites
from recapture.run.runner import RunSummary, run_cells

FRESH_CELLS = 12
GOAL_SPEEDUP = 20.0
GOAL_OVERHEAD = 1.15


@dataclass
class Clock:
    """Records the times when the first cell of a run was planned and when the last one ended."""

    began: float = field(default_factory=time.monotonic)
    first: float = 0.0
    last: float = 0.0

    def start(self, likely: Mapping[str, float], jobs: int, *, guessed: bool) -> None:  # noqa: ARG002 - the runner passes them
        """Record that the cells are about to run."""
        self.first = self.last = time.monotonic()
        print(f"  {len(likely)} cells after {self.first - self.began:.1f} s of preparation", flush=True)

    def cell_started(self, cell: str) -> None:
        """Do nothing."""

    def cell_finished(self, record: Record, seconds: float) -> None:  # noqa: ARG002
        """Record the end of a cell."""
        self.last = time.monotonic()

    @property
    def seconds(self) -> float:
        """Wall seconds from the start of the first cell to the end of the last."""
        return self.last - self.first


@dataclass
class Measured:
    """One run: its summary, the seconds each cell's process took, and its wall time."""

    summary: RunSummary
    cells: dict[str, float]
    clock: Clock


def measure(cells: Sequence[str], *, worker: str, jobs: int) -> Measured:
    """Run cells, given as addresses, with a temporary results directory."""
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="recapture-benchmark-") as results:
        options = RunOptions(
            selection=find_suites(tuple(cells)),
            keyword=None,
            compilers=(),
            device="cpu",
            jobs=jobs,
            timeout=300.0,
            memory=8 * GIB,
            results=Path(results),
            resume=False,
            worker=worker,  # type: ignore[arg-type]
        )
        summary = run_cells(options, clock, lambda _: None)
        rows = read_jsonl(summary.directory / TIMINGS, Timing)
    return Measured(summary, {f"{row.case}::{row.compiler}": row.seconds for row in rows}, clock)


def plan(compilers: Sequence[str]) -> list[str]:
    """Return the addresses of all cells of the shipped suites with these compilers.

    Cases that call `torch.compile` themselves are left out: they compile C++ with every compiler.
    """
    with WorkerPool(device="cpu", jobs=1, imports=IMPORTS) as pool:
        suites = collect_suites(pool, tuple(shipped_suites()))
    cells = []
    for suite in suites:
        for case in suite.cases:
            if case.compiles:
                print(f"left out: {suite.name}::{case.name}, which compiles by itself")
                continue
            cells += [f"{suite.name}::{case.name}::{how}" for how in compilers]
    return cells


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    builtin = builtin_compilers()
    cheap = [name for name, how in builtin.items() if not how.generates_code and not how.optional]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=60, help="cells through the fork server [60]")
    parser.add_argument("--compilers", default=",".join(cheap), help="comma-separated [all that compile no C++]")
    parser.add_argument("--seed", type=int, default=0, help="which cells are drawn [0]")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time in the whole run [2]")
    options = parser.parse_args(arguments)
    compilers = options.compilers.split(",")
    unknown = [name for name in compilers if name not in builtin]
    if unknown:
        parser.error(f"unknown compiler {unknown[0]!r}; known: {', '.join(builtin)}")

    # At random: every n-th cell would correlate with the compilers, which have the same order for every case.
    every = plan(compilers)
    cells = random.Random(options.seed).sample(every, min(options.cells, len(every)))  # noqa: S311 - not a secret
    few = cells[:FRESH_CELLS]
    print("forked from one server, one at a time")
    forked = measure(cells, worker="fork", jobs=1)
    print("a fresh Python process each, one at a time")
    fresh = measure(few, worker="fresh", jobs=1)
    print(f"forked, {options.jobs} at a time")
    whole = measure(cells, worker="fork", jobs=options.jobs)

    print()
    report_speedup(forked, fresh)
    report_overhead(forked, 1)
    report_overhead(whole, options.jobs)
    peak = max(forked.summary.rss_server, whole.summary.rss_server)
    print(f"server memory: {peak / GIB:.2f} GiB resident at its highest (goal: less than 1)")


def report_speedup(forked: Measured, fresh: Measured) -> None:
    """Print seconds per cell and the ratios, for the cells measured both ways."""
    pairs = [(fresh.cells[cell], forked.cells[cell]) for cell in fresh.cells]
    one_by_one = [slow / fast for slow, fast in pairs]
    everything = list(forked.cells.values())
    worst = max(forked.cells, key=lambda cell: forked.cells[cell])
    print("fresh, forked, ratio of each cell measured both ways:")
    for cell in sorted(fresh.cells):
        slow, fast = fresh.cells[cell], forked.cells[cell]
        print(f"  {slow:6.2f} s {fast:7.3f} s {slow / fast:6.1f}x  {cell}")
    print(f"fresh process: {statistics.median(seconds for seconds, _ in pairs):.2f} s a cell (median of {len(pairs)})")
    print(
        f"forked child: {statistics.median(two for _, two in pairs):.3f} s a cell (median of the same {len(pairs)}; "
        f"of all {len(everything)}: {statistics.median(everything):.3f} s, worst {max(everything):.2f} s, "
        f"{worst})"
    )
    print(
        f"fresh / forked: {statistics.median(one_by_one):.1f}x median of cells, "
        f"{sum(slow for slow, _ in pairs) / sum(fast for _, fast in pairs):.1f}x in total "
        f"(goal: {GOAL_SPEEDUP:.0f}x)"
    )


def report_overhead(measured: Measured, jobs: int) -> None:
    """Print the ratio of a run's wall time to its children's seconds divided by the jobs."""
    inside = sum(measured.cells.values())
    ratio = measured.clock.seconds / (inside / jobs)
    print(
        f"whole run, {jobs} at a time: {measured.clock.seconds:.1f} s of wall time for {inside:.1f} s inside children: "
        f"{ratio:.2f} x (seconds inside / jobs) (goal: at most {GOAL_OVERHEAD})"
    )


if __name__ == "__main__":
    main()
