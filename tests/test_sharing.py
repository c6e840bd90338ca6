"""Cells that share a process: the same records as from processes of their own, whatever the cells leave behind."""

from __future__ import annotations

import json
import os
import shutil
import sys
import types
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import torch
from conftest import SUITES, results_below

from recapture.cases.collection import CaseInfo, execute, find_suites
from recapture.cases.compilers import builtin_compilers
from recapture.records.record import Timing
from recapture.records.verdicts import Verdict
from recapture.run import runner
from recapture.run.cell import CellSpec
from recapture.run.plan import PlannedCell, RunOptions
from recapture.run.shared_processes import LIKELY_TO_PASS, LONG, UNEVENTFUL, End, group_of, in_groups
from recapture.run.tasks import ProcessState

RESULTS = Path(__file__).parents[1] / "results"
COMPILERS = ("eager", "fx", "jit.trace", "make_fx", "jit.script")

INTERFERING = """
import os
import sys

import torch
from recapture import case

SEEN = []


@case(example=lambda: (torch.ones(3),))
def neighbour(x):
    return x + 1


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)])
def branches(x):
    return x + 1 if x.sum() > 0 else x - 1


@case(example=lambda: (torch.ones(3),))
def appends_to_a_global(x):
    SEEN.append(1)
    return x + (len(SEEN) > 20)


@case(example=lambda: (torch.ones(3),))
def replaces_a_function_of_torch_when_it_is_traced(x):
    if isinstance(x, torch.fx.Proxy):
        torch.relu = torch.cos
    return torch.relu(x)


@case(example=lambda: (torch.ones(3),))
def marks_its_process_when_it_is_traced(x):
    if isinstance(x, torch.fx.Proxy):
        sys.marked = True
    if torch.jit.is_tracing() and not hasattr(sys, "marked"):
        return x - 1
    return x + 1


@case(example=lambda: (torch.ones(3),))
def leaves_another_dtype_when_it_is_traced(x):
    if isinstance(x, torch.fx.Proxy):
        torch.set_default_dtype(torch.float64)
    return x + torch.ones(3)


@case(example=lambda: (torch.ones(3),))
def turns_determinism_on_when_it_is_traced(x):
    if isinstance(x, torch.fx.Proxy):
        torch.use_deterministic_algorithms(True)
    return x + torch.are_deterministic_algorithms_enabled()


@case(example=lambda: (torch.ones(3),))
def sets_a_variable_when_it_is_traced(x):
    if isinstance(x, torch.fx.Proxy):
        os.environ["PLANTED"] = "1"
    return x + ("PLANTED" in os.environ)


@case(example=lambda: (torch.ones(3),))
def registers_a_container_when_it_is_traced(x):
    class Container:
        pass

    if isinstance(x, torch.fx.Proxy):
        torch.utils._pytree.register_pytree_node(Container, lambda c: ([], None), lambda c, _: Container())
    return x + len(torch.utils._pytree.SUPPORTED_NODES)


@case(example=lambda: (torch.ones(3),))
def leaves_a_file(x):
    found = os.path.exists("left")
    open("left", "w").close()
    return x + 1 if found else x + 1


@case(example=lambda: (torch.ones(3),))
def dies_when_it_is_traced(x):
    if torch.jit.is_tracing():
        os._exit(3)
    return x + 1


@case(example=lambda: (torch.ones(3),))
def dies_in_a_process_that_was_used(x):
    if isinstance(x, torch.fx.Proxy):
        vars(torch.nn.functional).setdefault("__planted__", 1)
    if torch.jit.is_tracing() and "__planted__" in vars(torch.nn.functional):
        os.abort()
    return x + 1


@case(example=lambda: (torch.ones(3),))
def prints(x):
    print("a line")
    return x + 1
"""


WITH_A_MODULE = """
import torch
from recapture import case

import helper


@case(example=lambda: (torch.ones(3),))
def marks_a_module_of_its_own(x):
    if isinstance(x, torch.fx.Proxy):
        helper.marked = True
    if torch.jit.is_tracing() and not helper.marked:
        return x - 1
    return x + 1


@case(example=lambda: (torch.ones(3),))
def fills_a_list_of_its_own_module(x):
    if isinstance(x, torch.fx.Proxy):
        helper.found.append(1)
    if torch.jit.is_tracing() and not helper.found:
        return x - 1
    return x + 1
"""


class Quiet:
    def start(self, likely, jobs, *, guessed):
        pass

    def cell_started(self, cell):
        pass

    def cell_finished(self, record, seconds):
        pass


