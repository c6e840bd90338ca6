"""What `recapture check` fails on, and how much it calls: as it is said before anything is called."""

import json

import pytest

from recapture.command.main import _run
from recapture.tools.check import session

REFUSING = """
import torch


def refusing(x):
    if x.shape[0] < 3:
        raise ValueError("too few rows")
    return x * 2


def wrong(x):
    return x * 2 if x.shape[0] < 3 else x


def cumulative(x, y):
    x[1:] = y[:-1]
    return x + y
"""


@pytest.fixture
def target(warm, monkeypatch, tmp_path):
    monkeypatch.setattr(session, "WorkerPool", lambda **_: warm)
    path = tmp_path / "gated.py"
    path.write_text(REFUSING)
    return path


def checked(path, name, *words):
    return _run(["check", f"{path}:{name}", "--input", "4x3", *words])


def test_a_value_where_eager_raises_fails_only_where_it_is_asked_for(target, capsys):
    traced = ("--compiler", "jit.trace", "--most-inputs", "8")
    assert checked(target, "refusing", *traced) == 0
    assert "right; accepts what eager refuses" in " ".join(capsys.readouterr().out.split())
    assert checked(target, "refusing", *traced, *("--fail-on", "any", "--fail-on", "silently_wrong")) == 0
    assert checked(target, "refusing", *traced, "--fail-on", "accepts_refused") == 1
    assert checked(target, "refusing", "--compiler", "compile:eager", "--fail-on", "accepts_refused") == 0


def test_what_an_accepted_call_writes_is_no_wrong_value(target, capsys):
    """Eager refuses to write into a tensor that it reads; the compiled code writes."""
    words = ("--input", "4x3", "--compiler", "compile:aot_eager", "--fail-on", "silently_wrong")
    assert checked(target, "cumulative", *words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "right; accepts what eager refuses" in out
    assert "returns a value where eager raises: args[1] is args[0] (eager raises)" in out
    assert checked(target, "cumulative", *words[:-1], "accepts_refused") == 1


def test_a_wrong_value_is_not_one_that_is_accepted_where_eager_raises(target, capsys):
    traced = ("--compiler", "jit.trace", "--most-inputs", "8")
    assert checked(target, "wrong", *traced, "--fail-on", "accepts_refused") == 0
    assert checked(target, "wrong", *traced, "--fail-on", "silently_wrong") == 1


def test_how_much_is_called_is_said_first_and_does_not_depend_on_the_speed(target, capsys):
    names = {}
    for seconds in (0.0, 0.2):
        target.write_text(
            f"import time\n\n\ndef f(x, flag):\n    time.sleep({seconds})\n    return x * 2 if flag else x\n"
        )
        words = ("--input", "=True", "--compiler", "fx", "--most-inputs", "5", "--json")
        assert checked(target, "f", *words) == 0
        out, err = capsys.readouterr()
        assert err.splitlines()[0].endswith("1 compiler, each called with the example and at most 5 other inputs")
        report = json.loads(out)
        names[seconds] = report["inputs"], report["unaffordable"]
        assert ("eager takes 0.2" in err) == bool(seconds)
    assert names[0.0] == names[0.2]
    assert (len(names[0.0][0]), names[0.0][1]) == (5, [])
