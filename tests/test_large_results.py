"""Results with far more in them than a real run has: the commands that read them stay quick and small."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from recapture.results.records import Difference, ErrorInfo, Record, write_jsonl
from recapture.results.verdicts import Verdict

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


def run(command, *arguments: object) -> str:
    """Run a command; return what it printed, after a look at what it used."""
    with command.start(*arguments) as process:
        printed, errors = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, errors[-2000:]
    assert usage.ru_utime + usage.ru_stime < SECONDS
    assert usage.ru_maxrss << 10 < MEMORY
    return printed


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
