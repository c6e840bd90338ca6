"""The reasons that are derived from records: every cell that is not right has one, and it says what a reader needs."""

from __future__ import annotations

import functools
import random
import re
import time
from pathlib import Path

import msgspec
import pytest
from planted_records import difference, evidence

from recapture.base.errors import UsageError
from recapture.base.source_lines import SourceLine, source_line
from recapture.records.artifact_folders import ARTIFACTS, INDEX, artifacts_folder, left_artifacts
from recapture.records.difference import Difference
from recapture.records.directories import find_results, read_results
from recapture.records.record import ErrorInfo, Record, read_jsonl, write_jsonl
from recapture.records.verdicts import RIGHT, Verdict
from recapture.report.conformance_report import render_conformance
from recapture.report.html_page import render_html
from recapture.report.reasons.reason import reason_of, reasons
from recapture.report.reasons.sentence import KINDS_OF_REASONS

COMMITTED = Path(__file__).resolve().parents[1] / "results"
TORCH_2_11 = COMMITTED / "torch2.11.0-cu130" / "cpu"


def record(verdict=Verdict.PASS, compiler="compile", **fields):
    row = {"case": "s::a", "compiler": compiler, "device": "cpu", "case_hash": "0", "verdict": verdict}
    return Record(**row | fields)


def wrong(compiler, *differences, **fields):
    first = differences[0].input
    verdict = Verdict.WRONG if first == "example" else Verdict.SPECIALIZED
    return record(verdict, compiler, input=first, differences=differences, **fields)


def refused(compiler, message, kind="RuntimeError", phase="capture", label="example"):
    return record(Verdict.ERROR, compiler, phase=phase, input=label, error=ErrorInfo(kind, message, "0123456789"))


@functools.cache
def committed(directory):
    """The records of committed results, and their reasons."""
    records = read_results(directory).records
    return records, reasons(records)


VALUE = difference("held_out[0]", "result", "value", "1 of 2 elements differ: eager 1, this 2 at [0]")


