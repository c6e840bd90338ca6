"""Processes of this project find its modules and the caller's, which never replace those of the standard library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import records_below, run_in_process

import recapture
from recapture.pool import bootstrap as program

RECAPTURE = Path(sys.executable).with_name("recapture")


def test_the_callers_directory_comes_last(tmp_path):
    (tmp_path / "shows.py").write_text(
        "import sys\nprint(sys.argv, sys.path[-1], 'mine' in sys.modules)\nimport mine\n"
    )
    (tmp_path / "mine.py").write_text("")
    command = program.command("shows", "--an", "argument")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split(" ")[1:3] == ["'--an',", "'argument']"]
    assert str(tmp_path) in done.stdout


def test_this_package_runs_even_if_another_copy_is_installed(tmp_path):
    other_copy = tmp_path / "recapture"
    other_copy.mkdir()
    (other_copy / "__init__.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "shows.py").write_text("import recapture.cases.case\nprint(recapture.__file__)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = program.command("shows")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert Path(done.stdout.strip()).parents[1] == Path(recapture.__file__).parents[1], done.stderr


@pytest.mark.skipif(not RECAPTURE.is_file(), reason="recapture is not installed as a command here")
def test_suites_may_have_the_names_of_modules_of_the_library(tmp_path):
    """Run from the suites' own folder, which `python -m` would search first."""
    names = ("types", "random", "numpy")
    for name in names:
        (tmp_path / f"{name}.py").write_text(
            "import torch\nfrom recapture import case\n\n\n"
            "@case(example=lambda: (torch.ones(2),))\ndef doubles(x):\n    return x * 2\n"
        )
    command = [RECAPTURE, "run", *(f"{name}.py" for name in names), "--compiler", "fx", "--results", "results"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    verdicts = {cell: str(record.verdict) for cell, record in records_below(tmp_path / "results").items()}
    assert verdicts == {f"{name}::doubles::fx": "pass" for name in names}


@pytest.mark.hostile
def test_a_file_beside_the_caller_is_not_imported_in_place_of_a_library(command):
    """What a library looks for, whether it is installed (msgspec) or not (dill, optree), is no file of the user."""
    names = ("dill", "optree", "msgspec", "packaging", "torch", "numpy")
    for name in names:
        (command.directory / f"{name}.py").write_text(f"open('imported-{name}', 'w')\n")
    done = command("list", "types")
    assert done.returncode == 0, done.stderr
    assert list(command.directory.glob("imported-*")) == []


def test_what_lies_in_the_callers_directory_can_be_imported(warm, tmp_path):
    (tmp_path / "beside.py").write_text("FACTOR = 3\n")
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom beside import FACTOR\nfrom recapture import case\n\n\n"
        "@case(example=lambda: (torch.ones(2),))\ndef triples(x):\n    return x * FACTOR\n"
    )
    assert run_in_process(tmp_path / "mine.py", "--compiler", "fx", "--results", tmp_path / "results") == 0
    assert str(records_below(tmp_path / "results")["mine::triples::fx"].verdict) == "pass"


def test_what_lies_in_the_callers_directory_is_not_installed(tmp_path):
    (tmp_path / "mine.egg-info").mkdir()
    (tmp_path / "mine.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (tmp_path / "shows.py").write_text(
        "from recapture.machine.describe import installed_packages\nprint('mine' in installed_packages(), 'torch' in installed_packages())\n"
    )
    for path, expected in (("", "False True"), (str(tmp_path), "True True")):
        environment = {**os.environ, "PYTHONPATH": path}
        command = program.command("shows")
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout.strip() == expected, done.stderr
