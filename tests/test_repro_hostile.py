"""Scripts of suites with hostile names, texts and imports: they run, or are refused in one line."""

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
