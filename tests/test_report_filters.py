"""What a report shows of many cases: of one suite, of matching words, of kinds; static refusals; captured models."""

from pathlib import Path

import pytest
from command_lines import recapture
from planted_records import evidence

from recapture.base.errors import UsageError
from recapture.cases.name_filter import matcher
from recapture.records.difference import Difference
from recapture.records.directories import Results
from recapture.records.record import ErrorInfo, Record, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.report.cell_filter import CellFilter
from recapture.report.conformance_report import render_conformance
from recapture.report.groups import is_static_refusal, static_refusals
from recapture.report.markdown_writer import to_markdown
from recapture.report.model_captures import captures, model_captures


def record(case, compiler="export", verdict=Verdict.PASS, **more):
    fields = {**evidence(verdict), **more}
    return Record(case=case, compiler=compiler, device="cpu", case_hash="0", verdict=verdict, **fields)


def refused(case, message, compiler="export", **more):
    where = {"phase": "call", "input": "held_out[0]", **more}
    return record(case, compiler, Verdict.ERROR, error=ErrorInfo("AssertionError", message, "0"), **where)


# --- refusals by static shapes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "is_static"),
    [
        ("Guard failed: args_0.size()[0] == 4", True),
        ("Guard failed: args_0['a'].size()[1] == 4", True),
        ("Expected input at *args[0].shape[0] to be equal to 10, but got 3", True),
        ("Input arg0_1.shape[0] is specialized at 4, but got 3", True),
        ("Guard failed: args_0.size()[0] >= 4", False),  # a range, which dynamic sizes have too
        ("Guard failed: args_1 == 3", False),  # a value
        ("Expected input at *args[1] to be equal to 3, but got 5", False),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_a_refusal_by_a_static_size_is_told_by_its_message(message, is_static):
    assert is_static_refusal(refused("s::f", message)) is is_static


def test_a_refusal_of_the_example_or_at_capture_is_no_static_one():
    message = "Guard failed: args_0.size()[0] == 4"
    assert not is_static_refusal(refused("s::f", message, input="example"))
    assert not is_static_refusal(refused("s::f", message, phase="capture"))


SIZE = "Guard failed: args_0.size()[0] == 4"
PAIRED = (
    refused("s::a", SIZE),
    record("s::a", "export:dynamic"),
    refused("s::b", SIZE),
    refused("s::b", "Guard failed: args_0.size()[0] >= 5", "export:dynamic"),
    refused("s::c", "Guard failed: args_1 == 3"),
    record("s::c", "export:dynamic"),
    refused("s::d", SIZE),  # not tried with dynamic sizes
)


def test_static_refusals_are_counted_among_the_cases_tried_with_dynamic_sizes():
    (refusals,) = static_refusals(PAIRED)
    assert (refusals.compiler, refusals.refused, refusals.captured, refusals.limits) == (
        "export",
        ("s::a", "s::b"),
        ("s::a",),
        ("s::b",),
    )


def test_the_report_says_what_static_shapes_refuse_and_what_dynamic_ones_capture():
    page = render_conformance(PAIRED, None)
    assert "- export refuses 2 cases by static shapes alone: a size differs from the example's; export:dynamic " in page
    assert "captures 1 of them rightly. Not captured either: `s::b`." in page
    alone = render_conformance([row for row in PAIRED if row.compiler == "export"], None)
    assert "static shapes" not in alone


# --- captured models ------------------------------------------------------------------------------------------------

MODELS = (
    record("zoo_a::one", "compile", graphs=1, graph_breaks=0),
    record("zoo_a::two", "compile", Verdict.PASS_WITH_BREAKS, graphs=4, graph_breaks=3, break_reasons=("x",)),
    record("zoo_a::three", "compile", Verdict.NOT_APPLICABLE, reason="no"),
    record("zoo_b::four", "compile", Verdict.SPECIALIZED),
    record("zoo_a::one", "fx"),
    record("zoo_a::two", "fx", Verdict.ERROR, phase="capture"),
    record("types::f", "fx"),
)


def test_the_share_of_captured_models_and_the_coverage_of_the_means():
    coverage = captures(MODELS)
    assert list(coverage) == ["zoo_a", "zoo_b", "all"]
    compiled, traced = coverage["zoo_a"]
    assert (compiled.compiler, compiled.right, compiled.tried, compiled.broken) == ("compile", 2, 2, 1)
    assert (compiled.graphs, compiled.breaks, compiled.counted) == (2.5, 1.5, 2)
    assert (traced.right, traced.tried, traced.failing, traced.graphs) == (1, 2, 1, None)
    assert [(row.compiler, row.right, row.tried, row.wrong) for row in coverage["all"]] == [
        ("compile", 2, 3, 1),
        ("fx", 1, 2, 0),
    ]


def test_the_table_of_models_has_the_coverage_beside_every_mean():
    text = to_markdown(model_captures(MODELS))
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines() if "`compile`" in line]
    assert lines[0] == ["`compile`", "2 of 2", "100 %", "1", "0", "0", "2.5 (2 of 2)", "1.5 (2 of 2)"]
    assert lines[2] == ["`compile`", "2 of 3", "67 %", "1", "**1**", "0", "2.5 (2 of 3)", "1.5 (2 of 3)"]
    assert text in render_conformance(MODELS, None)
    assert "Models captured" not in render_conformance(PAIRED, None)


