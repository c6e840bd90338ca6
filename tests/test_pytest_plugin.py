"""The plugin of pytest, on the example project and on bad markers, each in a pytest of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLE = REPOSITORY / "examples" / "pytest_plugin"


def run_pytest(folder, *words):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
    environment.pop("PYTEST_XDIST_WORKER", None)  # of the tests that run this one
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "recapture.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "-q",
        *words,
    ]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )


@pytest.mark.slow
def test_every_compiler_of_the_example_is_a_test_also_under_xdist(tmp_path):
    done = run_pytest(EXAMPLE, "-n", "2", "--rootdir", EXAMPLE, "--recapture-scripts", tmp_path, ".")
    assert done.returncode == 1, done.stdout
    assert re.search(r"1 failed, 3 passed", done.stdout), done.stdout
    assert "jit.trace is specialized: wrong on batch=1" in done.stdout
    (script,) = tmp_path.iterdir()
    assert f"to see it: python {script}" in done.stdout
    assert 'derived("batch=1")' in script.read_text() or "derived('batch=1')" in script.read_text()


@pytest.mark.parametrize(
    ("marker", "complaint"),
    [
        ("compiler=['fx']", "takes compilers, derive"),
        ("compilers='fx'", "compilers is a list of names, not 'fx'"),
    ],
)
def test_a_wrong_marker_is_one_line(tmp_path, marker, complaint):
    (tmp_path / "test_it.py").write_text(
        f"import pytest\n\n@pytest.mark.recapture({marker})\ndef test_it():\n    return abs, (1,)\n"
    )
    done = run_pytest(tmp_path, "--rootdir", tmp_path)
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr


def test_the_tests_are_listed_without_torch(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.recapture(compilers=['fx', 'export'])\ndef test_it():\n    return abs, (1,)\n"
    )
    done = run_pytest(tmp_path, "--rootdir", tmp_path, "--collect-only")
    assert "test_it.py::test_it[fx]\ntest_it.py::test_it[export]" in done.stdout


def test_what_a_marked_test_returns_is_checked(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.recapture(compilers=['fx'])\ndef test_it():\n    return abs\n"
    )
    done = run_pytest(tmp_path, "--rootdir", tmp_path)
    assert "returns (target, example)" in done.stdout
