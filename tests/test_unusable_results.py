"""Results that a run cannot read or write are refused and left alone; a selective run keeps the others."""

from __future__ import annotations

import json
import shutil

import pytest
from command_lines import VERDICTS
from conftest import results_below, share

from recapture.command.main import _run

OPTIONS = ["run", f"{VERDICTS}::branches", "--compiler", "eager", "--compiler", "fx", "--results"]


@pytest.fixture(scope="module")
def once(pool, tmp_path_factory):
    """A results root with one run in it, of which each test gets a copy."""
    root = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        share(pool, patch)
        assert _run([*OPTIONS, str(root)]) == 0
    return root


@pytest.fixture
def recorded(once, warm, tmp_path):
    """A results root with one run in it, and the options that made it."""
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    return tmp_path, [*OPTIONS, str(tmp_path)]


@pytest.mark.parametrize("resume", [[], ["--resume"]])
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (
            lambda text: text.replace('"schema":3', '"schema":4', 1),
            ":1: record schema 4 is not understood by this version, which reads 1 and 2 and 3",
        ),
        (lambda text: text.replace("eager", "ea\nger", 1), ":1: not a JSON record: "),
        (lambda text: text[:-5], ": the last line is cut off; the run that wrote it was interrupted"),
        (
            lambda text: text.replace('"verdict":"pass"', '"verdict":"passed"', 1),
            ":1: Invalid enum value 'passed' - at `$.verdict`",
        ),
    ],
)
def test_results_that_cannot_be_understood_are_refused_and_left_alone(recorded, refused, damage, complaint, resume):
    root, options = recorded
    path = results_below(root) / "conformance.jsonl"
    damaged = damage(path.read_text())
    path.write_text(damaged)
    assert f"{path}{complaint}" in refused(*options, *resume)
    assert path.read_text() == damaged


def test_a_results_directory_below_a_file_is_refused(warm, refused, tmp_path):
    (tmp_path / "file").touch()
    line = refused("run", f"{VERDICTS}::neighbour::eager", "--results", tmp_path / "file" / "results")
    assert line.startswith(f"cannot write results to {tmp_path / 'file' / 'results'}")
    assert line.endswith(": Not a directory")


def test_a_results_directory_that_cannot_exist_is_refused(warm, refused):
    assert refused("run", f"{VERDICTS}::neighbour::eager", "--results", "/proc/results").startswith(
        "cannot write results to /proc/results"
    )


def test_a_results_file_that_cannot_be_written_is_refused(recorded, refused):
    root, options = recorded
    (results_below(root) / "conformance.partial.jsonl").mkdir()
    before = (results_below(root) / "conformance.jsonl").read_bytes()
    assert "conformance.partial.jsonl" in refused(*options)
    assert (results_below(root) / "conformance.jsonl").read_bytes() == before


def test_a_selective_run_shows_what_was_run_and_where_the_rest_is(recorded, capfd):
    root, _ = recorded
    capfd.readouterr()
    assert _run(["run", f"{VERDICTS}::neighbour::eager", "--results", str(root)]) == 0
    directory = results_below(root)
    out = capfd.readouterr().out
    assert "\n1 planned = 1 recorded: 1 pass\n" in out
    assert "branches" not in out
    assert out.endswith(f"results: {directory}\n3 records in all: recapture report {directory} shows them\n")


def test_the_environment_of_a_run_says_what_was_asked(recorded):
    root, _ = recorded
    environment = json.loads((results_below(root) / "environment.json").read_text())
    assert environment["selection"] == ["<path>::branches --compiler eager --compiler fx"]  # results are published
    assert environment["worker"] == "fork"