@pytest.fixture
def run(warm, tmp_path, monkeypatch):
    """Run suites, with shared processes or without; return the results' directory and the ends of the processes."""

    def go(*suites, shares: bool, compilers=COMPILERS, timeout=60.0):
        ends = []
        ended = runner.CellExecution.ended

        def noted(self, task, end):
            ends.append((task, end))
            ended(self, task, end)

        monkeypatch.setattr(runner.CellExecution, "ended", noted)
        results = tmp_path / ("shared" if shares else "alone")
        options = RunOptions(
            selection=find_suites(tuple(map(str, suites))),
            compilers=compilers,
            jobs=2,
            timeout=timeout,
            results=results,
        )
        runner.run_cells(options, Quiet(), lambda _: None, shares_processes=shares)
        monkeypatch.setattr(runner.CellExecution, "ended", ended)
        return results_below(results), ends

    return go


def output(directory: Path) -> dict[str, str]:
    """What each cell printed."""
    rows = [json.loads(line) for line in (directory / "output.jsonl").read_text().splitlines()]
    return {row["cell"]: row["stdout"] for row in rows if "stdout" in row}


def test_cells_of_a_few_cases_that_interfere_have_the_same_records_in_shared_processes(run, tmp_path):
    suite = tmp_path / "interfering.py"
    suite.write_text(INTERFERING)
    left = ("leaves_another_dtype_when_it_is_traced", "dies_in_a_process_that_was_used", "prints", "branches")
    cells = [f"{suite}::{case}" for case in left]
    alone, ends = run(*cells, shares=False, compilers=COMPILERS[:3])
    assert not any(end.reused for _, end in ends)
    shared, ends = run(*cells, shares=True, compilers=COMPILERS[:3])
    assert (alone / "conformance.jsonl").read_bytes() == (shared / "conformance.jsonl").read_bytes()
    assert output(alone) == output(shared)
    again = [task.address for task, _ in ends]
    assert again.count("interfering::branches::fx") == 2
    assert again.count("interfering::dies_in_a_process_that_was_used::jit.trace") == 2
    assert "interfering::prints::jit.trace" in {task.address for task, end in ends if end.reused}


@pytest.mark.slow
def test_shared_processes_give_the_same_records(run, tmp_path):
    suite = tmp_path / "interfering.py"
    suite.write_text(INTERFERING)
    own = tmp_path / "own.py"
    own.write_text(WITH_A_MODULE)
    (tmp_path / "helper.py").write_text("marked = False\nfound = []\n")
    planted = SUITES / "planted"
    suites = (suite, own, planted / "verdicts.py")
    alone, ends = run(*suites, shares=False)
    assert not any(end.reused for _, end in ends)
    shared, ends = run(*suites, shares=True)
    assert (alone / "conformance.jsonl").read_bytes() == (shared / "conformance.jsonl").read_bytes()
    assert output(alone) == output(shared)
    reused = {task.address for task, end in ends if end.reused}
    assert len(reused) > 40
    assert "interfering::neighbour::jit.script" in reused
    assert "interfering::prints::jit.script" in reused
    again = [task.address for task, _ in ends]
    twice = {address for address in again if again.count(address) == 2}
    assert {
        "interfering::branches::fx",
        "interfering::dies_when_it_is_traced::jit.trace",
        "interfering::dies_in_a_process_that_was_used::jit.trace",
    } <= twice
    assert len(again) == len(set(again)) + len(twice)


def test_a_cell_has_its_own_deadline_in_a_shared_process(run, tmp_path):
    suite = tmp_path / "slow.py"
    suite.write_text(
        "import time\nimport torch\nfrom recapture import case\n\n\n"
        "@case(example=lambda: (torch.ones(3),))\ndef sleeps(x):\n    time.sleep(0.2)\n    return x + 1\n\n\n"
        "@case(example=lambda: (torch.ones(3),))\ndef hangs_when_traced(x):\n"
        "    while torch.jit.is_tracing():\n        time.sleep(0.1)\n    return x + 1\n"
    )
    directory, ends = run(suite, shares=True, compilers=("eager", "fx", "jit.trace"), timeout=4.0)
    verdicts = {
        (row["case"], row["compiler"]): row["verdict"]
        for row in map(json.loads, (directory / "conformance.jsonl").read_text().splitlines())
    }
    assert {how for (case, _), how in verdicts.items() if case == "slow::sleeps"} == {"pass"}
    assert verdicts["slow::hangs_when_traced", "jit.trace"] == "timeout"
    seconds = {task.address: end.seconds for task, end in ends if end.reused}
    assert 1 < seconds["slow::sleeps::fx"] < 4  # its own, though its process is older


def planned(case, compiler, **info):
    return PlannedCell(CellSpec("s", "s.py", case, compiler, "cuda"), CaseInfo(case, "", "", {}, **info))


