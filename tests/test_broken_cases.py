"""A case that cannot be declared, made or run: it costs itself alone."""

from __future__ import annotations

import json

import pytest
from command_lines import BROKEN
from conftest import records_below, results_below, run_in_process

from recapture.command.main import _run

MIXED = """\
import os

import torch
from recapture import case


@case(example=lambda: (torch.ones(2),))
def good(x):
    return x + 1


@case(example=(1,))
def values(x):
    return x


@case(exmaple=lambda: (1,))
def misspelt(x):
    return x


@case(example=lambda: (1 / 0,))
def divides(x):
    return x


@case(example=lambda: os._exit(3))
def exits(x):
    return x
"""


@pytest.fixture
def mixed(tmp_path):
    path = tmp_path / "mixed.py"
    path.write_text(MIXED)
    return path


VALUES = "in suite 'mixed', case 'values': example is not a callable without arguments but (1,) (line 12)"


MISSPELT = "in suite 'mixed', case 'misspelt': unknown option 'exmaple'; did you mean 'example'? (line 17)"


def test_a_broken_case_costs_itself_alone(warm, mixed, tmp_path, capfd):
    assert run_in_process(mixed, "--compiler", "eager", "--results", tmp_path / "results") == 2
    out, err = capfd.readouterr()
    assert "3 planned = 3 recorded: 1 pass, 1 error, 1 crash" in out
    assert {name: str(row.verdict) for name, row in records_below(tmp_path / "results").items()} == {
        "mixed::good::eager": "pass",
        "mixed::divides::eager": "error",
        "mixed::exits::eager": "crash",
    }
    assert err.splitlines()[-3:] == [
        f"recapture: a case was not run: {VALUES}",
        f"recapture: a case was not run: {MISSPELT}",
        "recapture: case 'mixed::divides' cannot run in eager: ZeroDivisionError: division by zero",
    ]
    environment = json.loads((results_below(tmp_path / "results") / "environment.json").read_text())
    (suite,) = environment["suites"]
    assert suite["cases"] == 3
    assert suite["error"].startswith("2 of 5 cases: case 'values': example is not a callable")


@pytest.mark.parametrize(
    ("what", "status", "line"),
    [
        (["::good"], 0, ""),
        (["", "-k", "good"], 0, ""),
        (["::values"], 2, f"recapture: nothing to run: {VALUES}"),
        (["", "-k", "values or misspelt"], 2, f"recapture: nothing to run: {VALUES}; {MISSPELT}"),
        (["::valuse"], 2, "recapture: unknown case 'mixed::valuse'; did you mean 'mixed::values'?"),
    ],
)
def test_a_broken_case_matters_where_it_is_selected(warm, mixed, tmp_path, capfd, what, status, line):
    place, *more = what
    assert run_in_process(f"{mixed}{place}", *more, "--compiler", "eager", "--results", tmp_path / "results") == status
    err = capfd.readouterr().err
    assert "Traceback" not in err
    if status:
        assert err.strip().splitlines()[-1] == line
    else:
        assert "values" not in err


def test_a_case_that_breaks_keeps_its_older_rows(warm, mixed, tmp_path):
    mixed.write_text(MIXED.replace("example=(1,)", "example=lambda: (1,)"))
    results = tmp_path / "results"
    assert run_in_process(f"{mixed}::values", "--compiler", "eager", "--results", results) == 0
    mixed.write_text(MIXED)
    assert run_in_process(mixed, "--compiler", "eager", "--results", results) == 2
    assert "mixed::values::eager" in records_below(results)


def test_list_and_repro_name_a_broken_case(warm, mixed, capfd):
    capfd.readouterr()
    assert _run(["list", str(mixed)]) == 2
    captured = capfd.readouterr()
    lines = [line.split()[0] for line in captured.out.splitlines()]
    assert lines == ["mixed:", "mixed::good", "mixed::divides", "mixed::exits"]
    assert captured.err.splitlines() == [f"recapture: {VALUES}", f"recapture: {MISSPELT}"]
    assert _run(["repro", f"{mixed}::values::eager"]) == 2
    assert capfd.readouterr().err.splitlines() == [f"recapture: {VALUES.partition(', ')[2]}"]


