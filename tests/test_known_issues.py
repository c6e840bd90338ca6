"""The known public issues: their file, the cells that try them, and the table of documented against measured."""

import json
from pathlib import Path

import msgspec
import pytest
from planted_records import evidence

from recapture.base.errors import UsageError
from recapture.cases.collection import collect_suite
from recapture.cases.compilers import builtin_compilers
from recapture.command.main import main
from recapture.known.issues import ISSUES, KnownIssue
from recapture.records.difference import Difference
from recapture.records.record import ErrorInfo, Record
from recapture.records.verdicts import Verdict
from recapture.tools.compare.issues import compare_issues, to_markdown

ROOT = Path(__file__).parents[1]

ONE = KnownIssue(
    id="123",
    what="a value",
    compares="value",
    seen=("2.6.0",),
    first_bad="2.6.0",
    fixed_in="2.9.0",
    sure="documented",
    shown_by=("s::c::compile",),
)


def run_command(capfd, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capfd.readouterr()
    return ended.value.code, captured.out, captured.err


def put(root, image, verdict, **fields):
    directory = root / image / "cpu"
    directory.mkdir(parents=True)
    row = Record(case="s::c", compiler="compile", device="cpu", verdict=verdict, case_hash="0", **fields)
    (directory / "conformance.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")


def test_at_least_45_issues_are_tried_and_advisories_are_among_them():
    tried = [issue for issue in ISSUES.shipped.values() if issue.shown_by]
    assert len(tried) >= 45
    assert len({case for issue in tried for case in issue.cases}) >= 45
    assert sum(issue.advisory is not None for issue in tried) >= 5


def test_every_cell_of_an_issue_is_planned_and_every_known_case_belongs_to_an_issue():
    pytest.importorskip("torch")
    planned, known = set(), set()
    for path in sorted((ROOT / "suites").glob("known_*.py")):
        info = collect_suite(path.stem, path)
        assert info.error is None
        assert not info.refused
        for case in info.cases:
            known.add(f"{path.stem}::{case.name}")
            planned |= {f"{path.stem}::{case.name}::{name}" for name in ("eager", *(case.compilers or ()))}
            assert set(case.compilers or ()) <= set(builtin_compilers())
    issues = ISSUES.shipped.values()
    assert {cell for issue in issues for cell in issue.shown_by} <= planned
    assert {case for issue in issues for case in issue.cases} == known


def test_every_case_names_its_issue_in_its_description():
    for path in sorted((ROOT / "suites").glob("known_*.py")):
        summaries = {f"{path.stem}::{case.name}": case.summary for case in collect_suite(path.stem, path).cases}
        for issue in ISSUES.shipped.values():
            for case in set(issue.cases) & set(summaries):
                assert f"#{issue.id}" in summaries[case], (case, issue.id)


@pytest.mark.parametrize(
    ("release", "says"),
    [("2.5.1", "right"), ("2.6.0+cu124", "wrong"), ("2.8.0", "wrong"), ("2.9.0", "right"), ("2.11.0", "right")],
)
def test_a_documented_range_speaks_about_every_release(release, says):
    assert ONE.says(release) == says


def test_without_a_first_bad_release_nothing_is_said_about_older_ones():
    issue = msgspec.structs.replace(ONE, first_bad=None)
    assert [issue.says(release) for release in ("2.3.1", "2.6.0", "2.9.1")] == [None, "wrong", "right"]


def test_an_open_thread_speaks_about_all_later_releases_and_a_closed_one_does_not():
    still = msgspec.structs.replace(ONE, first_bad=None, fixed_in=None, sure="open")
    closed = msgspec.structs.replace(still, sure="unknown")
    assert [still.says(release) for release in ("2.6.0", "2.11.0")] == ["wrong", "wrong"]
    assert [closed.says(release) for release in ("2.6.0", "2.11.0")] == ["wrong", None]


ALL_RELEASES = ["2.3.1", "2.5.1", "2.6.0", "2.8.0", "2.9.1", "2.10.0"]


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({}, ("2.6.0", "2.9.1")),
        ({"first_bad": None, "seen": ("2.8.0.dev20250327",), "fixed_in": "2.8.0"}, ("2.6.0", "2.8.0")),
        ({"first_bad": None, "fixed_in": None, "sure": "open"}, ("2.6.0", "2.10.0")),
        ({"first_bad": None, "fixed_in": None, "sure": "unknown", "seen": ("2.6.0", "2.8.0")}, ("2.6.0", "2.8.0")),
        ({"first_bad": None, "fixed_in": None, "sure": "open", "seen": ("2.10.0",)}, None),
        ({"first_bad": None, "seen": ("2.0.0.dev20230213",), "fixed_in": "2.0.0"}, None),
        ({"fixed_in": "2.16.0"}, None),
    ],
)
def test_the_ends_of_a_documented_range_are_pinned_releases(changes, ends):
    assert msgspec.structs.replace(ONE, **changes).ends(ALL_RELEASES) == ends


