"""Reduces wrong cells of the committed results, and measures the programs that come out.

``python -m benchmarks.reduction [--seconds S] [--records FILE] [-k WORDS] [--parts-at-once N]`` takes every silently
wrong cell of the family `compile` in the committed results of one image, and a fixed sample of the wrong cells of the
other compilers. It prints a line for each: lines and bytes before and after, tries, tries a second, and whether the
verdict was kept. At the end each program runs once more, alone, on another worker server. With ``--records``, finished
cells are kept in a file and are not reduced again, so that an interrupted benchmark goes on. With ``--parts-at-once``,
the cells are divided among processes that run at the same time, and ``--whole-seconds`` ends them. The goal is a median
of at most ten lines.

This only measures: the exit status is 0 for any figures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import cast

from benchmarks.side_by_side import append_row, run_parts
from recapture.base.errors import RecaptureError
from recapture.cases.name_filter import matcher
from recapture.pool.worker_pool import WorkerPool
from recapture.records.directories import read_results
from recapture.records.record import Record
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.run.cell import CellSpec
from recapture.run.preparation import preload_level
from recapture.tools.explain.reduce.candidates import CandidateRunner, TryPlace
from recapture.tools.explain.reduce.faults import fault_of, same_fault
from recapture.tools.explain.reduce.reducing import IMPORTED, ReduceOptions, open_reduction
from recapture.tools.explain.script.choice import choose

IMAGE = "torch2.11.0-cu130"
GOAL = 10
"""Lines of the median program, imports and inputs included."""

SAMPLE = 24
"""Cells of the other compilers: those whose address has the smallest hashes, so that the sample stays."""


def cells(directory: Path) -> list[Record]:
    """Return the cells to reduce: one compiler of each case first."""
    wrong = [record for record in read_results(directory).records if record.verdict in SILENTLY_WRONG]
    family = [record for record in wrong if record.compiler.split(":")[0] == "compile"]
    others = [record for record in wrong if record not in family and record.compiler != "eager"]
    # A sample that looks random and is the same every time.
    others.sort(key=lambda record: hashlib.sha256(record.cell.encode()).hexdigest())
    chosen = [*family, *others[:SAMPLE]]
    counts: dict[str, int] = {}
    ranks = []
    for record in chosen:
        counts[record.case] = counts.get(record.case, -1) + 1
        ranks.append(counts[record.case])
    return [record for _, record in sorted(zip(ranks, chosen, strict=True), key=lambda pair: pair[0])]


def reduce_one(pool: WorkerPool, record: Record, seconds: float) -> dict[str, object]:
    """Reduce one cell; return its row."""
    begin = time.monotonic()
    try:
        with open_reduction(record.cell, ReduceOptions(seconds=seconds, jobs=pool.jobs), pool) as reduction:
            reduced = reduction.run(lambda _: None)
            if reduced.ending == "interrupted":
                raise KeyboardInterrupt
            script = choose(reduction, reduced.program, reduced.result)
    except RecaptureError as error:
        return {"cell": record.cell, "failed": str(error)}
    return {
        "cell": record.cell,
        "verdict": str(record.verdict),
        "before": [reduced.before.lines, reduced.before.bytes],
        "after": [reduced.after.lines, reduced.after.bytes],
        "tries": reduced.tries,
        "seconds": reduced.seconds,
        "whole_seconds": round(time.monotonic() - begin, 1),
        "ending": reduced.ending,
        "stage": reduced.stage,
        "kept": bool(reduced.holds) and same_fault(fault_of(record), fault_of(reduced.result)),
        "script": None if script is None else script.ending,
        "script_shows": script is not None and script.shows,
        "case": reduced.case,
    }


def line(row: dict[str, object]) -> str:
    """Return a row as a line."""
    if "failed" in row:
        return f"{row['cell']}: {row['failed']}"
    lines, size, less, smaller = (*_sizes(row, "before"), *_sizes(row, "after"))
    rate = float(str(row["tries"])) / max(float(str(row["seconds"])), 0.01)
    return (
        f"{row['cell']}: {lines} lines, {size} bytes → {less} lines, {smaller} bytes; {row['tries']} tries, "
        f"{rate:.1f} a second, {row['seconds']} s; {row['ending']}; verdict {'kept' if row['kept'] else 'LOST'}; "
        f"{row['stage'] or 'no stage'}; {row['script']}"
    )


def _sizes(row: dict[str, object], which: str) -> tuple[int, int]:
    lines, size = cast("list[int]", row[which])
    return lines, size


def run_alone(rows: list[dict[str, object]], records: dict[str, Record]) -> int:
    """Run each reduced program once on a new server; return how many show the recorded fault."""
    compilers = {str(row["cell"]).split("::")[2] for row in rows}
    same_count = 0
    with WorkerPool(device="cpu", jobs=1, imports=IMPORTED) as pool, tempfile.TemporaryDirectory() as folder:
        pool.prepare(preload_level("cpu", [], compilers, compiles=True), [])
        for row in rows:
            suite, case, compiler = str(row["cell"]).split("::")
            spec = CellSpec(suite, "", case, compiler, "cpu")
            place = TryPlace(spec, Path(folder), Path(folder))
            runner = CandidateRunner(pool, place, timeout=120.0, memory=16 << 30, deadline=float("inf"))
            result, _ = runner.result(str(row["case"]))
            same = same_fault(fault_of(records[str(row["cell"])]), fault_of(result))
            same_count += same
            if not same:
                print(f"{row['cell']}: alone it is {result.verdict}")
    return same_count


def main() -> None:
    """Reduce and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit of one reduction [120]")
    parser.add_argument("--records", type=Path, help="file of finished cells, which are not reduced again")
    parser.add_argument("--image", default=IMAGE, help=f"the results to take cells from [{IMAGE}]")
    parser.add_argument("--jobs", type=int, default=2, help="tries at a time [2]")
    parser.add_argument("--show", action="store_true", help="also print the programs")
    parser.add_argument("-k", default=None, help="only cells whose address matches")
    parser.add_argument("--shard", metavar="I/N", help="only every Nth cell, from the Ith on")
    parser.add_argument("--parts-at-once", type=int, metavar="N", help="processes at a time; needs --records")
    parser.add_argument("--whole-seconds", type=float, default=float("inf"), help="with --parts-at-once: stop after")
    options = parser.parse_args()
    began = time.monotonic()
    records = cells(Path("results") / options.image / "cpu")
    if options.k:
        matches = matcher(options.k)
        records = [record for record in records if matches(record.cell)]
    if options.parts_at_once:
        if options.records is None:
            parser.error("--parts-at-once needs --records")
        _run_in_parts(options, began + options.whole_seconds)
        return
    if options.shard:
        number, _, count = options.shard.partition("/")
        records = records[int(number) - 1 :: int(count)]
    rows = _rows(options.records)
    done = {row["cell"] for row in rows}
    try:
        with WorkerPool(device="cpu", jobs=options.jobs, imports=IMPORTED) as pool:
            for record in (record for record in records if record.cell not in done):
                row = reduce_one(pool, record, options.seconds)
                rows.append(row)
                print(line(row), flush=True)
                if options.show and "case" in row:
                    print(row["case"], flush=True)
                if options.records is not None:
                    append_row(options.records, json.dumps(row).encode())
    except KeyboardInterrupt:
        print("interrupted: what follows is about the finished cells")
    if not options.shard:
        report(rows, {record.cell: record for record in records})


