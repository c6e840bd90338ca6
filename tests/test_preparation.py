"""The doctor's checks, which are made while the first cells run."""

from __future__ import annotations

import json

import msgspec
import pytest
from conftest import SUITES, results_below, run_in_process

from recapture.base.errors import EnvironmentUnfitError
from recapture.judge.readiness import blind_to
from recapture.machine.doctor import Check
from recapture.pool.protocol import Ended
from recapture.run import runner, tasks
from recapture.run.preparation import Checks, survey

FAULT = Check(name="cxx-compiler", status="fault", found="no C++ compiler", mend="install one", affects="codegen")
SOUND = Check(name="numpy-version", status="ok", found="numpy 2", mend="", affects="numpy")


class Pool:
    """A pool whose checks are made when `made` says so."""

    device = "cpu"

    def __init__(self, answer):
        self.answers, self.made, self.asked = answer, False, 0

    def answer(self, task, payload, kind, *, timeout):
        assert task == tasks.CHECKS
        self.asked += 1
        return self.answers

    def has_answer(self, task):
        return self.made


class Answered:
    """A pool whose child has described the machine in this way."""

    device = "cpu"

    def __init__(self, answer):
        self.answer = lambda *_, **__: answer


def test_checks_are_waited_for_only_when_they_are_needed():
    pool = Pool([FAULT, SOUND])
    checks = Checks(pool)
    heard = []
    checks.give_to(heard.append)
    checks.read_if_made()
    assert (pool.asked, heard) == (0, [])
    pool.made = True
    checks.read_if_made()
    assert (pool.asked, heard) == (1, [[FAULT, SOUND]])
    assert list(checks) == [FAULT, SOUND]
    checks.give_to(heard.append)
    assert (pool.asked, len(heard)) == (1, 2)


def test_a_machine_that_cannot_be_examined_ends_the_run():
    died = Ended(
        id=1, cause="exit", status=1, phase=None, result=None, seconds=0.1, peak_rss=1,
        stdout="", stderr="OSError: no disk\n", rss_server=1,
    )  # fmt: skip
    with pytest.raises(EnvironmentUnfitError, match="cannot be examined: OSError: no disk"):
        list(Checks(Pool(died)))


@pytest.mark.parametrize("reads_wrongly", [lambda *_: True, lambda *_: False])
def test_a_judge_that_does_not_see_tensors_differ_ends_the_run(reads_wrongly, monkeypatch, warm, tmp_path, capsys):
    assert blind_to() is None
    for user in ("compare", "rounding"):
        monkeypatch.setattr(f"recapture.judge.{user}.same_bits", reads_wrongly)
    assert "tensor" in blind_to()
    blind = tasks.survey(b'"cpu"', lambda _: None)
    monkeypatch.setattr(runner, "survey", lambda pool: survey(Answered(msgspec.json.decode(blind))))
    assert run_in_process(f"{SUITES / 'planted' / 'verdicts.py'}::neighbour::eager", "--results", tmp_path) == 3
    assert "recapture cannot judge tensors of this torch: a" in capsys.readouterr().err
    assert not list(tmp_path.rglob("conformance.jsonl"))


def test_a_judge_that_cannot_read_tensors_says_so(monkeypatch):
    def gone(_):
        raise AttributeError("is_leaf")

    monkeypatch.setattr("recapture.judge.snapshot._properties", gone)
    assert blind_to() == "a tensor is not read, or does not equal itself"


def test_a_fault_that_is_found_while_cells_run_is_reported_and_recorded(warm, monkeypatch, tmp_path, capsys):
    events = []

    class Late(Checks):
        def wait(self):
            events.append("checks")
            self._made = [FAULT, SOUND]
            self._listener(self._made)
            return self._made

    monkeypatch.setattr(runner, "survey", lambda pool: (Late(pool), survey(pool)[1]))
    recorded = runner.CellExecution._record

    def record(*arguments):
        events.append("cell")
        recorded(*arguments)

    monkeypatch.setattr(runner.CellExecution, "_record", record)
    cell = f"{SUITES / 'planted' / 'verdicts.py'}::neighbour::eager"
    assert run_in_process(cell, "--results", tmp_path) == 0
    assert events == ["cell", "checks"]
    assert "warning: cxx-compiler: no C++ compiler; fix: install one" in capsys.readouterr().err
    environment = json.loads((results_below(tmp_path) / "environment.json").read_text())
    assert [check["name"] for check in environment["doctor"]] == ["cxx-compiler"]
