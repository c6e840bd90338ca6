"""The search of the guilty stage, over compilers that are played by functions: no torch is needed."""

import dataclasses
from types import MappingProxyType

import msgspec
import pytest

from recapture.cases.compiler import Family
from recapture.cases.compilers import builtin_compilers
from recapture.records.difference import Difference
from recapture.records.guilty_stage import GuiltyStage
from recapture.records.record import ErrorInfo, Record, append_record, read_jsonl, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.report.conformance_report import guilty_stages, silent_wrongs
from recapture.report.differences import culprit, stage_changed
from recapture.report.html_page import render_html
from recapture.report.markdown_writer import to_markdown
from recapture.report.reasons.reason import reasons
from recapture.run.cell import CellResult, CellSpec
from recapture.tools.compare.cell_changes import category
from recapture.tools.explain.compiler_stages import (
    AOTI,
    COMPILE,
    INDUCTOR_SWITCHES,
    StageFacts,
    Switch,
    code_of,
    facts,
    prefixes_below,
    switches_of,
)
from recapture.tools.explain.stages import BUDGET, outcome, search

VALUE = Difference("example", "result", "value", "2 of 2 elements differ", bits="value")
WRONG = Record(
    case="s::a", compiler="compile", device="cpu", verdict=Verdict.WRONG, input="example", differences=(VALUE,), case_hash="0"
)  # fmt: skip
RIGHT = CellResult(verdict=Verdict.PASS)
SAME = CellResult(verdict=Verdict.WRONG, input="example", differences=(VALUE,))
RAISES = CellResult(verdict=Verdict.ERROR, phase="capture", error=ErrorInfo("RuntimeError", "no such operator", "0"))
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition")

STAGES = ("dynamo", "aot_autograd", "decompositions", "inductor")
FACTS = StageFacts(
    family=Family.DYNAMO,
    top="inductor",
    prefixes=COMPILE,
    switches={stage: switches_of(stage, Family.DYNAMO) for stage in STAGES},  # type: ignore[misc]
)


class Played:
    """A compiler whose fault begins at a prefix, and is cured by settings; it counts how often it runs."""

    def __init__(self, guilty, cured_by=(), together=None):
        self.guilty, self.cured_by, self.together, self.tried = guilty, cured_by, together, []

    def __call__(self, variation):
        self.tried.append(variation)
        prefix = BACKENDS.index(variation.backend) if variation.backend in BACKENDS else len(BACKENDS)
        settings = {name for values in variation.settings.values() for name in values}
        if prefix < self.guilty or settings & set(self.cured_by):
            return RIGHT
        return self.together if self.together is not None and len(settings) > 3 else SAME


def find_stage(cell, facts, run, budget=BUDGET, known=MappingProxyType({})):
    """Search the guilty stage of a cell; `run` gives the result of each extra cell."""
    searching = search(cell, facts, budget, known)
    try:
        trial = next(searching)
        while True:
            trial = searching.send(run(trial.variation))
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize(("guilty", "name"), list(enumerate(STAGES)))
def test_the_prefixes_show_the_first_guilty_stage_within_the_budget(guilty, name):
    compiler = Played(guilty)
    report = find_stage(WRONG, FACTS, compiler)
    assert report.stage == GuiltyStage(name)  # type: ignore[misc]
    assert len(compiler.tried) == report.cells <= 5


def test_a_switch_that_cures_names_the_part_and_the_workaround():
    compiler = Played(3, cured_by=["cpp.simdlen"])
    report = find_stage(WRONG, FACTS, compiler)
    assert report.stage == GuiltyStage("inductor", "vectorization", 'torch._inductor.config.patch({"cpp.simdlen": 1})')
    assert report.cells == 5


@pytest.mark.parametrize(
    "switch",
    [switch for switch in INDUCTOR_SWITCHES if not switch.last and not switch.milder_than],
    ids=lambda switch: switch.name,
)
def test_with_a_larger_budget_every_single_switch_is_found(switch):
    report = find_stage(WRONG, FACTS, Played(3, cured_by=[switch.name]), budget=30)
    assert report.stage == GuiltyStage("inductor", switch.part, code_of([switch], "compile"))
    assert report.cells < 12