def an_end(verdict):
    return End(Verdict(verdict), None, None, None, frozenset(), (None, None, None))


def test_of_cells_that_never_ran_only_those_that_capture_and_may_pass_share_a_process():
    assert group_of(planned("f", "fx"), (), ()) == group_of(planned("f", "jit.trace"), (), {"pass"}) == "s::f"
    assert group_of(planned("f", "compile"), (), ()) is None
    assert group_of(planned("f", "a-users-own"), (), ()) is None
    assert group_of(planned("f", "fx", compiles=True), (), ()) is None
    assert group_of(planned("f", "fx"), (), {"pass", "specialized"}) is None


def test_cells_whose_ends_are_known_share_a_process_unless_one_end_is_not_orderly():
    known = {an_end("error"), an_end("wrong")}
    assert group_of(planned("f", "fx"), known, {"error"}) == "s::f"
    assert group_of(planned("f", "compile"), known, ()) == group_of(planned("f", "aoti"), known, ()) == "s::f"
    assert group_of(planned("f", "a-users-own"), known, ()) is None
    for verdict in ("crash", "timeout", "oom", "environment"):
        assert group_of(planned("f", "fx"), {*known, an_end(verdict)}, ()) is None


def test_a_cell_that_takes_long_has_a_process_of_its_own():
    assert group_of(planned("f", "fx"), {an_end("pass")}, (), LONG - 0.1) == "s::f"
    assert group_of(planned("f", "fx"), {an_end("pass")}, (), LONG + 0.1) is None


@pytest.mark.parametrize("path", sorted(RESULTS.glob("torch*/sm_*/timings.jsonl")), ids=lambda path: path.parts[-3])
def test_a_cell_that_waited_for_a_context_is_not_taken_for_a_long_one(path):
    timings = [msgspec.json.decode(line, type=Timing) for line in path.read_bytes().splitlines()]
    eager = [timing.seconds for timing in timings if timing.compiler == "eager"]
    # Nearly all of it is the wait: eager itself takes milliseconds.
    assert sum(seconds > LONG for seconds in eager) < 0.01 * len(eager)


def test_a_group_is_together_and_begins_with_the_cells_that_are_likely_to_pass():
    cells = [planned(*names) for names in (("f", "jit.trace"), ("g", "compile"), ("f", "compile"), ("f", "eager"))]
    seconds = {"jit.trace": 2.0, "eager": 2.0, "compile": 3.0}

    def ordered(ends):
        cells_in_order = in_groups(
            cells, lambda cell: group_of(cell, (), ()), lambda cell: seconds[cell.spec.compiler], lambda cell: ends
        )
        return [(cell.spec.case, cell.spec.compiler) for cell in cells_in_order]

    assert ordered(()) == [("f", "eager"), ("f", "jit.trace"), ("g", "compile"), ("f", "compile")]
    seconds["eager"] = 0.5
    assert ordered(()) == [("g", "compile"), ("f", "compile"), ("f", "eager"), ("f", "jit.trace")]


def test_a_cell_that_is_known_to_fail_is_the_last_of_its_group():
    cells = [planned("f", name) for name in ("eager", "fx", "jit.trace")]
    ends = {"eager": {an_end("pass")}, "fx": {an_end("error")}, "jit.trace": {an_end("pass")}}
    ordered = in_groups(cells, lambda _: "f", lambda _: 1.0, lambda cell: ends[cell.spec.compiler])
    assert [cell.spec.compiler for cell in ordered] == ["eager", "jit.trace", "fx"]


def test_cells_end_as_they_are_known_to_end_in_shared_processes_and_otherwise_run_again_alone(run, tmp_path):
    suite = tmp_path / "interfering.py"
    suite.write_text(INTERFERING)
    left = ("branches", "replaces_a_function_of_torch_when_it_is_traced", "marks_its_process_when_it_is_traced")
    cells = [f"{suite}::{case}" for case in left]
    alone, _ = run(*cells, shares=False, compilers=COMPILERS[:3])
    before = (alone / "conformance.jsonl").read_bytes()
    known = tmp_path / "shared" / alone.parent.name / alone.name
    known.mkdir(parents=True)
    # What is known: all that happened, but that the graph of one cell was broken. It is not, and so the cell runs again alone.
    edited = [json.loads(line) for line in before.splitlines()]
    for row in edited:
        if (row["case"], row["compiler"]) == ("interfering::marks_its_process_when_it_is_traced", "fx"):
            row["verdict"] = "pass_with_breaks"
    (known / "conformance.jsonl").write_text("".join(json.dumps(row) + "\n" for row in edited))
    shutil.copy(alone / "environment.json", known)
    shared, ends = run(*cells, shares=True, compilers=COMPILERS[:3])
    assert (shared / "conformance.jsonl").read_bytes() == before
    again = [task.address for task, _ in ends]
    assert {address for address in again if again.count(address) == 2} == {
        "interfering::marks_its_process_when_it_is_traced::fx"
    }
    assert any(end.reused for task, end in ends if task.address == "interfering::branches::fx")  # which is wrong


