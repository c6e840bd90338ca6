"""On a terminal of 80 columns, and in a pipe where COLUMNS says so, lines end between words, and tables fit."""

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

from recapture.command.doctor import checks_table
from recapture.command.output import echo_line
from recapture.machine.doctor.register import Check
from recapture.report.terminal_writer import SafeConsole

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


def lines_in_a_pipe(columns, *words):
    """Run a command whose output is piped, with a value of COLUMNS, or None, and return the lines that it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "recapture", *map(str, words)],
        cwd=ROOT,
        env=environment if columns is None else environment | {"COLUMNS": columns},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


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
        pytest.param(["explain", "control_flow::branch_on_sum::jit.trace"], marks=pytest.mark.slow),
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


@pytest.mark.parametrize(
    "words",
    [
        ["list", "control_flow"],
        ["report", RESULTS / "torch2.11.0-cu130" / "cpu"],
        ["history", "control_flow::branch_on_sum"],
        pytest.param(
            ["diff", RESULTS / "torch2.9.1-cu128" / "cpu", RESULTS / "torch2.11.0-cu130" / "cpu"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda words: words[0],
)
def test_piped_lines_are_as_long_as_columns_allows(words):
    wide = lines_in_a_pipe(None, *words)
    lines = lines_in_a_pipe("80", *words)
    assert max(map(len, wide)) > COLUMNS
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert lines[0].split()[:3] == wide[0].split()[:3]


def test_columns_that_are_no_width_change_nothing_in_a_pipe():
    words = ["history", "control_flow::branch_on_sum"]
    wide = lines_in_a_pipe(None, *words)
    for columns in ("0", str(10**9)):
        assert lines_in_a_pipe(columns, *words) == wide, columns


@pytest.mark.parametrize("columns", ["", "0", "19", "-80", "abc", "²", str(10**9), "9" * 5000])
def test_columns_that_are_no_width_do_not_change_consoles_and_messages(columns, monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    width, message = SafeConsole().width, "word " * 60
    checks = [Check(name="a", status="warning", found=message, mend=message, affects="all")]
    table = checks_table(checks)
    monkeypatch.setenv("COLUMNS", columns)
    assert SafeConsole().width == width
    assert checks_table(checks) == table
    echo_line(message)
    assert capsys.readouterr().out == f"{message}\n"


def test_a_message_is_wrapped_where_columns_says_so(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    echo_line("word " * 10, err=True)
    assert capsys.readouterr().err == "word word word word word word\n  word word word word\n"
