"""The driver: which tasks run again after their server died or a directory was deleted, and which are given up."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec
import pytest

from recapture.base.errors import EnvironmentUnfitError
from recapture.machine.doctor import Check
from recapture.pool.client import ServerDiedError
from recapture.pool.driver import MOST_RESTARTS, Driver, Request
from recapture.pool.protocol import Begun, Ended
from recapture.pool.worker_pool import WorkerPool
from recapture.records.verdicts import Verdict
from recapture.run.cell import CellResult
from recapture.run.outcomes import OutcomeReader
from recapture.tools.speed.job import Outcome


def ended(number: int = 1, **changed) -> Ended:
    default = Ended(
        id=number,
        cause="exit",
        status=0,
        phase=None,
        result="{}",
        seconds=0.1,
        peak_rss=1,
        stdout="",
        stderr="",
        rss_server=1,
    )
    return msgspec.structs.replace(default, **changed)


class Task(NamedTuple):
    key: str


class Tasks:
    """Work that runs named tasks in their order, at most two at a time."""

    def __init__(self, names: str):
        self.queue = deque(map(Task, names))
        self.done: list[str] = []
        self.dropped: dict[str, str] = {}

    def next(self, running):
        return self.queue.popleft() if self.queue and len(running) < 2 else None

    def request(self, task):
        return Request("a_module:a_function", task.key)

    def begun(self, task):
        pass

    def ended(self, task, ended):
        self.done.append(task.key)

    def given_up(self, task, reason):
        self.dropped[task.key] = reason


class Server:
    """A pool and its client: every task begins and ends at once, but for those with another fate.

    `kills` kill the server as soon as they run, `deletes` delete the directories of all that run beside them.
    """

    def __init__(self, *, kills: str = "", deletes: str = "", dead: int = 0):
        self.client = self
        self.kills, self.deletes = kills, deletes
        self.dead = dead
        self.restarts = 0
        self.left_over = False
        self.sent: list[str] = []
        self.running: dict[int, str] = {}
        self.messages: deque[Begun | Ended] = deque()

    def submit(self, function, payload, *, timeout, memory, timed, group=None, movable=False):
        if self.dead:
            raise ServerDiedError
        self.sent.append(payload)
        number = len(self.sent)
        self.running[number] = payload
        self.messages.append(Begun(number))
        return number

    def message(self, timeout):
        if self.messages:
            return self.messages.popleft()
        if any(name in self.kills for name in self.running.values()):
            raise ServerDiedError
        lost = any(name in self.deletes for name in self.running.values())
        self.messages.extend(ended(number, lost=lost, status=70 if lost else 0) for number in self.running)
        self.running.clear()
        return self.messages.popleft()

    end_left_over = WorkerPool.end_left_over

    def restart(self):
        self.restarts += 1
        self.dead = max(0, self.dead - 1)
        self.running.clear()
        self.messages.clear()

    def last_words(self):
        return "no memory"


def driven(names: str, server: Server) -> Tasks:
    work = Tasks(names)
    Driver(server, work, timeout=1.0, memory=1).run()
    return work


def test_every_task_runs_once():
    server = Server()
    work = driven("abcde", server)
    assert (work.done, work.dropped, server.restarts) == (list("abcde"), {}, 0)


def test_only_the_task_that_kills_its_server_is_given_up():
    server = Server(kills="b")
    work = driven("abcd", server)
    assert sorted(work.done) == ["a", "c", "d"]
    assert work.dropped == {"b": "killed the worker server, twice"}
    assert server.sent == ["a", "b", "c", "d", "a", "b"]  # the suspects come last, each by itself
    assert server.restarts == 2


def test_only_the_task_that_deletes_the_directories_is_given_up():
    server = Server(deletes="b")
    work = driven("abcd", server)
    assert sorted(work.done) == ["a", "c", "d"]
    assert work.dropped == {"b": "removed directories that its run needs"}
    assert server.sent == ["a", "b", "c", "d", "a", "b"]
    assert server.restarts == 2  # each time once, when nothing ran any more


def test_tasks_that_an_interrupted_driver_left_running_are_ended_before_the_next():
    class Interrupted(Tasks):
        def begun(self, task):
            if task.key == "b":
                raise KeyboardInterrupt

    server = Server()
    with pytest.raises(KeyboardInterrupt):
        Driver(server, Interrupted("abc"), timeout=1.0, memory=1).run()
    assert server.running
    assert server.left_over
    assert driven("de", server).done == ["d", "e"]
    assert (server.restarts, server.left_over) == (1, False)
    assert driven("f", server).done == ["f"]
    assert server.restarts == 1


def test_a_server_that_dies_before_any_task_begins_ends_the_run_with_status_3():
    server = Server(dead=99)
    work = Tasks("ab")
    with pytest.raises(EnvironmentUnfitError, match="keeps dying before a task begins: no memory") as error:
        Driver(server, work, timeout=1.0, memory=1).run()
    assert error.value.exit_status == 3
    assert server.restarts == MOST_RESTARTS
    assert (work.done, work.dropped) == ([], {})


def test_a_task_that_finds_the_server_dead_is_run_by_the_next():
    server = Server(dead=MOST_RESTARTS)
    assert driven("abc", server).done == ["a", "b", "c"]
    assert server.restarts == MOST_RESTARTS


def test_a_task_is_repeated_if_the_server_dies_while_its_end_is_handled():
    class Asking(Tasks):
        def ended(self, task, ended):
            if task.key == "b" and server.restarts == 0:
                raise ServerDiedError
            super().ended(task, ended)

    server, work = Server(), Asking("abc")
    Driver(server, work, timeout=1.0, memory=1).run()
    assert sorted(work.done) == ["a", "b", "c"]
    assert (work.dropped, server.restarts) == ({}, 1)


class Unmade:
    """Checks that are not made yet."""

    def __iter__(self):
        raise AssertionError("waited for the checks")


def test_an_end_that_no_check_could_explain_does_not_wait_for_the_checks():
    outcomes = OutcomeReader(CellResult, timeout=1.0, memory=1, checks=Unmade(), explainable=lambda _: True)
    assert outcomes.read(ended(result='{"verdict":"error"}', stderr="ValueError: no")).verdict is Verdict.ERROR
    with pytest.raises(AssertionError, match="waited"):
        outcomes.read(ended(result='{"verdict":"error"}', stderr="RuntimeError: Numpy is not available"))


@pytest.mark.parametrize("kind", [CellResult, Outcome])
@pytest.mark.parametrize(
    "result",
    [
        "",
        "garbage",
        "\x00",
        "[]",
        '{"verdict":"splendid"}',
        '{"verdict":"pass","reason":7}',
        '{"verdict":"pass","phase":' + "[" * 100_000,
        '{"verdict":1' + "0" * 5000 + "}",
    ],
)
def test_a_result_that_cannot_be_read_is_a_crash(kind, result):
    outcomes = OutcomeReader(kind, timeout=1.0, memory=1, checks=[], explainable=lambda _: False)
    outcome = outcomes.read(ended(result=result, phase="call"))
    assert (outcome.verdict, outcome.phase) == (Verdict.CRASH, "call")
    assert outcome.reason.startswith("left an unreadable result: ")
    assert len(outcome.reason) < 300
    assert "\n" not in outcome.reason
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=kind) == outcome


@pytest.mark.parametrize("kind", [CellResult, Outcome])
@pytest.mark.parametrize(
    ("how", "verdict", "reason"),
    [
        ({"cause": "timeout"}, Verdict.TIMEOUT, "still running after 1.5 s"),
        ({"cause": "memory"}, Verdict.OOM, "used more than 2 GiB"),
        ({"cause": "processes"}, Verdict.CRASH, "started too many processes"),
        ({"status": -11}, Verdict.CRASH, "died of SIGSEGV"),
        ({"status": 3}, Verdict.CRASH, "exited with status 3 and without a result"),
    ],
)
def test_the_end_of_a_process_without_a_result_has_a_verdict(kind, how, verdict, reason):
    outcomes = OutcomeReader(kind, timeout=1.5, memory=2 << 30, checks=[], explainable=lambda _: False)
    outcome = outcomes.read(ended(**{"result": None, "status": -9, **how}))
    assert (outcome.verdict, outcome.reason) == (verdict, reason)


def test_a_phase_that_a_task_made_up_is_left_out():
    outcomes = OutcomeReader(CellResult, timeout=1.0, memory=1, checks=[], explainable=lambda _: False)
    assert outcomes.read(ended(result=None, status=1, phase="lunch\x1b[2J")).phase is None


@pytest.mark.parametrize("how", [{"cause": "timeout"}, {"cause": "memory"}, {"status": -11}, {"result": "garbage"}])
@pytest.mark.parametrize("label", ["example", "held_out[12]", "original"])
def test_the_end_of_a_process_names_the_input_that_the_task_had_entered(how, label):
    outcomes = OutcomeReader(CellResult, timeout=1.0, memory=1, checks=[], explainable=lambda _: False)
    outcome = outcomes.read(ended(**{"result": None, "phase": f"call {label}", **how}))
    assert (outcome.phase, outcome.input) == ("call", label)


@pytest.mark.parametrize("entered", ["call lunch", "call held_out[x]", "call example more", "call ", "call"])
def test_an_input_that_a_task_made_up_is_left_out(entered):
    outcomes = OutcomeReader(CellResult, timeout=1.0, memory=1, checks=[], explainable=lambda _: False)
    outcome = outcomes.read(ended(result=None, status=1, phase=entered))
    assert (outcome.phase, outcome.input) == ("call", None)


def test_an_outcome_without_inputs_has_the_phase_alone():
    outcomes = OutcomeReader(Outcome, timeout=1.0, memory=1, checks=[], explainable=lambda _: False)
    assert outcomes.read(ended(result=None, status=1, phase="call example")).phase == "call"


def test_a_failure_that_a_check_of_the_doctor_explains_is_the_machines_fault():
    check = Check(name="numpy-version", status="fault", found="numpy 2 with torch 2.1", mend="", affects="numpy")
    outcomes = OutcomeReader(
        CellResult, timeout=1.0, memory=1, checks=[check], explainable=lambda outcome: outcome.verdict is Verdict.CRASH
    )
    stderr = "RuntimeError: Numpy is not available"
    outcome = outcomes.read(ended(result=None, status=1, stderr=stderr))
    assert (outcome.verdict, outcome.reason) == (Verdict.ENVIRONMENT, check.reason)
    assert outcomes.read(ended(result='{"verdict":"error"}', stderr=stderr)).verdict is Verdict.ERROR


def test_a_task_may_have_a_limit_of_its_own_which_its_outcome_names():
    class Limited(Tasks):
        def request(self, task):
            return super().request(task)._replace(timeout=0.5 if task.key == "b" else None)

    limits = []

    class Noting(Server):
        def submit(self, function, payload, *, timeout, **more):
            limits.append(timeout)
            return super().submit(function, payload, timeout=timeout, **more)

    Driver(Noting(), Limited("abc"), timeout=1.0, memory=1).run()
    assert limits == [1.0, 0.5, 1.0]
    outcomes = OutcomeReader(CellResult, timeout=1.0, memory=1, checks=[], explainable=lambda _: False)
    assert outcomes.read(ended(result=None, cause="timeout"), 0.5).reason == "still running after 0.5 s"
