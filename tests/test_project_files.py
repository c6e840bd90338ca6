"""The files that contributors and CI rely on agree with the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recapture.machine.pins import read_toml

REPOSITORY = Path(__file__).resolve().parents[1]
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
WORKFLOW = (REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
HOOKS = (REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8")


def test_the_layers_that_contributors_read_of_are_those_of_the_import_contract():
    (contract,) = [
        one
        for one in read_toml(REPOSITORY / "pyproject.toml")["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers"
    ]
    (written,) = re.findall(r"^\w+(?: → \w+)+$", CONTRIBUTING, re.MULTILINE)
    assert written.split(" → ") == [layer.removeprefix("recapture.") for layer in contract["layers"]]


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:recapture|suites|docker|\.ci|\.github|tests)/[\w./-]+)`", CONTRIBUTING)))
)
def test_the_files_that_contributors_are_sent_to_exist(path):
    assert (REPOSITORY / path).exists()


def test_the_workflow_calls_steps_that_exist():
    run = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"step: \[([\w, ]+)\]", WORKFLOW)
    steps = {*matrix.split(", "), *re.findall(r"run: \.ci/run (\w+)", WORKFLOW)}
    assert steps == {"tests", "lint", "engine", "slow"}
    assert all(f"run_{step}()" in run for step in steps)


def test_what_ci_and_the_hooks_install_is_pinned():
    actions = re.findall(r"uses: (\S+)", WORKFLOW)
    assert actions
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in actions)
    listed = re.findall(r"- ([\w-]+[=<>]\S+)", HOOKS)
    inline = [one for group in re.findall(r"additional_dependencies: \[(.+)\]", HOOKS) for one in group.split(", ")]
    tools = [one.strip('"') for one in [*listed, *inline]]
    assert {"ruff", "mypy", "import-linter"} <= {one.partition("==")[0] for one in tools}
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", one) for one in tools)
