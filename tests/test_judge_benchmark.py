"""The benchmark of the judge: a sample of its cells, its counts, and the compilers that must change nothing."""

import json

import pytest
import torch
from planted_records import evidence

from benchmarks.judge import __main__ as command
from benchmarks.judge import planting
from benchmarks.judge.ablation import ablation, ablation_table
from benchmarks.judge.condition import condition
from benchmarks.judge.equals import blocked_sums, reversed_sums, rounded_once
from benchmarks.judge.execution import Finished
from benchmarks.judge.genuine import genuine
from benchmarks.judge.groups import Group, Outcome
from benchmarks.judge.planting import Defect, Nothing, Run, change_first, clearly_different, with_data
from benchmarks.judge.sample import QUICK
from benchmarks.judge.tables import blame_table, blames, catch_table, catches
from recapture.cases.case import Case, case
from recapture.records.difference import Difference
from recapture.records.kinds import KINDS, STRICT
from recapture.records.record import Record
from recapture.records.verdicts import Verdict


@pytest.mark.slow
def test_the_judge_catches_a_sample_of_planted_differences_and_blames_nothing(tmp_path, capsys):
    file = tmp_path / "rates.json"
    status = command.main(["--quick", "--jobs", "2", "--part", "planted", "--part", "equal", "--json", str(file)])
    output = capsys.readouterr().out
    assert status == 0, output
    report = json.loads(file.read_text())
    planted = {entry["defect"]["name"]: entry for entry in report["planted"] if entry["planted"]}
    assert set(planted) == {name for names in QUICK.values() for name in names}, "planted where it cannot exist"
    assert all(entry["kind_right"] == entry["caught"] for entry in planted.values()), output
    assert sum(entry["cells"] for entry in report["equal"]) == 2 * len(QUICK) - 1  # one case asks for the order of keys


def test_there_are_defects_of_every_kind_and_option():
    known = [defect for defect, _ in command.defects().values()]
    assert len(known) >= 80
    assert {defect.name for names in QUICK.values() for defect in known if defect.name in names} == {
        name for names in QUICK.values() for name in names
    }
    assert {kind for defect in known for kind in defect.kinds} == set(KINDS)
    assert {defect.level for defect in known} == {"silent", "note", "error", *STRICT}


# --- counts --------------------------------------------------------------------------------------------------------

SILENT = Defect("d", ("gradient",), "silent", "")
ASKED = Defect("d", ("metadata",), "stride", "")
LOUD = Defect("d", ("exception",), "error", "")


def outcome(verdict="pass", kind=None, **more):
    differences = (("example", kind, ""),) if kind else ()
    return Outcome("s::c", "planted:d", verdict, differences, **{"planted": ("call",), **more})


@pytest.mark.parametrize(
    ("defect", "cell", "caught", "kind_right"),
    [
        (SILENT, outcome("wrong", "gradient"), 1, 1),
        (SILENT, outcome("wrong", "value"), 1, 0),
        (SILENT, outcome(), 0, 0),
        (SILENT, outcome(noted=(("example", "gradient", ""),)), 0, 0),
        (ASKED, outcome(noted=(("example", "metadata", ""),)), 1, 1),
        (ASKED, outcome("wrong", "metadata"), 0, 0),
        (ASKED, outcome("wrong", "metadata", strict=("stride",)), 1, 1),
        (ASKED, outcome(noted=(("example", "metadata", ""),), strict=("stride",)), 0, 0),
        (LOUD, outcome("error"), 1, 1),
        (LOUD, outcome(), 0, 0),
    ],
)
def test_a_difference_is_caught_if_it_is_found_as_seriously_as_it_is(defect, cell, caught, kind_right):
    (row,) = catches([defect], [cell])
    assert (row.planted, row.caught, row.kind_right) == (1, caught, kind_right)
    assert bool(row.missed) == (not caught)
    assert ("missed" in catch_table([row])) == (not caught)


def test_cells_without_a_defect_or_a_comparison_do_not_count():
    (row,) = catches([SILENT], [outcome(planted=()), outcome("unstable"), outcome("not_applicable")])
    assert row.planted == 0