def _run_in_parts(options: argparse.Namespace, deadline: float) -> None:
    """Reduce the cells in processes of their own, several at a time, until `deadline`."""
    count = 2 * options.parts_at_once
    shared = ["--seconds", str(options.seconds), "--records", str(options.records), "--image", options.image]
    shared += ["--jobs", str(options.jobs), *(["-k", options.k] if options.k else [])]
    parts = {f"{number}/{count}": ["--shard", f"{number}/{count}", *shared] for number in range(1, count + 1)}
    left = run_parts("benchmarks.reduction", parts, options.parts_at_once, deadline)
    if left:
        print(f"not finished: {', '.join(left)}")


def _rows(file: Path | None) -> list[dict[str, object]]:
    """Return the rows that a file of records holds."""
    return [json.loads(text) for text in file.read_text("utf-8").splitlines()] if file and file.exists() else []


def report(rows: list[dict[str, object]], records: dict[str, Record]) -> None:
    """Print the figures over all finished cells."""
    good = [row for row in rows if "case" in row and row["cell"] in records]
    if not good:
        return
    alone = run_alone(good, records)
    before = statistics.median(row["before"][0] for row in good)  # type: ignore[index]
    after = statistics.median(row["after"][0] for row in good)  # type: ignore[index]
    rates = statistics.median(float(str(row["tries"])) / max(float(str(row["seconds"])), 0.01) for row in good)
    print(f"{len(good)} of {len(records)} cells reduced, {sum(1 for row in rows if 'failed' in row)} failed")
    print(f"median lines: {before:g} → {after:g} (goal: at most {GOAL}); median tries a second: {rates:.1f}")
    print(f"verdict kept: {sum(1 for row in good if row['kept'])} of {len(good)}; alone on a new server: {alone}")
    print(f"scripts without recapture that exit with 1: {sum(1 for row in good if row['script_shows'])} of {len(good)}")


if __name__ == "__main__":
    main()
