"""`recapture run --explain` and `recapture stage`, over compilers with a fault planted before Inductor."""

import json
from pathlib import Path

import pytest
from conftest import records_below, results_below, run_in_process

from recapture.command.main import _run
from recapture.records.guilty_stage import GuiltyStage

FAULTY = Path(__file__).parent / "resources" / "stages" / "faulty_capture.py"


pytestmark = pytest.mark.slow


@pytest.fixture
def explained(warm, tmp_path):
    """The records of a run that searched the guilty stages."""
    assert run_in_process(FAULTY, "--explain", "--results", tmp_path) == 0
    return tmp_path


def test_a_run_that_explains_records_the_guilty_stage_of_each_wrong_cell(explained):
    records = records_below(explained)
    assert records["faulty_capture::of_difference::wrong-graph"].stage == GuiltyStage("dynamo")
    assert records["faulty_capture::of_change::lost-mutation"].stage == GuiltyStage("aot_autograd")
    assert records["faulty_capture::of_difference::unplanted"].verdict == "pass"
    lines = (results_below(explained) / "conformance.jsonl").read_text().splitlines()
    assert ['"stage":' in line for line in lines if '"verdict":"pass"' in line] == [False] * sum(
        '"verdict":"pass"' in line for line in lines
    )
    report = (results_below(explained) / "conformance.md").read_text()
    assert "## Guilty stages" in report
    assert "guilty: **AOTAutograd**" in report


def test_a_resumed_run_keeps_the_stages_that_it_knows(explained, capsys):
    before = (results_below(explained) / "conformance.jsonl").read_bytes()
    assert run_in_process(FAULTY, "--explain", "--resume", "--results", explained) == 0
    assert (results_below(explained) / "conformance.jsonl").read_bytes() == before
    assert "searching" not in capsys.readouterr().err


def test_the_command_prints_the_answer_first_and_then_the_steps(warm, capsys):
    assert _run(["stage", f"{FAULTY}::of_change::lost-mutation", "--budget", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["faulty_capture::of_change::lost-mutation", "  guilty: AOTAutograd"]
    assert any("Dynamo alone (backend eager)" in line and "right" in line for line in lines)


def test_a_right_cell_is_said_to_be_right(warm, capsys):
    assert _run(["stage", f"{FAULTY}::of_difference::unplanted"]) == 0
    assert capsys.readouterr().out == "faulty_capture::of_difference::unplanted: pass, no stage is guilty\n"


def test_the_json_holds_the_stage_and_every_step(warm, capsys):
    assert _run(["stage", f"{FAULTY}::of_difference::wrong-graph", "--json"]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert cell["stage"] == {"name": "dynamo"}
    assert cell["verdict"] == "wrong"
    assert {"tried", "outcome", "verdict"} == set(cell["steps"][0])
    assert 0 < len(cell["steps"]) <= 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a cell"),
        (["no_such_suite"], "unknown suite"),
        (["types", "--budget", "0"], "--budget"),
        (["types::half_overflows_between::no_such"], "unknown compiler"),
        (["types", "--json", "--image", "torch2.6.0-cu124,torch2.11.0-cu130"], "one installation"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line(words, message, warm, capsys):
    assert _run(["stage", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