@pytest.mark.parametrize("directory", find_results(COMMITTED), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_committed_cell_that_is_not_right_has_a_reason(directory):
    records, reasons_by_key = committed(directory)
    bad = [row for row in records if row.verdict not in RIGHT]
    for row in bad:
        assert reasons_by_key[row.key].kind in KINDS_OF_REASONS, row.cell
        assert len(str(reasons_by_key[row.key])) > 20, row.cell
    quoted = [row.cell for row in bad if reasons_by_key[row.key].kind == "message"]
    assert len(quoted) <= max(1, len(bad) * 0.02), quoted  # results of few suites have few cells
    assert not (directory == TORCH_2_11 and quoted)


def test_a_right_cell_captured_whole_has_no_reason_and_a_broken_one_names_its_breaks():
    assert reason_of(record()) is None
    broken = record(
        Verdict.PASS_WITH_BREAKS, graph_breaks=2, break_reasons=("generic_jump at suite.py:12", "print at suite.py:13")
    )
    reason = reason_of(broken)
    assert str(reason) == "2 graph breaks: generic_jump (at suite.py:12)"


def test_the_order_of_the_records_does_not_change_a_reason():
    records, first = committed(TORCH_2_11)
    shuffled = list(records)
    random.Random(0).shuffle(shuffled)
    assert reasons(shuffled) == first


EXPECTED = {
    "control_flow::branch_on_sum::jit.trace": ("recorded path", "TracerWarning", "held_out[0]"),
    "control_flow::assert_on_data::jit.trace": ("lost exception", "AssertionError"),
    "control_flow::branch_on_sum::fx": ("data-dependent", "proxy"),
    "control_flow::branch_on_sum::export": ("data-dependent", "torch.cond", "control_flow.py:22 `if x.sum() < 0:`"),
    "basic_use::LinearReLU::export": ("static size", "x.size()[0] == 10", "held_out[1]", "dynamic shapes"),
    "types::add_unannotated_int::export": ("fixed value", "args_1 == 3"),
    "types::add_unannotated_int::jit.script": ("needs tensors", "annotation", "y is int"),
    "types::add_unannotated_int::aoti": ("unchecked input", "args[1] is 4, the example's 3"),
    "types::half_overflows_between::compile": ("Inductor", "compile:aot_eager are right"),
    "types::half_overflows_between::aoti": ("Inductor", "compile is wrong in the same way"),
    "types::signed_zero::compile": ("Dynamo", "guards accept held_out[0]"),
    "types::signed_zero::compile:eager": ("Dynamo", "run eagerly"),
    "graphs::CountsItsCalls::export": ("lost effect", "state.calls", "eager 1, this 0"),
    "graphs::counts_calls_globally::jit.trace": ("not repeatable", "two graphs"),
    "graphs::returns_named_tuple::jit.trace": ("other type", "tuple in the place of eager's graphs.Extremes"),
    "control_flow::mean_or_zero::aoti": ("died", "held_out[0]", "SIGSEGV"),
    "control_flow::assert_on_data::compile": ("other exception", "eager raises AssertionError", "RuntimeError"),
    "control_flow::match_on_rank::jit.script": ("unsupported code", "Match", "control_flow.py:114"),
    "scipy_numpy::scipy_dct::compile:fullgraph": ("numpy", "scipy_numpy.py:38"),
    "graphs::where_instead_of_item::eager": ("rewrite", "held_out[0]"),
    "graphs::DenseNet121::compile": ("not here", "cuda alone"),
}


@pytest.mark.parametrize("cell", EXPECTED)
def test_a_committed_cell_is_explained(cell):
    records, reasons_by_key = committed(TORCH_2_11)
    (cell_record,) = (row for row in records if row.cell == cell)
    reason = reasons_by_key[cell_record.key]
    kind, *words = EXPECTED[cell]
    assert reason.kind == kind
    for word in words:
        assert word in str(reason)


@pytest.mark.parametrize(
    ("compiler", "message"),
    [
        ("jit.trace", "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"),
        (
            "export",
            "Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices cuda:0, cpu",
        ),
    ],
)
def test_tensors_on_two_devices_are_named(compiler, message):
    reason = reason_of(refused(compiler, message))
    assert reason.kind == "two devices"
    assert str(reason).endswith("an operator gets tensors on two devices, cuda:0 and cpu")


@pytest.mark.parametrize(
    "message",
    [
        "type Tensor doesn't define __round__ method",
        "expected (<class 'numpy.integer'>, <class 'numpy.floating'>, <class 'int'>), got <class 'torch.Tensor'>",
    ],
)
def test_a_trace_in_which_a_number_is_a_tensor_is_explained(message):
    reason = reason_of(refused("jit.trace", message, "TypeError"))
    assert reason.kind == "data-dependent"
    assert "the code needs a Python number" in str(reason)


def test_the_stage_of_a_wrong_compile_cell_is_read_from_the_other_backends():
    compiled = wrong("compile", VALUE)
    dynamo, aot = record(compiler="compile:eager"), record(compiler="compile:aot_eager")
    assert reason_of(compiled).kind == "compiled"
    assert reason_of(compiled, [dynamo]).kind == "compiled"
    assert reason_of(compiled, [dynamo, aot]).kind == "Inductor"
    assert reason_of(compiled, [dynamo, wrong("compile:aot_eager", VALUE)]).kind == "AOTAutograd"
    assert reason_of(compiled, [wrong("compile:eager", VALUE)]).kind == "Dynamo"
    elsewhere = difference("held_out[1]", "result", "dtype", "eager torch.int64, this torch.float32")
    assert reason_of(compiled, [wrong("compile:eager", elsewhere)]).kind == "compiled"
    other_device = msgspec.structs.replace(wrong("compile:eager", VALUE), device="cuda")
    assert reason_of(compiled, [other_device]).kind == "compiled"


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict not in RIGHT])
@pytest.mark.parametrize("compiler", ["eager", "compile", "jit.script", "make_fx", "aoti", "onnx", "users-own"])
def test_every_verdict_of_every_compiler_has_a_reason(verdict, compiler):
    cell_record = record(verdict, compiler, **evidence(verdict))
    assert reason_of(cell_record).kind in KINDS_OF_REASONS


