"""What reports count and say of records: marks, claims, explanations, groups of failures."""

import time

import pytest

from recapture.base.escape import markdown_text as plain
from recapture.base.text import one_line
from recapture.records.difference import Difference
from recapture.records.record import ClaimResult, ErrorInfo, Record
from recapture.records.verdicts import Verdict
from recapture.report import summary
from recapture.report.conformance_report import render_conformance
from recapture.report.groups import failure_groups
from recapture.report.summary import MOST_CASES, MOST_COMPILERS, ClaimStatus, in_matrix


def record(case="s::c", compiler="compile", verdict=Verdict.PASS, **fields):
    return Record(case=case, compiler=compiler, device="cpu", verdict=verdict, case_hash="0", **fields)


def claim(holds, number="T1"):
    return ClaimResult(number, "right", holds)


def test_every_outcome_has_its_own_mark_that_the_legend_explains():
    marks = [
        summary.mark(record(verdict=verdict, phase=phase))
        for verdict in Verdict
        for phase in ((None,) if verdict is not Verdict.ERROR else ("capture", "call"))
    ]
    assert len(set(marks)) == len(marks)
    assert set(marks) == set(summary.LEGEND)


def test_counts_put_every_verdict_into_exactly_one_column():
    counts = summary.count(record(verdict=verdict) for verdict in Verdict)
    assert (counts.right, counts.silently_wrong, counts.failing, counts.not_run) == (2, 2, 4, 3)
    assert counts.total == len(Verdict)


def test_claims_are_sorted_by_number_not_by_digit():
    assert sorted(["T10", "T2", "S1", "T10b", "K1"], key=summary.natural_key) == ["K1", "S1", "T2", "T10", "T10b"]


def test_compilers_come_family_by_family_the_reference_first_and_a_users_own_last():
    names = [
        "onnx",
        "mine",
        "aoti",
        "export",
        "fx:concrete_args",
        "fx",
        "jit.trace",
        "compile:eager",
        "compile",
        "eager",
    ]
    ordered = [
        "eager",
        "compile",
        "compile:eager",
        "jit.trace",
        "fx",
        "fx:concrete_args",
        "export",
        "aoti",
        "onnx",
        "mine",
    ]
    assert summary.compilers_in_order(record(compiler=name) for name in names) == ordered


def test_a_claim_over_several_cells_is_partly_reproduced_and_what_cannot_run_does_not_count():
    def status(*holds):
        cells = summary.claim_cells(record(case=f"s::{i}", claims=(claim(value),)) for i, value in enumerate(holds))
        return summary.overall_status(cells)

    assert status(True, None) is ClaimStatus.REPRODUCED
    assert status(False, None) is ClaimStatus.NOT_REPRODUCED
    assert status(True, False, None) is ClaimStatus.PARTLY
    assert status(None, None) is ClaimStatus.NOT_RUNNABLE


def test_outcomes_are_written_in_the_grammar_of_the_claims():
    error = ErrorInfo("torch.fx.proxy.TraceError", "no", "f")
    assert summary.measured(record(verdict=Verdict.ERROR, phase="capture", error=error)) == "error(capture):TraceError"
    assert summary.measured(record(graphs=3), "right graphs=2 recompiles=0") == "pass graphs=3 recompiles=unknown"


def test_failures_group_by_fingerprint_and_those_without_an_exception_by_verdict_and_reason():
    records = [
        record("s::a", verdict=Verdict.ERROR, error=ErrorInfo("E", "size 3", "same")),
        record("s::b", verdict=Verdict.ERROR, error=ErrorInfo("E", "size 4", "same")),
        record("s::c", verdict=Verdict.ERROR, error=ErrorInfo("E", "other", "other")),
        record("s::d", verdict=Verdict.CRASH, reason="died of SIGSEGV"),
        record("s::e", verdict=Verdict.PASS),
    ]
    groups = [(group.title, group.text, len(group.records)) for group in failure_groups(records)]
    assert groups == [("E", "size 3", 2), ("E", "other", 1), ("crash", "died of SIGSEGV", 1)]


def test_an_exception_without_a_message_shows_the_place_that_dynamo_names():
    message = 'from user code:\n   File "a.py", line 84, in f\n    raise SomeError('
    row = record(verdict=Verdict.ERROR, phase="call", input="example", error=ErrorInfo("E", message, "f"))
    text = 'from user code: File "a.py", line 84, in f raise SomeError('
    assert summary.explain(row) == f"call on example: E: {text}"
    assert [group.text for group in failure_groups([row])] == [text]


def test_an_explanation_is_one_line_within_its_limit():
    difference = Difference("held_out[0]", "result", "value", "a\nlong " + "detail " * 100)
    for row in (
        record(verdict=Verdict.WRONG, differences=(difference, difference)),
        record(verdict=Verdict.ERROR, phase="call", input="example", error=ErrorInfo("E", "x" * 500 + "\nmore", "f")),
        record(verdict=Verdict.CRASH, reason="r" * 500),
        record(verdict=Verdict.PASS_WITH_BREAKS, graph_breaks=2, break_reasons=("b" * 500,)),
    ):
        text = summary.explain(row, 80)
        assert len(text) == 80 or text.endswith("(and 1 more)")
        assert len(text) <= 80
        assert "\n" not in text
    assert summary.explain(record()) == ""


def test_text_that_cannot_be_printed_is_replaced():
    assert one_line("a\x00b \x1b[31m\tc\u2028d") == "a\ufffdb \ufffd[31m c d"


# How much a matrix shows


@pytest.mark.parametrize(
    ("many", "remark"),
    [
        ([("s::c", f"c{number}") for number in range(3000)], "2900 of 3000 compilers"),
        ([(f"s{number}::c", "compile") for number in range(20_000)], "19700 of 20000 suites, 19700 of 20000 cases"),
        ([(f"s::c{number}", f"c{number}") for number in range(6000)], "5900 of 6000 compilers, 1000 of 6000 cases"),
    ],
)
def test_a_matrix_is_bounded_and_says_what_it_leaves_out(many, remark):
    records = [record(case=case, compiler=compiler) for case, compiler in many]
    rows, left_out = in_matrix(records)
    assert 0 < len(rows) <= MOST_CASES
    assert len({row.compiler for row in rows}) <= MOST_COMPILERS
    assert remark in left_out
    began = time.process_time()
    assert plain(left_out) in render_conformance(records, None)
    assert time.process_time() - began < 10


def test_a_matrix_of_what_is_committed_leaves_nothing_out():
    records = [record(case=f"s{number % 30}::c{number}") for number in range(1000)]
    assert in_matrix(records) == (records, "")
