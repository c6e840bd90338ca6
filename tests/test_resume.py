"""Runs that are interrupted, resumed, of a selection, or in each other's way: nothing measured is lost."""

from __future__ import annotations

import json
import shutil
import signal
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from conftest import SUITES, records_below, results_below, run_in_process
from planted_bench import QUICK, TINY, bench, only_speedups

from recapture.base.option_fields import GIB
from recapture.cases.collection import Selection
from recapture.machine.environment import SuiteEntry, read_environment
from recapture.records.record import Record, read_jsonl
from recapture.run.plan import RunOptions
from recapture.run.result_files import ResultFiles
from recapture.tools.speed.speedups import read_speedups

if TYPE_CHECKING:
    from pathlib import Path

LIGHT = ("--compiler", "eager", "--compiler", "jit.trace", "--compiler", "fx")


def slow_suite(path: Path, cases: int, edited: int | None = None) -> None:
    """Write a suite of cases that take a moment each; one of them may differ in its body."""
    text = "import time\n\nimport torch\n\nfrom recapture import case\n"
    for number in range(cases):
        text += f"\n\n@case(example=lambda: (torch.ones(3),))\ndef waits_{number:02}(x):\n    time.sleep(0.05)\n"
        text += f"    return x + {number}{' + 1' if number == edited else ''}\n"
    path.write_text(text)


def interrupted(command, suite: Path, results: str, number: signal.Signals) -> int:
    """Start a run, end it with a signal once it has recorded a few cells, and return how many those are."""
    process = command.start("run", suite, *LIGHT, "--jobs", 1, "--results", results)
    end = time.monotonic() + 300
    lines = 0
    while lines < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
        lines = sum(path.read_bytes().count(b"\n") for path in command.directory.glob(f"{results}/*/*/*.partial.jsonl"))
        lines //= 2  # records and timings
    if number == signal.SIGTERM:  # a batch system sends it to every process of a job, in any order
        command.signal(number, but=process.pid)
        time.sleep(0.1)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if number in (signal.SIGINT, signal.SIGTERM):
        assert process.returncode == 128 + number
        word = "interrupted" if number == signal.SIGINT else "terminated"
        assert err.strip().splitlines()[-1] == f"recapture: {word}; finished work is kept, continue with --resume"
    else:
        assert process.returncode == -number
    assert command.leftovers(30.0) == []
    directory = results_below(command.directory / results)
    assert not (directory / "conformance.jsonl").exists()
    return len(read_jsonl(directory / "conformance.partial.jsonl", Record, tolerate_torn_tail=True))


SIGNALS = [
    signal.SIGTERM,
    *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGKILL, signal.SIGINT)),
]


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_run_resumes_to_the_bytes_of_an_uninterrupted_one(warm, command, capfd, number):
    """Killed, or stopped with Ctrl-C or SIGTERM, and its last line torn: only what is missing runs again."""
    suite = command.directory / "waiting.py"
    slow_suite(suite, cases=4)
    assert run_in_process(suite, *LIGHT, "--results", command.directory / "whole") == 0
    expected = results_below(command.directory / "whole")
    done = interrupted(command, suite, number.name, number)
    directory = results_below(command.directory / number.name)
    with (directory / "conformance.partial.jsonl").open("ab") as partial:
        partial.write(b'{"case":"waiting::waits_03","compiler":"fx","dev')
    capfd.readouterr()
    assert run_in_process(suite, *LIGHT, "--results", command.directory / number.name, "--resume") == 0
    assert capfd.readouterr().err.startswith(f"{12 - done} cells")
    assert sorted(path.name for path in directory.iterdir() if not path.name.startswith(".")) == [
        "conformance.jsonl",
        "conformance.md",
        "eager.jsonl",
        "environment.json",
        "output.jsonl",
        "timings.jsonl",
    ]
    for file in ("conformance.jsonl", "conformance.md", "eager.jsonl"):
        assert (directory / file).read_bytes() == (expected / file).read_bytes()
    assert (directory / "timings.jsonl").read_bytes().count(b"\n") == 12


