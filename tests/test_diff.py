"""Which category every changed cell falls into, and what a comparison says beside the cells."""

import io
from pathlib import Path

import msgspec
import pytest
from command_lines import recapture
from planted_diffs import GPU, NEW, OLD, record
from planted_records import evidence
from rich.console import Console

from recapture.machine.environment import SuiteEntry
from recapture.records.difference import Difference
from recapture.records.directories import Results, read_results
from recapture.records.record import ClaimResult, ErrorInfo, write_jsonl
from recapture.records.verdicts import FAILING, NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.tools.compare.cell_changes import can_be_the_judges, category, diff
from recapture.tools.compare.changes import CATEGORIES, matching_changes
from recapture.tools.compare.diff_report import print_diff, to_markdown


def results(*records):
    return Results(Path("results/image/cpu"), records, None)


def compared(old, new):
    return diff(results(*old), results(*new))


def cells(changes, name):
    return [(change.case, change.compiler) for change in getattr(changes, name)]


@pytest.fixture
def changes():
    return diff(read_results(OLD), read_results(NEW))


# What changed


def test_every_category_but_one_is_reached_by_the_cells_that_belong_to_it(changes):
    """The records of these results are of version 1, which has no noted differences."""
    assert {name: members for name in CATEGORIES if (members := cells(changes, name))} == {
        "newly_wrong": [("types::int_argument", "export"), ("types::scale", "compile")],
        "newly_failing": [("types::scale", "make_fx"), ("types::scale", "aoti")],
        "newly_breaking": [("control_flow::loop", "compile")],
        "removed": [("control_flow::loop", "jit.script"), ("types::scale", "fx")],
        "no_longer_run": [("control_flow::loop", "onnx")],
        "failing_differently": [("control_flow::branch_on_sum", "compile:fullgraph")],
        "fixed": [("foreign::dct", "compile")],
        "whole_again": [("control_flow::branch_on_sum", "compile")],
        "captured_differently": [("types::scale", "compile:dynamic")],
        "newly_run": [("foreign::dct", "export:nonstrict")],
        "not_run_differently": [("foreign::dct", "onnx")],
        "added": [("graphs::bar", "compile")],
        "case_edited": [("types::edited", "compile")],
        "noise": [("types::random", "compile")],
    }
    assert changes.unchanged == 8


@pytest.mark.parametrize(("judges", "apart"), [((None, 2), True), ((2, 3), True), ((None, 1), False), ((2, 2), False)])
def test_changes_between_two_versions_of_the_judge_can_be_the_judges(judges, apart):
    known = read_results(NEW).environment
    verdicts = (Verdict.PASS, Verdict.WRONG), (Verdict.UNSTABLE, Verdict.PASS), (Verdict.PASS, Verdict.ERROR)
    sides = [
        Results(
            Path("results/image/cpu"),
            tuple(
                msgspec.structs.replace(record(pair[side]), case=f"s::{number}") for number, pair in enumerate(verdicts)
            ),
            msgspec.structs.replace(known, judge=judge),
        )
        for side, judge in enumerate(judges)
    ]
    changes = diff(*sides)
    assert len(changes.judged_differently) == (2 if apart else 0)
    assert len(changes.newly_wrong) == (0 if apart else 1)
    assert len(changes.newly_failing) == 1  # an exception is torch's
    assert any("judged by versions" in warning for warning in changes.warnings) == apart


@pytest.mark.parametrize(
    ("where", "kind", "apart"),
    [
        ("result", "alias", False),
        ("result[0]['x']", "value", False),
        ("args[0]['x']", "alias", True),
        ("results_so_far", "value", True),
        ("result", "metadata", True),
        ("gradients.args[0]", "gradient", True),
    ],
)
@pytest.mark.parametrize("fixed", [False, True])
def test_a_result_that_differs_as_every_version_compares_it_is_not_the_judges(where, kind, apart, fixed):
    wrong = msgspec.structs.replace(record(Verdict.WRONG), differences=(Difference("example", where, kind),))
    sides = (wrong, record(Verdict.PASS)) if fixed else (record(Verdict.PASS), wrong)
    assert can_be_the_judges(*sides, "fixed" if fixed else "newly_wrong") == apart


def test_every_pair_of_verdicts_has_one_category_and_none_only_when_both_agree():
    for old in Verdict:
        for new in Verdict:
            name = category(record(old), record(new))
            assert (name is None) == (old is new), (old, new)
            assert name is None or name in CATEGORIES
            if old is new or Verdict.UNSTABLE in (old, new):
                continue
            if old in RIGHT and new in SILENTLY_WRONG:
                assert name == "newly_wrong"
            elif old in RIGHT and new in FAILING:
                assert name == "newly_failing"
            elif old not in NOT_RUN and new in NOT_RUN:
                assert name == "no_longer_run"
            elif old in SILENTLY_WRONG | FAILING and new in RIGHT:
                assert name == "fixed"