def test_a_milder_switch_replaces_one_that_cures():
    compiler = Played(3, cured_by=["cpp.simdlen", "cpp.enable_loop_tail_vec"])
    report = find_stage(WRONG, FACTS, compiler, budget=6)
    assert report.stage is not None
    assert report.stage.workaround == 'torch._inductor.config.patch({"cpp.enable_loop_tail_vec": False})'


def test_cells_of_the_same_run_that_are_rungs_do_not_run_again():
    compiler = Played(3, cured_by=["emulate_precision_casts"])
    report = find_stage(WRONG, FACTS, compiler, known={"eager": RIGHT, "aot_eager": RIGHT})
    assert not any(trial.backend in ("eager", "aot_eager") for trial in compiler.tried)
    assert report.stage is not None
    assert report.stage.part == "precision of intermediates"


@pytest.mark.parametrize(
    ("kind", "guilty", "first"),
    [
        ("torch._dynamo.exc.Unsupported", 0, "eager"),
        ("torch._inductor.exc.InductorError", 3, "aot_eager_decomp_partition"),
    ],
)
def test_the_type_of_an_error_says_which_prefix_is_tried_first(kind, guilty, first):
    failure = failed("no such operator", kind=kind)
    cell = msgspec.structs.replace(
        WRONG, verdict=Verdict.ERROR, input=None, differences=(), phase="capture", error=failure.error
    )
    tried = []

    def run(variation):
        tried.append(variation.backend)
        return failure if (BACKENDS.index(variation.backend) if variation.backend else 3) >= guilty else RIGHT

    report = find_stage(cell, FACTS, run)
    assert tried[0] == first
    assert report.stage == GuiltyStage(STAGES[guilty])  # type: ignore[misc]


def test_a_switch_of_last_resort_is_tried_when_the_others_change_nothing():
    report = find_stage(WRONG, FACTS, Played(3, cured_by=["fallback_by_default"]))
    assert report.stage is not None
    assert report.stage.workaround == 'torch._inductor.config.patch({"fallback_by_default": True})'
    assert report.cells == 4


def test_switches_that_together_do_something_else_cure_nothing():
    report = find_stage(WRONG, FACTS, Played(3, together=RAISES), budget=20)
    assert report.stage == GuiltyStage("inductor")
    assert [step.outcome for step in report.steps].count("other") == 1


def test_the_only_switch_of_a_stage_is_not_tried_twice():
    strict = StageFacts(
        family=Family.EXPORT, top="export", switches={"export": switches_of("export", Family.EXPORT)[:1]}
    )

    def run(variation):
        return RAISES if variation.arguments else SAME

    report = find_stage(WRONG, strict, run)
    assert report.stage == GuiltyStage("export")
    assert [step.outcome for step in report.steps] == ["other", "same"]


def test_a_stage_that_a_second_process_does_not_confirm_is_not_named():
    runs = iter([RIGHT, RIGHT, RIGHT, RIGHT, RIGHT])
    report = find_stage(WRONG, FACTS, lambda _: next(runs))
    assert report.stage is None
    assert report.unknown == "Inductor shows it in one process and not in another"


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("guilty", [0, 1, 2, 3])
@pytest.mark.parametrize("cured", ["cpp.simdlen", "fx_graph_cache", "donated_buffer", "nothing"])
def test_no_search_runs_more_cells_than_its_budget_or_names_what_is_not_so(budget, guilty, cured):
    report = find_stage(WRONG, FACTS, Played(guilty, cured_by=[cured]), budget=budget)
    assert report.cells <= budget
    assert report.stage is None or report.stage.name == STAGES[guilty]
    assert report.stage is None or report.stage.workaround is None or cured in report.stage.workaround
    assert (report.stage is None) == (report.unknown is not None)


def test_a_compiler_without_known_stages_is_unknown_and_runs_nothing():
    report = find_stage(WRONG, StageFacts(), Played(0))
    assert (report.stage, report.cells) == (None, 0)
    assert "cannot be told apart" in str(report.unknown)


