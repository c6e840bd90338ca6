"""The wheel: what `recapture` answers in an empty folder, without a checkout and without torch."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from recapture.data import decode

ROOT = Path(__file__).resolve().parents[1]
CELL = "control_flow::branch_on_sum::jit.trace"
TURNED = "known_inductor::sinh_near_the_largest_float::compile"
"""A cell that a release turned silently wrong."""
BYTES = 1_000_000
"""The most bytes of the compressed data."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, built as a release builds it: from a source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = shutil.which("uv") or pytest.skip("needs uv")
    run = subprocess.run([uv, "build", "--out-dir", folder, ROOT], capture_output=True, text=True, check=False)
    if run.returncode and "hatchling" in run.stderr:
        pytest.skip("needs a package index, or its cache")
    assert run.returncode == 0, run.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder, into which a test may write its model."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(scope="module")
def alone(wheel, folder, tmp_path_factory):
    """Return a function that runs a command line of the wheel in an empty folder, where torch cannot be imported."""
    package = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(package)
    # The dependencies of recapture, by name: the environment of the tests has torch beside them.
    site = Path(sysconfig.get_path("purelib"))
    names = (
        "click jinja2 markupsafe msgspec packaging psutil rich markdown_it mdurl pygments tabulate cloudpickle pynvml"
    )
    for name in names.split():
        if (site / name).exists():
            (package / name).symlink_to(site / name)
        elif (site / f"{name}.py").exists():
            (package / f"{name}.py").symlink_to(site / f"{name}.py")
        else:
            pytest.skip(f"needs {name}")
    if sys.version_info < (3, 11):
        (package / "tomli").symlink_to(site / "tomli")

    def run(*words):
        command = [sys.executable, "-S", "-m", "recapture", *words]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package), "HOME": str(folder)}
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    return run


