"""What cells do to the process they run in, planted for real: each costs its own cell, and nothing is left of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import msgspec
import pytest
from conftest import SUITES, records_below, results_below

from recapture.pool.protocol import Task
from recapture.pool.server import OUTPUT_CAP_BYTES, TAIL_BYTES, Child, Server, _cut, _tail
from recapture.results.records import Timing, read_jsonl

DEADLY = SUITES / "planted" / "deadly.py"
TIMEOUT = 6.0
MEMORY_GIB = 1.0

EXPECTED = {
    "neighbour::eager": ("pass", None, None),
    "segfaults::eager": ("crash", "reference", "died of SIGSEGV"),
    "aborts::eager": ("crash", "reference", "died of SIGABRT"),
    "exits::eager": ("crash", "reference", "exited with status 0 and without a result"),
    "loops::eager": ("timeout", "reference", "still running after 6 s"),
    "loops_and_ignores_sigterm::eager": ("timeout", "reference", "still running after 6 s"),
    "hogs_memory::eager": ("oom", "reference", "used more than 1 GiB"),
    "bombs::eager": ("crash", "reference", "started too many processes"),
    "kills_its_server_and_leaves_a_child::eager": ("crash", None, "killed the worker server, twice"),
    "neighbour::dies-in-capture": ("crash", "capture", "died of SIGSEGV"),
    "neighbour::hangs-in-capture": ("timeout", "capture", "still running after 6 s"),
    "neighbour::dies-in-call": ("crash", "call", "died of SIGBUS"),
    "neighbour::allocates-too-much": ("oom", "call", None),
    "neighbour::exits-with-status": ("error", "capture", None),
}
"""Cell → verdict, phase, reason."""


@pytest.fixture(scope="module")
def deadly(module_command):
    """One run of every deadly cell, as a user starts it, two at a time."""
    cells = [f"{DEADLY}::{cell}" for cell in EXPECTED]
    options = ["--jobs", "2", "--timeout", TIMEOUT, "--memory", MEMORY_GIB, "--results", "results"]
    return module_command("run", *cells, *options)


@pytest.fixture(scope="module")
def records(deadly, module_command):
    return records_below(module_command.directory / "results")


def test_a_run_of_deadly_cells_ends_well(deadly):
    assert deadly.returncode == 0, deadly.stderr
    assert "Traceback" not in deadly.stderr
    assert f"{len(EXPECTED)} planned = {len(EXPECTED)} recorded" in deadly.stdout


def test_every_planned_cell_has_one_record(records):
    assert sorted(records) == sorted(f"deadly::{cell}" for cell in EXPECTED)


@pytest.mark.parametrize("cell", EXPECTED)
def test_a_deadly_cell_gets_its_verdict(records, cell):
    record = records[f"deadly::{cell}"]
    assert (str(record.verdict), record.phase, record.reason) == EXPECTED[cell]


def test_sys_exit_in_a_compiler_is_an_error_like_any_other(records):
    assert records["deadly::neighbour::exits-with-status"].error.type == "SystemExit"


def test_no_process_and_no_file_is_left_behind(deadly, module_command):
    assert module_command.leftovers() == []


def test_a_timeout_says_where_it_hung(deadly, module_command):
    output = {}
    for line in (results_below(module_command.directory / "results") / "output.jsonl").read_text().splitlines():
        row = json.loads(line)
        output[row["cell"]] = row
    assert "in loops" in output["deadly::loops::eager"]["stderr"]
    assert "Segmentation fault" in output["deadly::segfaults::eager"]["stderr"]


def test_deadlines_and_memory_caps_are_kept(deadly, module_command):
    rows = read_jsonl(results_below(module_command.directory / "results") / "timings.jsonl", Timing)
    timings = {f"{row.case}::{row.compiler}": row for row in rows}
    assert TIMEOUT <= timings["deadly::loops_and_ignores_sigterm::eager"].seconds < TIMEOUT + 5
    hog = timings["deadly::hogs_memory::eager"]
    assert MEMORY_GIB < hog.peak_rss / 2**30 < 3 * MEMORY_GIB  # it touches more than a GiB a second
    assert hog.seconds < TIMEOUT


def test_environment_counts_planned_and_recorded(deadly, module_command):
    environment = msgspec.json.decode(
        (results_below(module_command.directory / "results") / "environment.json").read_bytes()
    )
    assert environment["planned"] == environment["recorded"] == len(EXPECTED)


BACKWARD = """

