"""Whether files are as they were when a run began, and what a run does with an edited one."""

from __future__ import annotations

import os

import pytest
from conftest import records_below, run_in_process

from recapture.base.file_contents import FileContents


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("one")
    return path


def test_a_file_with_another_content_is_changed_also_with_the_old_times(file):
    contents, status = FileContents([file]), file.stat()
    assert not contents.changed(file)
    file.write_text("two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert contents.changed(file)
    file.write_text("one")
    assert not contents.changed(file)


def test_a_file_that_is_gone_is_changed_and_an_unknown_one_is_not(file, tmp_path):
    contents = FileContents([file])
    file.unlink()
    assert contents.changed(file)
    assert not contents.changed(tmp_path / "other.py")


SUITE = """import torch
from recapture import case


@case(example=lambda: (torch.ones(3),))
def plain(x):
    return x + 1
"""

EDITOR = """from pathlib import Path

import torch
from recapture import case


@case(example=lambda: (torch.ones(3),))
def edits_another_suite(x):
    other = Path(__file__).with_name("edited.py")
    other.write_text(other.read_text().replace("x + 1", "x / 'forged'"))
    return x + 1
"""


def test_a_cell_whose_file_is_edited_during_the_run_has_no_verdict_and_runs_again(warm, tmp_path, capfd):
    (tmp_path / "edited.py").write_text(SUITE)
    (tmp_path / "aaa.py").write_text(EDITOR)
    arguments = (tmp_path / "aaa.py", tmp_path / "edited.py", "--compiler", "eager,fx", "--jobs", "1")
    assert run_in_process(*arguments, "--results", tmp_path / "results") == 0
    records = {(row.case, row.compiler): row for row in records_below(tmp_path / "results").values()}
    assert records["aaa::edits_another_suite", "eager"].verdict == "pass"
    innocent = [row for (case, _), row in records.items() if case == "edited::plain"]
    assert {row.verdict for row in innocent} <= {"pass", "environment"}
    edited = [row for row in innocent if row.verdict == "environment"]
    assert edited
    reason = "edited.py was edited after the run began: --resume runs its cells again"
    assert {row.reason for row in edited} == {reason}
    (tmp_path / "edited.py").write_text(SUITE)
    (tmp_path / "aaa.py").write_text(SUITE.replace("plain", "edits_another_suite"))
    assert run_in_process(*arguments, "--results", tmp_path / "results", "--resume") == 0
    assert {row.verdict for row in records_below(tmp_path / "results").values()} == {"pass"}
