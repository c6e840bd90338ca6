"""The files that contributors and CI rely on agree with the project."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from recapture.base.toml_file import read_toml

REPOSITORY = Path(__file__).resolve().parents[1]
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
WORKFLOW = (REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
HOOKS = (REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8")


def test_the_layers_that_contributors_read_of_are_those_of_the_import_contract():
    (contract,) = [
        table
        for table in read_toml(REPOSITORY / "pyproject.toml")["tool"]["importlinter"]["contracts"]
        if table["type"] == "layers"
    ]
    (layers,) = re.findall(r"^\w+(?: → \w+)+$", CONTRIBUTING, re.MULTILINE)
    assert layers.split(" → ") == [
        layer.removeprefix("recapture.") for layer in contract["layers"] if layer != "recapture.tools"
    ]


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:recapture|suites|docker|\.ci|\.github|tests)/[\w./-]+)`", CONTRIBUTING)))
)
def test_the_files_that_contributors_are_sent_to_exist(path):
    assert (REPOSITORY / path).exists()


def test_the_workflow_calls_steps_that_exist():
    run = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"step: \[([\w, ]+)\]", WORKFLOW)
    steps = {*matrix.split(", "), *re.findall(r"run: \.ci/run (\w+)", WORKFLOW)}
    assert all(f"run_{step}()" in run for step in steps)
    assert steps - {"slow", "coverage"} == set(gating_steps())


def gating_steps():
    """The steps that `.ci/run` runs when none is named."""
    (steps,) = re.findall(
        r"\|\| set -- ([\w ]+)$", (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE
    )
    return steps.split()


def test_contributors_read_of_the_steps_that_gate_a_change():
    (listed,) = re.findall(r"what gates a change: (.+?), the steps", CONTRIBUTING)
    assert re.split(", | and ", listed) == gating_steps()


def test_the_docstring_of_the_noxfile_names_every_session():
    module = ast.parse((REPOSITORY / "noxfile.py").read_text(encoding="utf-8"))
    sessions = {
        next(
            (ast.literal_eval(word.value) for word in getattr(mark, "keywords", ()) if word.arg == "name"),
            function.name,
        )
        for function in module.body
        if isinstance(function, ast.FunctionDef)
        for mark in function.decorator_list
        if ast.unparse(mark).startswith("nox.session")
    }
    named = (ast.get_docstring(module) or "").splitlines()[0]
    assert set(re.findall(r"``(?:nox -s )?([\w-]+)``", named)) == sessions


@pytest.mark.parametrize("installs_only", [False, True])
def test_coverage_is_reported_where_tests_ran(monkeypatch, tmp_path, installs_only):
    stub = SimpleNamespace(  # nox is not installed beside the tests
        options=SimpleNamespace(),
        project=SimpleNamespace(load_toml=read_toml),
        session=lambda function=None, **_: function or (lambda function: function),
    )
    monkeypatch.setitem(sys.modules, "nox", stub)
    lines = {"covered_lines": 3, "num_statements": 4}
    report = {"files": {"recapture/pool/client.py": {"summary": lines}}, "totals": {"percent_covered": 75.0}}

    def run(*_):
        if installs_only:
            return None
        (tmp_path / "coverage.json").write_text(json.dumps(report))
        return True

    log_lines = []
    session = SimpleNamespace(cache_dir=tmp_path, run=run, log=log_lines.append)
    runpy.run_path(str(REPOSITORY / "noxfile.py"))["report_coverage"](session)
    assert (log_lines == []) == installs_only
    assert installs_only or log_lines[0] == "coverage of recapture/pool: 75% of 4 statements"


def test_the_slow_tests_take_the_same_time_in_every_document():
    run = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    times = re.findall(r"the slow tests, (\w+ \w+ minutes)", run + CONTRIBUTING)
    assert len(times) == 2
    assert len(set(times)) == 1


def test_what_ci_and_the_hooks_install_is_pinned():
    actions = re.findall(r"uses: (\S+)", WORKFLOW)
    assert actions
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in actions)
    listed = re.findall(r"- ([\w-]+[=<>]\S+)", HOOKS)
    inline = [tool for group in re.findall(r"additional_dependencies: \[(.+)\]", HOOKS) for tool in group.split(", ")]
    tools = [tool.strip('"') for tool in [*listed, *inline]]
    assert {"ruff", "mypy", "import-linter"} <= {tool.partition("==")[0] for tool in tools}
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", tool) for tool in tools)


def test_the_bake_file_builds_every_image_with_its_pins():
    from bake_file import FILE, bake_file, target_name

    from recapture.machine.pins import load_images

    content = FILE.read_text(encoding="utf-8")
    assert content == bake_file(), "python tools/bake_file.py --write"
    targets = re.findall(r'^target "([\w-]+)" \{', content, re.MULTILINE)
    assert targets == ["_image", *map(target_name, load_images().values())]
    assert "type=sbom" in content
    assert "type=provenance" in content


def test_the_readme_of_a_release_has_absolute_links(monkeypatch):
    # hatchling is not installed beside the tests
    hatchling = SimpleNamespace(MetadataHookInterface=object, BuildHookInterface=object)
    for name in ("hatchling.metadata.plugin.interface", "hatchling.builders.hooks.plugin.interface"):
        monkeypatch.setitem(sys.modules, name, hatchling)
    build = runpy.run_path(str(REPOSITORY / "tools" / "hatch_build.py"))
    text = build["with_absolute_links"](
        (REPOSITORY / "README.md").read_text(encoding="utf-8"), "https://a.example/r/blob/v1"
    )
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert all(link.startswith("https://") for link in links)
    assert "https://a.example/r/blob/v1/docs/your-own-code.md" in links
    page = build["ProjectPage"]()
    page.root = str(REPOSITORY)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://a.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "some/body")
    metadata = {}
    page.update(metadata)
    assert metadata["urls"]["Repository"] == "https://a.example/some/body"
    monkeypatch.delenv("GITHUB_REPOSITORY")
    page.update(metadata := {})
    assert "urls" not in metadata
    assert "](docs/your-own-code.md)" in metadata["readme"]["text"]


def test_the_citation_is_of_this_version():
    from recapture.base.version import __version__

    assert f"\nversion: {__version__}\n" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")


def test_the_action_and_the_hook_use_options_that_exist():
    from recapture.tools.check.check_command import check_command
    from recapture.tools.lint.lint_command import lint_command

    action = (REPOSITORY / "action.yml").read_text(encoding="utf-8")
    known = {
        name for command in (lint_command, check_command) for parameter in command.params for name in parameter.opts
    }
    known |= {"--quiet"}  # of pip
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", action)) <= known
    hook = (REPOSITORY / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert "entry: recapture lint" in hook
    assert "additional_dependencies" not in hook  # a wheel of the repository has the data: no other package is needed


def test_what_the_source_distribution_has_exists():
    content = read_toml(REPOSITORY / "pyproject.toml")["tool"]["hatch"]["build"]["targets"]
    assert all((REPOSITORY / path).exists() for path in content["sdist"]["only-include"])
    assert set(content["wheel"]["force-include"]) <= set(content["sdist"]["only-include"])
