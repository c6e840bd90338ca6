"""`recapture explain`: what torch reports about a cell, in words a person can use, and the same on every run."""

from __future__ import annotations

import json

import msgspec
import pytest
from conftest import records_below

from recapture.command.main import _run
from recapture.records.artifact_folders import INDEX, TRACE
from recapture.records.cell_facts import BreakFacts, CellFacts, GraphFacts, RecompileFacts, SourcePlace
from recapture.records.verdicts import Verdict
from recapture.run.cell import EXAMINE, CellSpec, examine
from recapture.tools.explain.capture_recorder import guards
from recapture.tools.explain.explain_cells import remove_secrets
from recapture.tools.explain.explain_command import UNKNOWN, explanation_lines
from recapture.tools.explain.recorded_run import explain, short_lines
from recapture.tools.explain.run_options import EXPLAIN
from recapture.torch_api.compat import release, reset_dynamo
from recapture.torch_api.reports import graph_break_text

pytestmark = pytest.mark.filterwarnings("ignore")

needs_trace = pytest.mark.skipif(release() < (2, 8), reason="torch explains its graph breaks since 2.8")

SUITE = """\
import torch
from recapture import case


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),), lambda: (torch.ones(5),)])
def branch(x):
    y = torch.sin(x) * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@case(example=lambda: (torch.ones(3),))
def tries(x):
    try:
        return x + 1
    except ValueError:
        return x


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(4),)])
class Doubles(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


@case(example=lambda: (torch.ones(3),))
def compiles_itself(x):
    return torch.compile(lambda y: y.cos(), backend="eager")(x)


@case(example=lambda: (1 / 0,))
def no_inputs(x):
    return x
"""


def cell(folder, case, compiler, **more):
    path = folder / "mine.py"
    path.write_text(SUITE, encoding="utf-8")
    return CellSpec("mine", str(path), case, compiler, "cpu", examiner=EXPLAIN, **more)


def explained(folder, case, compiler, **more):
    reset_dynamo()
    return explain(cell(folder, case, compiler, **more), lambda _: None)


@needs_trace
def test_a_graph_break_has_its_line_torchs_words_and_its_id(tmp_path):
    result = explained(tmp_path, "branch", "compile:eager")
    assert result.verdict is Verdict.PASS_WITH_BREAKS
    graph_break = result.facts.breaks[0]
    assert len({(each.place, each.reason, each.id) for each in result.facts.breaks}) == 1
    assert graph_break.place == SourcePlace("mine.py", 8, "if y.sum() > 0:")
    assert graph_break.reason == "Data-dependent branching"
    assert "dynamic control flow" in graph_break.explanation
    assert any("torch.cond" in hint for hint in graph_break.hints)
    assert graph_break.id.startswith("GB")
    assert graph_break.input == "example"


def test_graphs_have_their_operators_and_the_input_that_they_were_captured_on(tmp_path):
    facts = explained(tmp_path, "branch", "compile:aot_eager").facts
    first, second = facts.graphs[:2]
    assert first.origin == "Dynamo"
    assert first.input == "example"
    assert first.operators["sin"] == 1
    assert sum(first.operators.values()) == 4
    assert facts.seconds
    assert second.operators in ({"add": 1}, {"sub": 1})


@pytest.mark.skipif(release() < (2, 6), reason="torch reports recompilations since 2.6")
def test_a_recompilation_has_its_guard_and_its_input(tmp_path):
    again = explained(tmp_path, "Doubles", "compile:eager").facts.recompiles
    (recompile,) = again
    assert recompile.input == "held_out[0]"
    assert "expected 3, actual 4" in recompile.guards[0]


@pytest.mark.parametrize(
    ("case", "compiler", "line", "words"),
    [
        ("branch", "fx", 8, "control flow"),
        ("branch", "make_fx", 8, "tracing_mode"),
        ("branch", "export:strict", 8, "torch.cond"),
        ("branch", "export", 8, "guard"),
        ("branch", "export:nonstrict", 8, "guard"),
        ("tries", "jit.script", 15, "try blocks"),
    ],
)
def test_a_refusal_names_the_users_line_and_what_torch_suggests(tmp_path, case, compiler, line, words):
    result = explained(tmp_path, case, compiler)
    assert result.verdict is Verdict.ERROR
    refusal = result.facts.refusal
    assert (refusal.place.file, refusal.place.line) == ("mine.py", line)
    text = " ".join((refusal.message, refusal.explanation or "", *refusal.hints))
    assert words in text
    assert f"mine.py:{line}" in result.explanation[0]


