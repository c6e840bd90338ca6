"""Output that cannot be written: one line and status 3, but no message if the reader of a pipe closed it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recapture.command import main

REPOSITORY = Path(__file__).resolve().parents[1]
IMAGES = [str(path) for path in sorted((REPOSITORY / "results").glob("*/cpu"))]
COMMANDS = [
    ["--help"],
    ["--version"],
    pytest.param(["list"], marks=pytest.mark.slow),
    ["list", "--compilers"],
    ["report", "{copy}"],
    ["report", "{copy}", "--output", "-"],
    ["diff", *IMAGES[:2]],
    ["diff", *IMAGES[:2], "--format", "json"],
    ["history"],
    ["images", "list", "--gpu", "8.0"],
    ["doctor"],
]


def recapture(arguments, tmp_path, **streams):
    """Run a command in a separate process; `{copy}` among the arguments is a copy of committed results."""
    copy = tmp_path / "image" / "cpu"
    copy.mkdir(parents=True)
    for name in ("conformance.jsonl", "environment.json", "timings.jsonl"):
        (copy / name).write_bytes((Path(IMAGES[0]) / name).read_bytes())
    return subprocess.run(
        [sys.executable, "-m", "recapture", *(word.format(copy=copy) for word in arguments)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stderr=streams.pop("stderr", subprocess.PIPE),
        text=True,
        timeout=120,
        check=False,
        **streams,
    )


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0].strip("-"))
def test_a_full_device_is_one_line_and_status_3(arguments, tmp_path):
    with Path("/dev/full").open("w") as full:
        done = recapture(arguments, tmp_path, stdout=full)
    assert done.returncode == 3, done.stderr
    [line] = done.stderr.strip().splitlines()
    assert line == "recapture: cannot write to standard output: No space left on device"


def test_two_full_devices_are_status_3(tmp_path):
    with Path("/dev/full").open("w") as full:
        assert recapture(["--version"], tmp_path, stdout=full, stderr=full).returncode == 3


def test_closed_output_is_one_line_and_status_3(tmp_path):
    done = recapture(["--version"], tmp_path, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (3, "recapture: standard output is closed\n")


def test_closed_output_for_errors_is_no_fault(tmp_path):
    done = recapture(["--version"], tmp_path, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert done.returncode == 0
    assert done.stdout.startswith("recapture, version ")


def test_unbuffered_output_to_a_full_device_is_reported_alike(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    with Path("/dev/full").open("w") as full:
        done = recapture(["history"], tmp_path, stdout=full)
    assert (done.returncode, done.stderr) == (
        3,
        "recapture: cannot write to standard output: No space left on device\n",
    )


def test_a_failed_write_elsewhere_is_not_blamed_on_the_output(capfd, monkeypatch):
    monkeypatch.setattr(main.cli, "main", lambda **_: Path("/dev/full").write_text("x"))
    assert main._run(["list"]) == 3
    assert capfd.readouterr().err == "recapture: No space left on device\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--compilers"],
        ["report", "{copy}", "--output", "-"],
        ["report", "{copy}"],
        ["diff", *IMAGES[:2]],
        ["history"],
    ],
    ids=["list", "report-to-output", "report", "diff", "history"],
)
def test_a_reader_that_went_away_is_no_fault(arguments, tmp_path):
    read, write = os.pipe()
    os.close(read)
    try:
        done = recapture(arguments, tmp_path, stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_without_a_reader_does_not_end_the_run(tmp_path):
    read, write = os.pipe()
    os.close(read)
    suite = Path(tmp_path / "suite.py")
    suite.write_text("from recapture import case\n\n@case(example=lambda: (1,))\ndef same(x):\n    return x\n")
    try:
        done = recapture(
            ["run", str(suite), "--compiler", "eager", "--results", str(tmp_path / "results")],
            tmp_path,
            stdout=subprocess.PIPE,
            stderr=write,
        )
    finally:
        os.close(write)
    assert done.returncode == 0
    assert "1 planned = 1 recorded" in done.stdout
