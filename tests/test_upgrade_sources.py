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
    if number == 0:
        Path("helper.py").write_text("new = 1")
"""
"""A test in whose first run somebody edits another file."""


def test_an_edit_during_the_runs_is_told_and_nothing_of_them_is_used_again(project, capsys):
    write(project, EDITING)
    write(project, "old = 1", "helper.py")
    assert _run([*WORDS, "--junit", "j.xml", *PYTHON]) == 3
    out, err = capsys.readouterr()
    assert out.startswith("the project was edited while this ran: nothing is decided")
    assert edited_text(["helper.py"]) in " ".join(out.split())
    assert err.endswith("recapture: did not write b.json: the project was edited while this ran\n")
    assert not (project / "b.json").exists()
    assert len(list(project.glob("ran-*"))) == 2
    # Undoing the edit makes nothing of it right.
    write(project, "old = 1", "helper.py")
    assert _run([*WORDS, *PYTHON]) == 0
    assert len(list(project.glob("ran-*"))) == 4
    assert list(json.loads((project / "b.json").read_text())["releases"]["here"]["tests"].values()) == ["passed"] * 2
    assert "edited" not in capsys.readouterr().out


def test_what_git_ignores_and_what_only_tests_can_have_written_is_no_edit(project, capsys):
    subprocess.run(["git", "init", "-q", "."], check=True)
    write(project, "helper.py\n", ".gitignore")
    write(project, EDITING + "    Path('out.txt').write_text(str(number))\n    Path('made.py').touch()\n")
    write(project, "old = 1", "helper.py")
    assert _run([*WORDS, *PYTHON]) == 0
    assert "edited" not in capsys.readouterr().out


def test_an_edit_between_two_releases_is_told(planted_releases, project, capsys):
    editing = "import torch\nfrom pathlib import Path\ndef test_it():\n    if torch.__version__ == '2.6.0':\n"
    write(project, editing + "        Path('test_new.py').write_text('def test_new(): pass')\n")
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
    write(
        project,
        "import torch\nfrom pathlib import Path\nPath('conf.toml').write_text(torch.__version__)\n"
        "raise SystemExit(torch.__version__ == '2.9.1')\n",
        "program.py",
    )
    write(project, "", "conf.toml")
    words = ["bisect", "--across", "2.6.0,2.9.1", "--yes", "--json", "--", "python", "program.py"]
    _run(words)
    report = json.loads(capsys.readouterr().out)
    assert report["edited"] == ["conf.toml"]
    assert report["sentence"] == f"not decided: {edited_text(['conf.toml'])}"


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
    assert before.digest != after.digest == read(tmp_path).digest
    (tmp_path / "a.py").unlink()
    assert after.edits(read(tmp_path)) == ["a.py"]


@pytest.mark.parametrize(
    ("names", "first"), [(["a.py"], "a.py changed"), (list("abcdefg"), "a, b, c, d, e and 2 more changed")]
)
def test_the_line_names_a_few_files(names, first):
    assert edited_text(names).startswith(f"{first} while this ran")