def test_a_trace_names_the_line_whose_decision_it_keeps(tmp_path):
    result = explained(tmp_path, "branch", "jit.trace")
    assert result.verdict is Verdict.SPECIALIZED
    (warning,) = set(result.facts.warnings)
    assert warning.category == "TracerWarning"
    assert (warning.place.line, warning.place.text) == (8, "if y.sum() > 0:")
    (graph,) = result.facts.graphs
    assert graph.operators == {"aten::add": 1, "aten::mul": 1, "aten::sin": 1}


@pytest.mark.parametrize("compiler", ["eager", "fx", "make_fx", "jit.script", "export", "compile:eager"])
def test_explaining_changes_nothing_of_what_is_recorded(tmp_path, compiler):
    spec = cell(tmp_path, "Doubles", compiler)
    reset_dynamo()
    plain = examine(msgspec.structs.replace(spec, examiner=EXAMINE), lambda _: None)
    reset_dynamo()
    result = explain(spec, lambda _: None)
    assert msgspec.structs.replace(result, explanation=(), facts=None) == plain
    assert plain.explanation == ()


@pytest.mark.parametrize("compiler", ["compile:eager", "jit.trace", "fx", "export"])
def test_the_recorded_lines_are_the_same_on_every_run(tmp_path, compiler):
    lines = []
    for name in ("one", "other"):
        folder = tmp_path / f"{name}-{'x' * len(lines) * 9}"
        folder.mkdir()
        lines.append(explained(folder, "branch", compiler).explanation)
    assert lines[0] == lines[1]
    assert lines[0]
    assert str(tmp_path) not in "".join(lines[0])


def test_what_eager_compiles_itself_is_not_the_compilers(tmp_path):
    assert explained(tmp_path, "compiles_itself", "eager").facts.graphs is None


def test_a_case_without_inputs_is_explained(tmp_path):
    result = explained(tmp_path, "no_inputs", "compile:eager")
    assert result.facts.refusal.type == "ZeroDivisionError"
    assert "mine.py" in result.explanation[0]


def test_the_recorded_form_is_short_and_counts_the_rest():
    breaks = tuple(BreakFacts("r", SourcePlace("a.py", number, "x" * 500)) for number in range(9))
    facts = CellFacts(
        uses_dynamo=True,
        breaks=breaks,
        graphs=tuple(GraphFacts("Dynamo", {"add": 1, f"o{number}": 2}) for number in range(20)),
        recompiles=(RecompileFacts(("a", "b"), "held_out[0]"),),
    )
    lines = short_lines(facts)
    assert len(lines) <= 6
    assert max(map(len, lines)) <= 240
    assert "and 7 more graph breaks" in lines
    assert "compiled again on held_out[0]: a; b" in lines
    assert short_lines(CellFacts()) == ()


def test_what_a_release_does_not_report_is_said_to_be_unknown():
    from recapture.records.record import Record
    from recapture.tools.explain.explain_cells import explanation_of

    record = Record(case="s::a", compiler="compile", device="cpu", verdict=Verdict.PASS, case_hash="0")
    facts = CellFacts(uses_dynamo=True, breaks=None, recompiles=None, seconds=None, caches=None, cudagraph_skips=None)
    lines = explanation_lines(explanation_of(record, facts, "2.1.2", "torch2.1.2-cu121", []))
    assert lines[0] == "s::a::compile on torch 2.1.2: pass"
    for name in ("graph breaks", "recompilations", "compile time", "caches", "CUDA graphs skipped"):
        assert f"{name}: {UNKNOWN}" in lines