def test_a_cell_in_which_nothing_differs_is_blamed_for_a_difference_or_an_error():
    cells = [
        Outcome("s::c", "equal:eager", verdict) for verdict in ("pass", "pass_with_breaks", "wrong", "error", "crash")
    ]
    (row,) = blames(cells, {})
    assert (row.cells, len(row.blamed)) == (5, 3)
    assert "blamed:" in blame_table([row])
    assert blames(cells, {"s::c::equal:eager": "a reason"}) == []


def test_a_cell_of_a_compiler_of_torch_is_no_blame_if_the_records_explain_it():
    silent = evidence(Verdict.WRONG)
    records = [
        Record(case=case, compiler="compile:eager", device="cpu", verdict=Verdict.WRONG, case_hash="0" * 12, **silent)
        for case in ("classes::named_tuple_replaced", "s::nobody_looked_at_it")
    ]
    cells = [Outcome(cell_record.case, "compile:eager", "wrong") for cell_record in records]
    assert list(genuine(cells, records)) == ["classes::named_tuple_replaced::compile:eager"]
    again = Outcome("classes::named_tuple_replaced", "compile:eager", "error")
    assert genuine([*cells, again], records) == {}, "another verdict than the recorded one"


def test_a_silently_wrong_cell_of_a_known_issue_is_no_blame():
    cells = [
        Outcome("known_dynamo::own_stream_of_random", "compile:eager", verdict) for verdict in ("wrong", "specialized")
    ]
    assert "198187" in genuine(cells, [])["known_dynamo::own_stream_of_random::compile:eager"]
    failing = Outcome("known_dynamo::own_stream_of_random", "compile:eager", "error")
    assert genuine([*cells, failing], []) == {}


def test_repetitions_in_dynamo_on_a_gpu_have_a_process_each():
    wanted = Group("s", "s.py", "c", (("compile:eager", None),), "cuda", planted=False, repetitions=3)
    groups = command.alone(wanted)
    assert [group.repetitions for group in groups] == [1, 1, 1]
    assert len({group.key for group in groups}) == 3


def test_finished_cells_do_not_run_again(tmp_path):
    file = tmp_path / "cells.jsonl"
    group, moved_group = (
        Group("s", f"{folder}/s.py", "c", (("planted:d", f"{folder}/d.py"),), "cpu", planted=True)
        for folder in ("/here", "/elsewhere")
    )
    finished = Finished(file)
    assert finished.split([group]) == ([], [group])
    finished.add(group, [outcome()])
    assert Finished(file).split([moved_group]) == ([outcome()], [])
    assert Finished(None).split([group]) == ([], [group])


def test_the_command_fails_if_a_planted_difference_is_missed(monkeypatch, capsys):
    missed = Outcome("s::c", "planted:type-none", "pass", planted=("call",))
    monkeypatch.setattr(command, "run_groups", lambda *_, **__: ([missed], []))
    assert command.main(["--part", "planted"]) == 1
    assert "type-none, missed:\n- s::c [pass]" in capsys.readouterr().out


def test_the_command_fails_if_cells_could_not_be_run(monkeypatch, capsys):
    monkeypatch.setattr(command, "run_groups", lambda *_, **__: ([], ["the cells of s::c could not be run"]))
    assert command.main(["--part", "planted"]) == 1
    assert "could not be run" in capsys.readouterr().err


# --- ablation ------------------------------------------------------------------------------------------------------


def record(name, *differences):
    first = differences[0][0]
    verdict = Verdict.WRONG if first == "example" else Verdict.SPECIALIZED
    fields = evidence(verdict) | {
        "input": first,
        "differences": tuple(Difference(label, where, kind, "") for label, where, kind in differences),
    }
    return Record(case="s::c", compiler=name, device="cpu", verdict=verdict, case_hash="0" * 12, **fields)


def test_the_ablation_counts_what_each_comparison_finds_alone():
    counts = ablation(
        [
            record("a", ("example", "result", "value")),
            record("b", ("example", "args[0]", "mutation"), ("held_out[0]", "result", "value")),
            record("c", ("held_out[0]", "result", "alias")),
            Record(case="s::c", compiler="d", device="cpu", verdict=Verdict.PASS, case_hash="0" * 12),
        ]
    )
    assert (counts.silent, counts.on_example, counts.values_on_example) == (3, 2, 1)
    assert counts.found == {"value": 2, "mutation": 1, "alias": 1}
    assert counts.alone == {"value": 1, "mutation": 0, "alias": 1}
    assert "33%" in ablation_table(counts)


