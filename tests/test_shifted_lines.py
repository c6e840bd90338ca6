"""A refused case has the same record after a line was added to the files of this project."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from recapture.base.paths import PACKAGE

CASE = '''
import torch
from recapture import case


@case(example=lambda: (torch.ones(3),))
def branch(x):
    """Takes one of two paths by the sign of a sum."""
    if x.sum() > 0:
        return x + 1
    return x - 1
'''

EXAMINE = """
import sys
import msgspec
from recapture.run.cell import CellSpec, examine
spec = CellSpec(suite="planted", path=sys.argv[1], case="branch", compiler="export", device="cpu")
print(msgspec.json.encode(examine(spec, lambda phase: None)).decode())
"""


def refusal(package, suite):
    """What a process with this copy of the package finds out about the case."""
    done = subprocess.run(
        [sys.executable, "-c", EXAMINE, str(suite)],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1], done.stderr


@pytest.mark.slow
def test_a_line_added_to_this_project_changes_no_record_of_a_refused_case(tmp_path):
    suite = tmp_path / "planted.py"
    suite.write_text(CASE)
    copy = tmp_path / "copy" / "recapture"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "data"))
    before, stack = refusal(copy, suite)
    for path in copy.rglob("*.py"):
        path.write_text("# an added line\n" + path.read_text())
    after, shifted = refusal(copy, suite)
    assert f'"{copy}/cases/compilers/export.py", line' in stack  # the frames were in the message that torch wrote
    assert stack != shifted
    assert after == before
    assert 'File "planted.py", line 9' in json.loads(before)["error"]["message"]