# --- filters --------------------------------------------------------------------------------------------------------

ROWS = (
    record("types::f", "fx", Verdict.WRONG, differences=(Difference("example", "result", "dtype", ""),)),
    record("types::g", "fx"),
    record("graphs::f", "fx", Verdict.ERROR),
)


def cells_kept(**filters):
    results = CellFilter(**filters).applied(Results(Path(), ROWS, None))
    return [(row.case, str(row.verdict)) for row in results.records]


def test_cells_are_kept_by_suite_by_words_by_kind_and_by_verdict():
    assert len(cells_kept()) == 3
    assert [case for case, _ in cells_kept(suites=["types"])] == ["types::f", "types::g"]
    assert [case for case, _ in cells_kept(matches=matcher("f and not types"))] == ["graphs::f"]
    assert [case for case, _ in cells_kept(kinds=["dtype"])] == ["types::f"]
    assert [case for case, _ in cells_kept(kinds=["error", "wrong"])] == ["types::f", "graphs::f"]
    assert cells_kept(suites=["graphs"], kinds=["dtype"]) == []


def test_a_suite_that_no_results_have_is_named():
    results = [Results(Path(), ROWS, None)]
    CellFilter(suites=["types"]).check(results)
    with pytest.raises(UsageError, match="no results have a suite 'type'; did you mean 'types'"):
        CellFilter(suites=["type"]).check(results)


@pytest.fixture
def filed(tmp_path):
    directory = tmp_path / "an_image" / "cpu"
    directory.mkdir(parents=True)
    write_jsonl(directory / "conformance.jsonl", ROWS)
    return directory


def test_a_filtered_report_prints_its_cells_and_writes_nothing(filed, capsys):
    assert recapture("report", filed, "--suite", "types", "-k", "g") == 0
    out = capsys.readouterr().out
    assert "1 pass" in out
    assert "graphs" not in out
    assert [path.name for path in filed.iterdir()] == ["conformance.jsonl"]
    assert recapture("report", filed, "--kind", "error", "--output", "-") == 0
    page = capsys.readouterr().out
    assert "graphs" in page
    assert "types" not in page


def test_a_suite_words_or_page_that_cannot_be_shown_is_refused_in_one_line(filed, capsys):
    assert recapture("report", filed, "--suite", "typos") == 2
    assert recapture("report", filed, "-k", "f g") == 2
    assert recapture("report", filed, "-k", "f", "--html") == 2
    assert recapture("history", "types::f", "--suite", "types", "--results", filed) == 2
    assert recapture("history", "-k", "nothing", "--results", filed) == 2
    assert recapture("list", "--claims", "--suite", "types") == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 6
    assert errors[0] == "recapture: no results have a suite 'typos'; did you mean 'types'?"
