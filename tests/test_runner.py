"""Whole runs: verdicts, results that agree to the byte, and servers that die."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import SUITES, records_below, results_below, run_in_process, share

from recapture.cases.collection import find_suites
from recapture.command.main import _run
from recapture.run import runner
from recapture.run.plan import RunOptions

if TYPE_CHECKING:
    from recapture.records.record import Record

PLANTED = SUITES / "planted"
GENTLE = [PLANTED / f"{name}.py" for name in ("verdicts", "leaving", "raising", "noisy", "disturbing")]
COMPILERS = ("eager", "jit.trace")
THEIRS = ("compile:eager", "fx", "off-by-one", "refuses", "fails-when-called", "trace-without-check", "of-the-future")


@dataclass
class Run:
    status: int
    directory: Path
    records: dict[str, Record]

    def verdict(self, cell: str) -> str:
        return str(self.records[cell].verdict)


@pytest.fixture(scope="module")
def gentle(pool, tmp_path_factory):
    """Every planted case that kills no process through cheap compilers, then the verdicts through planted ones."""
    root = tmp_path_factory.mktemp("gentle")
    with pytest.MonkeyPatch.context() as patch:
        share(pool, patch)
        status = 0
        for suites, names in ((GENTLE, COMPILERS), (GENTLE[:1], THEIRS)):
            chosen = [part for name in names for part in ("--compiler", name)]
            options = ["--timeout", "120", "--results", str(root)]
            status |= _run(["run", *map(str, suites), *chosen, *options])
    return Run(status, root, records_below(root))


def test_every_planned_cell_of_every_suite_is_recorded(gentle):
    environment = json.loads((results_below(gentle.directory) / "environment.json").read_text())
    cases = {suite["name"]: suite["cases"] for suite in environment["suites"]}
    assert gentle.status == 0
    assert environment["planned"] == environment["recorded"] == len(gentle.records)
    assert len(gentle.records) == sum(cases.values()) * len(COMPILERS) + cases["verdicts"] * len(THEIRS)


@pytest.mark.parametrize("suite", [path.stem for path in GENTLE])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_neighbour_of_misbehaving_cases_passes(gentle, suite, compiler):
    assert gentle.verdict(f"{suite}::neighbour::{compiler}") == "pass"


@pytest.mark.parametrize(
    ("cell", "verdict", "phase"),
    [
        ("neighbour::eager", "pass", None),
        ("prints::compile:eager", "pass_with_breaks", None),
        ("branches::jit.trace", "specialized", None),
        ("neighbour::off-by-one", "wrong", None),
        ("raises_in_eager_alone::trace-without-check", "wrong", None),
        ("branches::fx", "error", "capture"),
        ("neighbour::refuses", "error", "capture"),
        ("neighbour::fails-when-called", "error", "call"),
        ("raises_in_eager_alone::eager", "pass", None),
        ("random_bytes::eager", "unstable", None),
        ("random_bytes::off-by-one", "unstable", None),
        ("time_of_day::eager", "unstable", None),
        ("raises_every_other_time::eager", "unstable", None),
        ("of_the_future::eager", "not_applicable", None),
        ("of_a_missing_module::eager", "not_applicable", None),
        ("neighbour::of-the-future", "not_applicable", None),
    ],
)
def test_a_cell_gets_its_verdict(gentle, cell, verdict, phase):
    record = gentle.records[f"verdicts::{cell}"]
    assert (str(record.verdict), record.phase) == (verdict, phase)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("of_the_future::eager", "the case needs torch 99.0 or newer"),
        ("of_a_missing_module::fx", "the case needs a_module_nobody_has"),
        ("neighbour::of-the-future", "of-the-future needs torch 99.0 or newer"),
        ("raises_every_other_time::eager", "eager raises on one of two runs"),
        ("time_of_day::fx", "eager disagrees with itself: result[1] (value)"),
    ],
)
def test_a_cell_without_evidence_has_a_reason(gentle, cell, reason):
    assert gentle.records[f"verdicts::{cell}"].reason == reason


def test_returning_where_eager_raises_is_silently_wrong(gentle):
    (difference,) = gentle.records["verdicts::raises_in_eager_alone::trace-without-check"].differences
    assert (difference.kind, difference.detail) == ("exception", "eager raises ValueError, this returned")


@pytest.mark.parametrize("case", ["leaves_children", "leaves_a_session", "leaves_a_daemon", "returns_twice"])
@pytest.mark.parametrize("compiler", ["eager", "jit.trace"])
def test_a_case_that_leaves_processes_behind_is_judged_by_what_it_returned(gentle, case, compiler):
    assert gentle.verdict(f"leaving::{case}::{compiler}") == "pass"


def test_no_process_that_a_case_left_outlives_it(gentle, pool):
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(pool.home.name).encode() in (process / "environ").read_bytes():
                left.append(int(process.name))
        except OSError:
            continue
    assert left == [pool.client.process.pid]


def test_no_scratch_directory_outlives_its_cell(gentle, pool):
    tasks = pool.client.tasks
    assert list(tasks.iterdir()) == []


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("raises_system_exit", "SystemExit"),
        ("raises_keyboard_interrupt", "KeyboardInterrupt"),
        ("raises_the_unprintable", "raising.Unprintable"),
    ],
)
def test_raising_anything_is_an_outcome(gentle, case, kind):
    assert gentle.verdict(f"raising::{case}::eager") == "pass"
    traced = gentle.records[f"raising::{case}::jit.trace"]
    assert (str(traced.verdict), traced.phase, traced.error.type) == ("error", "capture", kind)


def test_an_exception_that_cannot_be_printed_is_recorded_without_its_words(gentle):
    record = gentle.records["raising::raises_the_unprintable_when_traced::jit.trace"]
    assert record.error.message == "<the exception's own __str__ raised RuntimeError>"


@pytest.mark.parametrize("case", ["floods_stdout", "floods_the_descriptor"])
def test_a_flood_of_output_loses_only_its_beginning(gentle, case):
    assert gentle.verdict(f"noisy::{case}::eager") == "pass"
    output = [json.loads(line) for line in (results_below(gentle.directory) / "output.jsonl").read_text().splitlines()]
    (row,) = (row for row in output if row["cell"] == f"noisy::{case}::eager")
    assert row["stdout"].endswith("the end of it\n")
    assert len(row["stdout"]) <= 8 * 1024


def test_a_case_may_remove_its_directory(gentle):
    assert gentle.verdict("disturbing::removes_its_directory::eager") == "pass"
    assert gentle.verdict("disturbing::removes_its_directory::jit.trace") == "pass"


def test_a_case_that_closes_every_file_cannot_report_a_result(gentle):
    """The connection to the run is among them: no other way to report is left, which a cell could forge."""
    why = "could not report a result: its connection to the run was closed"
    for compiler, verdict, reason in (("eager", "crash", why), ("jit.trace", "not_applicable", f"eager itself {why}")):
        record = gentle.records[f"disturbing::closes_every_file::{compiler}"]
        assert (record.verdict, record.reason) == (verdict, reason)


@pytest.mark.parametrize("case", ["changes_the_default_dtype", "turns_gradients_off"])
def test_a_leak_of_torch_state_stays_in_its_call(gentle, case):
    assert gentle.verdict(f"disturbing::{case}::eager") == "pass"


def test_another_run_gives_the_same_bytes(gentle, warm, tmp_path):
    """Verdict for verdict, with a refusal at capture, a silently wrong, an unstable and a broken graph among them."""
    cases = ("neighbour", "branches", "prints", "random_bytes", "raises_in_eager_alone")
    names = [part for compiler in ("jit.trace", "compile:eager", "fx") for part in ("--compiler", compiler)]
    cells = [f"{PLANTED / 'verdicts.py'}::{case}" for case in cases]
    assert _run(["run", *cells, *names, "--results", str(tmp_path)]) == 0
    lines = (results_below(tmp_path) / "conformance.jsonl").read_bytes().splitlines()
    assert len(lines) == 3 * len(cases)
    assert set(lines) <= set((results_below(gentle.directory) / "conformance.jsonl").read_bytes().splitlines())


@pytest.mark.slow
def test_two_runs_give_the_same_bytes(gentle, warm, tmp_path):
    """Verdict for verdict, with failures, breaks, crashes of capture and unstable cases among them."""
    some = [PLANTED / "verdicts.py", PLANTED / "raising.py"]
    results = []
    for name in ("one", "two"):
        names = [part for compiler in ("jit.trace", "compile:eager", "fx") for part in ("--compiler", compiler)]
        assert _run(["run", *map(str, some), *names, "--results", str(tmp_path / name)]) == 0
        results.append(results_below(tmp_path / name))
    for file in ("conformance.jsonl", "conformance.md"):
        assert (results[0] / file).read_bytes() == (results[1] / file).read_bytes()


LIGHT = ("--compiler", "eager", "--compiler", "jit.trace", "--compiler", "fx")


@pytest.mark.slow
def test_neither_jobs_nor_the_kind_of_worker_changes_a_verdict(warm, command, tmp_path):
    """Two at a time in one server, one at a time in another, and each in a Python of its own."""
    cells = [f"{PLANTED / 'verdicts.py'}::{case}" for case in ("raises_in_eager_alone", "branches")]
    choice = ["--compiler", "jit.trace", "--compiler", "fx"]
    assert _run(["run", *cells, *choice, "--results", str(tmp_path / "two")]) == 0
    variants: dict[str, list[object]] = {
        "one": [*cells, *choice, "--jobs", 1],
        "fresh": [f"{cells[1]}::jit.trace", "--worker", "fresh"],
    }
    expected = (results_below(tmp_path / "two") / "conformance.jsonl").read_bytes().splitlines()
    for name, arguments in variants.items():
        done = command("run", *arguments, "--results", name)
        assert done.returncode == 0, done.stderr
        directory = results_below(command.directory / name)
        lines = (directory / "conformance.jsonl").read_bytes().splitlines()
        assert lines == [line for line in expected if name == "one" or (b"branches" in line and b"jit.trace" in line)]
        worker = json.loads((directory / "environment.json").read_text())["worker"]
        assert worker == ("fresh" if name == "fresh" else "fork")


def test_cells_that_may_generate_code_come_after_all_others(warm, tmp_path):
    (tmp_path / "two.py").write_text(
        "from recapture import case\n\n\n"
        "@case(example=lambda: (1,))\ndef a(x):\n    return 'torch.compile' * x\n\n\n"  # to read it is to suspect it
        "@case(example=lambda: (1,))\ndef b(x):\n    return x\n"
    )
    started = []

    class Order:
        def start(self, likely, jobs, *, guessed):
            assert len(likely) == 4

        def cell_started(self, cell):
            started.append(cell)

        def cell_finished(self, record, seconds):
            pass

    options = RunOptions(
        selection=find_suites((str(tmp_path / "two.py"),)),
        keyword=None,
        compilers=("eager", "fx"),
        device="cpu",
        jobs=2,
        timeout=60.0,
        memory=8 << 30,
        results=tmp_path / "results",
        resume=False,
    )
    summary = runner.run_cells(options, Order(), lambda _: None)
    assert len(summary.records) == 4
    assert {cell.split("::")[1] for cell in started[:2]} == {"b"}
    assert {cell.split("::")[1] for cell in started[2:]} == {"a"}


STOPS_ITS_SERVER = """
import os, signal
from recapture import case

