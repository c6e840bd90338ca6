"""The script of the examples, and their list; `test_docs_commands` runs every command of their READMEs."""

from __future__ import annotations

import re
import subprocess

import pytest
from documents import ROOT, make_copy, make_environment

STORIES = sorted((ROOT / "examples").glob("*/README.md"))


@pytest.fixture
def checkout(tmp_path):
    make_copy(tmp_path)
    return tmp_path


def shell(checkout, command):
    return subprocess.run(
        ["bash", "-c", command],
        cwd=checkout,
        env=make_environment(checkout),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


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
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+/README\.md)\)", index)) == {f"{story.parent.name}/README.md" for story in STORIES}
    for readme in STORIES:
        for link in re.findall(r"\]\(([^)]+)\)", readme.read_text(encoding="utf-8")):
            assert (readme.parent / link).is_file()
