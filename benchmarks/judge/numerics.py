"""Runs `benchmarks.rounding`: ordinary numerics through Inductor and in other orders, which must not be blamed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from tabulate import tabulate

from benchmarks.judge.execution import HERE
from recapture.base.errors import UsageError


class Tally(msgspec.Struct):
    """Comparisons of one computation in one dtype with another way to compute it."""

    computation: str
    dtype: str
    other: str
    comparisons: int
    different: int
    blamed: int


class Numerics(msgspec.Struct):
    """The comparisons of that benchmark, those with other bits, and those that the judge blames."""

    comparisons: int
    different: int
    blamed: int
    rows: list[Tally]


def numerics(device: str, seeds: int, first_seed: int, jobs: int) -> Numerics:
    """Run the benchmark with a number of random inputs for each computation, made with seeds from `first_seed` on."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rounding.json")
        command = [
            sys.executable,
            "-m",
            "benchmarks.rounding",
            "--device",
            device,
            "--seeds",
            str(seeds),
            "--first-seed",
            str(first_seed),
            "--jobs",
            str(jobs),
            "--json",
            str(file),
        ]
        ended = subprocess.run(command, check=False, stdout=sys.stderr, cwd=HERE.parents[1])
        if not file.exists():
            raise UsageError(f"benchmarks.rounding ended with status {ended.returncode} and without figures")
        return msgspec.json.decode(file.read_bytes(), type=Numerics)


def numerics_table(figures: Numerics, form: str = "simple") -> str:
    """Return the figures as a table, one row for each other way to compute something."""
    body = []
    for other in dict.fromkeys(row.other for row in figures.rows):
        rows = [row for row in figures.rows if row.other == other]
        numbers = [sum(getattr(row, name) for row in rows) for name in ("comparisons", "different", "blamed")]
        body.append([other, len({row.computation for row in rows}), *numbers])
    every = len({row.computation for row in figures.rows})
    body.append(["all", every, figures.comparisons, figures.different, figures.blamed])
    headers = ["computed otherwise by", "computations", "comparisons", "with other bits", "blamed"]
    text = tabulate(body, headers, tablefmt=form)
    blamed = [f"- {row.computation}, {row.dtype}, {row.other}: {row.blamed}" for row in figures.rows if row.blamed]
    return "\n\n".join([text, *(["blamed:\n" + "\n".join(blamed)] if blamed else [])])
