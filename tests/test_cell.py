"""One cell, run in this process: which verdict it ends with, and what it tells beside it."""

import sys

import msgspec
import pytest
import torch
from planted_verdicts import OWN, SUITE

from recapture.judge.verdict import CellEvents, Ruling
from recapture.records.difference import Difference
from recapture.records.verdicts import Verdict
from recapture.run.cell import CellResult, CellSpec, examine, result_of
from recapture.torch_api.compat import reset_dynamo

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "verdicts.py"
    path.write_text(SUITE)
    return path


@pytest.fixture
def cell(path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("RECAPTURE_TEST_SOMETIMES", raising=False)
    # An export that fails leaves a hook behind for the rest of its process; cells have processes of their own.
    torch.nn.modules.module._global_buffer_registration_hooks.clear()
    reset_dynamo()

    def run(case, compiler, phases=None):
        builtin = compiler not in OWN
        spec = CellSpec(
            suite="verdicts",
            path=str(path),
            case=case,
            compiler=compiler,
            device="cpu",
            compiler_suite=None if builtin else "verdicts",
            compiler_file=None if builtin else str(path),
        )
        result = examine(spec, (phases if phases is not None else []).append)
        assert msgspec.json.decode(msgspec.json.encode(result), type=CellResult) == result
        return result

    return run


def brief(result):
    return (str(result.verdict), result.phase, result.input, result.error and result.error.type)


@pytest.mark.parametrize(
    ("case", "compiler", "expected"),
    [
        # right
        ("plain", "eager", ("pass", None, None, None)),
        ("plain", "identity", ("pass", None, None, None)),
        ("plain", "compile:eager", ("pass", None, None, None)),
        ("plain", "fx", ("pass", None, None, None)),
        ("plain", "make_fx", ("pass", None, None, None)),
        ("plain", "jit.trace", ("pass", None, None, None)),
        ("plain", "export:nonstrict", ("pass", None, None, None)),
        ("branch", "jit.script", ("pass", None, None, None)),
        ("appends", "fx", ("pass", None, None, None)),
        ("branch", "compile:eager", ("pass_with_breaks", None, None, None)),
        ("raises_for_four", "compile:eager", ("pass", None, None, None)),  # it raises what eager raises
        ("always_raises", "identity", ("pass", None, None, None)),
        ("Total", "identity", ("pass", None, None, None)),
        ("Total", "compile:eager", ("pass", None, None, None)),
        ("counts", "identity", ("pass", None, None, None)),  # each side has globals of its own
        ("same", "identity", ("pass", None, None, None)),
        ("good_rewrite", "eager", ("pass", None, None, None)),
        # silently wrong
        ("branch", "jit.trace", ("specialized", None, "held_out[0]", None)),
        ("scalar", "make_fx", ("specialized", None, "held_out[0]", None)),
        ("raises_for_four", "jit.trace", ("specialized", None, "held_out[0]", None)),
        ("bad_rewrite", "eager", ("specialized", None, "held_out[0]", None)),
        ("smaller", "reads-past-the-end", ("specialized", None, "held_out[0]", None)),  # and not whatever lay there
        ("appends", "make_fx", ("wrong", None, "example", None)),
        ("watched", "jit.trace", ("wrong", None, "example", None)),
        ("prints", "jit.trace", ("wrong", None, "example", None)),
        ("same", "jit.trace", ("wrong", None, "example", None)),
        ("plain", "wrong", ("wrong", None, "example", None)),
        ("leaves_another_dtype", "fx", ("wrong", None, "example", None)),  # what capturing left is put back
        ("leaves_another_dtype", "jit.trace", ("wrong", None, "example", None)),
        ("branch_small", "jit.trace", ("specialized", None, "held_out[0]", None)),
        ("mutates_module", "untouched", ("wrong", None, "example", None)),
        # loudly wrong
        ("branch", "fx", ("error", "capture", "example", "torch.fx.proxy.TraceError")),
        ("branch", "compile:fullgraph", ("error", "capture", "example", "torch._dynamo.exc.Unsupported")),
        ("branch", "export:strict", ("error", "capture", "example", "torch._dynamo.exc.Unsupported")),
        ("plain", "cannot-say", ("error", "capture", None, "ZeroDivisionError")),
        ("plain", "exits", ("error", "capture", "example", "SystemExit")),
        ("plain", "raises-on-example", ("error", "call", "example", "KeyError")),
        ("plain", "not-utf-8", ("error", "call", "example", "ValueError")),
        ("three", "wrong-then-raises", ("specialized", None, "held_out[1]", None)),
        ("no_inputs", "eager", ("error", "reference", None, "ZeroDivisionError")),
        ("NoModule", "fx", ("error", "reference", None, "RuntimeError")),
        ("plain", "loses-memory", ("oom", "call", "example", "RuntimeError")),
        ("memory", "fx", ("oom", "reference", "example", "MemoryError")),
        # nothing is said
        ("unstable", "compile:eager", ("unstable", None, "example", None)),
        ("sometimes", "fx", ("unstable", None, "example", None)),
        ("newer", "fx", ("not_applicable", None, None, None)),
        ("needs", "fx", ("not_applicable", None, None, None)),
        ("plain", "not-here", ("not_applicable", None, None, None)),
    ],
)  # fmt: skip
def test_verdicts(cell, case, compiler, expected):
    assert brief(cell(case, compiler)) == expected


def test_reasons_are_reported(cell):
    assert cell("newer", "fx").reason == "the case needs torch 99.0 or newer"
    assert cell("needs", "fx").reason == "the case needs no_such_module.inner"
    assert cell("plain", "not-here").reason == "there is no such thing here"
    assert cell("unstable", "fx").reason == "eager disagrees with itself: result (value)"
    assert cell("sometimes", "fx").reason == "eager raises on one of two runs"


def test_the_phases_are_announced_as_they_are_entered(cell):
    phases = []
    cell("plain", "fx", phases)
    assert phases == ["reference", "capture", "call example", "call held_out[0]"]
    phases = []
    cell("branch", "fx", phases)
    assert phases == ["reference", "capture"]
    phases = []
    cell("plain", "eager", phases)
    assert phases == ["reference"]


def test_breaks_are_counted_over_all_inputs(cell):
    result = cell("branch", "compile:eager")
    assert (result.graphs, result.graph_breaks, result.recompiles) == (3, 1, 0)
    (reason,) = result.break_reasons
    assert "jump" in reason
    assert "verdicts.py" in reason
    assert "/" not in reason


def test_compilers_without_graphs_report_none(cell):
    result = cell("plain", "jit.trace")
    assert (result.graphs, result.graph_breaks, result.recompiles, result.break_reasons) == (None, None, None, ())


def test_an_error_on_the_example_outranks_differences_elsewhere_and_keeps_them(cell):
    result = cell("plain", "raises-on-example")
    assert brief(result) == ("error", "call", "example", "KeyError")
    assert [difference.input for difference in result.differences] == ["held_out[0]"]


def test_one_silent_difference_outranks_an_error_elsewhere(cell):
    result = cell("three", "wrong-then-raises")
    assert str(result.verdict) == "specialized"
    assert [difference.input for difference in result.differences] == ["held_out[1]"]


def test_a_loud_failure_does_not_make_later_calls_silently_wrong(cell):
    result = cell("Resumes", "strict-size")
    assert brief(result) == ("error", "call", "held_out[0]", "AssertionError")
    assert result.differences == ()


def test_errors_are_scrubbed(cell):
    assert cell("NoModule", "fx").error.message == "cannot be built at file.py"
    assert cell("plain", "loses-memory").error.message == "CUDA out of memory. Tried to allocate 20.00 GiB"
    assert len(cell("NoModule", "fx").error.fingerprint) == 10


def test_one_module_serves_every_input(cell):
    assert brief(cell("Total", "identity"))[0] == "pass"
    # Its buffer adds up: a callable that works on copies does not change it, and is right on the first input alone.
    result = cell("Total", "forgets")
    assert brief(result)[:3] == ("wrong", None, "example")
    wrong = [
        (difference.input, difference.where)
        for difference in result.differences
        if difference.kind in ("value", "mutation")
    ]
    # The example decides, and stands first. On the other inputs, values come before the state.
    assert wrong[:3] == [("example", "state['total']"), ("held_out[0]", "result"), ("held_out[1]", "result")]
    assert ("held_out[0]", "state['total']") in wrong


def test_a_record_has_a_bounded_number_of_differences_and_says_how_many_it_leaves_out():
    many = [
        Difference(f"held_out[{number % 2}]", f"result[{number}]", "value", unlike="value") for number in range(500)
    ]
    many.sort(key=lambda difference: difference.input, reverse=True)  # the input of the record comes last
    ruling = Ruling(Verdict.SPECIALIZED, input="held_out[0]", differences=tuple(many))
    result = result_of(ruling, CellEvents(calls=[]))
    assert len(result.differences) == 200
    assert result.differences[0].input == "held_out[1]"
    assert result.differences[-1].input == "held_out[0]"
    assert result.notes == ("300 more differences are left out",)


def test_concrete_arguments_reach_the_compiler(cell):
    result = cell("chosen", "fx:concrete_args")
    assert brief(result) == ("pass", None, None, None)  # n stays an argument, flag is burnt in
    assert brief(cell("chosen", "fx"))[:2] == ("error", "capture")


def test_figures_of_memory_behind_the_inputs_stay_out(cell):
    (difference,) = cell("plain", "unchecked").differences
    assert (difference.input, difference.detail) == ("held_out[0]", "3 of 3 elements differ: eager 0, this 123 at [0]")
    (difference,) = cell("summed", "reads-past-the-end").differences
    assert difference.detail == "value differs; args[0] has shape (2,), the example's (4,)"
    (first, second) = cell("plain", "wrong").differences
    assert "3 of 3 elements differ" in first.detail
    assert "3 of 3 elements differ" in second.detail


def test_warnings_that_only_torch_gives_are_noted(cell):
    assert cell("plain", "warns").notes == ("warned: TracerWarning",)
    assert "warned: TracerWarning" in cell("branch", "jit.trace").notes


def test_global_state_is_as_it_was(cell):
    cell("leaks", "identity")
    assert torch.is_grad_enabled()


def test_what_failed_is_on_stderr_with_its_traceback(cell, capsys):
    cell("plain", "raises-on-example")
    assert "in call" in capsys.readouterr().err