def test_results_compared_with_themselves_are_unchanged():
    results = read_results(OLD)
    same = diff(results, results)
    assert same.unchanged == len(results.records)
    assert not any(members for _, members in same.categories())
    assert not any((same.environment, same.claims, same.renamed, same.warnings))


def test_a_failure_that_became_silent_is_newly_wrong_and_a_regression():
    changes = compared([record(Verdict.ERROR)], [record(Verdict.SPECIALIZED)])
    assert cells(changes, "newly_wrong")
    assert matching_changes(changes, "regression") == 1


def test_a_silent_wrong_that_became_loud_is_failing_differently_and_no_regression():
    changes = compared([record(Verdict.WRONG)], [record(Verdict.ERROR)])
    assert cells(changes, "failing_differently")
    assert matching_changes(changes, "regression") == 0
    assert matching_changes(changes, "failing") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"error": ErrorInfo("E", "a", "1")}, {"error": ErrorInfo("E", "a", "2")}),
        ({"error": ErrorInfo("E", "a", "1")}, {"error": ErrorInfo("F", "a", "1")}),
        ({"phase": "capture"}, {"phase": "call"}),
    ],
)
def test_another_fingerprint_type_or_phase_is_failing_differently(old, new):
    assert category(record(Verdict.ERROR, **old), record(Verdict.ERROR, **new)) == "failing_differently"


def test_another_place_of_a_difference_counts_and_other_figures_do_not():
    def wrong(where, detail):
        return record(Verdict.WRONG, differences=(Difference("example", where, "value", detail),))

    assert category(wrong("result", "by 3.2"), wrong("result", "by 3.3")) is None
    assert category(wrong("result", "by 3.2"), wrong("args[0]", "by 3.2")) == "failing_differently"


def noting(*kinds, verdict=Verdict.PASS, notes=(), schema=2, detail=""):
    noted = tuple(Difference("example", "result", kind, detail) for kind in kinds)
    return record(verdict, noted=noted, notes=notes, schema=schema, **evidence(verdict))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (noting("alias"), noting("alias", "metadata"), "alias → alias, metadata  on example, result: metadata"),
        (noting("alias"), noting(), "alias → none  no longer: on example, result: alias"),
        (noting(), noting(notes=("warned: W",)), "none → 1 remark  warned: W"),
        (noting("alias", verdict=Verdict.WRONG), noting(verdict=Verdict.WRONG), "alias → none  no longer: on example"),
    ],
)
def test_notes_that_come_or_go_are_a_category_of_their_own_and_no_regression(old, new, message):
    changes = compared([old], [new])
    assert [members for _, members in changes.categories() if members] == [changes.noted_differently]
    assert [matching_changes(changes, name) for name in ("regression", "wrong", "failing", "any", "notes")] == [
        0,
        0,
        0,
        0,
        1,
    ]
    assert message in in_text(changes)


def test_notes_of_records_that_other_rules_judged_are_not_compared():
    changes = compared([noting(schema=1)], [noting("alias")])
    assert changes.unchanged == 1
    (warning,) = (text for text in changes.warnings if "version" in text)
    assert warning.startswith("OLD has records of version 1, NEW of version 2: ")
    assert not [text for text in compared([noting()], [noting()]).warnings if "version" in text]


def test_figures_of_a_note_are_no_change():
    assert category(noting("value", detail="1 ulp"), noting("value", detail="2 ulp")) is None


def test_another_kind_of_difference_fails_differently_and_both_kinds_are_named():
    old, new = (
        record(Verdict.WRONG, differences=tuple(Difference("example", "result", kind, "") for kind in kinds))
        for kinds in (["value"], ["value", "dtype"])
    )
    changes = compared([old], [new])
    assert cells(changes, "failing_differently")
    assert "wrong (value) → wrong (value, dtype)" in in_text(changes)


