"""Sources that are edited while `upgrade` or `bisect` runs: what is said, and that no result of them is used again."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from planted_upgrades import run, write

from recapture.command.main import _run
from recapture.tools.upgrade.sources import Sources, edited_text

PYTHON = ("--", sys.executable, "-m", "pytest", "-q")
WORDS = ("upgrade", "--across", "here", "--runs", "2", "--write-baseline", "b.json")

EDITING = """
from pathlib import Path
def test_it():
    number = len(list(Path().glob("ran-*")))
    Path(f"ran-{number}").touch()
    if number == RUN:
        Path("helper.py").write_text("new = 1")
"""
"""A test in one of whose runs somebody edits another file; the word RUN stands for the number of this run."""


def test_an_edit_between_the_runs_is_told_and_nothing_of_them_is_used_again(project, capsys):
    write(project, EDITING.replace("RUN", "1"))
    write(project, "old = 1", "helper.py")
    assert _run([*WORDS, "--junit", "j.xml", *PYTHON]) == 3
    out, err = capsys.readouterr()
    assert out.startswith("the project was edited while this ran: nothing is decided")
    assert edited_text(["helper.py"]) in " ".join(out.split())
    assert err.endswith("recapture: did not write b.json: the project was edited while this ran\n")
    assert not (project / "b.json").exists()
    assert len(list(project.glob("ran-*"))) == 3
    # The second run, which ran once more, is of the code that is there now.
    assert _run([*WORDS, *PYTHON]) == 0
    assert len(list(project.glob("ran-*"))) == 4
    assert list(json.loads((project / "b.json").read_text())["releases"]["here"]["tests"].values()) == ["passed"] * 2
    assert "edited" not in capsys.readouterr().out


def test_a_run_in_which_a_file_is_edited_runs_once_more(project, capsys):
    write(project, EDITING.replace("RUN", "0"))
    write(project, "old = 1", "helper.py")
    assert _run([*WORDS, *PYTHON]) == 0
    out, err = capsys.readouterr()
    assert "edited" not in out
    assert "here: runs once more, because helper.py changed meanwhile\n" in err
    assert len(list(project.glob("ran-*"))) == 3
    # An edit of the same file is noticed later, too: the command writes it in one run only.
    write(project, "old = 1", "helper.py")
    assert _run([*WORDS, *PYTHON]) == 0
    assert len(list(project.glob("ran-*"))) == 5


WRITING = """
import time, torch
from pathlib import Path
runs = Path("runs")
runs.touch()
runs.write_text(runs.read_text() + torch.__version__ + " ")
Path("helper.py").write_text(f"made = {torch.__version__!r}, {time.time()}")
def test_it(): assert torch.__version__ != "2.9.1"
"""
"""Tests that write a file of the project whenever they run, with other content in each."""


def test_a_file_that_the_command_writes_in_each_run_is_no_edit(planted_releases, project, capsys):
    write(project, WRITING)
    write(project, "torch = None", "helper.py")
    words = ("--across", "2.6.0,2.9.0,2.9.1", "--runs", "2", "--confirm", "2", "--json")
    status, out, err = run(capsys, *words)
    report = json.loads(out)
    assert (status, report["edited"]) == (0, [])
    assert [change["category"] for change in report["places"][2]["changes"]] == ["newly_failing"]
    assert err.count("runs once more, because helper.py changed meanwhile") == 1
    # One run more on the first release, and two of what looks worse on both sides.
    assert (project / "runs").read_text().split() == ["2.6.0"] * 3 + ["2.9.0", "2.9.1"] + ["2.6.0"] * 2 + ["2.9.1"] * 2
    # A later call knows it, and so has nothing to run: only an edit of another file begins anew.
    assert run(capsys, *words)[:2] == (0, out)
    assert len((project / "runs").read_text().split()) == 9
    write(project, "", "other.py")
    assert run(capsys, *words)[0] == 0
    assert len((project / "runs").read_text().split()) == 17
    # Once the command writes it no longer, an edit of it counts.
    write(project, "\n".join(line for line in WRITING.splitlines() if "helper.py" not in line))
    assert "once more" not in run(capsys, *words)[2]
    assert len((project / "runs").read_text().split()) == 25
    write(project, "", "helper.py")
    assert "once more" not in run(capsys, *words)[2]
    assert len((project / "runs").read_text().split()) == 33


def test_what_git_ignores_and_what_only_tests_can_have_written_is_no_edit(project, capsys):
    subprocess.run(["git", "init", "-q", "."], check=True)
    write(project, "helper.py\n", ".gitignore")
    writing = "    Path('out.txt').write_text(str(number))\n    Path('made.py').touch()\n"
    write(project, EDITING.replace("RUN", "0") + writing)
    write(project, "old = 1", "helper.py")
    assert _run([*WORDS, *PYTHON]) == 0
    out, err = capsys.readouterr()
    assert "edited" not in out
    assert "once more" not in err


def test_an_edit_between_two_releases_is_told(planted_releases, project, capsys):
    editing = (
        "import torch\nfrom pathlib import Path\ndef test_it():\n"
        "    if torch.__version__ == '2.9.1' and not Path('test_new.py').exists():\n"
        "        Path('test_new.py').write_text('def test_new(): pass')\n"
    )
    write(project, editing)
    status, out, _ = run(capsys, "--across", "2.6.0,2.9.1", "--runs", "1", "--json")
    report = json.loads(out)
    assert (status, report["edited"]) == (3, ["test_new.py"])
    assert [place["counts"] for place in report["places"]] == [{"passed": 2}, {"passed": 3}]
    # All releases run what is there now.
    status, out, _ = run(capsys, "--across", "2.6.0,2.9.1", "--runs", "1", "--json")
    report = json.loads(out)
    assert (status, report["edited"]) == (0, [])
    assert [place["counts"] for place in report["places"]] == [{"passed": 3}, {"passed": 3}]


def test_bisect_decides_nothing_of_two_states_of_the_code(planted_releases, project, capsys):
    program = "import torch\nfrom pathlib import Path\nraise SystemExit(torch.__version__ == '2.9.1')\n"
    write(project, "", "conf.toml")
    words = ["bisect", "--across", "2.6.0,2.9.1", "--yes", "--json", "--", "python", "program.py"]
    once = "path = Path('conf.toml')\nif path.read_text() != torch.__version__: path.write_text(torch.__version__)\n"
    write(project, program.replace("raise", f"{once}raise"), "program.py")
    _run(words)
    report = json.loads(capsys.readouterr().out)
    assert report["edited"] == ["conf.toml"]
    assert report["sentence"] == f"not decided: {edited_text(['conf.toml'])}"
    # What the command writes in each run is no edit.
    write(project, program.replace("raise", "Path('conf.toml').write_text(torch.__version__)\nraise"), "program.py")
    _run(words)
    report = json.loads(capsys.readouterr().out)
    assert report["edited"] == []
    assert report["sentence"].startswith("first bad on 2.9.1, good on 2.6.0")


def read(folder, earlier=None):
    return Sources.read(folder, folder / "state", earlier)


def test_only_the_content_of_a_source_makes_an_edit(tmp_path):
    for name in ("a.py", "notes.txt", "data.bin", "build/x.py", ".hidden/x.py", "state/x.py", "x.egg-info/x.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("1")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "gone.py").symlink_to("nowhere")
    before = read(tmp_path)
    assert sorted(before.files) == ["a.py", "notes.txt"]
    os.utime(tmp_path / "a.py", (1, 1))
    (tmp_path / "notes.txt").unlink()
    assert before.edits(read(tmp_path, before)) == []
    (tmp_path / "a.py").write_text("2")
    after = read(tmp_path, before)
    assert before.edits(after) == ["a.py"]
    assert before.digest() != after.digest() == read(tmp_path).digest()
    assert before.digest(without=["a.py", "notes.txt"]) == after.digest(without=["a.py"])
    assert (before.rewritten(after), before.rewritten(read(tmp_path, before))) == ({"a.py"}, {"a.py"})
    (tmp_path / "a.py").unlink()
    assert after.edits(read(tmp_path)) == ["a.py"]


@pytest.mark.parametrize(
    ("names", "first"), [(["a.py"], "a.py changed"), (list("abcdefg"), "a, b, c, d, e and 2 more changed")]
)
def test_the_line_names_a_few_files(names, first):
    assert edited_text(names).startswith(f"{first} while this ran")
