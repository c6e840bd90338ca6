"""Measures the explanations: how many cells that are not right have a line that says why, and a script that shows it.

Run it with ``python -m benchmarks.explanations [DIRECTORY] [--print] [--scripts N] [--compiled N] [--records FILE]
[--jobs N] [-k WORDS]``. DIRECTORY holds the records, by default those of torch 2.11.0 on the CPU.

- Every cell that is not right: has it a reason, and of which kind? ``--print`` prints all of them, to be read. A reason
  of the kind ``message`` only quotes torch.
- The script that `recapture repro` prints: is its verdict the recorded one? ``--scripts`` is the number of cells tried
  that generate no code (by default all), ``--compiled`` that of cells that do (by default none: each compiles C++).
  Scripts run in forked children of this process, ``--jobs`` of them at a time, and the installed torch must be that of
  the records. With ``--records``, finished cells are kept in a file and are not run again, so that an interrupted
  benchmark goes on.

The exit status is 1 if a cell has no reason, or a script another verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import runpy
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.side_by_side import append_row
from recapture.base.errors import UsageError
from recapture.cases.collection import find_suites
from recapture.cases.compilers import builtin_compilers
from recapture.cases.name_filter import matcher
from recapture.records.directories import read_results
from recapture.records.record import Record
from recapture.records.verdicts import NOT_RUN, RIGHT, Verdict
from recapture.report.reasons.reason import reasons
from recapture.report.reasons.sentence import KINDS_OF_REASONS
from recapture.tools.explain.script.repro import SuitePrinter
from recapture.torch_api.compat import hide_gpus, isolate_caches
from recapture.torch_api.libraries import release_libraries
from recapture.torch_api.preload import preload

DEFAULT = Path("results/torch2.11.0-cu130/cpu")

SECONDS = 400
"""Seconds that one script may run."""

_RULING = re.compile(r"^== verdict: (\w+)(?: in (\w+))?(?: on (\S+?))?(?::.*)?$", re.MULTILINE)


def main() -> int:
    """Print the figures; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("directory", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--print", action="store_true", dest="shows")
    parser.add_argument("--scripts", type=int, default=None, metavar="N")
    parser.add_argument("--compiled", type=int, default=0, metavar="N")
    parser.add_argument("--records", type=Path, metavar="FILE", help="file of finished cells, which do not run again")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="scripts at a time [1]")
    parser.add_argument("-k", default="", metavar="WORDS", help="only cells whose address matches")
    options = parser.parse_args()
    matches = matcher(options.k) if options.k else bool
    records = [record for record in read_results(options.directory).records if matches(record.cell)]
    explained = _reasons(records, shows=options.shows)
    scripts_agree = _scripts(_chosen(records, options.scripts, options.compiled), options.records, options.jobs)
    return 0 if explained and scripts_agree else 1


def _reasons(records: Sequence[Record], *, shows: bool) -> bool:
    """Count the reasons by kind; returns whether every cell has one."""
    named_reasons = reasons(records)
    bad = [record for record in records if record.verdict not in RIGHT]
    named = [record for record in bad if record.key in named_reasons]
    kinds = Counter(named_reasons[record.key].kind for record in named)
    placed = sum(named_reasons[record.key].line is not None for record in named)
    print(
        f"{len(named)} of {len(bad)} cells that are not right have a line that says why; {placed} name a line of code"
    )
    print(f"{kinds['message']} of them only quote torch's message")
    for kind, number in kinds.most_common():
        print(f"  {number:4}  {kind}: {KINDS_OF_REASONS[kind]}")
    if shows:
        for record in named:
            print(f"{record.cell} [{record.verdict}] {named_reasons[record.key]}")
    return len(named) == len(bad)


def _chosen(records: Sequence[Record], light: int | None, compiled: int) -> list[Record]:
    """Return the cells whose scripts run."""
    bad = [record for record in records if record.verdict not in (*RIGHT, *NOT_RUN)]
    heavy = [record for record in bad if _generates_code(record)]
    cheap = [record for record in bad if not _generates_code(record)]
    print(f"{len(bad)} cells were run and are not right, {len(heavy)} of which generate code", flush=True)
    return [*_sample(cheap, light), *_sample(heavy, compiled)]


