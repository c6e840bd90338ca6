"""Reductions that run: the verdict is kept, what was tried is counted, and nothing outside the own folders changes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import REPOSITORY

from recapture.base.errors import UsageError
from recapture.command.main import _run
from recapture.records.verdicts import Verdict
from recapture.tools.explain.reduce import candidates
from recapture.tools.explain.reduce.candidates import CandidateRunner
from recapture.tools.explain.reduce.reducing import ReduceOptions, open_reduction

SUITE = '''\
import os
import signal
import time

import numpy as np
import torch
from recapture import case, compiler

OUTSIDE = {outside!r}


def scale(x, factor=2):
    return x * factor


def unrelated(x):
    return x


@case(
    example=lambda: (torch.ones(2), torch.ones(1)),
    held_out=[
        lambda: (torch.ones(1), torch.ones(1)),
        lambda: (-torch.ones(2), torch.ones(1)),
    ],
    claims={{"jit.trace": ("T1", "specialized")}},
)
def branch(x, n):
    """Takes a branch."""
    y = scale(x)
    if n.numel() > 90:
        return {{"a": y}}
    if y.sum() > 0:
        return y + 1
    return y


@case(example=lambda: (torch.ones(2),))
def right(x):
    return x + 1


@case(example=lambda: (torch.ones(2), torch.ones(1)))
def two_results(x, y):
    return [x, y], 3


@case(example=lambda: (torch.ones(2),))
def writes(x):
    y = x + 1
    path = OUTSIDE + "/kept/file"
    os.path.exists(path)
    z = y * 2
    return z


@compiler("casts")
def casts(fn, example):
    """Gives the second tensor in another dtype."""

    def captured(x, y):
        (a, b), rest = fn(x, y)
        return [a, b.long()], rest

    return captured


@compiler("removes")
def removes(fn, example):
    """Is wrong, whatever it is given."""
    return lambda *args: fn(*args) + 1


@compiler("dies")
def dies(fn, example):
    """Ends the process on negative numbers."""

    def captured(x, *rest):
        if (x < 0).any():
            os.kill(os.getpid(), signal.SIGSEGV)
        return fn(x, *rest)

    return captured


@compiler("hangs")
def hangs(fn, example):
    """Does not come back."""
    return lambda *args: time.sleep(600)


@compiler("refuses")
def refuses(fn, example):
    """Raises at the capture."""
    raise ValueError(f"cannot take {{len(example)}} arguments of which the first has {{example[0].dim()}} dimensions")
'''


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    (folder / "kept").mkdir()
    (folder / "kept" / "file").write_text("kept")
    return folder


@pytest.fixture(scope="module")
def suite(tmp_path_factory, outside):
    path = tmp_path_factory.mktemp("suites") / "planted_reduction.py"
    path.write_text(SUITE.format(outside=str(outside)))
    return path


@pytest.fixture
def reduced(pool, suite):
    """Reduces a cell of the suite on the shared server."""

    def run(cell, advanced=lambda _: None, **options):
        with open_reduction(
            f"{suite}::{cell}", ReduceOptions(**{"seconds": 600.0, "jobs": 2, **options}), pool
        ) as reduction:
            return reduction.run(advanced)

    return run


def test_a_program_gets_smaller_and_keeps_its_verdict(reduced):
    sizes = []
    outcome = reduced("branch::jit.trace", lambda program: sizes.append(program.size))
    assert (outcome.verdict, outcome.holds, outcome.ending) == (Verdict.SPECIALIZED, True, "finished")
    assert outcome.after.lines <= 9
    assert outcome.before.lines >= 14
    assert outcome.tries >= len(sizes) > 3
    assert sizes[-1].bytes <= sizes[0].bytes
    assert outcome.seconds > 0
    assert outcome.case.count("lambda") == 2, "one held-out input reveals it"
    for removed in ("90", "scale", "numpy", "range", "claims", "unrelated", "compiler"):
        assert removed not in outcome.case


@pytest.mark.slow
def test_what_a_reduction_gives_does_not_depend_on_how_many_tries_run_at_once(reduced, pool, monkeypatch):
    together = reduced("branch::jit.trace").case
    monkeypatch.setattr(pool, "jobs", 1)
    assert reduced("branch::jit.trace").case == together


@pytest.mark.slow
def test_the_place_of_a_difference_is_kept(reduced):
    outcome = reduced("two_results::casts")
    assert outcome.holds
    assert (outcome.result.differences[0].kind, outcome.result.differences[0].where) == ("dtype", "result[0][1]")
    assert outcome.fault == "wrong: dtype of result[0][1] on example"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "verdict", "text"),
    [
        ("branch::dies", Verdict.CRASH, "died of SIGSEGV"),
        ("right::refuses", Verdict.ERROR, "ValueError: cannot take # arguments of which the first"),
    ],
)
def test_crashes_and_exceptions_are_reduced(reduced, cell, verdict, text):
    outcome = reduced(cell)
    assert (outcome.verdict, outcome.holds) == (verdict, True)
    assert text in outcome.fault
    assert outcome.after.bytes <= outcome.before.bytes
    assert outcome.after.lines <= 6


@pytest.mark.slow
def test_a_hanging_cell_is_reduced_until_the_time_is_over(reduced):
    begin = time.monotonic()
    outcome = reduced("right::hangs", timeout=2.0, seconds=5.0)
    assert (outcome.verdict, outcome.ending) == (Verdict.TIMEOUT, "time limit")
    assert outcome.holds
    assert time.monotonic() - begin < 60


def test_the_time_limit_keeps_the_best_program(reduced):
    outcome = reduced("branch::jit.trace", seconds=0.0)
    assert (outcome.ending, outcome.tries, outcome.holds) == ("time limit", 0, True)
    assert outcome.before == outcome.after


def test_an_interruption_keeps_the_best_program(reduced, monkeypatch):
    accepted = []
    first = CandidateRunner.first

    def interrupted(self, candidates):
        if len(accepted) == 2:
            raise KeyboardInterrupt
        smaller = first(self, candidates)
        accepted.extend([smaller] if smaller else [])
        return smaller

    monkeypatch.setattr(CandidateRunner, "first", interrupted)
    outcome = reduced("branch::jit.trace")
    assert (outcome.ending, outcome.holds) == ("interrupted", None)
    assert outcome.after.bytes < outcome.before.bytes


def test_tries_that_an_interruption_leaves_over_do_not_disturb_the_next_ones(pool, suite, monkeypatch):
    begun = []

    def interrupted(self, task):
        begun.append(task)
        if len(begun) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(candidates._Batch, "begun", interrupted)
    with open_reduction(f"{suite}::branch::jit.trace", ReduceOptions(jobs=2), pool) as reduction:
        outcome = reduction.run(lambda _: None)
        assert outcome.ending == "interrupted"
        assert pool.left_over
        again, _ = reduction.runner.result(outcome.case)
    assert again.verdict is Verdict.SPECIALIZED
    assert not pool.left_over


def test_an_interruption_of_the_last_check_keeps_the_program(reduced, monkeypatch):
    single, runs = candidates._Single.begun, []

    def interrupted(self, task):
        runs.append(task)
        if len(runs) == 3:  # after the whole suite and the program to begin with
            raise KeyboardInterrupt
        single(self, task)

    monkeypatch.setattr(candidates._Single, "begun", interrupted)
    outcome = reduced("branch::jit.trace", seconds=0.0)
    assert (outcome.ending, outcome.holds) == ("interrupted", None)


@pytest.mark.slow
def test_a_candidate_changes_no_file_outside_its_folders(reduced, outside, suite):
    before = sorted(suite.parent.iterdir())
    outcome = reduced("writes::removes")
    assert outcome.holds
    assert (outside / "kept" / "file").read_text() == "kept"
    assert sorted(suite.parent.iterdir()) == before


PROTECTED = """
import os, shutil, sys
from pathlib import Path
from recapture.tools.explain.reduce.attempt import protect_files
inside, outside = map(Path, sys.argv[1:])
protect_files((str(inside),))
(inside / "new").write_text("fine")
(inside / "new").rename(inside / "other")
shutil.rmtree(inside / "tree")
(outside / "file").read_text()
for act in (
    lambda: (outside / "new").write_text("x"),
    lambda: (outside / "file").unlink(),
    lambda: (outside / "file").rename(inside / "file"),
    lambda: (inside / "other").rename(outside / "other"),
    lambda: shutil.rmtree(outside),
    lambda: (outside / "more").mkdir(),
    lambda: (inside / ".." / outside.name / "file").write_text("x"),
    lambda: (inside / "link" / "file").write_text("x"),
    lambda: os.truncate(outside / "file", 0),
    lambda: (outside / "file").chmod(0),
    lambda: os.remove("file", dir_fd=os.open(outside, os.O_RDONLY)),
    lambda: os.kill(os.getppid(), 0),
):
    try:
        act()
    except PermissionError:
        continue
    raise SystemExit("a change was allowed")
