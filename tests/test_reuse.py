"""Processes that run several tasks of a group: what they share, and what each task has of its own."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections import deque
from pathlib import Path

import msgspec
import pytest

from recapture.pool.client import Client
from recapture.pool.folders import Home
from recapture.pool.protocol import Begun, Task
from recapture.pool.server import MOST_BEFORE, take_movable, take_next
from recapture.pool.worker import FAILED

TASK = "planted_tasks:note"


@pytest.fixture(scope="module")
def mark():
    return uuid.uuid4().hex


@contextlib.contextmanager
def started_client(mark, jobs):
    home = Home()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        patch.setenv("PLANTED_MARK", mark)
        with Client(home=home.path, jobs=jobs, imports=("planted_tasks",)) as started:
            yield started
    home.cleanup()


@pytest.fixture(scope="module")
def client(mark):
    with started_client(mark, jobs=2) as started:
        yield started


@pytest.fixture(scope="module")
def one_at_a_time(mark):
    with started_client(mark, jobs=1) as started:
        yield started


def run(client, *words, group="g", timeout=60.0, memory=1 << 40):
    """Run one task after the other of a group; return their ends, and what they noted."""
    numbers = [client.submit(TASK, word, timeout=timeout, memory=memory, group=group) for word in words]
    return ended(client, numbers, timeout)


def ended(client, numbers, timeout=60.0):
    """Wait for tasks; return their ends, and what they noted."""
    ends = {}
    while len(ends) < len(numbers):
        message = client.message(timeout)
        if not isinstance(message, Begun):
            ends[message.id] = message
    ordered = [ends[number] for number in numbers]
    return ordered, [json.loads(end.result) if end.result else None for end in ordered]


def test_tasks_of_a_group_run_in_one_process_one_after_the_other(client):
    ends, noted = run(client, "a", "sleeps", "c")
    assert len({note["pid"] for note in noted}) == 1
    assert [note["before"] for note in noted] == [[], ["a"], ["a", "sleeps"]]
    assert [end.reused for end in ends] == [False, True, True]
    assert {end.status for end in ends} == {0}


def test_each_task_has_its_own_directories_output_phase_and_time(client):
    ends, noted = run(client, "a", "sleeps", "c")
    assert len({note["cwd"] for note in noted}) == len({note["TMPDIR"] for note in noted}) == 3
    assert [note["files"] for note in noted] == [[], [], []]
    assert [end.stdout for end in ends] == ["printed by a\n", "printed by sleeps\n", "printed by c\n"]
    assert [end.phase for end in ends] == ["a", "sleeps", "c"]
    assert 0.8 <= ends[1].seconds < ends[1].seconds + ends[2].seconds
    assert all(end.peak_rss > 0 for end in ends)


def test_tasks_of_other_groups_and_of_none_have_other_processes(client):
    numbers = [client.submit(TASK, "a", timeout=60, memory=1 << 40, group=group) for group in ("g", "h", None, None)]
    results = [client.result(number, dict, timeout=60) for number in numbers]
    assert len({result["pid"] for result in results}) == 4


def test_a_process_whose_group_has_ended_goes_on_with_a_movable_task_of_another_group(client):
    words = ("sleeps", "sleeps", "a", "b", "c", "stays")
    numbers = [
        client.submit(TASK, word, timeout=60, memory=1 << 40, group=f"group {place}", movable=word != "stays")
        for place, word in enumerate(words)
    ]
    _, (*moved, stayed) = ended(client, numbers)
    assert len({note["pid"] for note in moved}) == 2
    assert sum(note["before"] == [] for note in moved) == 2
    assert stayed["before"] == []


@pytest.mark.parametrize("fault", ["dies", "is not reusable", "closes its files"])
def test_after_a_fault_the_next_task_has_a_new_process(client, fault):
    ends, noted = run(client, "a", fault, "c")
    assert ends[1].status == {"dies": 3, "is not reusable": 0, "closes its files": FAILED}[fault]
    assert [end.reused for end in ends] == [False, True, False]
    assert noted[2]["before"] == []


def test_each_task_has_its_own_deadline(client):
    ends, _ = run(client, "sleeps", "sleeps", "sleeps", "hangs", timeout=2.0)
    assert [end.cause for end in ends] == ["exit", "exit", "exit", "timeout"]
    assert ends[3].reused
    assert "Timeout" in ends[3].stderr  # the stack
    assert "Timeout" not in ends[2].stderr


def test_each_task_has_its_own_memory_limit(client):
    ends, _ = run(client, "a", "sleeps", memory=1 << 20)
    assert "memory" in {end.cause for end in ends}


def test_a_process_that_a_task_left_does_not_outlive_it(client, mark):
    def left():
        paths = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # another process of this machine has ended
                paths += [path] if f"{mark}\0".encode() in path.read_bytes() else []
        return paths

    _, noted = run(client, "leaves a process", "a")
    assert noted[1]["before"] == ["leaves a process"]
    end = time.monotonic() + 10
    while left() and time.monotonic() < end:
        time.sleep(0.05)
    assert left() == []


def test_a_reused_process_leaves_nothing_behind(client):
    run(client, "a", "b")
    assert list(client.tasks.iterdir()) == []


def test_the_result_of_an_awaited_task_waits_beside_other_tasks(client):
    awaited = client.submit(TASK, "awaited", timeout=60, memory=1 << 40, awaited=True)
    assert not client.has_ended(awaited)
    ends, _ = run(client, "sleeps", "b")
    assert [end.reused for end in ends] == [False, True]
    assert client.has_ended(awaited)
    client.preload("bare", [])
    assert client.result(awaited, dict, timeout=60)["before"] == []
    assert not client.has_ended(awaited)


def test_a_message_that_arrived_while_another_was_awaited_is_not_lost(client):
    other_task = client.submit(TASK, "other", timeout=60, memory=1 << 40)
    awaited = client.submit(TASK, "sleeps", timeout=60, memory=1 << 40, awaited=True)
    client.result(awaited, dict, timeout=60)
    assert isinstance(client.message(60), Begun)
    assert client.message(60).id == other_task


def test_the_next_task_is_of_the_group_or_of_none_that_is_busy():
    def task(number, group):
        return Task(number, TASK, b"", 1.0, 1, group=group)

    queue = deque([task(1, "a"), task(2, "b"), task(3, None)])
    assert take_next(queue, busy=["a"]).id == 2
    assert take_next(queue, busy=["a", None]).id == 3
    assert take_next(queue, group="b") is None
    assert take_next(queue, group="a").id == 1
    assert take_next(queue) is None


def test_only_a_movable_task_of_a_group_that_no_process_runs_is_given_to_another_process():
    def task(number, group, *, movable=True):
        return Task(number, TASK, msgspec.Raw(b"1"), 60.0, 1, group=group, movable=movable)

    queue = deque([task(1, "a"), task(2, "b", movable=False), task(3, None, movable=False), task(4, "c")])
    assert take_movable(queue, ["a", "other"]).id == 4
    assert take_movable(queue, ["a", "other"]) is None
    assert [waiting.id for waiting in queue] == [1, 2, 3]


@pytest.mark.parametrize(("ran", "moves"), [(MOST_BEFORE, True), (MOST_BEFORE + 1, False)])
def test_a_process_that_ran_many_tasks_is_given_to_no_other_group(one_at_a_time, ran, moves):
    words = ("sleeps", *["a"] * (ran - 1), "last")  # all are submitted while the first one sleeps
    numbers = [
        one_at_a_time.submit(TASK, word, timeout=60, memory=1 << 40, group=str(word == "last"), movable=True)
        for word in words
    ]
    _, (first, *_, last) = ended(one_at_a_time, numbers)
    assert (first["pid"] == last["pid"]) is moves