def test_only_chosen_kinds_and_categories_are_shown_and_gate(tmp_path, capsys):
    sides = [tmp_path / name / "cpu" for name in ("one", "two")]
    for directory, wrong in zip(sides, (False, True), strict=True):
        rows = [
            record(Verdict.WRONG if wrong else Verdict.PASS, case=f"s::{kind}", **wrongly(kind) if wrong else {})
            for kind in ("value", "dtype")
        ]
        directory.mkdir(parents=True)
        write_jsonl(directory / "conformance.jsonl", [*rows, noting("alias") if wrong else noting()])
    assert recapture("diff", *sides, "--kind", "dtype", "--fail-on", "wrong") == 1
    out = capsys.readouterr().out
    assert "s::dtype" in out
    assert "s::value" not in out
    assert "Note: 2 other changed cells left out by --category or --kind\n" in out
    assert recapture("diff", *sides, "--kind", "shape", "--fail-on", "wrong") == 0
    assert recapture("diff", *sides, "--category", "noted_differently", "--fail-on", "any", "--fail-on", "wrong") == 0
    out = capsys.readouterr().out
    assert "Noted differently: 1" in out
    assert "s::dtype" not in out
    assert recapture("diff", *sides, "--category", "noted_differently", "--fail-on", "notes") == 1
    assert recapture("diff", *sides, "--kind", "vibes") == 2
    assert recapture("diff", *sides, "--category", "vibes") == 2
    errors = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in errors] == ["recapture", "recapture"]


def wrongly(kind):
    return {"input": "example", "differences": (Difference("example", "result", kind, ""),)}


def in_text(changes):
    printed = io.StringIO()
    print_diff(Console(file=printed, width=200), changes)
    return printed.getvalue()


def test_the_input_of_a_crash_counts_and_that_of_a_timeout_does_not():
    for verdict, name in ((Verdict.CRASH, "failing_differently"), (Verdict.TIMEOUT, None)):
        old, new = (record(verdict, phase="call", input=label) for label in ("example", "held_out[0]"))
        assert category(old, new) == name


def test_another_limit_is_no_change_and_another_signal_is():
    assert category(record(Verdict.OOM, reason="4 GiB"), record(Verdict.OOM, reason="8 GiB")) is None
    crashes = record(Verdict.CRASH, reason="died of SIGSEGV"), record(Verdict.CRASH, reason="died of SIGFPE")
    assert category(*crashes) == "failing_differently"


def test_an_unknown_count_is_no_change():
    assert category(record(graphs=2), record(graphs=None)) is None
    assert category(record(graphs=2), record(graphs=3)) == "captured_differently"


def test_a_timeout_on_either_side_is_flagged_as_possibly_noise():
    changes = compared(
        [record(Verdict.PASS), record(Verdict.TIMEOUT, "s::d"), record(Verdict.PASS, "s::e")],
        [record(Verdict.TIMEOUT), record(Verdict.PASS, "s::d"), record(Verdict.CRASH, "s::e")],
    )
    flags = {change.case: change.maybe_noise for _, members in changes.categories() for change in members}
    assert flags == {"s::c": True, "s::d": True, "s::e": False}


# Regressions


def test_a_pass_that_disappears_is_a_regression_and_a_failure_that_does_is_not():
    assert matching_changes(compared([record(Verdict.PASS)], []), "regression") == 1
    assert matching_changes(compared([record(Verdict.PASS_WITH_BREAKS)], []), "regression") == 1
    assert matching_changes(compared([record(Verdict.ERROR)], []), "regression") == 0
    assert matching_changes(compared([record(Verdict.NOT_APPLICABLE)], []), "regression") == 0


@pytest.mark.parametrize("verdict", [Verdict.NOT_APPLICABLE, Verdict.ENVIRONMENT])
def test_a_pass_that_no_longer_runs_is_a_regression(verdict):
    assert matching_changes(compared([record(Verdict.PASS)], [record(verdict)]), "regression") == 1
    assert matching_changes(compared([record(Verdict.ERROR)], [record(verdict)]), "regression") == 0


def test_an_edited_case_is_no_regression_but_wrong_if_it_is_wrong_now():
    changes = compared([record(case_hash="1")], [record(Verdict.WRONG, case_hash="2")])
    assert cells(changes, "case_edited")
    assert [matching_changes(changes, name) for name in ("regression", "wrong", "failing", "any")] == [0, 1, 0, 1]


def test_the_whole_of_the_fixtures_counts_seven_regressions(changes):
    assert [matching_changes(changes, name) for name in ("regression", "wrong", "failing", "any")] == [7, 3, 3, 17]


# Matching


def run_of(*records, suites, selection=("typed",), planned=None):
    """Results of a run with a selection; `suites` has the number of cases of each suite."""
    environment = msgspec.structs.replace(
        read_results(NEW).environment,
        selection=list(selection),
        suites=[SuiteEntry(name, number) for name, number in suites.items()],
        planned=len(records) if planned is None else planned,
        recorded=len(records),
    )
    return Results(Path("results/image/cpu"), records, environment)


WHOLE = run_of(
    record(case="a::one"),
    record(case="a::one", compiler="fx"),
    record(case="a::two"),
    record(case="b::three"),
    suites={"a": 2, "b": 1},
    selection=(),
)


