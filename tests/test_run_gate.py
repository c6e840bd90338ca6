"""`recapture run` as a gate: what its exit status says, and what it writes for continuous integration."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from recapture.records.verdicts import FAIL_ON, Verdict

CASES = """
import torch
from recapture import case


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)])
def branch(x):
    return x * 2 if x.sum() > 0 else x
"""


@pytest.fixture
def run(command):
    """Run the case, which `jit.trace` gets silently wrong and `fx` refuses."""
    (command.directory / "mine.py").write_text(CASES)

    def run(*words, compilers=("eager", "jit.trace", "fx")):
        chosen = [part for name in compilers for part in ("--compiler", name)]
        return command("run", "mine.py", "--results", "results", *chosen, *words)

    return run


def test_a_run_fails_on_the_verdicts_that_it_was_asked_for(run):
    assert run().returncode == 0
    ended = run("--fail-on", "silently_wrong", "--fail-on", "breaks", "--resume")
    assert ended.returncode == 1
    assert ended.stderr.endswith("recapture: --fail-on silently_wrong: 1 cell\n")
    assert "--fail-on breaks" not in ended.stderr
    # Cells that were not selected do not count.
    assert run("--fail-on", "any", "--resume", compilers=("eager",)).returncode == 0


def test_junit_has_a_test_for_each_cell(run, command):
    assert run("--junit", "report.xml").returncode == 0
    (suite,) = ET.parse(command.directory / "report.xml").getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "1", "0"]
    outcomes = {row.get("name"): [child.tag for child in row] for row in suite.iter("testcase")}
    assert outcomes == {"eager": [], "fx": ["error"], "jit.trace": ["failure"]}
    assert {row.get("classname") for row in suite.iter("testcase")} == {"mine::branch"}
    assert all(float(row.get("time")) > 0 for row in suite.iter("testcase"))
    assert "held_out[0]: result (value)" in suite.find("testcase/failure").text


def test_a_quiet_run_prints_what_fails_alone(run):
    ended = run("--quiet", "--fail-on", "silently_wrong")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "recapture: --fail-on silently_wrong: 1 cell\n"


def test_one_junit_file_is_not_for_several_images(run):
    ended = run("--junit", "report.xml", "--image", "torch2.6.0-cu124,torch2.11.0-cu130")
    assert ended.returncode == 2
    assert "--junit is for a run" in ended.stderr


def test_the_words_of_fail_on_cover_every_verdict_that_is_no_plain_pass():
    named = FAIL_ON["silently_wrong"] | FAIL_ON["failing"] | FAIL_ON["breaks"]
    assert named <= FAIL_ON["any"]
    assert Verdict.PASS not in FAIL_ON["any"]
    assert Verdict.NOT_APPLICABLE not in FAIL_ON["any"]