# --- tools ---------------------------------------------------------------------------------------------------------


def test_a_compiler_of_other_orders_of_summation_gives_the_same_up_to_rounding():
    torch.manual_seed(0)
    x = torch.randn(1000, 30, requires_grad=True)
    y = torch.randn(30, 20)

    def every(x):
        return x.sum(), x.sum(1, keepdim=True), x.mean(), (x @ y).softmax(-1), x.var(), x.norm()

    right = every(x)
    for compiler in (reversed_sums, blocked_sums, rounded_once):
        again = compiler(every, (x,))(x)
        assert not clearly_different(right, again)
        assert any(not torch.equal(first, second) for first, second in zip(right, again, strict=True)), (
            compiler.__name__
        )
        assert all(tensor.requires_grad for tensor in again)


def test_other_elements_keep_gradients_attributes_and_strides():
    x = torch.randn(3, 4, requires_grad=True)
    result = (x * 2).t()
    result.tag = "kept"
    new = with_data(result, result.detach() + 1)
    new.sum().backward()
    assert torch.equal(x.grad, torch.full((3, 4), 2.0))
    assert (new.tag, new.stride()) == ("kept", result.stride())


def test_a_change_of_the_first_leaf_leaves_the_others_and_the_containers():
    value = {"a": [1, "x"], "b": (2.0, "y")}
    assert change_first(value, lambda leaf: leaf + "!" if isinstance(leaf, str) else None) == {
        "a": [1, "x!"],
        "b": (2.0, "y"),
    }
    with pytest.raises(Nothing):
        change_first(value, lambda _: None)


def test_a_trial_on_copies_leaves_no_trace():
    def function(x):
        return x.add_(torch.rand(3))

    run = Run(function, (torch.zeros(3),), (torch.zeros(3),), {})
    before = torch.get_rng_state()
    assert bool((run.on_copies() > 0).all())
    assert torch.equal(run.args[0], torch.zeros(3))
    assert torch.equal(before, torch.get_rng_state())


def declared(example):
    """A case of one function, outside any suite."""

    def register(function) -> Case:
        case(example=example)(function)
        return globals().pop("__recapture_cases__")[-1]

    return register


def test_the_condition_of_a_case_tells_exact_from_ill_conditioned_results():
    @declared(lambda: (torch.rand(50),))
    def halved(x):
        return x * 0.5

    @declared(lambda: (torch.rand(50),))
    def cancelling(x):
        return (x + 1e6) - 1e6

    assert condition(lambda: halved, "cpu")["torch.float32"]["any"] < 2e-7
    assert condition(lambda: cancelling, "cpu")["torch.float32"]["any"] > 1e-3


def test_the_condition_of_a_case_tells_masks_that_rounding_decides():
    @declared(lambda: (torch.rand(50),))
    def exact(x):
        return x > 0.5 * x

    @declared(lambda: (torch.rand(50),))
    def decided_by_rounding(x):
        return x * 3 / 3 > x

    assert condition(lambda: exact, "cpu")["torch.bool"]["any"] == 0
    assert condition(lambda: decided_by_rounding, "cpu")["torch.bool"]["any"] > 0


@pytest.mark.parametrize(
    "values", [[1.0, 2.0], [float("inf"), 2.0], [float("nan"), 2.0], [1e30, 2.0], [[1, 2], [3, 4]], 5, [0j, 1j]]
)
def test_a_planted_change_of_an_element_changes_it(values):
    tensor = torch.tensor(values)
    before = tensor.clone()
    planting.change_an_element(tensor)
    assert tensor.flatten()[0] != before.flatten()[0]
    assert torch.equal(tensor.flatten()[1:], before.flatten()[1:])


def test_defects_of_values_are_planted_only_beyond_what_rounding_may_do(monkeypatch):
    run = Run(torch.sum, (torch.rand(9),), (torch.rand(9),), {})
    assert run.resolves(torch.float32, 1e-4, "any")
    monkeypatch.setitem(planting.CONDITION, "torch.float32", {"any": 1e-3})
    assert not run.resolves(torch.float32, 1e-4, "any")
