"""Measures the search of guilty stages on recorded cells: ``python -m benchmarks.stages [RESULTS] [--all]``.

The wrong and failing cells of the compilers of one family (``--family compile``, ``export`` or ``aoti``) run again, and
their stages are searched. By default one cell stands for all of a case that end in the same way; ``--all`` takes every
cell. It prints for each cell the stage, the switch, the extra cells and their seconds, and at the end the sums. RESULTS
must be of this release of torch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.planted_faults.__main__ import Silent
from recapture.analysis.stage_words import culprit
from recapture.conformance.plan import RunOptions
from recapture.conformance.runner import run_cells
from recapture.conformance.why.stages import BUDGET, stageable
from recapture.declare.collection import find_suites
from recapture.report.tables import Table, to_markdown
from recapture.results.records import read_conformance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.conformance.why.trials import Staged
    from recapture.results.records import Record

RESULTS = Path("results/torch2.11.0-cu130/cpu")


def chosen(records: Sequence[Record], family: str, *, every: bool) -> list[Record]:
    """Return the cells to search: of each case one for each way to end, or all."""
    found: dict[object, Record] = {}
    for record in records:
        if record.compiler.split(":")[0] == family and stageable(record):
            first = record.differences[0] if record.differences else None
            end = (record.verdict, record.error and record.error.fingerprint, first and (first.where, first.kind))
            found.setdefault(record.cell if every else (record.case, end), record)
    return list(found.values())


def search(records: Sequence[Record], family: str, budget: int) -> list[Staged]:
    """Run cells again, with those that are rungs of their ladders, and search their stages."""
    cells = {record.cell for record in records}
    if family == "compile":  # a whole run has these cells anyway
        cells |= {f"{record.case}::compile:{name}" for record in records for name in ("eager", "aot_eager")}
    with tempfile.TemporaryDirectory(prefix="recapture-stages-") as folder:
        options = RunOptions(
            selection=find_suites(tuple(sorted(cells))), results=Path(folder), explain=True, budget=budget
        )
        staged = run_cells(options, Silent(), lambda text: print(f"  {text}", flush=True)).staged
    wanted = {record.cell for record in records}
    return [one for one in staged if one.record.cell in wanted]


def main() -> None:
    """Search the stages of the chosen cells and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--family", choices=["compile", "export", "aoti"], default="compile")
    parser.add_argument("--all", action="store_true", dest="every")
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--suite", help="only cells of this suite")
    arguments = parser.parse_args()
    records = chosen(read_conformance(arguments.results), arguments.family, every=arguments.every)
    records = [one for one in records if arguments.suite in (None, one.case.split("::")[0])]
    print(f"{len(records)} cells of {arguments.results}", flush=True)
    began = time.monotonic()
    staged = search(records, arguments.family, arguments.budget)
    rows = [
        [
            one.record.cell,
            str(one.record.verdict),
            f"unknown: {one.report.unknown}" if one.report.stage is None else culprit(one.report.stage),
            (one.report.stage.workaround if one.report.stage else None) or "",
            str(one.report.cells),
            f"{one.seconds:.1f}",
        ]
        for one in staged
    ]
    print(to_markdown(Table(["cell", "verdict", "guilty", "workaround", "cells", "seconds"], rows, "llllrr")))
    extra = [one.report.cells for one in staged]
    named = sum(one.report.stage is not None for one in staged)
    cured = sum(one.report.stage is not None and one.report.stage.workaround is not None for one in staged)
    print(
        f"{named} of {len(staged)} have a stage, {cured} a workaround; extra cells: {sum(extra)}, at most "
        f"{max(extra, default=0)}, median {statistics.median(extra) if extra else 0:g}; seconds of them "
        f"{sum(one.seconds for one in staged):.0f}; {time.monotonic() - began:.0f} s in all"
    )


if __name__ == "__main__":
    main()