def test_a_right_cell_has_no_guilty_stage():
    right = Record(case="s::a", compiler="compile", device="cpu", verdict=Verdict.PASS, case_hash="0")
    assert find_stage(right, FACTS, Played(0)).unknown == "the cell is pass: no stage is guilty"


def test_what_the_exported_program_refuses_is_blamed_on_missing_input_checks():
    refuses = CellResult(
        verdict=Verdict.ERROR, phase="call", input="example", error=ErrorInfo("AssertionError", "Guard failed: x", "0")
    )

    def run(variation):
        return refuses if variation.backend or variation.variables else SAME

    facts = StageFacts(family=Family.AOTI, top="inductor", prefixes=AOTI, checks_inputs=True)
    report = find_stage(WRONG, facts, run)
    assert report.stage == GuiltyStage("inductor", "input checks", "AOTI_RUNTIME_CHECK_INPUTS=1")


def failed(message, kind="RuntimeError", phase="capture"):
    return CellResult(verdict=Verdict.ERROR, phase=phase, error=ErrorInfo(kind, message, "0"))


@pytest.mark.parametrize(
    ("cell", "trial", "expected"),
    [
        (SAME, RIGHT, "right"),
        (SAME, SAME, "same"),
        (SAME, msgspec.structs.replace(SAME, differences=(dataclasses.replace(VALUE, text="other"),)), "same"),
        (SAME, msgspec.structs.replace(SAME, differences=(dataclasses.replace(VALUE, where="args[0]"),)), "other"),
        (SAME, msgspec.structs.replace(SAME, differences=(dataclasses.replace(VALUE, kind="dtype"),)), "other"),
        (SAME, RAISES, "other"),
        (failed("backend='inductor' raised: no 3"), failed("backend='eager' raised: no 4"), "same"),
        (failed("no such operator"), failed("no such type"), "other"),
        (failed("x", kind="ValueError"), failed("x"), "other"),
        (failed("x", phase="call"), failed("x"), "other"),
        (CellResult(verdict=Verdict.TIMEOUT), CellResult(verdict=Verdict.TIMEOUT), "same"),
        (CellResult(verdict=Verdict.CRASH, reason="died of SIGSEGV"), CellResult(verdict=Verdict.CRASH, reason="died of SIGFPE"), "other"),
    ],
)  # fmt: skip
def test_a_trial_shows_the_same_is_right_or_does_something_else(cell, trial, expected):
    assert outcome(cell, trial) == expected


@pytest.mark.parametrize(
    ("name", "top", "prefixes"),
    [
        ("compile", "inductor", 3),
        ("compile:max-autotune", "inductor", 3),
        ("compile:aot_eager", "aot_autograd", 1),
        ("compile:eager", "dynamo", 0),
        ("export:dynamic", "export", 0),
        ("aoti", "inductor", 2),
    ],
)
def test_the_stages_of_a_compiler_are_those_of_its_declaration(name, top, prefixes):
    compiler = builtin_compilers()[name]
    assert compiler.last_stage == top
    assert isinstance(compiler.family, Family)
    assert len(prefixes_below(compiler.family, top, BACKENDS)) == prefixes


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ("family='dynamo'", 4),
        ("family='dynamo', last_stage='aot_autograd'", 2),
        ("family='dynamo', last_stage='other'", 0),
        ("family='trace'", 0),
        ("family='tvm'", 0),
        ("since=None", 0),
    ],
)
def test_a_compiler_of_a_user_has_the_stages_that_it_declares(tmp_path, options, stages):
    path = tmp_path / "own.py"
    path.write_text(
        f"from recapture import compiler\n\n\n@compiler('own', {options})\ndef own(fn, example):\n    return fn\n"
    )
    spec = CellSpec(
        suite="own",
        path=str(path),
        case="f",
        compiler="own",
        device="cpu",
        compiler_suite="own",
        compiler_file=str(path),
    )
    stage_facts = msgspec.json.decode(facts(msgspec.json.encode(spec), lambda _: None), type=StageFacts)
    assert len(stage_facts.switches) == stages
    assert (stage_facts.family is None) == (stages == 0)


