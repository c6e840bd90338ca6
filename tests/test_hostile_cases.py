"""Cases that damage what their run works with: each costs its own cell only, and nothing is left of it."""

from __future__ import annotations

import os
import random
import re
import sys
from pathlib import Path

import pytest
from conftest import SUITES, records_below

from recapture.pool.processes import TABLE
from recapture.pool.worker_pool import WorkerPool

pytestmark = pytest.mark.hostile

PLANTED = SUITES / "planted"
LOST = ("crash", None, "removed directories that its run needs")
UNREADABLE = ("crash", "reference", "left an unreadable result")


def run(command, suite, cells, *options, status=0):
    """Run these cells of a planted suite, two at a time, and return the records."""
    addresses = [f"{PLANTED / suite}.py::{cell}::eager" for cell in cells]
    done = command("run", *addresses, "--jobs", 2, "--results", "results", *options)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert command.leftovers() == []
    records = records_below(command.directory / "results")
    assert len(records) == len(cells)
    return {
        cell.split("::")[1]: (str(row.verdict), row.phase, row.reason and row.reason.partition(": ")[0])
        for cell, row in records.items()
    }


def read(path):
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


@pytest.fixture
def shared_memory(monkeypatch):
    """Count the segments of shared memory that the planted cases of this test left; other runs may have some."""
    mark = random.SystemRandom().randrange(1, 1 << 15)  # a key has 32 bits, and a sign
    monkeypatch.setenv("RECAPTURE_TEST_KEY", str(mark))

    def count():
        head, *lines = TABLE.read_text().splitlines()
        column = head.split().index("key")
        return [int(line.split()[column]) >> 16 for line in lines].count(mark)

    return count


@pytest.mark.slow  # `.ci/run user` runs it
def test_anything_in_place_of_a_result_is_one_crash(command):
    expected = {
        "neighbour": ("pass", None, None),
        "malformed": UNREADABLE,
        "another_shape": UNREADABLE,
        "nested": UNREADABLE,
        "not_text": UNREADABLE,
        "huge": UNREADABLE,
        "half": UNREADABLE,
        "of_another_task": UNREADABLE,
        "twice": UNREADABLE,
        "no_message": UNREADABLE,
        "floods": ("crash", "call", "left an unreadable result"),
        "closes": ("crash", "reference", "could not report a result"),
        "replaces": ("crash", "reference", "could not report a result"),
        "right_with_differences": UNREADABLE,
        "wrong_without_differences": UNREADABLE,
        "negative_graphs": UNREADABLE,
        "long_notes": UNREADABLE,
        "fifos": ("crash", "reference", "exited with status 0 and without a result"),
        "fifos_for_a_while": ("crash", "reference", "exited with status 0 and without a result"),
        "a_device": ("crash", "reference", "exited with status 0 and without a result"),
        "an_unknown_phase": ("crash", None, "exited with status 0 and without a result"),
        "buried": ("unstable", None, "eager raises on one of two runs"),
    }
    assert run(command, "smearing", expected, "--timeout", 30) == expected
    assert command("report", "results").returncode == 0


@pytest.mark.slow  # `.ci/run user` runs it
def test_no_cell_reports_in_the_name_of_another(command):
    passes = ("pass", None, None)
    neighbours = dict.fromkeys(("first", "second", "third", "fourth", "fifth", "sixth"), passes)
    forging = dict.fromkeys(
        (
            "writes_files",
            "writes_to_the_server",
            "writes_to_neighbours",
            "writes_to_the_run",
            "leaves_a_process_that_forges",
        ),
        passes,
    )
    expected = {**neighbours, **forging, "writes_to_its_own_descriptors": UNREADABLE}
    assert run(command, "forging", expected, "--jobs", 4) == expected
    reported = command("report", "results")
    assert reported.returncode == 0, reported.stderr


@pytest.mark.slow
def test_a_case_that_removes_directories_of_the_run_costs_itself_only(command):
    erasing = (
        "removes_its_scratch_directory",
        "removes_the_tasks",
        "removes_the_home",
        "removes_the_caches",
        "removes_the_directory_for_temporary_files",
    )
    expected = {"neighbour": ("pass", None, None), **dict.fromkeys(erasing, LOST)}
    assert run(command, "erasing", expected) == expected


@pytest.mark.slow
def test_directories_that_a_case_moved_are_removed_where_they_are_and_a_link_is_not_followed(command):
    moving = ("moves_its_scratch_directory", "moves_the_tasks", "puts_a_link_in_place_of_the_home")
    expected = {"neighbour": ("pass", None, None), **dict.fromkeys(moving, LOST)}
    assert run(command, "erasing", expected) == expected
    files = [path for path in (command.directory / "precious").rglob("*") if path.is_file()]
    assert len(files) == 1 + 2 + 2 * 2  # the tasks and the task have other names the second time
    assert {path.read_text() for path in files} == {"precious"}


@pytest.mark.slow
def test_hidden_memory_and_processes_count_against_the_caps(command, shared_memory):
    oom = ("oom", "reference", "used more than 0.7 GiB")
    expected = {
        "neighbour": ("pass", None, None),
        "fills_a_memory_file": oom,
        "fills_shared_memory": oom,
        "fills_detached_shared_memory": oom,
        "leaves_shared_memory": ("pass", None, None),
        "leaves_shared_memory_and_kills_its_server": ("crash", None, "killed the worker server, twice"),
        "leaves_shared_memory_of_processes_and_kills_its_server": ("crash", None, "killed the worker server, twice"),
        "shares_memory_with_children": ("pass", None, None),
        "starts_a_daemon_that_hogs_memory": oom,
        "starts_a_daemon_with_a_memory_file": oom,
        "leaves_eighty_daemons": ("crash", "reference", "started too many processes"),
    }
    assert run(command, "hiding", expected, "--memory", 0.7, "--timeout", 60) == expected
    assert shared_memory() == 0