@case(example=lambda: (1,))
def stops_its_server(x):
    if not os.path.exists({once!r}):
        open({once!r}, "w").close()
        os.kill(os.getppid(), signal.SIGSTOP)
    return x
"""


def test_a_server_that_is_stopped_is_replaced_long_before_the_deadline(warm, tmp_path):
    suite = tmp_path / "stopping.py"
    suite.write_text(STOPS_ITS_SERVER.format(once=str(tmp_path / "stopped")))
    hung = warm.client.process
    begin = time.monotonic()
    assert run_in_process(suite, "--compiler", "eager", "--timeout", 120, "--results", tmp_path / "results") == 0
    assert time.monotonic() - begin < 60
    assert hung.returncode == -signal.SIGKILL
    (record,) = records_below(tmp_path / "results").values()
    assert str(record.verdict) == "pass"  # alone, the second time


HANGS_FOR_LONG = """
import time
from recapture import case

@case(example=lambda: (1,), seconds=1.5)
def hangs(x):
    time.sleep(1000)

@case(example=lambda: (1,), seconds=1000)
def takes_a_moment(x):
    time.sleep(0.1)
    return x
"""


def test_a_case_may_have_a_limit_of_its_own_below_that_of_the_run(warm, tmp_path):
    suite = tmp_path / "hanging.py"
    suite.write_text(HANGS_FOR_LONG)
    assert run_in_process(suite, "--compiler", "eager", "--timeout", 120, "--results", tmp_path / "results") == 0
    hangs, moment = records_below(tmp_path / "results").values()
    assert (str(hangs.verdict), hangs.reason) == ("timeout", "still running after 1.5 s")
    assert str(moment.verdict) == "pass"


ORPHANS = """
import os, subprocess, time
from recapture import case

