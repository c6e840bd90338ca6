"""Cells that kill or starve the process they run in: each costs its own cell only, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from conftest import SUITES, records_below, results_below, run_in_process

from recapture.pool.folders import Folder
from recapture.pool.output_files import LONG_LINE, OUTPUT_CAP_BYTES, TAIL_BYTES, cut, tail
from recapture.pool.processes import Child, Running, check_caps, mark_of
from recapture.pool.protocol import LineBuffer, Task
from recapture.pool.server import Server
from recapture.records.record import Timing, read_jsonl

pytestmark = pytest.mark.hostile

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


def test_cells_that_die_cost_themselves_alone(warm, tmp_path):
    """Those of the run below that need neither a deadline nor much memory, in this process."""
    names = (
        *("neighbour::eager", "segfaults::eager", "aborts::eager", "exits::eager"),
        *("neighbour::dies-in-capture", "neighbour::dies-in-call", "neighbour::exits-with-status"),
    )
    assert run_in_process(*(f"{DEADLY}::{name}" for name in names), "--jobs", 2, "--results", tmp_path) == 0
    rows = {cell.removeprefix("deadly::"): row for cell, row in records_below(tmp_path).items()}
    assert {name: (str(row.verdict), row.phase, row.reason) for name, row in rows.items()} == {
        name: EXPECTED[name] for name in names
    }


@pytest.mark.slow
def test_a_run_of_deadly_cells_ends_well(deadly):
    assert deadly.returncode == 0, deadly.stderr
    assert "Traceback" not in deadly.stderr
    assert f"{len(EXPECTED)} planned = {len(EXPECTED)} recorded" in deadly.stdout


@pytest.mark.slow
def test_every_planned_cell_has_one_record(records):
    assert sorted(records) == sorted(f"deadly::{cell}" for cell in EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("cell", EXPECTED)
def test_a_deadly_cell_gets_its_verdict(records, cell):
    record = records[f"deadly::{cell}"]
    assert (str(record.verdict), record.phase, record.reason) == EXPECTED[cell]


@pytest.mark.slow
def test_sys_exit_in_a_compiler_is_an_error_like_any_other(records):
    assert records["deadly::neighbour::exits-with-status"].error.type == "SystemExit"


@pytest.mark.slow
def test_no_process_and_no_file_is_left_behind(deadly, module_command):
    assert module_command.leftovers() == []


@pytest.mark.slow
def test_a_timeout_says_where_it_hung(deadly, module_command):
    output = {}
    for line in (results_below(module_command.directory / "results") / "output.jsonl").read_text().splitlines():
        row = json.loads(line)
        output[row["cell"]] = row
    assert "in loops" in output["deadly::loops::eager"]["stderr"]
    assert "Segmentation fault" in output["deadly::segfaults::eager"]["stderr"]


@pytest.mark.slow
def test_deadlines_and_memory_caps_are_kept(deadly, module_command):
    rows = read_jsonl(results_below(module_command.directory / "results") / "timings.jsonl", Timing)
    timings = {f"{row.case}::{row.compiler}": row for row in rows}
    assert TIMEOUT <= timings["deadly::loops_and_ignores_sigterm::eager"].seconds < TIMEOUT + 5
    hog = timings["deadly::hogs_memory::eager"]
    assert MEMORY_GIB < hog.peak_rss / 2**30 < 3 * MEMORY_GIB  # it touches more than a GiB a second
    assert hog.seconds < TIMEOUT


@pytest.mark.slow
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


def test_a_process_that_dies_while_its_stack_is_written_is_one_that_does_not_end(warm, tmp_path):
    """Python writes the stack shortly before the deadline, from another thread; that can end the process."""
    suite = tmp_path / "dies.py"
    suite.write_text(
        "import os, signal, time\n\nimport torch\n\nfrom recapture import case\n\n\n"
        "@case(example=lambda: (torch.ones(3),))\ndef late(x):\n    time.sleep(3.7)\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n\n\n"
        "@case(example=lambda: (torch.ones(3),))\ndef early(x):\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    arguments = (suite, "--compiler", "eager", "--timeout", "4", "--results", tmp_path / "results")
    assert run_in_process(*arguments) == 0
    records = records_below(tmp_path / "results")
    assert (records["dies::late::eager"].verdict, records["dies::late::eager"].reason) == (
        "timeout",
        "still running after 4 s",
    )
    assert records["dies::early::eager"].reason == "died of SIGSEGV"


@pytest.mark.parametrize("punches", [True, False])
def test_an_output_file_past_its_limit_keeps_its_end_and_grows_again(tmp_path, monkeypatch, punches):
    if not punches:  # a file system that cannot give blocks back
        monkeypatch.setattr("recapture.pool.output_files._punch", lambda *_: False)
    path = tmp_path / "stdout"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"xxx\n" * (OUTPUT_CAP_BYTES // 4 + 1))
        writer.write(b"the last words so far\n")
        cut(path)
        assert tail(path).endswith("xxx\nthe last words so far\n")
        assert path.stat().st_blocks * 512 < 1 << 20
        writer.write(b"the end of it\n")
    assert tail(path).endswith("xxx\nthe last words so far\nthe end of it\n")


def test_the_end_of_an_output_file_begins_with_a_whole_line(tmp_path):
    """Else a secret would stand without the name that tells that it is one."""
    path = tmp_path / "stdout"
    last_lines = "a line\n" * (TAIL_BYTES // 7 - 1)
    path.write_text("x" * 100 + f"\nlogin --password hunter22\n{last_lines}")
    assert tail(path) == last_lines
    path.write_text("x" * (TAIL_BYTES + 5))
    assert tail(path) == LONG_LINE
    path.write_text("password=" + "hunter22" * 3 + "y" * (TAIL_BYTES - 10) + "\n")
    assert "hunter" not in tail(path)
    path.write_text("short\nand whole")
    assert tail(path) == "short\nand whole"


def test_a_fresh_process_that_ends_while_the_next_one_starts_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(Running, "sweep", lambda *_: None)  # it is for a process that has no children but tasks
    mine, theirs = socket.socketpair()
    with mine, theirs:
        server = Server(theirs, home=tmp_path, tasks=tmp_path, jobs=2, fork=False, imports=[])
        for number in (1, 2):
            server.queue.append(Task(number, "canary", msgspec.Raw(b'"cpu"'), 60.0, 1 << 40))
            server._start()
            os.waitid(os.P_PID, list(server.running)[-1], os.WEXITED | os.WNOWAIT)
        server._reap()
        assert server.running == {}


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
    running = Running(tmp_path)
    task = Task(1, "canary", msgspec.Raw(b"null"), 60.0, 1 << 40)
    folder, other_folder = Folder(scratch), Folder(tmp_path / "task2")
    no_pid = 1 << 22
    with subprocess.Popen(["sleep", "60"], **how(scratch)) as process:
        while not Path(f"/proc/{process.pid}/environ").read_bytes():
            time.sleep(0.01)  # the kernel lets the parent go on a moment before the new program has its environment
        child = Child(task, no_pid, folder, 0.0)
        assert running._comes_of(child, process.pid) == known
        session = os.getsid(process.pid)
        assert running._comes_of(Child(task, session, other_folder, 0.0), process.pid)
        running[session] = Child(task, session, folder, 0.0)
        assert not running._comes_of(child, process.pid)
        process.kill()


@pytest.mark.parametrize(
    ("weights", "ended", "cause"),
    [
        ((2, 2), False, "memory"),
        ((2, 1, 2, 1), False, None),  # a sum that is too large for a moment, because it is read part by part
        ((2, 1, 2, 2), False, "memory"),
        ((2,), False, None),
        ((2,), True, "memory"),
    ],
)
def test_memory_is_over_the_limit_when_two_measurements_in_a_row_are(tmp_path, monkeypatch, weights, ended, cause):
    remaining = list(weights)
    monkeypatch.setattr("recapture.pool.processes.weigh", lambda pids, held: remaining.pop(0))
    child = Child(Task(1, "canary", msgspec.Raw(b"null"), 60.0, memory=1), os.getpid(), Folder(tmp_path), 0.0)
    for _ in weights:
        child.weighed_again = 0.0
        check_caps(child, [os.getpid()], ended=ended)
    assert (child.cause, remaining) == (cause, [])


def test_a_mark_is_inherited_over_forks_sessions_and_programs():
    marked = "import os, subprocess, sys; from recapture.pool.processes import mark; mark(); print(os.getpid());"
    below = "import os; from recapture.pool.processes import mark_of; print(mark_of(os.getpid()))"
    script = f"{marked} sys.stdout.flush(); subprocess.run([sys.executable, '-c', {below!r}], start_new_session=True, cwd='/', env={{'PYTHONPATH': {str(Path.cwd())!r}}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    owner, inherited = done.stdout.split()
    assert inherited == owner
    assert mark_of(os.getpid()) is None


def test_lines_come_whole_however_a_stream_is_cut():
    stream = b"one\n\n" + b"x" * 5000 + b"\nlast"
    for size in (1, 2, 7, 5000, 10_000):
        buffer = LineBuffer()
        lines = [line for at in range(0, len(stream), size) for line in buffer.add(stream[at : at + size])]
        assert lines == [b"one", b"", b"x" * 5000]
        assert buffer.add(b"!\n") == [b"last!"]


def test_a_message_of_many_chunks_is_put_together_in_time_that_grows_with_its_size():
    buffer, chunk = LineBuffer(), b"x" * 4096
    begin = time.monotonic()
    for _ in range(50_000):  # 200 MB: joining them again each time would copy 5 TB
        assert buffer.add(chunk) == []
    (line,) = buffer.add(b"\n")
    assert len(line) == 50_000 * 4096
    assert time.monotonic() - begin < 20