def test_each_graph_says_its_number_its_origin_and_its_operators():
    from recapture.records.record import Record
    from recapture.tools.explain.explain_cells import explanation_of

    record = Record(case="s::a", compiler="fx", device="cpu", verdict=Verdict.PASS, case_hash="0")
    facts = CellFacts(graphs=(GraphFacts("fx", {"add": 2}, "example"),))
    lines = explanation_lines(explanation_of(record, facts, "2.11.0", "torch2.11.0-cu130", []))
    assert lines[1:] == ["graphs: 1", "  graph 0, from fx on example: 2 operators: 2 add"]


def test_the_parts_of_a_message_of_dynamo_are_found_on_every_release():
    new = (
        "Graph break in user code at /a/b.py:3\nGraph Break Reason: Encountered graph break when attempting to trace "
        "CALL: a function call, e.g. f(x, y):\n\nFailed to trace builtin operator\n  Explanation: It does not know it.\n"
        "  Hint: Avoid it.\n  Hint: Report it.\n\n  Developer debug context: builtin print\n\n For more details about "
        "this graph break, please visit: https://x/gb/gb0059.html\n"
    )
    parts = graph_break_text(new)
    assert parts.reason == "Failed to trace builtin operator"
    assert parts.explanation == "It does not know it."
    assert parts.hints == ("Avoid it.", "Report it.")
    assert (parts.context, parts.id) == ("builtin print", "GB0059")
    middle = "Graph break in user code at /a/b.py:3\nReason: Data-dependent jump\nUser code traceback:\n"
    assert graph_break_text(middle).reason == "Data-dependent jump"
    old = graph_break_text("generic_jump TensorVariable() at /a/b.py:3")
    assert (old.reason, old.explanation, old.id) == ("generic_jump TensorVariable() at /a/b.py:3", None, None)
    assert graph_break_text("").reason == ""


