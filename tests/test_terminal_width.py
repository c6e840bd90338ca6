"""On a terminal of 80 columns lines end between words, and tables fit."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

import pytest
from documents import ROOT

COLUMNS = 80
RESULTS = ROOT / "results"


def lines_on_a_terminal(*words):
    """Run a command on a terminal with 80 columns, and return the lines that it leaves there."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    printed = []
    with subprocess.Popen(
        [sys.executable, "-m", "recapture", *map(str, words)],
        cwd=ROOT,
        env=environment | {"TERM": "xterm"},
        stdin=side,
        stdout=side,
        stderr=side,
    ) as command:
        os.close(side)
        with contextlib.suppress(OSError):  # the end of what a terminal prints
            while chunk := os.read(terminal, 65536):
                printed.append(chunk)
    os.close(terminal)
    assert command.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(printed).decode())
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]  # a bar is printed over itself
    assert len(lines) > 3
    return lines


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["bisect", "--help"],
        ["doctor"],
        ["list", "control_flow"],
        ["list", "--compilers"],
        ["report", RESULTS / "torch2.11.0-cu130" / "cpu"],
        ["report", RESULTS / "torch2.11.0-cu130" / "cpu", "--from", "jit.script", "--to", "export"],
        ["history", "control_flow::branch_on_sum"],
        pytest.param(["history"], marks=pytest.mark.slow),
        pytest.param(
            ["diff", RESULTS / "torch2.9.1-cu128" / "cpu", RESULTS / "torch2.11.0-cu130" / "cpu"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["run", "control_flow", "-k", "branch_on_sum", "--compiler", "fx", "--results", "{folder}"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["check", "examples/pytest_plugin/model.py:Scorer", "--input", "8x4", "--compiler", "jit.trace"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["migrate", "examples/leaving_torchscript/model.py:Detector", "--input", "8x4", "--compiler", "export"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda words: f"{words[0]}-{len(words)}",
)
def test_every_line_fits(words):
    with tempfile.TemporaryDirectory() as folder:  # a short path
        lines = lines_on_a_terminal(*(str(word).replace("{folder}", folder) for word in words))
    assert [line for line in lines if len(line) > COLUMNS] == []
