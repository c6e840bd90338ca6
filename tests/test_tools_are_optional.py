"""A tool is a folder: without it, its commands are unknown, and everything else works."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recapture.command.command_table import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[1]
TOOLS = sorted(path.parent.name for path in (REPOSITORY / "recapture" / "tools").glob("*/__init__.py"))

OLD, NEW = "results/torch2.6.0-cu124/cpu", "results/torch2.11.0-cu130/cpu"
MODEL = ("examples/pytest_plugin/model.py:Scorer", "--input", "8x4", "--compiler", "jit.trace")

PROGRAM = """
import contextlib, io, json, sys
from recapture.command.main import _run
rows = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        status = _run(words)
    rows.append([status, out.getvalue(), errors.getvalue()])
print(json.dumps(rows))
"""


def tool_of(command):
    parts = COMMANDS[command].place.split(".")
    return parts[2] if parts[1] == "tools" else None


def of_tool(tool):
    return [name for name in COMMANDS if tool_of(name) == tool]


@pytest.fixture(scope="module", params=TOOLS)
def tool(request):
    return request.param


@pytest.fixture(scope="module")
def checkout(tool, tmp_path_factory):
    """A copy of the package and of what it reads, without the folder of one tool."""
    folder = tmp_path_factory.mktemp(f"without_{tool}")
    for name in ("recapture", "suites", "docker", "examples", OLD, NEW):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    shutil.rmtree(folder / "recapture" / "tools" / tool)
    return folder


@pytest.fixture(scope="module")
def run(checkout):
    """Run command lines in the copy, all in one process; return the status and both outputs of each."""

    def run(*lines):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps([list(words) for words in lines])],
            capture_output=True,
            text=True,
            check=False,
            cwd=checkout,
            env={"PYTHONPATH": str(checkout), "PATH": "/usr/bin:/bin", "HOME": str(checkout)},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.quick
def test_its_commands_are_unknown_and_the_others_have_their_help(tool, run):
    absent = of_tool(tool)
    others = [name for name in COMMANDS if name not in absent]
    (status, summary, _), *rows = run(("--help",), *((name, "--help") for name in [*absent, *others]))
    assert status == 0
    listed = [line.split()[0] for line in summary.splitlines() if line.startswith("  ") and line.strip()]
    assert set(listed) & set(COMMANDS) == set(others)
    for name, (status, out, errors) in zip([*absent, *others], rows, strict=True):
        if name in absent:
            assert (status, out) == (2, "")
            assert f"no such command {name!r}" in errors
        else:
            assert (status, errors) == (0, "")
            assert out.startswith(f"Usage: recapture {name}")


@pytest.mark.quick
def test_results_are_listed_reported_and_compared(tool, run, checkout):
    lines = [("list", "control_flow", "--json"), ("list", "--compilers"), ("report", NEW, "--json")]
    lines += (
        [("diff", OLD, NEW), ("diff", NEW, NEW, "--json"), ("history", "control_flow::branch_on_sum")]
        if tool != "compare"
        else []
    )
    lines += [("plan", "--image", "torch2.11.0-cu130", "--json")] if tool != "fleet" else []
    lines += [("report", NEW, "--from", "jit.script", "--to", "export")] if tool != "check" else []
    rows = run(*lines)
    assert [(status, errors) for status, _, errors in rows] == [(0, "")] * len(lines)
    outputs = {words[0]: out for words, (_, out, _) in zip(lines, rows, strict=True) if words[-1] == "--json"}
    assert any(row["case"] == "control_flow::branch_on_sum" for row in json.loads(outputs["list"]))
    report = json.loads(outputs["report"])
    assert len(report["results"][0]["records"]) > 7000
    assert ("speedups" in report) == (tool != "speed")
    for name in ("conformance.md", "conformance.jsonl"):
        assert (checkout / NEW / name).read_bytes() == (REPOSITORY / NEW / name).read_bytes()
    if tool != "compare":
        assert bool(json.loads(outputs["diff"])["speeds"]) == (tool != "speed")


@pytest.mark.quick
def test_the_directions_of_imports_are_kept(checkout):
    program = Path(sys.executable).with_name("lint-imports")
    if not program.is_file():
        pytest.skip("import-linter is not installed")
    done = subprocess.run(
        [program, "--no-cache"], cwd=checkout, capture_output=True, text=True, check=False, env={"PYTHONPATH": ""}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broken" in done.stdout


@pytest.mark.slow
def test_cells_run_and_code_is_checked(tool, run, checkout):
    cell = "control_flow::branch_on_sum"
    lines: list[tuple[str, ...]] = [
        ("run", cell, "--compiler", "jit.trace", "--results", "out", "--jobs", "1", "--json")
    ]
    lines += [("check", *MODEL, "--json")] if tool != "check" else []
    lines += [("bench", "--list")] if tool != "speed" else []
    lines += [("repro", f"{cell}::jit.trace", "--json")] if tool != "explain" else []
    refused: list[tuple[str, ...]] = [("run", cell, "--explain")] if tool == "explain" else []
    refused += [("check", *MODEL, "--time")] if tool == "speed" else []
    rows = run(*lines, *refused)
    for words, (status, _, errors) in zip(lines, rows, strict=False):
        assert status == 0, (words, errors)
    assert json.loads(rows[0][1])["verdicts"] == {"specialized": 1}
    assert (checkout / json.loads(rows[0][1])["results"] / "conformance.jsonl").is_file()
    if tool != "check":
        assert [row["compiler"] for row in json.loads(rows[1][1])["rows"]] == ["jit.trace"]
    for words, (status, _, errors) in zip(refused, rows[len(lines) :], strict=True):
        assert status == 2, (words, errors)
        assert words[-1] in errors