def test_the_command_prints_the_answer_first_and_json_on_request(tmp_path, warm, capsys):
    file = tmp_path / "mine.py"
    file.write_text(SUITE, encoding="utf-8")
    address = f"{file}::branch"
    folder = ("--results", str(tmp_path / "results"))
    assert _run(["explain", f"{address}::jit.trace", *folder]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mine::branch::jit.trace on torch ")
    assert lines[0].endswith("specialized on held_out[0]")
    assert lines[1].startswith("why: the trace keeps a number or decision")
    assert not (tmp_path / "results").exists()
    assert _run(["explain", address, "--compiler", "fx", "--compiler", "jit.trace", "--json", *folder]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert {answer["cell"] for answer in answers} == {"mine::branch::fx", "mine::branch::jit.trace"}
    assert {answer["kind"] for answer in answers} == {"data-dependent", "recorded path"}
    assert all(answer["facts"]["refusal"] or answer["facts"]["graphs"] for answer in answers)


def test_bad_input_ends_with_one_line(tmp_path, capsys):
    for words in ([], ["no_such_suite::a::fx"], ["control_flow::branch_on_sum::no-such-compiler", "--via", "venv"]):
        assert _run(["explain", *words, "--results", str(tmp_path)]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_run_records_the_explanation_when_asked(tmp_path, warm):
    file = tmp_path / "mine.py"
    file.write_text(SUITE, encoding="utf-8")
    command = ["run", f"{file}::branch", "--compiler", "fx", "--compiler", "jit.trace", "--explain"]
    assert _run([*command, "--results", str(tmp_path / "results")]) == 0
    rows = records_below(tmp_path / "results")
    assert rows["mine::branch::fx"].explanation[0] == "stopped at mine.py:8 `if y.sum() > 0:`"
    assert "TracerWarning at mine.py:8" in rows["mine::branch::jit.trace"].explanation[0]
    (report,) = (tmp_path / "results").rglob("conformance.md")
    assert "torch reported: TracerWarning at mine.py:8" in report.read_text()


def test_debugging_leaves_what_each_compiler_has(tmp_path):
    wanted = {
        "compile:aot_eager": {"dynamo_graph_0.py", "trace.log"},
        "jit.trace": {"torchscript_graph_0.txt", "torchscript_code_0.py"},
        "fx": {"error.txt"},
        "make_fx": {"error.txt"},
    }
    for compiler, files in wanted.items():
        folder = tmp_path / compiler.replace(":", "-")
        result = explained(tmp_path, "branch", compiler, artifacts=str(folder))
        left = set(result.facts.artifacts)
        assert files <= left if release() >= (2, 6) else files - {TRACE} <= left
        listed = (folder / INDEX).read_text()
        for name in left:
            assert f"`{name}`: " in listed
    assert "sin" in (tmp_path / "compile-aot_eager" / "dynamo_graph_0.py").read_text()
    if release() >= (2, 6):
        graphs = [name for name in (tmp_path / "compile-aot_eager").iterdir() if name.name.startswith("aot_")]
        assert any("torch.ops.aten.sin" in path.read_text() for path in graphs)


def test_a_folder_of_artifacts_replaces_an_older_one_and_nothing_else(tmp_path):
    folder = tmp_path / "left"
    explained(tmp_path, "Doubles", "make_fx", artifacts=str(folder))
    (folder / "old.txt").write_text("")
    explained(tmp_path, "Doubles", "fx", artifacts=str(folder))
    assert not (folder / "old.txt").exists()
    assert (folder / "fx_code_0.py").exists()
    user_folder = tmp_path / "mine"
    user_folder.mkdir()
    (user_folder / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError):
        explained(tmp_path, "Doubles", "fx", artifacts=str(user_folder))
    assert (user_folder / "thesis.txt").read_text() == "precious"


def test_the_command_leaves_artifacts_that_the_report_links(tmp_path, warm, capsys):
    file = tmp_path / "mine.py"
    file.write_text(SUITE, encoding="utf-8")
    results = ("--results", str(tmp_path / "results"))
    assert _run(["run", f"{file}::Doubles", "--compiler", "fx", *results]) == 0
    assert _run(["explain", f"{file}::Doubles::fx", "--debug", *results]) == 0
    (index,) = (tmp_path / "results").rglob(INDEX)
    assert f"artifacts: {index.parent}" in capsys.readouterr().out
    assert index.parent.parts[-4:] == ("debug", "mine", "Doubles", "fx")
    assert _run(["report", str(tmp_path / "results"), "--html", "--quiet"]) == 0
    (report,) = (tmp_path / "results").rglob("conformance.md")
    assert "[`mine::Doubles::fx`](debug/mine/Doubles/fx/README.md)" in report.read_text()
    assert "debug/mine/Doubles/fx/" in report.with_suffix(".html").read_text()


def test_a_guard_is_kept_without_what_torch_writes_beside_it():
    """As 2.11.0 and 2.15.0 write it."""
    messages = [
        "2/0: tensor 'x' size mismatch at index 0. expected 4, actual 3 (user code shown is first use of this value)",
        "1/0: G['CALLS']['count'] == 0  # return x * 2\nUser stack trace:\n  File \"a.py\", line 1, in f",
    ]
    assert guards(json.dumps(messages)) == (
        "tensor 'x' size mismatch at index 0. expected 4, actual 3",
        "G['CALLS']['count'] == 0 # return x * 2",
    )
    assert guards("no JSON") == ("no JSON",)


def test_artifacts_hold_no_values_of_private_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "correct horse")
    script = (
        "import os\nos.environ['TORCH_PLACE'] = 'my place'\nos.environ['TORCH_LOGS'] = 'dynamo'\n"
        "os.environ['TORCH_SWITCH'] = '1'\nx = 'correct horse'\n"
    )
    (tmp_path / "inductor").mkdir()
    (tmp_path / "inductor" / "fx_graph_runnable.py").write_text(script)
    (tmp_path / TRACE).write_text(json.dumps({"payload": script}))
    (tmp_path / "library.so").write_bytes(b"\xff\xfecorrect horse")
    remove_secrets(tmp_path)
    public = script.replace("os.environ['TORCH_PLACE'] = 'my place'", "# TORCH_PLACE was set").replace(
        "correct horse", "…"
    )
    assert (tmp_path / "inductor" / "fx_graph_runnable.py").read_text() == public
    assert json.loads((tmp_path / TRACE).read_text()) == {"payload": public}
    assert (tmp_path / "library.so").read_bytes() == b"\xff\xfecorrect horse"
