"""Checks and measures on a GPU what cells need it for: placed arguments, shared processes, the start of a run.

``python benchmarks/gpu.py [SUITE]...`` runs the tests of placed arguments and of the doctor on this GPU. Then it runs
the suites twice with the compilers that only capture, with shared processes and without, compares the records to the
byte, and prints the seconds of both. At last it measures the start of a run.

The exit status is 1 if a test fails or the records differ, and 0 for any figures.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from recapture.cases.collection import find_suites
from recapture.pool.protocol import Ended
from recapture.records.record import CONFORMANCE, Record
from recapture.run import runner
from recapture.run.plan import PlannedCell, RunOptions
from recapture.run.shared_processes import LIKELY_TO_PASS

REPOSITORY = Path(__file__).resolve().parents[1]

TESTS = ("tests/test_placement.py", "tests/test_doctor_gpu.py")


class Clock:
    """Measures the seconds from the first cell to the last."""

    def __init__(self) -> None:
        self.begin = self.end = 0.0

    def start(self, likely: Mapping[str, float], jobs: int, *, guessed: bool) -> None:  # noqa: ARG002 - as the runner calls it
        """Start the clock."""
        self.begin = time.monotonic()

    def cell_started(self, cell: str) -> None:
        """Do nothing."""

    def cell_finished(self, record: Record, seconds: float) -> None:  # noqa: ARG002 - as the runner calls it
        """Note the end of a cell."""
        self.end = time.monotonic()


def measure(suites: tuple[str, ...], root: Path, *, shares: bool) -> tuple[Path, float, Counter[str]]:
    """Return the records of a run, its seconds from the first cell to the last, and the numbers of processes."""
    counted: Counter[str] = Counter()

    class Counting(runner.CellExecution):
        def ended(self, task: PlannedCell, ended: Ended) -> None:
            counted["in a used process" if ended.reused else "in a new process"] += 1
            super().ended(task, ended)

    clock = Clock()
    options = RunOptions(selection=find_suites(suites), compilers=LIKELY_TO_PASS, device="cuda", results=root)
    before, runner.CellExecution = runner.CellExecution, Counting  # type: ignore[misc]
    try:
        summary = runner.run_cells(options, clock, print, shares_processes=shares)
    finally:
        runner.CellExecution = before  # type: ignore[misc]
    return summary.directory / CONFORMANCE, clock.end - clock.begin, counted


def main() -> int:
    """Check, measure and print."""
    status = subprocess.run([sys.executable, "-m", "pytest", "-q", *TESTS], cwd=REPOSITORY, check=False).returncode
    contents = {}
    with tempfile.TemporaryDirectory(prefix="recapture-benchmark-") as directory:
        for shares in (False, True):
            records, seconds, counted = measure(tuple(sys.argv[1:]), Path(directory, str(shares)), shares=shares)
            contents[shares] = records.read_bytes()
            how = "shared processes" if shares else "a process for each cell"
            print(f"{how}: {seconds:.1f} s, cells {dict(counted)}", flush=True)
    same = contents[False] == contents[True]
    print("records: the same bytes" if same else "records: DIFFERENT")
    start = [sys.executable, str(REPOSITORY / "benchmarks" / "start.py"), "--device", "cuda", "--runs", "3"]
    subprocess.run(start, cwd=REPOSITORY, check=False)
    return 0 if same and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
