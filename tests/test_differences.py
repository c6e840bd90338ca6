"""What differences say in words, and the cells whose reference is suspect."""

import planted_records
import pytest

from recapture.records.difference import Difference
from recapture.records.kinds import KINDS
from recapture.records.record import Record
from recapture.records.verdicts import Verdict
from recapture.report import differences, summary
from recapture.report.groups import noted_groups, suspects


def difference(kind="value", label="held_out[0]", where="result", detail="", **far):
    return Difference(label, where, kind, detail, **far)


def counted():
    """A difference whose sentence counts elements."""
    return planted_records.difference(
        "held_out[0]", "result", "value", "2 of 5 elements differ: eager 1, this 2 at [0]", bits="value", ulps=7
    )


def cell(*planted, case="s::c", compiler="compile", verdict=Verdict.SPECIALIZED, **fields):
    return Record(
        case=case, compiler=compiler, device="cpu", verdict=verdict, case_hash="0", differences=planted, **fields
    )


def noting(*noted, **fields):
    return cell(verdict=Verdict.PASS, noted=noted, **fields)


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (difference("dtype", detail="eager int, this float"), "on held_out[0], result: dtype: eager int, this float"),
        (counted(), "result: value (7 ulp): 2 of 5 "),
        (difference(detail="differs", elements=(2, 5)), "result: value (2 of 5 elements): differs"),
        (difference(bits="signed-zero", ulps=0, elements=(1, 5)), "value (signed-zero, 1 of 5 elements, 0 ulp)"),
        (difference(ulps=16777216), "value (1.7e+07 ulp)"),
        (difference(bits="value", ulps=0, elements=(4, 5)), "value (4 of 5 elements)"),
        (difference("mutation", "capture", "globals['n']"), "while capturing, globals['n']: mutation"),
        (difference("value", "original"), "on the original after capture, result: value"),
        (difference("value", detail="a\nb"), "result: value: a b"),
    ],
)
def test_a_difference_is_one_line_with_its_place_kind_and_distance(difference, text):
    assert text in differences.describe_difference(difference)
    assert "\n" not in differences.describe_difference(difference)


def test_kinds_are_named_once_in_one_order():
    several = [difference("output"), difference("value"), difference("value", "example")]
    assert differences.kinds_of(several) == ["value", "output"]
    assert differences.kinds_of(difference(kind) for kind in reversed(KINDS)) == list(KINDS)


def test_silent_kinds_count_a_cell_for_each_of_its_kinds():
    rows = [
        cell(difference(), difference("dtype")),
        cell(difference(), compiler="fx"),
        cell(difference("dtype"), case="s::d"),
        noting(difference()),
    ]
    counted = {kind.kind: (kind.cells, kind.cases) for kind in differences.silent_kinds(rows)}
    assert counted == {"value": (2, 1), "dtype": (2, 2)}


def test_noted_kinds_count_cells_not_inputs():
    rows = [
        noting(difference("alias"), difference("alias", "example"), difference()),
        noting(difference("alias"), compiler="fx"),
        cell(difference()),
    ]
    assert differences.noted_numbers(rows) == {"alias": 2, "value": 1}
    by_compiler = differences.noted_by_compiler(summary.by_compiler(rows))
    assert by_compiler == {"compile": {"alias": 1, "value": 1}, "fx": {"alias": 1}}


def test_a_cell_has_a_kind_if_a_silent_or_a_noted_difference_has_it():
    assert differences.has_kind(cell(difference("dtype")), ["dtype"])
    assert differences.has_kind(noting(difference("alias")), ["value", "alias"])
    assert not differences.has_kind(noting(difference("alias")), ["value"])


def test_equal_notes_on_several_inputs_are_one_group_with_each_cell_once():
    rows = [
        noting(difference("alias", "example", detail="d"), difference("alias", "held_out[0]", detail="d")),
        noting(difference("alias", "held_out[1]", detail="d"), compiler="fx"),
        noting(difference("alias", "example", detail="e")),
    ]
    groups = [(group.title, group.text, len(group.records)) for group in noted_groups(rows)]
    assert groups == [("alias", "result: d", 2), ("alias", "result: e", 1)]


def test_the_most_common_difference_names_an_effect_of_capture_in_words():
    assert differences.commonest_difference([cell(difference("mutation", "capture"))]) == (
        "mutation while capturing",
        0,
    )


def test_other_kinds_are_named_beside_the_first_difference():
    record = cell(difference(), difference("dtype"), difference("alias"))
    assert summary.explain(record) == "on held_out[0], result: value (and 2 more, also dtype, alias)"
    every = cell(*map(difference, KINDS))
    assert len(summary.explain(every, 60)) <= 60


def test_a_crash_names_its_input():
    record = cell(verdict=Verdict.CRASH, phase="call", input="held_out[1]", reason="died of SIGSEGV")
    assert summary.explain(record) == "call on held_out[1]: died of SIGSEGV"


# --- suspect references --------------------------------------------------------------------------------------------

FOUR = ("compile", "jit.trace", "make_fx", "export")


def test_four_unrelated_compilers_with_the_same_difference_make_the_reference_suspect():
    rows = [cell(difference(detail="eager 1, this 2"), compiler=name) for name in (*FOUR, "fx:concrete_args")]
    (suspect,) = suspects(rows)
    assert (suspect.case, suspect.difference.detail, len(suspect.records)) == ("s::c", "eager 1, this 2", 5)
    assert suspects(rows[:3]) == []


def test_related_compilers_other_values_and_other_inputs_do_not():
    related = ("compile", "compile:eager", "compile:fullgraph", "compile:dynamic", "export", "aoti", "aoti:dynamic")
    tracers = ("jit.trace", "jit.script", "fx", "fx:concrete_args", "make_fx", "export", "export:nonstrict", "aoti")
    assert suspects(cell(difference(), compiler=name) for name in tracers) == []
    assert suspects(cell(difference(), compiler=name) for name in related) == []
    assert suspects(cell(difference(detail=name), compiler=name) for name in FOUR) == []
    assert suspects(cell(difference(label=f"held_out[{i}]"), compiler=name) for i, name in enumerate(FOUR)) == []
    assert suspects(cell(difference(), case=f"s::{name}", compiler=name) for name in FOUR) == []


def test_notes_do_not_make_the_reference_suspect():
    assert suspects(noting(difference(), compiler=name) for name in FOUR) == []