def test_pytest_has_nothing_to_warn_about_where_recapture_is_installed(tmp_path, wheel):
    """In a wheel and in an editable install, each beside a project that does not use the plugin."""
    uv = shutil.which("uv") or pytest.skip("needs uv")
    project, packages = tmp_path / "project", tmp_path / "packages"
    project.mkdir()
    packages.mkdir()
    (project / "test_it.py").write_text("import types\n\ndef test_it():\n    assert types\n")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "recapture" not in path.name:  # the environment of the tests has one of its own
            (packages / path.name).symlink_to(path)
    for name, what in (("wheel", [wheel]), ("editable", ["-e", ROOT])):
        folder = tmp_path / name
        command = [uv, "pip", "install", "--no-deps", "--python", sys.executable, "--target", folder, *what]
        subprocess.run(command, check=True, capture_output=True)
        done = subprocess.run(
            # Without `site`, which would add the environment of the tests, and reads the .pth of an editable install.
            [sys.executable, "-S", "-m", "pytest", "-W", "error::pytest.PytestAssertRewriteWarning", "--trace-config"],
            cwd=project,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{folder}:{packages}:{ROOT}", "HOME": str(project)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "recapture.pytest_plugin" in done.stdout  # it was loaded
        assert "1 passed in" in done.stdout  # and no warnings


def test_the_data_are_in_the_wheel_and_small(wheel):
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read("recapture/data/data.json.gz")
    assert len(content) < BYTES
    data = decode(gzip.decompress(content))
    assert CELL.rpartition("::")[0] in data.cases


def test_a_line_is_linted_without_torch(alone, folder):
    source = folder / "model.py"
    source.write_text("import torch\ndef f(x):\n    return x if x.is_floating_point() else x // 2\n")
    run = alone("lint", "model.py", "--compiler", "export")
    assert (run.returncode, run.stderr.count("Traceback")) == (1, 0)
    assert run.stdout.startswith("model.py:3:17 branch-on-dtype: silently wrong under export in ")


def test_the_history_of_a_cell_comes_from_the_data(alone):
    run = alone("history", CELL)
    assert run.returncode == 0
    assert f"{CELL} on cpu" in run.stdout
    assert "silently wrong" in run.stdout
    document = json.loads(alone("history", CELL, "--json").stdout)
    assert {cell["capability"] for cell in document["cells"]} == {"cpu", "sm_90"}
    assert {span["verdict"] for cell in document["cells"] for span in cell["spans"]} == {"specialized"}
    assert f"`{CELL}` on cpu" in alone("history", CELL, "--format", "markdown").stdout


def test_what_was_recorded_of_a_cell_is_explained_without_torch(alone):
    run = alone("explain", CELL)
    assert run.returncode == 0
    assert run.stderr == "recapture: torch is not installed: this is what was recorded; with torch, the cell is run\n"
    assert "instead: Compute both paths" in run.stdout


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["check", "model.py:f", "--input", "3x4"], 3, "torch is not installed for /"),
        (["run", "control_flow"], 3, "torch is not installed for /"),
        (["bench"], 3, "torch is not installed for /"),
        (["repro", CELL], 3, "torch is not installed for /"),
        (["migrate", "model.py:f"], 3, "torch is not installed for /"),
        (["bisect", "control_flow::branch_on_some::fx"], 2, "did you mean 'control_flow::branch_on_sum::fx'"),
        (["bisect", "--", "true"], 2, "to install without being asked, give --yes"),
        (["report"], 2, "they are in that folder of a checkout"),
        (["history"], 2, "they are in that folder of a checkout"),
        (["data"], 2, "they are in that folder of a checkout"),
        (["history", "control_flow::branch_on_some"], 2, "did you mean 'control_flow::branch_on_sum'"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_what_needs_torch_or_a_checkout_says_so_in_one_line(alone, folder, words, status, message):
    (folder / "model.py").write_text("def f(x):\n    return x\n")
    run = alone(*words)
    assert run.returncode == status
    assert message in run.stderr
    assert (run.stdout, run.stderr.count("\n")) == ("", 1)


@pytest.mark.parametrize("words", [["list"], ["plan"], ["doctor"], ["images", "list"], ["site", "--output", "pages"]])
def test_what_needs_neither_answers_without_torch(alone, words):
    run = alone(*words)
    assert (run.returncode, run.stderr.count("Traceback")) == (0, 0)
    assert run.stdout


@pytest.fixture(scope="module")
def turned(wheel):
    """The images of the last right and the first silently wrong release of the cell that a release turned."""
    with zipfile.ZipFile(wheel) as archive:
        data = decode(gzip.decompress(archive.read("recapture/data/data.json.gz")))
    case, _, compiler = TURNED.rpartition("::")
    before, after = [*data.spans(data.cases[case].cells[compiler]["cpu"])][:2]
    assert (before.outcome, after.outcome) == ("right", "silently wrong")
    images = {
        entry.release: entry.image for entry in data.environments if entry.in_strips and entry.capability == "cpu"
    }
    return images[before.last], images[after.first]


def test_a_search_begins_with_the_records_that_come_with_recapture(alone, turned):
    """The first bad release of a known cell, without torch, a checkout or a question."""
    good, bad = turned
    for words in ((), ("--no-run",), ("--good", good, "--bad", bad)):
        run = alone("bisect", TURNED, *words)
        assert (run.returncode, run.stderr) == (0, "")
        assert f"first bad in {bad}: " in run.stdout
        assert f"before, in {good}: pass\n" in run.stdout
        assert re.search(r"^\d+ records that come with recapture, 0 run now$", run.stdout, re.MULTILINE)
    (turn,) = (
        turn for turn in json.loads(alone("bisect", TURNED, "--json").stdout)["boundaries"] if turn["image"] == bad
    )
    assert (turn["kind"], turn["before"], turn["new"]) == ("first_bad", good, "wrong")


def test_a_search_that_has_to_run_says_in_one_line_what_it_needs(alone):
    run = alone("bisect", TURNED, "--good", "torch2.6.0-cu124", "--bad", "torch2.6.0-cu124-drifted")
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert "to install without being asked, give --yes" in run.stderr