def test_known_cells_of_several_cases_share_a_process_and_cells_that_never_ran_do_not(run, tmp_path):
    suite = tmp_path / "interfering.py"
    suite.write_text(INTERFERING)
    cells = [f"{suite}::{case}" for case in ("neighbour", "branches", "prints", "appends_to_a_global")]
    alone, _ = run(*cells, shares=False, compilers=COMPILERS[:3])
    shared, ends = run(*cells, shares=True, compilers=COMPILERS[:3])
    before = (alone / "conformance.jsonl").read_bytes()
    assert (shared / "conformance.jsonl").read_bytes() == before
    assert {task.spec.case for task, end in ends if not end.reused} == {task.spec.case for task, _ in ends}
    again, ends = run(*cells, shares=True, compilers=COMPILERS[:3])  # now the ends are known
    assert (again / "conformance.jsonl").read_bytes() == before
    assert sum(not end.reused for _, end in ends) < len(cells)  # usually two, as many as run at a time


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(torch, "sin", torch.cos),
        lambda patch: patch.setattr(torch.nn.Module, "__call__", lambda *_: None),
        lambda patch: patch.setattr(torch.Tensor, "planted", 1, raising=False),
        lambda patch: patch.delattr(torch.fx, "Proxy"),
        lambda patch: patch.setattr(sys, "planted", 1, raising=False),
        lambda patch: patch.setenv("PLANTED", "1"),
        lambda patch: patch.setitem(sys.modules, "torch.fx", types.ModuleType("torch.fx")),
        lambda patch: patch.setattr(torch, "get_default_dtype", lambda: torch.float64),
    ],
)
def test_a_change_of_the_process_is_seen(monkeypatch, change):
    before = ProcessState()
    assert before.is_unchanged()
    change(monkeypatch)
    assert not before.is_unchanged()
    monkeypatch.undo()
    assert before.is_unchanged()


def test_what_a_suite_registers_whenever_it_is_executed_is_no_change_and_what_a_call_registers_is_one(tmp_path):
    suite = tmp_path / "registers.py"
    suite.write_text(
        "from torch.utils._pytree import register_pytree_node\n\n\nclass Own:\n    pass\n\n\ndef register(kind):\n"
        "    register_pytree_node(kind, lambda own: ([], None), lambda leaves, context: kind())\n\n\nregister(Own)\n\n\n"
        "def call():\n    class Local:\n        pass\n\n    register(Local)\n"
    )
    execute("registers", suite)
    before = ProcessState()
    module = execute("registers", suite)
    assert before.is_unchanged()
    module.call()
    assert not before.is_unchanged()


def test_a_module_that_is_imported_late_is_no_change(monkeypatch):
    before = ProcessState()
    monkeypatch.setattr(torch, "planted", types.ModuleType("planted"), raising=False)
    assert before.is_unchanged()
    assert os.environ.get("PLANTED") is None


@pytest.mark.parametrize("variable", ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"])
def test_generated_code_that_is_loaded_again_is_no_change(monkeypatch, tmp_path, variable):
    def launcher(folder: Path) -> types.ModuleType:
        module = types.ModuleType("__triton_launcher")
        module.__file__ = str(folder / "__triton_launcher.so")
        return module

    monkeypatch.setenv(variable, str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "__triton_launcher", launcher(tmp_path / "cache" / "first"))
    before = ProcessState()
    monkeypatch.setitem(sys.modules, "__triton_launcher", launcher(tmp_path / "cache" / "second"))
    assert before.is_unchanged()
    monkeypatch.setitem(sys.modules, "__triton_launcher", launcher(tmp_path / "cache of the user"))
    before = ProcessState()
    monkeypatch.setitem(sys.modules, "__triton_launcher", launcher(tmp_path / "cache"))
    assert not before.is_unchanged()


@pytest.mark.slow
def test_the_shares_in_the_declarations_are_those_of_the_committed_cells():
    cells, passing = Counter(), Counter()
    for path in (Path(__file__).parents[1] / "results").rglob("conformance.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()):
            cells[row["compiler"]] += 1
            passing[row["compiler"]] += row["verdict"] in UNEVENTFUL
    assert len(LIKELY_TO_PASS) == 12
    for name in LIKELY_TO_PASS:
        assert builtin_compilers()[name].share_passing == pytest.approx(passing[name] / cells[name], abs=0.1), name