def test_a_message_that_no_rule_knows_is_quoted():
    reason = reason_of(refused("make_fx", "something nobody has seen\nsecond line"))
    assert reason.kind == "message"
    assert "RuntimeError: something nobody has seen" in reason.text
    assert "second line" not in reason.text


ONNX_STEP = """Failed to {step}. This is step {number}/3 of exporting the model to ONNX. Next steps:
- Create an issue in the PyTorch GitHub repository.
## Exception summary
<class '{type}'>: {message}
"""


def onnx_failure(step, number, kind, message):
    return ONNX_STEP.format(step=step, number=number, type=kind, message=message)


REFUSALS = {
    "onnx-export": (
        "onnx",
        "torch.onnx.errors.TorchExportError",
        onnx_failure("export the model with torch.export", 1, "ValueError", "Unsupported input type <class 'slice'>"),
        "unsupported code",
        "registered containers alone: Unsupported input type <class 'slice'>",
    ),
    "onnx-decompose": (
        "onnx",
        "torch.onnx.errors.ConversionError",
        onnx_failure("decompose the FX graph", 2, "AssertionError", "Expected the same packet"),
        "compiler fault",
        "fails to decompose it: AssertionError: Expected the same packet",
    ),
    "onnx-convert": (
        "onnx",
        "torch.onnx.errors.ConversionError",
        onnx_failure("convert the exported program", 3, "DispatchError", "No ONNX function found for <OpOverload(op='a.b', x)>"),
        "unsupported code",
        "no counterpart of the operator a.b",
    ),
    "backend": (
        "compile",
        "torch._dynamo.exc.BackendCompilerFailed",
        "backend='inductor' raised:\nValueError: what it could not do",
        "compiler fault",
        "an internal error of the compiler: ValueError: what it could not do",
    ),
    "fx": ("fx", "ValueError", "nobody has seen this", "unsupported code", "there it raises ValueError: nobody has seen"),
    "trace": (
        "jit.trace",
        "AttributeError",
        "'dict' object has no attribute 'move_to_end'",
        "needs tensors",
        "a plain dict in the place of the caller's container, and that has no move_to_end",
    ),
    "script": (
        "jit.script",
        "RuntimeError",
        "aten::grad(Tensor[] outputs) -> Tensor?[]:\nExpected a list for argument 'outputs'.\n:\n",
        "unsupported code",
        "aten::grad takes other arguments than Python's: Expected a list",
    ),
    "nothing-quoted": ("make_fx", "RuntimeError", "nobody has seen this", "message", "nobody has seen this"),
}  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_at_capture_is_explained(refusal):
    compiler, kind, message, expected, words = REFUSALS[refusal]
    reason = reason_of(refused(compiler, message, kind))
    assert reason.kind == expected
    assert words in str(reason)


