"""Commands in processes of their own: what they print, their exit status, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from command_lines import BROKEN, VERDICTS
from conftest import REPOSITORY, SUITES, results_below


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_lacks_is_a_question_mark(encoding):
    results = REPOSITORY / "results" / "torch2.11.0-cu130" / "cpu"
    for words in (
        ["diff", str(results), str(results)],
        ["history", "branch_on_sum", "--results", str(REPOSITORY / "results")],
    ):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        ended = subprocess.run(
            [sys.executable, "-m", "recapture", *words], env=environment, capture_output=True, timeout=120, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert b" ? " in ended.stdout


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="plants the absence of a GPU")  # noqa: PTH110
def test_no_gpu_is_the_machines_fault_in_one_line(command):
    done = command("run", f"{VERDICTS}::neighbour::eager", "--device", "cuda", "--results", "results")
    assert done.returncode == 3
    assert done.stderr.strip().splitlines()[-1] == (
        "recapture: no CUDA device is visible to torch here; run with --device cpu"
    )
    assert "Traceback" not in done.stderr
    assert not (command.directory / "results").exists()
    assert command.leftovers() == []


@pytest.mark.slow
def test_every_broken_suite_at_once_stops_no_good_one(command):
    """The whole folder, with the one that kills the worker server: the good suite runs, the others are named."""
    folder = command.directory / "cases"
    folder.mkdir()
    skipped = {"hangs_on_import", "claim_of_unknown_compiler", "compiler_name_taken"}
    broken = [path for path in sorted(BROKEN.glob("*.py")) if path.stem not in skipped]
    for path in broken:
        shutil.copy(path, folder)
    shutil.copy(SUITES / "readme_example.py", folder / "z_good.py")
    done = command("run", folder, "--compiler", "eager", "--results", "results")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "4 planned = 4 recorded: 1 pass, 3 error" in done.stdout
    directory = results_below(command.directory / "results")
    report = (directory / "conformance.md").read_text()
    for path in broken:
        if path.stem in ("wrong_arity", "no_tuple", "factory_raises"):
            assert f"recapture: case '{path.stem}::" in done.stderr
            continue
        assert f"recapture: suite {path.stem!r} was not run: " in done.stderr
        assert f"- `{path.stem}`: `" in report
    assert "killed the worker server on import" in report
    assert command.leftovers() == []
