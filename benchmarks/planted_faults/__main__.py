"""Prints which planted faults are located: ``python -m benchmarks.planted_faults [WORD…] [--budget N]``.

Each fault is planted into torch by a compiler of its own. The table has its verdict, the guilty stage that was found,
the switch that makes the cell right, and whether all of that is what was planted. WORD chooses faults whose cell
contains it. The exit status is 1 if a fault was located wrongly.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.planted_faults.expected import FAULTS, Fault
from recapture.cases.collection import find_suites
from recapture.records.record import Record
from recapture.report.differences import stage_of
from recapture.report.document import Table
from recapture.report.markdown_writer import table_markdown
from recapture.run.plan import RunOptions
from recapture.run.runner import run_cells
from recapture.tools.explain.run_options import EXPLAIN
from recapture.tools.explain.stage_search import SearchedCell, StageRecorder

HERE = Path(__file__).resolve().parent

BUDGET = 12
"""Extra cells for each fault: enough for every switch."""


class Silent:
    """Receives the progress of a run and prints a line for each cell."""

    def start(self, likely: Mapping[str, float], jobs: int, *, guessed: bool) -> None:  # noqa: ARG002 - the runner passes them
        """Print the number of cells."""
        print(f"{len(likely)} cells", flush=True)

    def cell_started(self, cell: str) -> None:
        """Do nothing."""

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Print the verdict of a cell."""
        print(f"  {record.cell}: {record.verdict}, {seconds:.1f} s", flush=True)


def locate(faults: Sequence[Fault], budget: int = BUDGET) -> tuple[dict[str, Record], dict[str, SearchedCell]]:
    """Run the cells of faults and search their stages; return the records and what was found, by the cell's address."""
    cells = tuple(str(HERE / "suites" / fault.cell.replace("::", ".py::", 1)) for fault in faults)
    stages = StageRecorder(budget)
    with tempfile.TemporaryDirectory(prefix="recapture-planted-") as folder:
        options = RunOptions(selection=find_suites(cells), results=Path(folder), examiner=EXPLAIN)
        summary = run_cells(options, Silent(), lambda text: print(f"  {text}", flush=True), afterwards=[stages])
    return {row.cell: row for row in summary.selected}, {searched.record.cell: searched for searched in stages.searched}


def located(fault: Fault, record: Record) -> bool:
    """Whether a record says what was planted."""
    stage = stage_of(record)
    location = (str(record.verdict), None if stage is None else stage.name, None if stage is None else stage.part)
    return location == (fault.verdict, fault.stage, fault.part)


def main() -> int:
    """Locate the chosen faults and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted_faults", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--budget", type=int, default=BUDGET)
    arguments = parser.parse_args()
    chosen = [fault for fault in FAULTS if not arguments.words or any(word in fault.cell for word in arguments.words)]
    if not chosen:
        parser.error("no fault has such a name")
    began = time.monotonic()
    records, searched = locate(chosen, arguments.budget)
    rows = []
    for fault in chosen:
        record, staged_cell = records[fault.cell], searched.get(fault.cell)
        stage = stage_of(record)
        rows.append(
            [
                fault.cell.rsplit("::", 1)[-1],
                str(record.verdict),
                "unknown" if stage is None else stage.name,
                ("" if stage is None else stage.part) or "",
                ("" if stage is None else stage.workaround) or "",
                str(0 if staged_cell is None else len(staged_cell.report.steps)),
                "right" if located(fault, record) else "WRONG",
            ]
        )
        if staged_cell is not None and not located(fault, record):
            print(f"  {fault.cell}: {staged_cell.report.unknown or ''}")
            for step in staged_cell.report.steps:
                print(f"    {step.words}: {step.outcome} ({step.shown})")
    print(table_markdown(Table(["fault", "verdict", "stage", "part", "switch", "cells", "located"], rows, "lllllrl")))
    right = sum(row[-1] == "right" for row in rows)
    print(f"{right} of {len(rows)} located, {time.monotonic() - began:.0f} s")
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