def test_a_size_that_stays_static_is_advised_to_be_dynamic_only_where_it_was_not_asked():
    message = "Guard failed: x.size()[0] == 4"
    fixed = reason_of(refused("export", message, "AssertionError", "call", "held_out[0]"))
    dynamic = reason_of(refused("export:dynamic", message, "AssertionError", "call", "held_out[0]"))
    assert (fixed.kind, dynamic.kind) == ("static size", "static size")
    assert str(fixed).endswith("export it with dynamic shapes")
    assert str(dynamic).endswith("was asked to be dynamic")
    ranged = reason_of(
        refused("export:dynamic", "Guard failed: x.size()[0] >= 5", "AssertionError", "call", "held_out[0]")
    )
    assert ranged.kind == "static size"
    assert "x.size()[0] >= 5 fails" in str(ranged)


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (("requires_grad True in eager, False here", "a gradient in eager, none on the other side"), "could follow back"),
        (("requires_grad False in eager, True here", "2 of 2 elements differ: eager 6, this 13 at [0]"), "gradients were off"),
        (("2 of 2 elements differ: eager 9, this 0 at [0]",), "autograd.Function"),
    ],
)  # fmt: skip
def test_a_gradient_that_capturing_changes_is_told_from_a_value(details, words):
    *metadata, gradient = details
    differences = [difference("example", "result", "metadata", detail) for detail in metadata]
    differences.append(difference("example", "gradients.args[0]", "gradient", gradient))
    reason = reason_of(wrong("make_fx", *differences))
    assert reason.kind == "capture changes it"
    assert words in str(reason)
    assert gradient in str(reason)
    value = difference("example", "result", "value", "1 of 2 elements differ: eager 1, this 2 at [0]")
    assert "autograd" not in str(reason_of(wrong("make_fx", value, *differences)))


@pytest.mark.parametrize(
    ("side", "words"),
    [("eager", "that each eager call makes is not in the graph"), ("other", "capturing itself changes")],
)
def test_state_that_eager_alone_sets_is_told_from_state_that_capturing_sets(side, words):
    changed = Difference("example", "state['kept']", "mutation", unlike="set", **{side: "set"})
    assert words in reason_of(wrong("jit.trace", changed)).text


def test_an_aoti_library_is_blamed_for_unchecked_inputs_only_where_it_is_called():
    died = {"verdict": Verdict.CRASH, "compiler": "aoti", "reason": "died of SIGSEGV"}
    assert "unchecked" in str(reason_of(record(**died, phase="call", input="held_out[0]")))
    assert "unchecked" not in str(reason_of(record(**died, phase="capture")))


def test_a_package_that_dies_when_it_is_loaded_on_a_gpu_is_told_the_cure():
    died = {"verdict": Verdict.CRASH, "compiler": "aoti", "reason": "died of SIGSEGV", "phase": "capture"}
    assert "LD_PRELOAD=libstdc++.so.6" in str(reason_of(record(**died, device="cuda")))
    assert "LD_PRELOAD" not in str(reason_of(record(**died)))


STACK = """Unsupported: x
from user code:
   File "torch/a.py", line 3, in f
    y
  File "mine.py", line 7, in g
    if x > 0:"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (STACK, SourceLine("mine.py", 7, "if x > 0:")),
        ('not supported:\n  File "mine.py", line 9\ndef f(x):\n    try:\n    ~~~ <--- HERE\n        x', SourceLine("mine.py", 9, "try:")),
        ("Caused by: if bool(x):  # mine.py:5 in f (tensor.py:1 in g)", SourceLine("mine.py", 5, "if bool(x):")),
        ("Caused by: (mine.py:83 in item_in_condition)", SourceLine("mine.py", 83)),
        ("Data-dependent branching at mine.py:4", SourceLine("mine.py", 4)),
        ('File "mine.py", line 6, in f\n…', SourceLine("mine.py", 6)),
        ("nothing", None),
    ],
)  # fmt: skip
def test_the_users_line_is_read_from_a_message(message, line):
    assert source_line(message) == line


HOSTILE = 'File "x.py", line 3, in f\n   </li><script>|`**[a](b)\x1b[31m\u202e'


def test_a_message_longer_than_a_run_writes_takes_no_longer_to_read():
    """Some patterns take time that grows with the square of a message's length: minutes for these."""
    long = (("name 'a" * 100_000), "Caused by: (" * 60_000, 'File "a.py", line 1\n' * 30_000, "a." * 300_000)
    began = time.process_time()
    for message in long:
        for phase in ("capture", "call"):
            assert reason_of(refused("jit.script", message, phase=phase))
        assert reason_of(record(Verdict.TIMEOUT, error=ErrorInfo("RuntimeError", message, "0123456789")))
        for verdict in Verdict:
            cell_record = record(verdict, error=ErrorInfo(message, message, "0123456789"), graph_breaks=1)
            cell_record = msgspec.structs.replace(cell_record, reason=message, break_reasons=[message], notes=[message])
            differences = [Difference("held_out[0]", message, "value", message)]
            reason = reason_of(msgspec.structs.replace(cell_record, differences=differences, explanation=(message,)))
            assert (reason is None) == (verdict is Verdict.PASS)
    assert time.process_time() - began < 5


