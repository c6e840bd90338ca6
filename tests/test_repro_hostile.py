"""Scripts of suites with hostile names, texts and imports: they run, or are refused in one line."""

import subprocess
import sys

import pytest
from planted_scripts import in_process

from recapture.base.errors import UsageError

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("restored")]

HOSTILE_FILE = r'''
from __future__ import annotations, generators
import torch
import recapture
from recapture import case, compiler

print("printed on import")


def helper(x):
    return x + 1


case(example=lambda: (torch.ones(1),))(helper)


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def neighbour(x):
    "Says \"\"\" and \0 and \r and \x1b[31m and \u2028 and {braces} and \udc80 and \\."
    return helper(x)


@recapture.case(example=lambda: (torch.ones(2),))
def SOURCES(x):
    return x


@case(example=lambda: (torch.ones(2),))
def CASES(x):
    return x


@case(example=lambda: (torch.ones(2),))
def declare(x):
    return x


@case(example=lambda: (torch.ones(2),))
def größe(x):
    return x


@case(example=lambda: (torch.ones(2),))
def match(x):
    return x


@case(example=lambda: (torch.ones(2),))
def replay(x):
    return x


@case(example=(lambda: (
    torch.ones(2),)), held_out=[])
def brackets(x):
    return f"{x.shape}{{}}" and x


second = recapture.case(example=lambda: (torch.ones(2),))(lambda x: x)
made = recapture.case(example=lambda: (torch.ones(2),))(type("a b", (torch.nn.Module,), {}))


@case(example=lambda: (torch.ones(2),))
def uses_second(x):
    return second(x)


@compiler("it's \"\"\" {odd}\n\x00")
def odd(fn, example):
    """Odd \x0b {describe} \0."""
    return fn
'''

ODD = 'it\'s """ {odd}\n\x00'


@pytest.fixture
def hostile(tmp_path):
    folder = tmp_path / "a 'quoted' {folder}"
    folder.mkdir()
    path = folder / "it's {odd}.py"
    path.write_text(HOSTILE_FILE, encoding="utf-8")
    return path


@pytest.mark.parametrize("compiler", ["fx", ODD], ids=["fx", "odd"])
@pytest.mark.parametrize(
    "case",
    ["helper", "neighbour", "SOURCES", "CASES", "declare", "größe", "match", "replay", "brackets", "uses_second"],
)
def test_hostile_names_are_printed_in_scripts_that_run(hostile, run_script, case, compiler):
    text = in_process(f"{hostile}::{case}::{compiler}")
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "== verdict: pass\n" in run_script(text)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("a b", "is not defined at the top level"),
        ("<lambda>", "is not defined at"),
    ],
)
def test_hostile_names_that_cannot_be_printed_are_refused_in_one_line(hostile, case, says):
    with pytest.raises(UsageError, match=says) as refused:
        in_process(f"{hostile}::{case}::fx")
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_the_command_executes_the_suite_in_a_separate_process(command, hostile):
    done = command("repro", f"{hostile}::neighbour::fx")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('"""')
    compile(done.stdout, "cell.py", "exec", dont_inherit=True)
    hostile.write_text("import os\n\nos._exit(0)\n")
    done = command("repro", f"{hostile}::neighbour::fx")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "died on import: exited with status 0 and without a result" in done.stderr
    assert command.leftovers(seconds=10) == []


LEAVES = """
import os

import torch

from recapture import case


@case(example=lambda: (torch.ones(4),), held_out=[lambda: (-torch.ones(4),)])
def always(x):
    os._exit(0)


@case(example=lambda: (torch.ones(4),))
def when_captured(x):
    if isinstance(x, torch.fx.Proxy):
        os._exit(1)
    return x


@case(example=lambda: (torch.ones(4),))
def in_a_child(x):
    child = os.fork()
    if child == 0:
        os._exit(3)
    return x + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize(
    ("case", "compiler", "status", "says"),
    [
        ("always", "eager", 2, "the code ends its process with os._exit(0) (line "),
        ("always", "fx", 2, "the code ends its process with os._exit(0) (line "),
        ("when_captured", "fx", 2, "the code ends its process with os._exit(1) (line "),
        ("in_a_child", "eager", 0, "== verdict: pass"),
    ],
)
def test_a_script_says_that_the_code_ends_its_process(tmp_path, case, compiler, status, says):
    path = tmp_path / "leaves.py"
    path.write_text(LEAVES)
    (tmp_path / "cell.py").write_text(in_process(f"{path}::{case}::{compiler}"))
    done = subprocess.run([sys.executable, "cell.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert done.stdout.splitlines()[-1].startswith(says)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_no_issue_is_written_about_code_that_ends_its_process(command, tmp_path):
    path = tmp_path / "leaves.py"
    path.write_text(LEAVES)
    done = command("repro", f"{path}::always::fx", "--upstream")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert (
        "the code ends its process (exited with status 0 and without a result), so no compiler is at fault"
        in done.stderr
    )
