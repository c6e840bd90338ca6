"""Results with far more in them than a real run has: the commands that read them stay quick and small."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from conftest import REPOSITORY

from recapture.records.difference import Difference
from recapture.records.record import ErrorInfo, Record, write_jsonl
from recapture.records.verdicts import Verdict

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 10
"""Seconds of CPU time that a command may take."""

MEMORY = 600 << 20
"""Bytes that a command may have in memory; it took more than 1.1 GiB before a matrix was bounded."""

LINES = "a line of a type\n" * 30_000
"""Half a megabyte of lines."""


def wrong(case="s::a", compiler="c"):
    return Record(
        case=case,
        compiler=compiler,
        device="cpu",
        case_hash="0",
        verdict=Verdict.WRONG,
        input="example",
        differences=(Difference("example", "result", "value", "1 != 2"),),
    )


def failed(kind: str):
    error = ErrorInfo(kind, "message", "0")
    return Record(
        case="s::a", compiler="c", device="cpu", case_hash="0", verdict=Verdict.ERROR, phase="call", error=error
    )


def folder(root: Path, *records: Record) -> Path:
    root.mkdir(parents=True)
    write_jsonl(root / "conformance.jsonl", records)
    return root


MEASURE = """
import resource, subprocess, sys
status = subprocess.run([sys.executable, "-m", "recapture", *sys.argv[1:]]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss << 10, file=sys.stderr)
sys.exit(status)
"""
"""A small process between, because a child counts the memory of the process that starts it as its own."""


def run(command, *arguments: object) -> str:
    """Run a command; return what it printed, after a look at what it used."""
    ended = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, arguments)],
        cwd=command.directory,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "10000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    seconds, memory = ended.stderr.splitlines()[-1].split()
    assert float(seconds) < SECONDS
    assert int(memory) < MEMORY
    return ended.stdout


@pytest.mark.parametrize(
    ("many", "says"),
    [
        (lambda: [wrong(compiler=f"c{number}") for number in range(3000)], "3000 compilers"),
        (lambda: [wrong(case=f"s{number}::c") for number in range(20_000)], "20000 suites"),
    ],
    ids=["compilers", "suites"],
)
def test_a_report_of_very_many_cells_is_made_in_bounds(command, many, says):
    directory = folder(command.directory / "image" / "cpu", *many())
    assert says in run(command, "report", directory)
    assert says in (directory / "conformance.md").read_text()


def test_a_type_of_half_a_megabyte_does_not_hold_up_a_diff(command):
    old = folder(command.directory / "old" / "cpu", failed(LINES))
    new = folder(command.directory / "new" / "cpu", failed(LINES.replace("line", "row", 1)))
    printed = run(command, "diff", old, new)
    assert "s::a" in printed
    assert len(printed) < 100_000
