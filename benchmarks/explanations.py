"""Measures the explanations: how many cells that are not right have a line that says why, and a script that shows it.

Run it with ``python -m benchmarks.explanations [DIRECTORY] [--print] [--scripts N] [--compiled N]``. DIRECTORY holds
the records, by default those of torch 2.11.0 on the CPU.

- Every cell that is not right: has it a reason, and of which kind? ``--print`` prints all of them, to be read. A reason
  of the kind ``message`` only quotes torch.
- The script that `recapture repro` prints: is its verdict the recorded one? ``--scripts`` is the number of cells tried
  that generate no code (by default all), ``--compiled`` that of cells that do (by default none: each compiles C++).
  Scripts run in forked children of this process, and the installed torch must be that of the records.

The exit status is 1 if a cell has no reason, or a script another verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import re
import runpy
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from recapture.analysis.reasons.reason import key_of, reasons
from recapture.analysis.reasons.sentence import KINDS_OF_REASONS
from recapture.base.errors import UsageError
from recapture.base.torch_compat import isolate_caches
from recapture.conformance.repro import SuitePrinter
from recapture.declare.collection import find_suites
from recapture.declare.compilers import builtin_compilers
from recapture.results.directories import read_results
from recapture.results.verdicts import NOT_RUN, RIGHT, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recapture.results.records import Record

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
    options = parser.parse_args()
    records = read_results(options.directory).records
    explained = _reasons(records, shows=options.shows)
    shown = _scripts(records, options.scripts, options.compiled)
    return 0 if explained and shown else 1


def _reasons(records: Sequence[Record], *, shows: bool) -> bool:
    """Count the reasons by kind; returns whether every cell has one."""
    found = reasons(records)
    bad = [one for one in records if one.verdict not in RIGHT]
    named = [one for one in bad if key_of(one) in found]
    kinds = Counter(found[key_of(one)].kind for one in named)
    placed = sum(found[key_of(one)].line is not None for one in named)
    print(
        f"{len(named)} of {len(bad)} cells that are not right have a line that says why; {placed} name a line of code"
    )
    print(f"{kinds['message']} of them only quote torch's message")
    for kind, number in kinds.most_common():
        print(f"  {number:4}  {kind}: {KINDS_OF_REASONS[kind]}")
    if shows:
        for one in named:
            print(f"{one.cell} [{one.verdict}] {found[key_of(one)]}")
    return len(named) == len(bad)


def _scripts(records: Sequence[Record], light: int | None, compiled: int) -> bool:
    """Run the scripts of cells; returns whether each decided as the record does."""
    bad = [one for one in records if one.verdict not in (*RIGHT, *NOT_RUN)]
    known = builtin_compilers()
    heavy = [one for one in bad if known[one.compiler].generates_code]
    cheap = [one for one in bad if not known[one.compiler].generates_code]
    chosen = [*_sample(cheap, light), *_sample(heavy, compiled)]
    began, right, wrong = time.monotonic(), 0, []
    with tempfile.TemporaryDirectory(prefix="recapture-scripts-") as name:
        isolate_caches(f"{name}/cache", name, os.environ)
        _warm()
        for record, text in _printed(chosen):
            path = Path(name, "repro.py")
            path.write_text(text, encoding="utf-8")
            said = _run(path)
            expected = _expected(record)
            if said == expected:
                right += 1
            else:
                wrong.append(f"{record.cell}: recorded {' '.join(expected)}, the script says {' '.join(said)}")
    print(f"{right} of {len(chosen)} scripts have the recorded verdict, phase and input", end=" ")
    print(f"({len(bad)} such cells, {len(heavy)} of which generate code; {time.monotonic() - began:.0f} s)")
    for line in wrong:
        print(f"  {line}")
    return not wrong


def _sample(cells: Sequence[Record], number: int | None) -> list[Record]:
    if number is None or number >= len(cells):
        return list(cells)
    return random.Random(0).sample(list(cells), max(number, 0))  # noqa: S311 - no secret


def _warm() -> None:
    """Import what the scripts import, so that their processes need not."""
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(ImportError):
        import torch.export


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


def _expected(record: Record) -> tuple[str, ...]:
    if record.verdict is Verdict.CRASH:
        return ("died",)
    return tuple(filter(None, (str(record.verdict), record.phase, record.input)))


def _run(path: Path) -> tuple[str, ...]:
    """Run a script in a forked child; return its verdict, phase and input, or how it ended."""
    said = path.with_suffix(".out")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            signal.alarm(SECONDS)
            with said.open("w", encoding="utf-8", errors="replace") as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
                sys.stdout = sys.stderr = stream
                runpy.run_path(str(path), run_name="__main__")
                stream.flush()
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    found = _RULING.findall(said.read_text(encoding="utf-8"))
    if found:
        return tuple(filter(None, found[-1]))
    return ("died",) if os.WIFSIGNALED(ended) and os.WTERMSIG(ended) != signal.SIGALRM else ("no verdict",)


if __name__ == "__main__":
    sys.exit(main())