@pytest.mark.parametrize(
    ("suite", "case", "error"),
    [
        (
            "wrong_arity",
            "adds",
            "recapture.cases.case.InputsError: held_out[0] gives 1 arguments, but adds(x, y) says: missing a required argument: 'y'",
        ),
        (
            "no_tuple",
            "forgot_the_comma",
            "recapture.cases.case.InputsError: example gives Tensor, not a tuple of arguments",
        ),
        (
            "factory_raises",
            "unreachable",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 1x2)",
        ),
    ],
)
def test_inputs_that_cannot_be_made_are_recorded_and_reported(warm, capfd, tmp_path, suite, case, error):
    compilers = ["--compiler", "eager", "--compiler", "fx"]
    assert run_in_process(BROKEN / f"{suite}.py", *compilers, "--results", tmp_path) == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert line == f"recapture: case '{suite}::{case}' cannot run in eager: {error}"
    rows = records_below(tmp_path)
    assert set(rows) == {f"{suite}::{case}::eager", f"{suite}::{case}::fx"}
    for row in rows.values():
        assert (row.verdict, row.phase, f"{row.error.type}: {row.error.message}") == ("error", "reference", error)


ENDS = """\
import os
import shutil
import signal

import torch
from recapture import case

EXAMPLE = {{"example": lambda: (torch.ones(2),), "held_out": [lambda: (-torch.ones(2),)]}}


@case(**EXAMPLE)
def forks(x):
    os.fork()
    return x + 1


@case(**EXAMPLE)
def killed(x):
    os.kill(os.getpid(), signal.SIGKILL)
    return x


@case(**EXAMPLE)
def hangs(x):
    signal.pause()


@case(**EXAMPLE)
def removes(x):
    shutil.rmtree({results!r}, ignore_errors=True)
    return x + 1
"""


@pytest.fixture
def ends(tmp_path):
    path = tmp_path / "ends.py"
    path.write_text(ENDS.format(results=str(tmp_path / "results")))
    return path


def test_an_eager_that_dies_says_nothing_about_a_compiler(warm, ends, tmp_path, capfd):
    words = ("--compiler", "eager,fx", "--fail-on", "failing", "--results", tmp_path / "results")
    assert run_in_process(f"{ends}::killed", *words) == 1  # eager's own cell is a crash
    records = records_below(tmp_path / "results")
    eager, fx = records["ends::killed::eager"], records["ends::killed::fx"]
    assert (str(eager.verdict), eager.phase, eager.reason) == ("crash", "reference", "died of SIGKILL")
    assert (str(fx.verdict), fx.phase, fx.reason) == ("not_applicable", "reference", "eager itself died of SIGKILL")
    assert run_in_process(f"{ends}::killed", *words[:1], "fx", *words[2:]) == 0


def test_an_eager_that_hangs_says_nothing_about_a_compiler(warm, ends, tmp_path):
    words = ("--compiler", "eager,fx", "--timeout", 5, "--results", tmp_path / "results")
    assert run_in_process(f"{ends}::hangs", *words) == 0
    records = records_below(tmp_path / "results")
    eager, fx = records["ends::hangs::eager"], records["ends::hangs::fx"]
    assert (str(eager.verdict), eager.reason) == ("timeout", "still running after 5 s")
    assert (str(fx.verdict), fx.reason) == ("not_applicable", "eager itself was still running after 5 s")


def test_the_child_of_a_case_that_forks_ends_after_the_call(warm, ends, tmp_path):
    words = ("--compiler", "eager,fx,jit.trace", "--results", tmp_path / "results")
    assert run_in_process(f"{ends}::forks", *words) == 0
    verdicts = {name.rpartition("::")[2]: str(row.verdict) for name, row in records_below(tmp_path / "results").items()}
    assert verdicts == {"eager": "pass", "fx": "pass", "jit.trace": "pass"}


def test_a_case_that_removes_the_results_costs_no_record(warm, ends, tmp_path, capfd):
    words = ("--compiler", "eager", "--jobs", "1", "--results", tmp_path / "results")
    assert run_in_process(f"{ends}::removes", f"{ends}::killed", *words) == 0
    assert set(records_below(tmp_path / "results")) == {"ends::removes::eager", "ends::killed::eager"}
    assert "Traceback" not in capfd.readouterr().err


def test_a_name_that_no_line_can_hold_is_refused(warm, tmp_path, capfd):
    path = tmp_path / "named.py"
    path.write_text(
        "import torch\nfrom recapture import case\n\n\ndef f(x):\n    return x\n\n\n"
        "f.__name__ = 'a\\nb'\ncase(example=lambda: (torch.ones(1),))(f)\n"
    )
    capfd.readouterr()
    assert _run(["list", str(path)]) == 2
    assert "its name has characters that cannot be printed" in capfd.readouterr().err