def test_an_issue_counts_as_tried_at_both_ends_only_where_its_cells_ran_on_both(tmp_path):
    put(tmp_path, "torch2.6.0-cu124", Verdict.WRONG, **evidence(Verdict.WRONG))
    assert "0 were tried on the releases at both ends" in to_markdown(compare_issues([ONE], tmp_path))
    put(tmp_path, "torch2.9.0-cu128", Verdict.PASS)
    assert "1 was tried on the releases at both ends" in to_markdown(compare_issues([ONE], tmp_path))


def test_a_recorded_release_that_is_no_version_is_no_end(tmp_path):
    put(tmp_path, "torchnone-cu124", Verdict.WRONG, **evidence(Verdict.WRONG))
    put(tmp_path, "torch2.6.0-cu124", Verdict.WRONG, **evidence(Verdict.WRONG))
    assert "0 were tried on the releases at both ends" in to_markdown(compare_issues([ONE], tmp_path))


def test_a_cell_that_was_not_run_at_one_end_is_no_try(tmp_path):
    put(tmp_path, "torch2.6.0-cu124", Verdict.WRONG, **evidence(Verdict.WRONG))
    put(tmp_path, "torch2.9.1-cu128", Verdict.NOT_APPLICABLE, reason="x")
    assert "0 were tried on the releases at both ends" in to_markdown(compare_issues([ONE], tmp_path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('what = "w"\ncompares = "colour"\nseen = ["2.6"]\nsure = "open"\nnot_shown = "x"', "unknown kind"),
        ('what = "w"\ncompares = "value"\nseen = ["soon"]\nsure = "open"\nnot_shown = "x"', "is not a release"),
        ('what = "w"\ncompares = "value"\nseen = []\nsure = "open"\nnot_shown = "x"', "seen names no release"),
        ('what = "w"\ncompares = "value"\nseen = ["2.6"]\nsure = "open"', "neither shown_by nor not_shown"),
        ('what = "w"\ncompares = "value"\nseen = ["2.6"]\nsure = "open"\nshown_by = ["c"]', "is not a cell"),
        ('what = "w"\ncompares = "value"\nseen = ["2.6"]\nsure = "inferred"\nnot_shown = "x"', "does not go with"),
        ('what = "w"\ncompares = "value"\nseen = ["2.6"]\nsure = "maybe"\nnot_shown = "x"', "sure"),
        ('wat = "w"', "wat"),
    ],
)
def test_a_faulty_issue_is_refused_by_name(tmp_path, text, reason):
    path = tmp_path / "known_issues.toml"
    path.write_text(f"[issues.7]\n{text}\n")
    with pytest.raises(UsageError, match=reason):
        ISSUES.load(path)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="cannot read the known issues"):
        ISSUES.load(tmp_path / "absent.toml")


def outcomes(root, issue=ONE):
    (table,) = compare_issues([issue], root)
    (row,) = table.rows
    return row.outcome, [(entry.documented, entry.measured, entry.agrees) for entry in row.entries]


def test_releases_that_do_what_the_sources_say_agree(tmp_path):
    put(tmp_path, "torch2.3.1-cu121", Verdict.PASS)
    put(tmp_path, "torch2.6.0-cu124", Verdict.WRONG, **evidence(Verdict.WRONG))
    put(tmp_path, "torch2.9.1-cu128", Verdict.PASS_WITH_BREAKS)
    assert outcomes(tmp_path) == (
        "agrees",
        [("right", "right", True), ("wrong", "wrong", True), ("right", "right", True)],
    )