def test_what_a_selection_did_not_ask_for_is_neither_removed_nor_added():
    smaller = run_of(record(case="a::one"), suites={"a": 2})
    fewer, more = diff(WHOLE, smaller), diff(smaller, WHOLE)
    assert (fewer.removed, more.added) == ((), ())
    assert (fewer.unchanged, fewer.new.not_asked, fewer.old.not_asked) == (1, 3, 0)
    assert (more.unchanged, more.old.not_asked, more.new.not_asked) == (1, 3, 0)
    assert matching_changes(fewer, "any") == 0
    assert "no regression, 1 unchanged, 3 not asked for in NEW" in to_markdown(fewer)


def test_what_is_gone_from_a_suite_that_ran_whole_is_removed_though_other_suites_were_not_asked_for():
    changes = diff(WHOLE, run_of(record(case="a::one"), suites={"a": 1}))
    assert cells(changes, "removed") == [("a::two", "compile")]
    assert changes.new.not_asked == 2  # fx of a::one, and b::three
    assert matching_changes(changes, "regression") == 1


def test_an_incomplete_run_of_a_selection_excuses_nothing():
    changes = diff(WHOLE, run_of(record(case="a::one"), suites={"a": 2}, planned=3))
    assert len(changes.removed) == 3
    assert changes.new.not_asked == 0


def test_a_cpu_can_be_compared_with_a_gpu():
    changes = diff(read_results(NEW), read_results(GPU))
    assert ("control_flow::branch_on_sum", "eager") not in cells(changes, "removed")
    assert cells(changes, "newly_failing") == [("foreign::dct", "compile")]
    assert any("OLD ran on cpu, NEW on cuda" in warning for warning in changes.warnings)


def test_two_devices_in_one_directory_are_kept_apart():
    records = [record(device="cpu"), record(Verdict.ERROR, device="cuda")]
    changes = compared(records, records)
    assert changes.unchanged == 2


def test_a_renamed_case_is_compared_with_itself(changes):
    assert [(rename.old, rename.new) for rename in changes.renamed] == [("basic::sine", "basics::sine")]
    assert not any("sine" in case for name in ("added", "removed") for case, _ in cells(changes, name))


def test_two_cases_of_one_source_are_not_taken_for_renamed():
    changes = compared([record(case="s::a"), record(case="s::b")], [record(case="t::a"), record(case="t::b")])
    assert changes.renamed == ()
    assert len(changes.removed) == len(changes.added) == 2


# Environment and claims


def test_the_packages_that_differ_come_first_what_decides_most_on_top(changes):
    major = [(fact.name, fact.old, fact.new) for fact in changes.environment if not fact.minor]
    assert major[:4] == [
        ("image", "torch2.6.0-cu124", "bare-torch2.11.0-cu130"),
        ("torch", "2.6.0+cu124", "2.11.0+cu130"),
        ("numpy", "2.1.2", "2.3.5"),
        ("scipy", "1.15.3", "1.17.1"),
    ]
    minor = [(fact.name, fact.old, fact.new) for fact in changes.environment if fact.minor]
    assert minor == [("attrs", None, "25.1.0"), ("idna", "3.7", "3.10")]


def test_the_gpu_and_its_driver_are_part_of_what_differs():
    facts = {fact.name: fact.new for fact in diff(read_results(NEW), read_results(GPU)).environment}
    assert (facts["GPU"], facts["GPU capability"], facts["driver"]) == ("NVIDIA H200", "9.0", "580.1")


def test_claims_whose_status_changed_are_listed_with_both_statuses(changes):
    assert [(claim.id, claim.compiler, claim.old, claim.new) for claim in changes.claims] == [
        ("S5", "compile", "reproduced", "not reproduced"),
        ("T16", "compile", "not reproduced", "reproduced"),
        ("T18", "compile", "reproduced", "not reproduced"),
    ]


def test_a_claim_made_on_one_side_only_has_no_status_to_change():
    claimed = record(claims=(ClaimResult("T1", "pass", True),))
    assert compared([record()], [claimed]).claims == ()


def test_reasons_for_care_are_given(changes):
    assert "suite broken could not be collected in NEW: SyntaxError: '(' was never closed | line 3" in changes.warnings
    assert any("NEW's machine is at fault: python-headers" in warning for warning in changes.warnings)
    new = read_results(NEW)
    cut_off = msgspec.structs.replace(new.environment, planned=99)
    incomplete = diff(new, Results(new.directory, new.records, cut_off))
    assert "NEW is incomplete: 99 planned, but only 23 recorded" in incomplete.warnings
    assert any("OLD has no environment.json" in warning for warning in diff(results(), new).warnings)