@case(example=lambda: (torch.ones(3, requires_grad=True),))
def backward_{number}(x):
    '''Runs autograd, whose threads are new in every child.'''
    (gradient,) = torch.autograd.grad((x * {number}).sum(), x)
    return gradient
"""


@pytest.mark.slow
def test_autograd_works_in_every_forked_child(command):
    """Without a thread pool of the child's own, one child in seven is aborted: two of its threads find none."""
    cases = "import torch\nfrom recapture import case\n" + "".join(BACKWARD.format(number=n) for n in range(40))
    (command.directory / "gradients.py").write_text(cases, encoding="utf-8")
    done = command("run", "gradients.py", "--compiler", "compile:eager", "--worker", "fork", "--results", "results")
    assert done.returncode == 0, done.stderr
    records = records_below(command.directory / "results")
    assert len(records) == 40
    assert [cell for cell, record in records.items() if record.verdict == "crash"] == []


@pytest.mark.parametrize("punches", [True, False])
def test_an_output_file_past_its_cap_keeps_its_end_and_goes_on(tmp_path, monkeypatch, punches):
    if not punches:  # a file system that cannot give blocks back
        monkeypatch.setattr("recapture.pool.server._punch", lambda *_: False)
    path = tmp_path / "stdout"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"x" * (OUTPUT_CAP_BYTES + 1))
        writer.write(b"the last words so far\n")
        _cut(path)
        assert _tail(path).endswith("xxx" + "the last words so far\n")
        assert path.stat().st_blocks * 512 < 1 << 20
        writer.write(b"the end of it\n")
    assert _tail(path).endswith("the last words so far\nthe end of it\n")
    assert len(_tail(path)) == TAIL_BYTES


def test_a_fresh_process_that_ends_while_the_next_one_starts_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(Server, "_sweep", lambda *_: None)  # it is for a process that has no children but tasks
    mine, theirs = socket.socketpair()
    with mine, theirs:
        server = Server(theirs, home=tmp_path, tasks=tmp_path, jobs=2, fork=False, imports=[])
        for number in (1, 2):
            server.queue.append(Task(number, "canary", msgspec.Raw(b'"cpu"'), 60.0, 1 << 40))
            server._start()
            os.waitid(os.P_PID, list(server.children)[-1], os.WEXITED | os.WNOWAIT)
        server._reap()
        assert server.children == {}


@pytest.mark.parametrize(
    ("how", "known"),
    [
        (lambda scratch: {"cwd": scratch / "cwd", "start_new_session": True}, True),
        (lambda scratch: {"env": {"TMPDIR": str(scratch / "tmp")}, "start_new_session": True}, True),
        (lambda scratch: {"env": {"TMPDIR": f"{scratch}2/tmp"}, "cwd": f"{scratch}2"}, False),
    ],
    ids=["directory", "environment", "another's"],
)
def test_an_orphan_is_known_by_its_session_directory_or_environment(tmp_path, how, known):
    scratch = tmp_path / "task"
    (scratch / "cwd").mkdir(parents=True)
    (tmp_path / "task2").mkdir()
    server = Server(None, home=tmp_path, tasks=tmp_path, jobs=2, fork=True, imports=[])
    task = Task(1, "canary", msgspec.Raw(b"null"), 60.0, 1 << 40)
    no_pid = 1 << 22
    with subprocess.Popen(["sleep", "60"], **how(scratch)) as process:
        child = Child(task, no_pid, scratch, 0.0)
        assert server._comes_of(child, process.pid) == known
        session = os.getsid(process.pid)
        assert server._comes_of(Child(task, session, tmp_path / "other", 0.0), process.pid)
        server.children[session] = Child(task, session, scratch, 0.0)
        assert not server._comes_of(child, process.pid)
        process.kill()