def test_only_prefixes_that_the_release_has_are_tried():
    assert [prefix.stage for prefix in prefixes_below(Family.DYNAMO, "inductor", ["eager"])] == ["dynamo"]


def test_a_workaround_is_code():
    switches = [Switch("a", "cpp.flag", "off"), Switch("b", "cse", False, "torch._functorch.config")]
    assert code_of(switches, Family.DYNAMO) == (
        'torch._inductor.config.patch({"cpp.flag": "off"}), torch._functorch.config.patch({"cse": False})'
    )
    assert code_of([Switch("c", "strict", False, None)], Family.AOTI) == "torch.export.export(…, strict=False)"


GUILTY = msgspec.structs.replace(
    WRONG, stage=GuiltyStage("inductor", "vectorization", 'torch._inductor.config.patch({"cpp.simdlen": 1})')
)


def test_a_record_keeps_its_stage_and_one_without_has_no_such_field(tmp_path):
    write_jsonl(tmp_path / "rows.jsonl", [GUILTY])
    assert read_jsonl(tmp_path / "rows.jsonl", Record) == [GUILTY]
    write_jsonl(tmp_path / "none.jsonl", [WRONG])
    assert b"stage" not in (tmp_path / "none.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "pass", "differences": [], "input": None}, "there is a guilty `stage`"),
        ({"stage": {"name": "linker"}}, "linker"),
        ({"stage": {"name": "inductor", "part": ""}}, "`part` of `stage` is empty"),
        ({"stage": {"name": "inductor", "part": "x", "workaround": "y" * 400}}, "longer than 300"),
        ({"stage": {"name": "inductor", "workaround": "x"}}, "a workaround of no part"),
        ({"stage": None}, "stage"),
    ],
)
def test_a_stage_that_no_run_can_have_recorded_is_refused(tmp_path, change, message):
    built = msgspec.to_builtins(GUILTY) | change
    path = tmp_path / "rows.jsonl"
    path.write_bytes(msgspec.json.encode(built) + b"\n")
    with pytest.raises(Exception, match=message):
        read_jsonl(path, Record)


def test_reports_name_the_stage_and_the_workaround_of_a_silent_wrong():
    text = to_markdown(silent_wrongs([GUILTY], reasons([GUILTY])))
    assert "guilty: **Inductor, vectorization**; workaround: `torch._inductor.config.patch" in text
    assert "| Inductor, vectorization | silently wrong " in to_markdown(guilty_stages([GUILTY]))
    assert list(guilty_stages([WRONG])) == []
    assert "Inductor, vectorization; workaround" in render_html([GUILTY], None)


def test_a_hostile_workaround_stays_text():
    hostile = msgspec.structs.replace(WRONG, stage=GuiltyStage("inductor", "**x**|<b>", "`a`|<script>"))
    assert "<script>" not in to_markdown(guilty_stages([hostile])).replace("`` `a`\\|<script> ``", "")
    assert "<b>" not in to_markdown(guilty_stages([hostile]))


def test_another_stage_is_a_note_of_the_diff_and_a_missing_one_is_nothing():
    with_dynamo = msgspec.structs.replace(WRONG, stage=GuiltyStage("dynamo"))
    assert category(GUILTY, with_dynamo) == "noted_differently"
    assert stage_changed(GUILTY, with_dynamo) == "guilty stage: Inductor, vectorization → Dynamo"
    assert category(WRONG, with_dynamo) is None
    assert culprit(GuiltyStage("export", "strict mode")) == "torch.export, strict mode"


def test_a_record_is_amended_in_an_open_file(tmp_path):
    import os

    handle = os.open(tmp_path / "partial.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    append_record(handle, WRONG)
    append_record(handle, GUILTY)
    os.close(handle)
    rows = read_jsonl(tmp_path / "partial.jsonl", Record, tolerate_torn_tail=True)
    assert rows[-1] == GUILTY