def test_a_release_that_is_wrong_later_than_documented_disagrees_and_is_listed(tmp_path):
    put(tmp_path, "torch2.9.1-cu128", Verdict.WRONG, **evidence(Verdict.WRONG))
    outcome, entries = outcomes(tmp_path)
    assert outcome == "disagrees"
    assert entries == [("right", "wrong", False)]
    text = to_markdown(compare_issues([msgspec.structs.replace(ONE, explanation="It came back.")], tmp_path))
    assert "disagrees on 2.9.1 (documented right, measured wrong). It came back." in text
    assert "No explanation is known." in to_markdown(compare_issues([ONE], tmp_path))


def test_another_kind_of_difference_is_not_the_issue(tmp_path):
    other_kind = {"input": "example", "differences": (Difference("example", "result", "dtype", ""),)}
    put(tmp_path, "torch2.6.0-cu124", Verdict.WRONG, **other_kind)
    assert outcomes(tmp_path) == ("no statement", [("wrong", "wrong otherwise", None)])


def test_a_failure_is_no_agreement_except_where_the_call_should_raise(tmp_path):
    error = {"phase": "call", "error": ErrorInfo("RuntimeError", "m", "0123456789")}
    put(tmp_path, "torch2.9.1-cu128", Verdict.ERROR, **error)
    assert outcomes(tmp_path)[1] == [("right", "fails", None)]
    lost_check = msgspec.structs.replace(ONE, compares="exception")
    assert outcomes(tmp_path, lost_check)[1] == [("right", "right", True)]


def test_what_cannot_be_measured_says_why(tmp_path):
    put(tmp_path, "torch2.9.1-cu128", Verdict.NOT_APPLICABLE, reason="x")
    assert outcomes(tmp_path)[0] == "not run"
    assert outcomes(tmp_path, msgspec.structs.replace(ONE, gpu=True))[0] == "GPU only"
    assert outcomes(tmp_path, msgspec.structs.replace(ONE, shown_by=(), not_shown="x"))[0] == "no program"
    assert outcomes(tmp_path, msgspec.structs.replace(ONE, shown_by=("s::d::compile",)))[0] == "not recorded"


def test_the_committed_page_is_what_the_command_prints():
    comparison = compare_issues(list(ISSUES.shipped.values()), ROOT / "results")
    assert (ROOT / "results" / "known-issues.md").read_text(encoding="utf-8") == to_markdown(comparison)


def test_the_command_shows_one_issue_in_three_forms(tmp_path, capfd):
    directory = tmp_path / "torch2.11.0-cu130" / "cpu"
    directory.mkdir(parents=True)
    row = Record(
        case="known_autograd::gradient_of_diagonal_scatter",
        compiler="compile",
        device="cpu",
        verdict=Verdict.WRONG,
        case_hash="0",
        input="example",
        differences=(Difference("example", "gradients.args[0]", "gradient", ""),),
    )
    (directory / "conformance.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    arguments = ("history", "--issue", "183602", "--results", str(tmp_path))
    status, text, _ = run_command(capfd, *arguments)
    assert status in (0, None)
    assert "1 known issue: 1 agrees. " in text
    _, page, _ = run_command(capfd, *arguments, "--format", "markdown")
    assert "[\\#183602](https://github.com/pytorch/pytorch/issues/183602)" in page
    _, document, _ = run_command(capfd, *arguments, "--format", "json")
    assert json.loads(document)["tables"][0]["rows"][0]["outcome"] == "agrees"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("history", "x::y", "--issues"), "cannot be combined"),
        (("history", "--issue", "1"), "no known issue '1'"),
        (("list", "--issues", "--claims"), "cannot be combined"),
        (("list", "--issues", "18360"), "did you mean"),
    ],
)
def test_a_bad_question_is_one_line(capfd, arguments, reason):
    status, _, error = run_command(capfd, *arguments)
    assert status == 2
    assert reason in error
    assert error.count("\n") == 1


def test_the_list_says_what_tries_an_issue(capfd):
    _, text, _ = run_command(capfd, "list", "--issues", "143566")
    assert text.splitlines() == [
        "143566: left shift by the word width (value; from 2.6.0, right from 2.7.0; documented)",
        "    advisory: PYSEC-2025-201 (CVE-2025-46152)",
        "    shown by: known_inductor::left_shift_by_the_width::compile",
        "    remark: The advisory names 2.6.0 alone. Release 2.3.1 is wrong too, and 2.0.1 is right.",
    ]
