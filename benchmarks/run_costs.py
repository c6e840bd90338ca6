"""Measures where the CPU seconds of a run on the CPU go: by compiler, and by the steps of a cell.

``python -m benchmarks.run_costs [--every 20] [--offset 0] [--jobs 1] [-k EXPRESSION] [--results DIR]`` runs a sample
of the cases, drawn by a hash of their names, with all compilers. CPU seconds grow little when other work slows the
machine down. Those of a whole run are estimated from the sample: the cells times their number, and the start once.

``RECAPTURE_COMPILED_GIB=0`` keeps no builds of C++. With ``RECAPTURE_CACHE=$(mktemp -d)`` the first run finds none.

This only measures: the exit status is 0 for any figures.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import resource
import shlex
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recapture.cases.collection import find_suites
from recapture.cases.name_filter import matcher
from recapture.run.cell import CellResult, CellSpec, result_of, rule
from recapture.run.plan import RunOptions
from recapture.run.runner import run_cells

if TYPE_CHECKING:
    from recapture.cases.compiler import Compiler
    from recapture.records.record import Record

FILE = "RECAPTURE_RUN_COSTS"
"""Environment variable with the file to which each cell appends its costs."""

WHOLE_RUN = 486
"""Cases of a whole run."""


def spent(who: int) -> float:
    """Return the CPU seconds of this process, or of its children that have ended."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


