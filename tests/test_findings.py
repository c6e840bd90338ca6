"""The findings: every silently wrong cell outside tracing has a sentence, and readers find it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from planted_records import evidence

from recapture.base.errors import UsageError
from recapture.cases.collection import collect_suite, find_suites
from recapture.cases.compilers import builtin_compilers
from recapture.command.main import main
from recapture.known.findings import FAULTS, FINDINGS, findings_by_cell
from recapture.known.table import UNDOCUMENTED
from recapture.records.difference import Difference
from recapture.records.record import Record, read_conformance
from recapture.records.verdicts import SILENTLY_WRONG, Verdict
from recapture.report.findings import finding_of, issues_of, known_lines
from recapture.tools.explain.explain_cells import explanation_of
from recapture.tools.explain.explain_command import explanation_lines

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
RECORDED = [
    RESULTS / "torch2.11.0-cu130" / "cpu",
    RESULTS / "exportdb" / "torch2.11.0-cu130" / "cpu",
    RESULTS / "torch2.11.0-cu130" / "sm_90",
    RESULTS / "exportdb" / "bare-torch2.11.0-cu130" / "sm_90",
    *sorted((RESULTS / "zoo").glob("*/bare-torch2.11.0-cu130/*")),
    *sorted((RESULTS / "variants").glob("*torch2.11.0-cu130/*")),
]
TRACING = ("jit.trace", "fx", "make_fx")
"""Compilers, with what follows a colon, that keep the path of the example by design."""

ENTRY = """
[[findings]]
name = "signed-zero"
what = "Guards compare 0.0 and -0.0 as equal."
fault = "torch"
source = "not documented"

[findings.cells]
"types::signed_zero" = ["compile", "compile:eager"]
"""


@functools.cache
def recorded():
    return [record for folder in RECORDED for record in read_conformance(folder)]


def wrong():
    return [
        record
        for record in recorded()
        if record.verdict in SILENTLY_WRONG and record.compiler.partition(":")[0] not in TRACING
    ]


def a_record(case, compiler, verdict=Verdict.WRONG, **fields):
    return Record(
        case=case, compiler=compiler, device="cpu", verdict=verdict, case_hash="0", **(evidence(verdict) | fields)
    )


def test_every_silently_wrong_cell_has_a_finding_or_shows_a_known_issue():
    unexplained = [record.cell for record in wrong() if finding_of(record) is None and not issues_of(record)]
    assert unexplained == []


def test_every_cell_of_a_finding_that_is_recorded_is_silently_wrong():
    known = {f"{record.case}::{record.compiler}" for record in recorded() if record.device == "cpu"}
    silently_wrong = {f"{record.case}::{record.compiler}" for record in wrong()}
    assert sorted(cell for cell in findings_by_cell() if cell in known and cell not in silently_wrong) == []


def test_every_finding_is_about_cases_and_compilers_that_exist():
    pytest.importorskip("torch")
    suites = {case.partition("::")[0] for finding in FINDINGS.shipped for case in finding.cells}
    collected = [
        collect_suite(suite.name, suite.path) for name in sorted(suites) for suite in find_suites((name,)).suites
    ]
    cases = {f"{suite.name}::{case.name}" for suite in collected for case in suite.cases}
    lacking = {suite.name for suite in collected if suite.lacking}  # made from a library that is not installed here
    cases |= {record.case for record in recorded() if record.case.partition("::")[0] in lacking}
    assert {case for finding in FINDINGS.shipped for case in finding.cells} <= cases
    named = {name for finding in FINDINGS.shipped for names in finding.cells.values() for name in names}
    named |= {name for finding in FINDINGS.shipped for name in finding.inputs_unlike_the_example}
    assert named <= builtin_compilers().keys()
    assert not any(name.partition(":")[0] in TRACING for name in named)


def test_what_is_called_a_stated_limit_says_where_it_is_stated():
    assert {finding.fault for finding in FINDINGS.shipped} <= FAULTS.keys()
    limits = [finding for finding in FINDINGS.shipped if finding.fault == "limit"]
    assert limits
    assert [finding.name for finding in limits if finding.source == UNDOCUMENTED] == []


def test_an_input_unlike_the_example_is_found_without_naming_the_cell():
    sized = Difference("held_out[0]", "result", "shape", "eager (3, 7), this (10, 10)")
    record = a_record("s::c", "aoti", Verdict.SPECIALIZED, differences=(sized,))
    finding = finding_of(record)
    assert finding is not None
    assert "aoti" in finding.inputs_unlike_the_example
    assert finding_of(a_record("s::c", "compile", Verdict.SPECIALIZED, differences=(sized,))) is None
    assert finding_of(a_record("s::c", "aoti", Verdict.SPECIALIZED)) is None


def test_only_what_is_silently_wrong_is_explained():
    assert known_lines(a_record("types::signed_zero", "compile", Verdict.SPECIALIZED))
    assert known_lines(a_record("types::signed_zero", "compile", Verdict.PASS)) == []
    issue = known_lines(a_record("known_checks::clamp_beyond_the_dtype", "compile"))
    assert len(issue) == 1
    assert "issues/195675" in issue[0]


def test_explain_prints_the_whole_sentence_with_its_source():
    record = a_record("types::signed_zero", "compile", Verdict.SPECIALIZED)
    explanation = explanation_of(record, None, torch="2.11.0", image="torch2.11.0-cu130", beside=[record])
    (line,) = [line for line in explanation_lines(explanation) if line.startswith("known: ")]
    assert line.endswith("(fault: torch; https://github.com/pytorch/pytorch/pull/192604)")


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_history_prints_the_finding_of_a_cell_once_for_each_machine(capfd, form):
    with pytest.raises(SystemExit):
        main(["history", "types::signed_zero::export", "--results", str(ROOT / "results"), "--format", form])
    printed = capfd.readouterr().out
    assert printed.count("compares Python arguments with") == 2  # the CPU and one GPU


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("signed-zero", "Signed zero", "is not a name of a finding"),
        ('"torch"', '"nobody"', "Invalid enum value 'nobody'"),
        ("types::signed_zero", "signed_zero", "is not a case"),
        ('["compile", "compile:eager"]', "[]", "are none, or one is named twice"),
        ('"compile:eager"', '"compile"', "are none, or one is named twice"),
        ('"types::signed_zero" = ["compile", "compile:eager"]', "", "neither a cell nor a compiler is named"),
        ("not documented", "a friend", "neither an address nor"),
        ("what =", "why =", "unknown field"),
        ("[[findings]]", "[[findings", "Expected"),
    ],
)
def test_what_cannot_be_true_is_refused_in_one_line(tmp_path, old, new, message):
    path = tmp_path / "findings.toml"
    path.write_text(ENTRY.replace(old, new, 1))
    with pytest.raises(UsageError, match=message) as refused:
        FINDINGS.load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (ENTRY, "types::signed_zero::compile is in signed-zero and in signed-zero"),
        (ENTRY.replace("signed_zero", "other"), "two findings have one name"),
    ],
)
def test_a_cell_has_one_finding_and_a_name_one_meaning(tmp_path, second, message):
    path = tmp_path / "findings.toml"
    path.write_text(ENTRY + second)
    with pytest.raises(UsageError, match=message):
        FINDINGS.load(path)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the findings: .*No such file"):
        FINDINGS.load(tmp_path / "none.toml")