def test_a_run_ends_when_its_time_is_over_and_resumes(warm, command, capfd):
    """A case that hangs cannot hold the machine: what ended before is recorded, and no process is left."""
    suite = command.directory / "hangs.py"
    suite.write_text(
        "import time\nfrom pathlib import Path\n\nimport torch\n\nfrom recapture import case\n\n\n"
        "@case(example=lambda: (torch.ones(3),))\ndef quick(x):\n    return x + 1\n\n\n"
        "@case(example=lambda: (torch.ones(3),))\ndef waits(x):\n"
        "    while not Path(__file__).with_name('go').exists():\n        time.sleep(0.05)\n    return x\n"
    )
    results = command.directory / "results"
    began = time.monotonic()
    process = command.start("run", suite, "--compiler", "eager", "--minutes", "0.4", "--results", results)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 124, err
    assert 24 <= time.monotonic() - began < 60
    assert err.splitlines()[-1] == (
        "recapture: the time of --minutes is over; finished work is kept, continue with --resume"
    )
    assert command.leftovers(30.0) == []
    partial = results_below(results) / "conformance.partial.jsonl"
    assert [record.case for record in read_jsonl(partial, Record)] == ["hangs::quick"]
    (command.directory / "go").touch()
    capfd.readouterr()
    assert run_in_process(suite, "--compiler", "eager", "--results", results, "--resume") == 0
    assert capfd.readouterr().err.startswith("1 cell")
    assert len(records_below(results)) == 2


def test_an_unfinished_run_without_its_environment_is_resumed(warm, command, capfd):
    """As the message about a damaged one advises."""
    suite = command.directory / "waiting.py"
    slow_suite(suite, cases=4)
    done = interrupted(command, suite, "results", signal.SIGTERM)
    results = command.directory / "results"
    described = results_below(results) / "environment.partial.json"
    described.write_text("")
    capfd.readouterr()
    assert run_in_process(suite, *LIGHT, "--results", results, "--resume") == 2
    assert "remove this file and continue with --resume: the records stay" in capfd.readouterr().err
    described.unlink()
    assert run_in_process(suite, *LIGHT, "--results", results, "--resume") == 0
    assert capfd.readouterr().err.startswith(f"{12 - done} cells")
    assert json.loads((results_below(results) / "environment.json").read_text())["judge"] == 1


def test_resume_runs_an_edited_case_again_and_nothing_else(warm, tmp_path, capfd):
    suite = tmp_path / "waiting.py"
    slow_suite(suite, cases=3)
    results = tmp_path / "results"
    assert run_in_process(suite, "--compiler", "eager", "--results", results) == 0
    before = records_below(results)
    capfd.readouterr()
    assert run_in_process(suite, "--compiler", "eager", "--results", results, "--resume") == 0
    assert "0 cells" in capfd.readouterr().err
    slow_suite(suite, cases=3, edited=1)
    assert run_in_process(suite, "--compiler", "eager", "--results", results, "--resume") == 0
    assert "1/1 cell in " in capfd.readouterr().err
    after = records_below(results)
    assert [cell for cell in before if before[cell] != after[cell]] == ["waiting::waits_01::eager"]


def test_a_selective_run_keeps_the_other_rows(warm, tmp_path):
    suite = tmp_path / "waiting.py"
    slow_suite(suite, cases=2)
    results = tmp_path / "results"
    assert run_in_process(suite, "--compiler", "eager", "--compiler", "fx", "--results", results) == 0
    before = records_below(results)
    assert run_in_process(f"{suite}::waits_01::fx", "--results", results) == 0
    assert records_below(results) == before
    assert len(before) == 4