def _scripts(chosen: Sequence[Record], file: Path | None, jobs: int) -> bool:
    """Run the scripts of cells; returns whether each decided as the record does."""
    rows: dict[str, list[str]] = {}
    if file is not None and file.exists():
        rows = {row["cell"]: row["said"] for row in map(json.loads, file.read_text("utf-8").splitlines())}
    began = time.monotonic()
    for record, ruling in _outcomes([record for record in chosen if record.cell not in rows], max(jobs, 1)):
        rows[record.cell] = ruling
        if ruling != _expected(record):
            print(_differs(record, ruling), flush=True)
        if file is not None:
            append_row(file, json.dumps({"cell": record.cell, "said": ruling}).encode())
    wrong = [record for record in chosen if rows[record.cell] != _expected(record)]
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} scripts have the recorded verdict, phase and input", end=" ")
    print(f"({time.monotonic() - began:.0f} s)")
    for record in wrong:
        print(f"  {_differs(record, rows[record.cell])}")
    return not wrong


def _outcomes(chosen: Sequence[Record], jobs: int) -> Iterator[tuple[Record, list[str]]]:
    """Run the scripts of cells, some at a time; yield what each said."""
    running: dict[int, tuple[Record, Path]] = {}
    with tempfile.TemporaryDirectory(prefix="recapture-scripts-") as name:
        isolate_caches(f"{name}/cache", name, os.environ)
        hide_gpus(os.environ)
        if chosen:
            preload("codegen" if any(_generates_code(record) for record in chosen) else "capture", [])
        for number, (record, text) in enumerate(_printed(chosen)):
            path = Path(name, f"repro-{number}.py")
            path.write_text(text, encoding="utf-8")
            running[_start(path)] = record, path
            if len(running) == jobs:
                yield _finished(running)
        while running:
            yield _finished(running)


def _finished(running: dict[int, tuple[Record, Path]]) -> tuple[Record, list[str]]:
    child, ended = os.wait()
    record, path = running.pop(child)
    return record, _said(path, ended)


def _differs(record: Record, ruling: Sequence[str]) -> str:
    return f"{record.cell}: recorded {' '.join(_expected(record))}, the script says {' '.join(ruling)}"


def _generates_code(record: Record) -> bool:
    return builtin_compilers()[record.compiler].generates_code


def _sample(cells: Sequence[Record], number: int | None) -> list[Record]:
    if number is None or number >= len(cells):
        return list(cells)
    return random.Random(0).sample(list(cells), max(number, 0))  # noqa: S311 - no secret


def _printed(records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
    """Yield each record with its cell's script; a suite is executed once."""
    printers: dict[str, SuitePrinter] = {}
    for record in records:
        suite, _, case = record.case.partition("::")
        if suite not in printers:
            with contextlib.redirect_stdout(io.StringIO()):
                printers[suite] = SuitePrinter(find_suites((suite,)).suites[0])
        try:
            yield record, printers[suite].script(case, record.compiler, record.device, [])
        except UsageError as error:
            yield record, f"print({f'no script: {error}'!r})\n"


def _expected(record: Record) -> list[str]:
    if record.verdict is Verdict.CRASH:
        return ["died"]
    return list(filter(None, (str(record.verdict), record.phase, record.input)))


def _start(path: Path) -> int:
    """Run a script in a forked child; returns the child's number."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        signal.alarm(SECONDS)
        for name in [module for module in sys.modules if module.startswith("recapture_suite_")]:
            release_libraries(vars(sys.modules[name]))  # the script defines the operators of its suite again
        with path.with_suffix(".out").open("w", encoding="utf-8", errors="replace") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
            sys.stdout = sys.stderr = stream
            runpy.run_path(str(path), run_name="__main__")
            stream.flush()
        status = 0
    finally:
        os._exit(status)


def _said(path: Path, ended: int) -> list[str]:
    """Return the verdict, phase and input that a script printed, or how its process ended."""
    rulings = _RULING.findall(path.with_suffix(".out").read_text(encoding="utf-8"))
    if rulings:
        return list(filter(None, rulings[-1]))
    return ["died"] if os.WIFSIGNALED(ended) and os.WTERMSIG(ended) != signal.SIGALRM else ["no verdict"]


if __name__ == "__main__":
    sys.exit(main())