class Steps:
    """The CPU seconds of one cell by step; the seconds of an inner step do not count for the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open = ["other"]
        self._last = spent(resource.RUSAGE_SELF)
        self._programs = spent(resource.RUSAGE_CHILDREN)

    def settle(self) -> None:
        """Add what was spent since the last change of step to the step that is open."""
        now, programs = spent(resource.RUSAGE_SELF), spent(resource.RUSAGE_CHILDREN)
        self.seconds[self._open[-1]] += now - self._last
        self.seconds["other programs"] += programs - self._programs
        self._last, self._programs = now, programs

    @contextlib.contextmanager
    def step(self, name: str, *, keep: tuple[str, ...] = ()) -> Iterator[None]:
        """Count what happens in the context as a step, unless one of the steps in `keep` is open."""
        self.settle()
        self._open.append(self._open[-1] if self._open[-1] in keep else name)
        try:
            yield
        finally:
            self.settle()
            self._open.pop()

    def timed(self, function: Callable[..., Any], name: str, *, keep: tuple[str, ...] = ()) -> Callable[..., Any]:
        """Return a function whose calls count as a step."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.step(name, keep=keep):
                return function(*args, **kwargs)

        return call

    def program(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a `subprocess.run` that counts the CPU seconds of programs by what they do."""

        def call(*args: Any, **kwargs: Any) -> Any:
            before = spent(resource.RUSAGE_CHILDREN)
            try:
                return run(*args, **kwargs)
            finally:
                seconds = spent(resource.RUSAGE_CHILDREN) - before
                self.seconds[purpose(args[0] if args else kwargs["args"])] += seconds
                self.seconds["other programs"] -= seconds

        return call


def purpose(command: Any) -> str:
    """Return what a program that torch starts is for."""
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    text = " ".join(words)
    if "-x c++-header" in text or any(word.endswith((".gch", ".pch")) for word in words):
        return "g++: header"
    if "-c" in words and "python" in words[0]:
        return "python: probe"
    if ".wrapper.cpp" in text or "own.cpp" in text:
        return "g++: wrapper"
    if "shared.cpp" in text:
        return "g++: interface"
    if any(word.endswith((".cpp", ".cc")) for word in words):
        return "g++: kernel"
    if any(word.endswith(".o") for word in words) or "-shared" in words:
        return "g++: link"
    return f"program: {Path(words[0]).name}"


def examine(spec: CellSpec, enter: Callable[[str], None]) -> CellResult:
    """Run one cell as `recapture run` does, and append its costs to the file."""
    from recapture.judge import fresh_case, reference, steps
    from recapture.run import cell

    at_start = spent(resource.RUSAGE_SELF)
    clock = Steps()
    subprocess.run = clock.program(subprocess.run)
    changed: list[tuple[Any, str, str, tuple[str, ...]]] = [
        (cell, "execute", "file of the case", ("noise",)),
        (reference.Eager, "observe", "eager", ("noise",)),
        (reference.Eager, "_noisy", "noise", ()),
        (fresh_case.FreshCase, "call", "calls", ("eager", "noise", "later calls")),
        (steps, "unseen", "later calls", ()),
        (steps, "_called_again", "original again", ()),
        (steps, "_compared", "comparison", ()),
    ]
    for owner, name, step, keep in changed:
        setattr(owner, name, clock.timed(getattr(owner, name), step, keep=keep))

    def watched(compiler: Compiler) -> Compiler:
        function = compiler.function
        object.__setattr__(compiler, "function", _same_signature(function, clock.timed(function, "capture")))
        return compiler

    ruling, events = rule(spec, enter, watched)
    result = result_of(ruling, events)
    clock.settle()
    line = {"case": f"{spec.suite}::{spec.case}", "compiler": spec.compiler, "start": at_start, "steps": clock.seconds}
    with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return result


def _same_signature(function: Any, timed: Any) -> Any:
    timed.__wrapped__ = function  # what the judge inspects
    return timed


class Silence:
    """Shows nothing of a run."""

    def start(self, likely: Mapping[str, float], jobs: int, *, guessed: bool) -> None:  # noqa: ARG002
        """Say how many cells run."""
        print(f"{len(likely)} cells", flush=True)

    def cell_started(self, cell: str) -> None:
        """Do nothing."""

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Do nothing."""


def table(rows: list[dict[str, Any]], total: float, every: float) -> None:
    """Print the seconds by compiler and step, and the estimate for a whole run."""
    by_compiler: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    cells: Counter[str] = Counter()
    for row in rows:
        for name, seconds in (row["steps"] | {"before": row["start"]}).items():
            by_compiler[row["compiler"]][name] += seconds
        cells[row["compiler"]] += 1
    every_step: dict[str, float] = defaultdict(float)
    for steps in by_compiler.values():
        for name, seconds in steps.items():
            every_step[name] += seconds
    names = sorted(every_step, key=lambda name: -every_step[name])
    width = max(map(len, by_compiler))
    print("CPU seconds of a cell, on average")
    print(" " * width, " cells    all", *(f"{name[:9]:>9}" for name in names))
    for compiler, steps in sorted(by_compiler.items(), key=lambda item: -sum(item[1].values())):
        values = [steps[name] / cells[compiler] for name in names]
        print(f"{compiler:{width}} {cells[compiler]:6} {sum(values):6.3f}", *(f"{value:9.3f}" for value in values))
    inside = sum(every_step.values())
    print("CPU seconds of all cells, by step")
    for name in names:
        print(f"  {name:24} {every_step[name]:8.1f} {every_step[name] / inside:6.1%}")
    print(f"all cells: {inside:.1f} s; the run: {total:.1f} s, with its start, forks and ends of processes")
    print(f"estimate for a whole run: {inside * every / 60:.1f} CPU minutes in cells")


def main() -> None:
    """Run the sample and print its costs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suites", nargs="*", help="suites or addresses [all]")
    parser.add_argument("--every", type=int, default=20, help="one case of so many [20]")
    parser.add_argument("--offset", type=int, default=0, help="which of them [0]")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time [1]")
    parser.add_argument("-k", dest="keyword", help="only cases whose name matches")
    parser.add_argument("--compiler", action="append", default=[], help="only this compiler")
    parser.add_argument("--results", type=Path, help="where to keep the records")
    options = parser.parse_args()
    matches = matcher(options.keyword) if options.keyword else lambda _: True

    def drawn(address: str) -> bool:
        number = int.from_bytes(hashlib.sha256(address.encode()).digest()[:8], "big")
        return number % options.every == options.offset and matches(address)

    with tempfile.TemporaryDirectory(prefix="recapture-benchmark-") as folder:
        file = Path(folder, "costs.jsonl")
        os.environ[FILE] = str(file)
        summary = run_cells(
            RunOptions(
                selection=find_suites(tuple(options.suites)),
                keyword=drawn,
                compilers=tuple(options.compiler),
                jobs=options.jobs,
                results=options.results or Path(folder, "results"),
                examiner=f"benchmarks.run_costs:{examine.__name__}",
                words=("sample",),
            ),
            Silence(),
            print,
        )
        total = spent(resource.RUSAGE_CHILDREN) + spent(resource.RUSAGE_SELF)
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    cases = len({record.case for record in summary.selected})
    print(f"{cases} cases, {len(summary.selected)} cells")
    table(rows, total, WHOLE_RUN / cases)


if __name__ == "__main__":
    main()
