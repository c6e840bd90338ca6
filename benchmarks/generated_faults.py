"""Which planted faults are found by generation alone: ``python -m benchmarks.generated_faults FOLDER [--programs N]``.

The compilers with a fault each are those of `benchmarks/planted_faults/suites`. Programs of Python run under all of
them, and under the compiler without a fault, in an order that the seed decides. A fault is found by the first program
that is not right under its compiler and is right without the fault. The benchmark prints how many programs that took,
how many seconds of the processor, and what the program shows. FOLDER keeps the programs and the records, so that an
interrupted benchmark goes on. The exit status is 1 if a fault was not found.
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from recapture.machine.hardware import cores
from recapture.records.record import Record, read_jsonl
from recapture.records.verdicts import RIGHT, SILENTLY_WRONG
from recapture.report.document import Table
from recapture.report.markdown_writer import table_markdown
from recapture.tools.generate.folder import SCREENED
from recapture.tools.generate.generate_options import GenerateOptions
from recapture.tools.generate.session import generate

SUITES = Path(__file__).resolve().parent / "planted_faults" / "suites"

FILES = {"without_code": "compile:aot_eager", "capture": "compile", "inductor": "compile", "exporting": "export"}
"""The files with faults, each with the compiler without a fault."""


class FaultSearch(NamedTuple):
    """How a fault was found: the number of programs, the seconds of the processor, and what the last one shows.

    `record` is None if it was not found.
    """

    compiler: str
    programs: int
    seconds: float
    record: Record | None


def search(path: Path, plain: str, folder: Path, options: argparse.Namespace) -> Iterator[FaultSearch]:
    """Yield how each fault of a file was found."""
    before = _processor_seconds()
    generation = generate(
        GenerateOptions(
            results=folder / path.stem,
            source="python",
            programs=options.programs,
            seed=options.seed,
            jobs=options.jobs,
            compilers=(plain, *re.findall(r'^@compiler\(\s*"([^"]+)"', path.read_text(), re.MULTILINE)),
            compilers_from=path,
            timeout=options.timeout,
            alone=0,
            findings=0,
            minutes=options.minutes,
        ),
        lambda line: print(f"  {path.stem}: {line}", flush=True),
    )
    # Children run side by side, and a cell has no time of its own: each counts as the mean.
    records = list(read_jsonl(folder / path.stem / SCREENED, Record, tolerate_torn_tail=True))
    mean = (_processor_seconds() - before) / max(len(records), 1)
    right = {record.case for record in records if record.compiler == plain and record.verdict in RIGHT}
    for name in generation.compilers:
        if generation.declared is None or name not in generation.declared.compilers:
            continue
        number = 0
        first = None
        for record in records:
            if record.compiler == name and first is None:
                number += 1
                if record.verdict not in RIGHT and record.case in right:
                    first = record
        yield FaultSearch(name, number, number * mean, first)


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _shown(record: Record) -> str:
    if record.verdict in SILENTLY_WRONG:
        return f"{record.verdict}: {record.differences[0].kind}"
    return f"{record.verdict}: {record.error.type if record.error is not None else record.reason}"


def main() -> int:
    """Search every fault and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generated_faults", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--programs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--only", metavar="WORD", default="", help="only files whose name contains WORD")
    options = parser.parse_args()
    rows = [
        outcome
        for name, plain in FILES.items()
        if options.only in name
        for outcome in search(SUITES / f"{name}.py", plain, options.folder, options)
    ]
    table: list[list[str | int]] = [
        [row.compiler, row.programs, f"{row.seconds:.0f}", "NOT FOUND" if row.record is None else _shown(row.record)]
        for row in rows
    ]
    print(table_markdown(Table(["fault", "programs", "CPU seconds", "shows"], table, "lrrl")))
    number = sum(row.record is not None for row in rows)
    print(f"{number} of {len(rows)} found")
    return 0 if number == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