def until(path):
    end = time.monotonic() + 30
    while not os.path.exists(path):
        assert time.monotonic() < end, path
        time.sleep(0.01)

@case(example=lambda: (1,))
def waits_for_a_helper(x):
    if not os.path.exists("answer"):
        over = 'test -e {here}/ended && ! test -e "$(cat {here}/ended)"'
        subprocess.run(["sh", "-c", "(until " + over + "; do sleep 0.01; done; touch answer) &"], check=True)
        open("{here}/begun", "w").close()  # the shell that started the helper is gone
        until("answer")
    return x

@case(example=lambda: (1,))
def ends_meanwhile(x):
    until("{here}/begun")
    with open("here", "w") as file:
        file.write(os.getcwd())  # which goes when this task's orphans are gone
    os.replace("here", "{here}/ended")
    return x
"""


def test_the_end_of_one_task_leaves_the_helpers_of_another_alone(warm, tmp_path):
    suite = tmp_path / "orphans.py"
    suite.write_text(ORPHANS.replace("{here}", str(tmp_path)))
    assert run_in_process(suite, "--compiler", "eager", "--jobs", 2, "--results", tmp_path / "results") == 0
    assert {str(record.verdict) for record in records_below(tmp_path / "results").values()} == {"pass"}


def test_a_missing_compiler_of_the_machine_is_the_machines_fault(command):
    """Planted: a PATH on which there is no g++, and no CXX."""
    cell = f"{PLANTED / 'verdicts.py'}::neighbour::calls-a-compiler"
    done = command("run", cell, "--results", "results", PATH=str(empty(command)), CXX=None, CC=None)
    assert done.returncode == 0, done.stderr
    record = records_below(command.directory / "results")["verdicts::neighbour::calls-a-compiler"]
    assert str(record.verdict) == "environment"
    assert record.reason.startswith("cxx-compiler: ")
    assert "recapture: warning: cxx-compiler: no C++ compiler" in done.stderr


@pytest.mark.slow
def test_inductor_without_a_cxx_compiler_is_the_machines_fault(command):
    cell = f"{PLANTED / 'verdicts.py'}::neighbour::compile"
    done = command("run", cell, "--results", "results", PATH=str(empty(command)), CXX=None, CC=None)
    assert done.returncode == 0, done.stderr
    record = records_below(command.directory / "results")["verdicts::neighbour::compile"]
    assert str(record.verdict) == "environment"
    assert record.reason.startswith("cxx-compiler: ")


def empty(command) -> Path:
    path = command.directory / "no-programs"
    path.mkdir()
    return path


def test_the_example_of_the_readme_works_as_pasted(warm, tmp_path):
    assert (
        run_in_process(
            SUITES / "readme_example.py",
            "--compiler",
            "eager",
            "--compiler",
            "trace-without-check",
            "--results",
            tmp_path,
        )
        == 0
    )
    records = records_below(tmp_path)
    assert str(records["readme_example::clip_by_sign::eager"].verdict) == "pass"
    assert str(records["readme_example::clip_by_sign::trace-without-check"].verdict) == "specialized"
