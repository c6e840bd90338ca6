"""The examples: every command of their READMEs is run, and its exit status and output are what the README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch")

REPOSITORY = Path(__file__).resolve().parents[1]
STORIES = sorted((REPOSITORY / "examples").glob("*/README.md"))

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATUS = re.compile(r"(.*?)\s+# exit status (\d)")


@dataclass
class Step:
    """Command lines with their exit statuses, and the lines that their output should hold, in order."""

    commands: list[tuple[str, int]]
    expected: list[str]


def steps_of(text: str) -> list[Step]:
    """Read a README: each block of commands, with the block of output that may follow it."""
    steps: list[Step] = []
    for language, body in BLOCK.findall(text):
        lines = [line for line in body.splitlines() if line]
        if language == "sh":
            steps.append(Step([command_of(line) for line in lines], []))
        else:
            assert language == "text", f"a block is of commands (sh) or of output (text), not {language!r}"
            assert not steps[-1].expected, "two blocks of output after one of commands"
            steps[-1].expected = lines
    return steps


def command_of(line: str) -> tuple[str, int]:
    found = STATUS.fullmatch(line)
    return (found[1], int(found[2])) if found else (line, 0)


def absent(expected: list[str], output: str) -> str | None:
    """The first expected line that the output does not hold after those before it; `…` at its end is for any rest."""
    lines = iter(output.splitlines())
    for wanted in expected:
        start, cut, _ = wanted.partition("…")
        if not any(line.startswith(start) if cut else line.rstrip() == wanted for line in lines):
            return wanted
    return None


@pytest.fixture
def checkout(tmp_path):
    """A folder that looks like the root of a checkout, with `recapture` and `python` as commands."""
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    (tmp_path / "results").symlink_to(REPOSITORY / "results")
    (tmp_path / "build").mkdir()
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, start in (("python", ""), ("recapture", "-m recapture")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {start} "$@"\n')
        (commands / name).chmod(0o755)
    return tmp_path


def shell(checkout: Path, command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    environment |= {"PATH": f"{checkout / 'bin'}:{environment['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=checkout,
        env={**environment, "COLUMNS": "160"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("readme", STORIES, ids=lambda path: path.parent.name)
def test_every_command_does_what_the_readme_says(checkout, readme):
    steps = steps_of(readme.read_text(encoding="utf-8"))
    assert steps
    for step in steps:
        output = ""
        for command, status in step.commands:
            done = shell(checkout, command)
            assert done.returncode == status, f"{command}\n{done.stdout}"
            output += done.stdout
        assert absent(step.expected, output) is None, output


def test_a_command_or_a_line_of_output_that_is_not_so_is_noticed():
    (step,) = steps_of("```sh\nfalse  # exit status 1\ntrue\n```\n\n```text\na…\nb\n```\n")
    assert step.commands == [("false", 1), ("true", 0)]
    assert absent(step.expected, "x\nand so on\nb\n") is None
    assert absent(step.expected, "b\na\n") == "b"
    assert absent(step.expected, "a\nbc\n") == "b"


def test_the_gate_writes_its_comparison_where_the_ci_shows_it(checkout):
    old, new = "results/torch2.6.0-cu124/cpu", "results/torch2.6.0-cu124-drifted/cpu"
    done = shell(checkout, f"GITHUB_STEP_SUMMARY=build/summary.md examples/gate_an_upgrade/gate.sh {old} {new}")
    assert (done.returncode, done.stdout) == (1, "the upgrade makes at least one cell worse\n")
    assert (checkout / "build" / "summary.md").read_text().startswith("# Changes from")


def test_the_gate_does_not_pass_where_nothing_could_be_compared(checkout):
    done = shell(checkout, "examples/gate_an_upgrade/gate.sh results/absent results/torch2.6.0-cu124/cpu")
    assert done.returncode == 2
    assert done.stdout.endswith("the comparison could not be made\n")


def test_every_story_is_in_the_list_of_them():
    index = (REPOSITORY / "examples" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+/README\.md)\)", index)) == {f"{one.parent.name}/README.md" for one in STORIES}
    for readme in STORIES:
        for link in re.findall(r"\]\(([^)]+)\)", readme.read_text(encoding="utf-8")):
            assert (readme.parent / link).is_file()