def test_a_broken_suite_does_not_stop_the_others_nor_lose_their_rows(warm, tmp_path, capfd):
    folder = tmp_path / "cases"
    folder.mkdir()
    slow_suite(folder / "one.py", cases=1)
    slow_suite(folder / "two.py", cases=1)
    results = tmp_path / "results"
    assert run_in_process(folder, "--compiler", "eager", "--results", results) == 0
    shutil.copy(SUITES / "broken" / "syntax_error.py", folder / "two.py")
    capfd.readouterr()
    assert run_in_process(folder, "--compiler", "eager", "--results", results) == 2
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("recapture: suite 'two' was not run: syntax error in line 3")
    assert set(records_below(results)) == {"one::waits_00::eager", "two::waits_00::eager"}
    report = (results_below(results) / "conformance.md").read_text()
    assert "## Suites that could not be collected" in report
    assert "- `two`: `syntax error in line 3" in report


def test_a_whole_run_keeps_the_rows_of_a_suite_that_broke_and_drops_those_of_cases_that_are_gone(warm, tmp_path):
    for name in ("one", "two"):
        slow_suite(tmp_path / f"{name}.py", cases=1)
        assert run_in_process(tmp_path / f"{name}.py", "--compiler", "eager", "--results", tmp_path / "results") == 0
    directory = results_below(tmp_path / "results")
    options = RunOptions(
        selection=Selection((), (), frozenset()),
        keyword=None,
        compilers=(),
        device="cpu",
        jobs=1,
        timeout=10.0,
        memory=GIB,
        results=tmp_path / "results",
        resume=False,
    )
    suites = [SuiteEntry("one", 0), SuiteEntry("two", 0, "syntax error in line 3: invalid syntax")]
    environment = msgspec.structs.replace(read_environment(directory / "environment.json"), suites=suites)
    with ResultFiles(directory, options, [], environment) as result_files:
        records, _ = result_files.close()
    assert [record.cell for record in records] == ["two::waits_00::eager"]
    assert list(records_below(tmp_path / "results")) == ["two::waits_00::eager"]


def test_two_runs_in_one_directory_are_refused(warm, tmp_path, capfd):
    """The second says so, whichever process has the lock."""
    import fcntl

    suite = tmp_path / "waiting.py"
    slow_suite(suite, cases=1)
    results = tmp_path / "results"
    assert run_in_process(suite, "--compiler", "eager", "--results", results) == 0
    directory = results_below(results)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        capfd.readouterr()
        assert run_in_process(suite, "--compiler", "eager", "--results", results) == 2
    assert capfd.readouterr().err.strip().splitlines()[-1] == f"recapture: another run is writing to {directory}"
    assert run_in_process(suite, "--compiler", "eager", "--results", results) == 0


def test_a_run_that_is_terminated_while_it_starts_leaves_nothing(command):
    suite = command.directory / "waiting.py"
    slow_suite(suite, cases=1)
    process = command.start("run", suite, "--compiler", "eager", "--results", "results")
    end = time.monotonic() + 60
    while len(command.processes()) < 2:  # until the server is importing torch
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert command.leftovers(5.0) == []


@pytest.mark.slow
def test_a_terminated_benchmark_keeps_its_finished_rows_and_can_resume(warm, command, capfd):
    arguments = [TINY, "tiny_eval::eager", "tiny_eval::hangs", *QUICK, "--timeout", "300", "--results", "results"]
    process = command.start("bench", *arguments)
    end = time.monotonic() + 300
    finished = 0
    while not finished:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
        finished = sum(len(read_speedups(path).rows) for path in command.directory.rglob("speedups-cpu.json"))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert err.strip().splitlines()[-1] == "recapture: terminated; finished work is kept, continue with --resume"
    assert command.leftovers(5.0) == []
    [row] = only_speedups(command.directory / "results").rows
    assert str(row.configuration) == "eager fp32"
    assert bench(*arguments[:2], *QUICK, "--results", str(command.directory / "results"), "--resume") == 0
    assert "0 configurations" in capfd.readouterr().err
