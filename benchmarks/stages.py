"""Measures the search of guilty stages on recorded cells.

    python -m benchmarks.stages [RESULTS] [--family NAME]... [--all] [--budget N] [--suite NAME]...
                                [--records FILE --parts-at-once N --seconds N]

The wrong and failing cells of the compilers of a family (``compile``, ``export`` or ``aoti``) run again, and their
stages are searched. By default one cell stands for all of a case that end in the same way; ``--all`` takes every cell.
It prints for each cell the stage, the switch, the extra cells and their seconds, and at the end the sums. RESULTS must
be of this release of torch.

The cells of a suite run in parts of a few. ``--records FILE`` keeps each finished part, so that a stopped benchmark
goes on. With ``--parts-at-once``, several parts run at the same time, each in a process of its own; ``--seconds`` ends
them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from benchmarks.planted_faults.__main__ import Silent
from benchmarks.side_by_side import append_row, run_parts
from recapture.cases.collection import find_suites
from recapture.records.record import Record, read_conformance
from recapture.report.differences import culprit
from recapture.report.document import Table
from recapture.report.markdown_writer import table_markdown
from recapture.run.plan import RunOptions
from recapture.run.runner import run_cells
from recapture.tools.explain.run_options import BUDGET, EXPLAIN
from recapture.tools.explain.stage_search import SearchedCell, StageRecorder
from recapture.tools.explain.stages import stageable

RESULTS = Path("results/torch2.11.0-cu130/cpu")
FAMILIES = ("compile", "export", "aoti")

PART = 6
"""Cells of a suite that run together. More take long after the other parts have ended, fewer pay for more starts."""


class Row(msgspec.Struct, frozen=True):
    """One cell: its recorded verdict, that of now, the stage or why it is unknown, and what the search cost."""

    cell: str
    recorded: str
    verdict: str
    guilty: str
    workaround: str
    unknown: str
    cells: int
    seconds: float


class Part(NamedTuple):
    """Some of the cells of one suite and one family; the first has the number 0."""

    suite: str
    family: str
    number: int


class Finished(msgspec.Struct, frozen=True):
    """The rows of one part, and the seconds that it took."""

    part: Part
    rows: list[Row]
    seconds: float


def chosen(records: Sequence[Record], family: str, *, every: bool) -> list[Record]:
    """Return the cells to search: of each case one for each way to end, or all."""
    by_end: dict[object, Record] = {}
    for record in records:
        if record.compiler.split(":")[0] == family and stageable(record):
            first = record.differences[0] if record.differences else None
            end = (record.verdict, record.error and record.error.fingerprint, first and (first.where, first.kind))
            by_end.setdefault(record.cell if every else (record.case, end), record)
    return list(by_end.values())


def search(records: Sequence[Record], family: str, budget: int, jobs: int) -> list[SearchedCell]:
    """Run cells again, with those that are prefixes of their compilers, and search their stages."""
    cells = {record.cell for record in records}
    if family == "compile":  # a whole run has these cells anyway
        cells |= {f"{record.case}::compile:{name}" for record in records for name in ("eager", "aot_eager")}
    stages = StageRecorder(budget)
    with tempfile.TemporaryDirectory(prefix="recapture-stages-") as folder:
        options = RunOptions(
            selection=find_suites(tuple(sorted(cells))), results=Path(folder), examiner=EXPLAIN, jobs=jobs
        )
        run_cells(options, Silent(), lambda text: print(f"  {text}", flush=True), afterwards=[stages])
    addresses = {record.cell for record in records}
    return [searched for searched in stages.searched if searched.record.cell in addresses]


def measure(part: Part, records: Sequence[Record], budget: int, jobs: int) -> Finished:
    """Search the stages of the cells of one part."""
    began = time.monotonic()
    recorded = {record.cell: record for record in records}
    rows = [
        Row(
            searched.record.cell,
            str(recorded[searched.record.cell].verdict),
            str(searched.record.verdict),
            "" if searched.report.stage is None else culprit(searched.report.stage),
            (searched.report.stage.workaround if searched.report.stage else None) or "",
            (searched.report.unknown or "") if searched.report.stage is None else "",
            searched.report.cells,
            round(searched.seconds, 1),
        )
        for searched in search(records, part.family, budget, jobs)
    ]
    return Finished(part, rows, round(time.monotonic() - began, 1))


def _stage(row: Row) -> str:
    return row.guilty or f"unknown: {row.unknown}"


def summary(finished: Sequence[Finished], planned: int) -> str:
    """Return the table and the sums as Markdown."""
    rows = [row for part in finished for row in part.rows]
    lines = [[row.cell, row.verdict, _stage(row), row.workaround, str(row.cells), f"{row.seconds:.1f}"] for row in rows]
    table = table_markdown(Table(["cell", "verdict", "guilty", "workaround", "cells", "seconds"], lines, "llllrr"))
    extra = [row.cells for row in rows]
    guilty = Counter(row.guilty for row in rows if row.guilty)
    changed = [row for row in rows if row.verdict != row.recorded]
    named, cured = sum(bool(row.guilty) for row in rows), sum(bool(row.workaround) for row in rows)
    searching, whole = sum(row.seconds for row in rows), sum(part.seconds for part in finished)
    median = statistics.median(extra) if extra else 0
    sums = [
        f"{len(rows)} of {planned} cells that are wrong or failing were searched",
        f"{named} have a stage, {cured} a workaround",
        f"extra cells: {sum(extra)}, at most {max(extra, default=0)}, median {median:g}",
        f"seconds: {searching:.0f} of the extra cells, {whole:.0f} of all parts, one after the other",
        *(f"  {number:4}  {name}" for name, number in guilty.most_common()),
        *(f"  another verdict than recorded: {row.cell}: {row.recorded}, now {row.verdict}" for row in changed),
    ]
    return table + "\n\n" + "\n".join(sums)


def in_parts(recorded: Sequence[Record], families: Sequence[str], *, every: bool) -> dict[Part, list[Record]]:
    """Return the cells to search, in parts."""
    parts: dict[Part, list[Record]] = {}
    for family in families:
        of_suite: Counter[str] = Counter()
        for record in chosen(recorded, family, every=every):
            suite = record.case.split("::")[0]
            parts.setdefault(Part(suite, family, of_suite[suite] // PART), []).append(record)
            of_suite[suite] += 1
    return parts


def read(file: Path | None) -> dict[Part, Finished]:
    """Return the parts that a file of records holds."""
    lines = file.read_bytes().splitlines() if file is not None and file.is_file() else []
    return {finished.part: finished for finished in (msgspec.json.decode(line, type=Finished) for line in lines)}


@click.command()
@click.argument("results", type=click.Path(path_type=Path), default=RESULTS)
@click.option("--family", "families", multiple=True, type=click.Choice(FAMILIES), default=("compile",))
@click.option("--all", "every", is_flag=True, help="Take every cell.")
@click.option("--budget", default=BUDGET, help="Extra cells for each cell, at most.")
@click.option("--suite", "suites", multiple=True, help="Only cells of this suite.")
@click.option("--part", "numbers", multiple=True, type=int, help="Only the part with this number of each suite.")
@click.option("--jobs", default=1, help="Cells at a time.")
@click.option("--records", "file", type=click.Path(path_type=Path), help="Keep finished parts in this file.")
@click.option("--parts-at-once", "at_once", default=0, help="Parts that run at the same time; needs --records.")
@click.option("--seconds", default=float("inf"), help="With --parts-at-once: stop after this time.")
def main(
    results: Path,
    families: tuple[str, ...],
    every: bool,
    budget: int,
    suites: tuple[str, ...],
    numbers: tuple[int, ...],
    jobs: int,
    file: Path | None,
    at_once: int,
    seconds: float,
) -> None:
    """Search the stages of the chosen cells and print the figures."""
    deadline = time.monotonic() + seconds
    parts = {
        part: records
        for part, records in in_parts(read_conformance(results), families, every=every).items()
        if (not suites or part.suite in suites) and (not numbers or part.number in numbers)
    }
    done = read(file)
    left = [part for part in parts if part not in done]
    if at_once and file is not None:
        shared = [str(results), "--budget", str(budget), "--jobs", str(jobs), "--records", str(file)]
        shared += ["--all"] if every else []
        commands = {
            f"{part.suite} {part.family} {part.number}": [
                *(*shared, "--suite", part.suite, "--family", part.family, "--part", str(part.number))
            ]
            for part in left
        }
        unfinished = run_parts("benchmarks.stages", commands, at_once, deadline)
        if unfinished:
            print(f"not finished: {', '.join(unfinished)}")
        done = read(file)
    else:
        for part in left:
            done[part] = measure(part, parts[part], budget, jobs)
            if file is not None:
                append_row(file, msgspec.json.encode(done[part]))
    print(summary([done[part] for part in parts if part in done], sum(map(len, parts.values()))))


if __name__ == "__main__":
    main()