LEAVING = """
import os, signal, time
from hiding import leave_shared_memory

def kill_the_server():
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()

def at_once(payload, enter):
    leave_shared_memory(1 << 20)
    kill_the_server()

def beside_a_child(payload, enter):
    done, tell = os.pipe()
    if os.fork() == 0:
        leave_shared_memory(1 << 20)
        os.write(tell, b"x")
        time.sleep(600)
    os.read(done, 1)
    kill_the_server()

def after_a_child(payload, enter):
    if os.fork() == 0:
        leave_shared_memory(1 << 20)
        time.sleep(1)
        os._exit(0)
    os.wait()
    kill_the_server()
"""


@pytest.mark.slow  # `.ci/run user` runs it
@pytest.mark.parametrize("how", ["at_once", "beside_a_child", "after_a_child"])
def test_shared_memory_of_a_task_that_killed_its_server_is_removed(tmp_path, monkeypatch, shared_memory, how):
    (tmp_path / "leaving_memory.py").write_text(LEAVING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [tmp_path, PLANTED, *sys.path])))
    with WorkerPool(device="cpu", jobs=1) as pool:
        pool.client.submit(f"leaving_memory:{how}", None, timeout=60, memory=1 << 40)
        pool.client.process.wait(60)
        assert shared_memory() == 1
        pool.client.stop()
        assert shared_memory() == 0


@pytest.mark.slow
def test_a_case_that_closes_limits_or_replaces_what_it_needs_costs_itself_only(command):
    """Closed directories stop an ordinary user, and not root."""
    passes = ("pass", None, None)
    root = os.getuid() == 0
    expected = {
        "neighbour": passes,
        "closes_its_scratch_directory": passes,
        "closes_the_tasks": passes if root else LOST,
        "closes_the_home": passes if root else LOST,
        "may_write_no_file": passes,
        "may_open_no_file": ("error", "reference", None),
        "disturbs_every_descriptor": passes,
        "kills_its_group": ("crash", "reference", "died of SIGKILL"),
        "stops_its_server": ("crash", None, "killed the worker server, twice"),
        "does_not_end": passes,
        "breaks_the_encoder": passes,
        "forks_a_thousand_times": ("crash", "reference", "started too many processes"),
        "leaves_a_child_without_a_mark": passes,
    }
    # Eager itself cannot run what may open no file: the run says so, and ends with the status of a bad case.
    assert run(command, "rough", expected, "--timeout", 20, status=2) == expected
    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if read(path) == b"sleep\x0086399\x00"] == []


TELLING = """
import os
import torch
from recapture import case, compiler

VALUE = "Hunter2Hunter2Hunter2"
SECRETS = [
    os.environ["DB_PASSWORD"],
    "run --password " + VALUE,
    "['run', '--token', '" + VALUE + "']",
    "Cookie: session=" + VALUE,
    "DB_PASS=" + VALUE,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + VALUE,
    "-----BEGIN RSA PRIVATE KEY-----\\n" + VALUE + "\\n-----END RSA PRIVATE KEY-----",
    "https://store/key?X-Amz-Signature=" + VALUE,
    "https://me:" + VALUE + "@host/x",
    "https://hooks.slack.com/services/T0/B0/" + VALUE,
    "https://discord.com/api/webhooks/123/" + VALUE,
    "Authorization: Bearer " + VALUE,
    "X-Auth-Token: " + VALUE,
    "machine host login me password " + VALUE,
    "AccountKey=" + VALUE + "==;",
    "{'password': '" + VALUE + "'}",
    "('client_secret', '" + VALUE + "')",
    "aws_secret_access_key = " + VALUE,
    "api_key=" + VALUE,
    "ghp_" + VALUE,
    "hf_" + VALUE,
    "sk-proj-" + VALUE,
]

@case(example=lambda: (torch.ones(3),))
def tells(x):
    for secret in SECRETS:
        print("connecting with", secret)
    return {"secrets": SECRETS, "sum": x.sum(), **{secret: x for secret in SECRETS}}

@compiler(name="differs")
def differs(function, args):
    def call(x):
        secrets = [secret + "x" for secret in SECRETS]
        return {"secrets": secrets, "sum": x.sum(), **{secret: x + 1 for secret in SECRETS}}
    return call

@compiler(name="raises")
def raises(function, args):
    raise RuntimeError("refused: " + " and ".join(SECRETS))
"""


def test_no_file_of_a_run_holds_a_secret_that_a_case_or_a_compiler_tells(command, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "correct-horse-9")
    (command.directory / "telling.py").write_text(TELLING)
    compilers = [f"--compiler={name}" for name in ("differs", "raises", "eager")]
    done = command("run", "telling.py", *compilers, "--results", "results")
    assert done.returncode == 0, done.stderr
    records = records_below(command.directory / "results")
    assert {cell.split("::")[2]: str(row.verdict) for cell, row in records.items()} == {
        "differs": "wrong",
        "raises": "error",
        "eager": "pass",
    }
    assert records["telling::tells::raises"].error.message.startswith("refused: … and run --password … and [")
    texts = [path.read_bytes() for path in (command.directory / "results").rglob("*") if path.is_file()]
    assert any(b"connecting with" in text for text in texts)
    secrets = re.compile(rb".*(?:correct-horse|Hunter2).*")
    assert [line for text in (*texts, (done.stdout + done.stderr).encode()) for line in secrets.findall(text)] == []