print("refused")
"""


def test_files_outside_are_protected_in_every_way_that_python_reports(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "tree").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").write_text("kept")
    (inside / "link").symlink_to(outside)
    done = subprocess.run(
        [sys.executable, "-c", PROTECTED, str(inside), str(outside)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert (done.stdout, done.returncode) == ("refused\n", 0), done.stderr
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("right::jit.trace", "is pass here: there is nothing to reduce"),
        ("rihgt::jit.trace", "did you mean"),
        ("right::jit.tarce", "unknown compiler 'jit.tarce'"),
    ],
)
def test_a_cell_without_a_fault_is_refused_in_one_line(reduced, cell, message):
    with pytest.raises(UsageError, match=message):
        reduced(cell)


def test_an_address_that_is_no_cell_is_refused(pool):
    with pytest.raises(UsageError, match="is not a cell"), open_reduction("types", ReduceOptions(), pool):
        pass


@pytest.mark.slow
def test_a_compiler_that_names_its_backend_has_one_stage(pool):
    with open_reduction("graphs::asks_whether_compiling::compile:eager", ReduceOptions(jobs=2), pool) as reduction:
        program, result, fault = reduction.begin()
        stage, checks = reduction._checks(program, result)
    assert (result.verdict, fault.verdict) == (Verdict.WRONG, Verdict.WRONG)
    assert (stage, len(checks)) == ("Dynamo", 1)


@pytest.mark.slow
def test_the_command_prints_sizes_first_and_writes_the_script(shared, suite, tmp_path, capsys):
    path = tmp_path / "smallest.py"
    assert _run(["reduce", f"{suite}::branch::jit.trace", "--output", str(path)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("planted_reduction::branch::jit.trace on cpu: specialized: value of result on held_out")
    assert " lines, " in lines[1]
    assert " a second; nothing smaller was found" in lines[1]
    assert "# the smallest program as a case" in lines
    assert "lines," in err
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "recapture" not in path.read_text().replace("::", "")
    assert "eager" in done.stdout


@pytest.mark.slow
def test_json_has_the_programs_and_the_counts(shared, suite, capsys):
    assert _run(["reduce", f"{suite}::right::removes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict_kept"] is True
    assert document["after"]["lines"] <= document["before"]["lines"]
    assert document["tries"] > 0
    compile(document["case"], "case", "exec")
    compile(document["script"], "script", "exec")


def test_output_that_cannot_be_written_costs_no_reduction(suite, tmp_path, capsys):
    """It is refused before the first program runs."""
    assert _run(["reduce", f"{suite}::branch::jit.trace", "--output", str(tmp_path / "no" / "file")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_prints_the_best_program(command, suite, number):
    process = command.start("reduce", f"{suite}::branch::jit.trace", "--seconds", "500", "-j", "1")
    for line in process.stderr:
        if "lines" in line:  # the first smaller program
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number, err
    assert "interrupted, so it may get smaller" in out
    assert "# the smallest program as a case" in out
    assert "Traceback" not in err
    assert command.leftovers(10) == []


@pytest.mark.slow
def test_the_guilty_stage_of_an_inductor_fault_stays_inductor(pool):
    options = ReduceOptions(jobs=2, seconds=60.0)
    with open_reduction("types::python_big_int::compile", options, pool) as reduction:
        outcome = reduction.run(lambda _: None)
        again, _ = reduction.runner.result(outcome.case, "aot_eager")
    assert (outcome.stage, outcome.holds) == ("Inductor", True)
    assert outcome.searched_with == "compile"
    assert again.verdict in (Verdict.PASS, Verdict.PASS_WITH_BREAKS)


@pytest.mark.slow
def test_a_dynamo_fault_is_searched_without_inductor(pool):
    options = ReduceOptions(jobs=2, seconds=60.0)
    with open_reduction("graphs::asks_whether_compiling::compile", options, pool) as reduction:
        outcome = reduction.run(lambda _: None)
    assert (outcome.stage, outcome.holds, outcome.searched_with) == ("Dynamo", True, "compile up to eager")
    assert outcome.after.lines <= 7