def test_hostile_text_in_a_reason_is_escaped_in_every_report():
    rows = [
        refused("export", HOSTILE),
        msgspec.structs.replace(
            wrong("compile", Difference("held_out[0]", "result", "value", "</li><script>|\x1b[31m")),
            explanation=("<script>\x1b[31m",),
        ),
    ]
    markdown = render_conformance(rows, None, {"s::a::compile": "debug/a/b/)<script>"})
    page = render_html(rows, None, {"s::a::compile": 'debug/a/"><script>'})
    for text in (markdown, page):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<script>|" not in page
    outside = re.sub(r"`+[^`]*`+", "", markdown)
    assert not re.search(r"(?<!\\)<script", outside)
    assert "debug/a/b/)" not in markdown


def test_the_reports_say_why_and_link_what_was_left(tmp_path):
    first = msgspec.structs.replace(wrong("compile", VALUE), explanation=("1 graph of 2 operators: add, mul",))
    second = refused("fx", "symbolically traced variables cannot be used as inputs to control flow")
    directory = tmp_path / "torch2.11.0-cu130" / "cpu"
    directory.mkdir(parents=True)
    assert left_artifacts(directory, [first]) == {}
    folder = artifacts_folder(directory / ARTIFACTS, "s", "a", "compile")
    folder.mkdir(parents=True)
    assert left_artifacts(directory, [first, second]) == {}  # not finished: nothing lists what is there
    (folder / INDEX).write_text("")
    left = left_artifacts(directory, [first, second])
    assert left == {"s::a::compile": "debug/s/a/compile"}
    markdown = render_conformance([first, second], None, left)
    assert "why (compile): the compiled call gives another result on held\\_out" not in markdown
    assert "the compiled call gives another result on held_out\\[0\\]" in markdown
    assert "torch reported: 1 graph of 2 operators: add, mul" in markdown
    assert "<p>Why: an `if`, a loop" in markdown
    assert "[`s::a::compile`](debug/s/a/compile/README.md)" in markdown
    page = render_html([first, second], None, left)
    assert "debug/s/a/compile/" in page
    assert '"why":' in page.replace(" ", "").replace("&#34;", '"')


@pytest.mark.parametrize("name", ["../../x", "..", ".", "", "a/b", "x" * 400, "jit.trace"])
def test_no_name_leads_out_of_the_folder_of_artifacts(tmp_path, name):
    folder = artifacts_folder(tmp_path, name, name, name)
    assert len(folder.relative_to(tmp_path).parts) == 3
    assert ".." not in folder.parts
    assert folder.resolve().is_relative_to(tmp_path.resolve())


def test_an_explanation_is_kept_and_its_absence_changes_no_byte(tmp_path):
    path = tmp_path / "conformance.jsonl"
    write_jsonl(path, [record()])
    assert b"explanation" not in path.read_bytes()
    explained = record(explanation=("1 graph of 2 operators: add, mul",))
    write_jsonl(path, [explained])
    assert read_jsonl(path, Record) == [explained]
    write_jsonl(path, [record(explanation=("two\nlines",))])
    with pytest.raises(UsageError, match="explanation"):
        read_jsonl(path, Record)
