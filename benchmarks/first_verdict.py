"""Measures how long ``recapture check`` takes until its first verdict, and until the compilers that generate no code.

    python -m benchmarks.first_verdict [--runs N]

It checks a function of the example project. The goals are 10 seconds until the first verdict and 15 until the last of
these compilers, on an idle machine with two cores. Wall times are the fastest of the runs, because load only adds time;
the CPU seconds of all processes are printed beside them.
This only measures: the exit status is 0 for any figures.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import NamedTuple

import click

from recapture.cases.compilers import builtin_compilers

TARGET = ("tests/resources/own_code.py:positive", "--input", "8x4")

FIRST_GOAL, CHEAP_GOAL = 10.0, 15.0
"""Seconds until the first verdict, and until the last one of the compilers that generate no code."""


class Measured(NamedTuple):
    """Seconds of one check: until the first line, until the last one, and of the CPU in all."""

    first: float
    last: float
    cpu: float
    lines: int


def measure(compilers: tuple[str, ...]) -> Measured:
    """Run one check and time its lines."""
    options = [word for name in compilers for word in ("--compiler", name)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    command = [sys.executable, "-m", "recapture", "check", *TARGET, *options]
    first = last = 0.0
    lines = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout or ():
            if line.split(" ")[0] in compilers:
                last = time.monotonic() - began
                first = first or last
                lines += 1
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Measured(first, last, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, lines)


@click.command()
@click.option("--runs", default=3, help="Times that the check runs.")
def main(runs: int) -> None:
    """Print the seconds until the first verdict and until the last."""
    from recapture.tools.check.request import CheckRequest
    from recapture.tools.check.session import compilers_of_check

    known = builtin_compilers()
    cheap = tuple(name for name in compilers_of_check((), CheckRequest()) if not known[name].generates_code)
    timings = []
    for _ in range(runs):
        timings.append(measure(cheap))
        print(f"first {timings[-1].first:.1f} s, last {timings[-1].last:.1f} s, CPU {timings[-1].cpu:.1f} s")
    print(f"{timings[0].lines} verdicts of {len(cheap)} compilers: {', '.join(cheap)}")
    print(f"first verdict: {min(run.first for run in timings):.1f} s (goal {FIRST_GOAL:g})")
    print(f"last verdict: {min(run.last for run in timings):.1f} s (goal {CHEAP_GOAL:g})")
    print(f"CPU: {min(run.cpu for run in timings):.1f} s, on two cores at least half of that")


if __name__ == "__main__":
    main()
