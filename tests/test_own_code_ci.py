"""What a check writes for continuous integration, read by a parser of its own and by rules that its consumers publish."""

import xml.etree.ElementTree as ET

import pytest

from recapture.tools.check import check_command as command
from recapture.tools.check.answers import CheckReport, CheckRow, failed
from recapture.tools.check.report import check_annotations, check_junit, check_markdown

ROWS = (
    CheckRow(compiler="fx", verdict="pass", seconds=0.5),
    CheckRow(
        compiler="jit.trace",
        verdict="specialized",
        input="batch=1",
        reason="100% wrong,\nsaid\x1b[31m: <b>",
        advice="do not",
        differences=("batch=1: result (value): 1 of 2",),
        wrong_on=("batch=1", "zeros"),
        seconds=1.0,
    ),
    CheckRow(compiler="export", verdict="error", phase="capture", reason="no"),
    CheckRow(compiler="onnx", verdict="not_applicable", reason="needs onnx"),
)
REPORT = CheckReport(target="m.py:Net", torch="2.11.0", device="cpu", inputs=("batch=1", "zeros"), rows=ROWS)


def test_junit_counts_each_compiler_once():
    (suite,) = ET.fromstring(check_junit(REPORT))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
        "time": "1.500",
    }
    outcomes = {testcase.get("name"): [child.tag for child in testcase] for testcase in suite.iter("testcase")}
    assert outcomes == {"fx": [], "jit.trace": ["failure"], "export": ["error"], "onnx": ["skipped"]}
    failure = suite.find("testcase/failure")
    assert failure.get("type") == "specialized"
    assert "wrong on batch=1 and 1 more input" in failure.get("message")
    assert "\x1b" not in failure.get("message")


def test_annotations_are_one_command_a_line_with_their_characters_escaped():
    error, warning = check_annotations(REPORT)
    assert error.startswith("::error title=m.py%3ANet%3A jit.trace::specialized")
    assert "100%25 wrong" in error
    assert warning.startswith("::warning title=m.py%3ANet%3A export::error")
    assert not any(set("\n\r\x1b") & set(line) for line in (error, warning))


def test_the_summary_of_a_job_is_appended(tmp_path, monkeypatch, capsys):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    command._tell_github(check_annotations(REPORT), check_markdown(REPORT))
    text = summary.read_text()
    assert text.startswith("before\n## ")
    assert "<b>" not in text
    assert text.endswith(check_markdown(REPORT))
    assert capsys.readouterr().err.count("\n") == 2


def test_what_fails_is_what_was_named():
    assert [row.compiler for row in failed(REPORT, ["silently_wrong"])] == ["jit.trace"]
    assert [row.compiler for row in failed(REPORT, ["failing"])] == ["export"]
    assert [row.compiler for row in failed(REPORT, ["any"])] == ["jit.trace", "export"]
    assert failed(REPORT, ["breaks"]) == []


def test_the_sentence_puts_what_is_wrong_first():
    assert REPORT.sentence == (
        "m.py:Net on torch 2.11.0: silently wrong under jit.trace; right under fx; not usable under export"
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (CheckRow(compiler="fx", verdict="pass_with_breaks"), "right, with graph breaks"),
        (CheckRow(compiler="fx", verdict="error", phase="capture"), "error: refuses it"),
        (
            CheckRow(compiler="fx", verdict="error", phase="call", input="zeros"),
            "right on the example, fails loudly on zeros",
        ),
        (CheckRow(compiler="fx", verdict="wrong", input="example", wrong_on=("example",)), "wrong: wrong on example"),
        (CheckRow(compiler="fx", verdict="timeout"), "timeout"),
    ],
)
def test_a_verdict_is_said_in_words(row, words):
    assert row.words == words
