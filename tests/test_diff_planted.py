"""A planted change appears under its heading of the diff and nowhere else; several results are compared in steps."""

from __future__ import annotations

import json
import shutil

import msgspec
import pytest
from conftest import REPOSITORY
from planted_records import evidence

from recapture.command.main import _run
from recapture.records.record import Record, read_jsonl, write_jsonl
from recapture.records.verdicts import RIGHT, Verdict

IMAGE = "torch2.6.0-cu124"


@pytest.fixture
def sides(tmp_path):
    for name in ("old", "new"):
        shutil.copytree(REPOSITORY / "results" / IMAGE / "cpu", tmp_path / name)
    return tmp_path


def rewrite(directory, change):
    path = directory / "conformance.jsonl"
    rows = change(read_jsonl(path, Record))
    write_jsonl(path, rows)
    environment = json.loads((directory / "environment.json").read_bytes())
    environment |= {"planned": len(rows), "recorded": len(rows)}
    (directory / "environment.json").write_text(json.dumps(environment))


def changed(sides, capsys):
    assert _run(["diff", str(sides / "old"), str(sides / "new"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    lists = {name: cells for name, cells in document.items() if isinstance(cells, list) and cells}
    return lists, document


def flip(verdict, which):
    def change(rows):
        place = next(number for number, row in enumerate(rows) if which(row))
        row = rows[place]
        bare = {name: getattr(row, name) for name in ("case", "compiler", "device", "case_hash", "graphs", "schema")}
        rows[place] = Record(**bare, verdict=verdict, **evidence(verdict))
        return rows

    return change


def right(row):
    return row.verdict is Verdict.PASS


def failing(row):
    return row.verdict is Verdict.ERROR


def edit(rows):
    case = rows[0].case
    return [msgspec.structs.replace(row, case_hash="edited") if row.case == case else row for row in rows]


PLANTED = {
    "case_edited": edit,
    "removed": lambda rows: [row for row in rows if row.case != rows[0].case],
    "newly_wrong": flip(Verdict.WRONG, right),
    "newly_failing": flip(Verdict.ERROR, right),
    "fixed": flip(Verdict.PASS, failing),
    "no_longer_run": flip(Verdict.ENVIRONMENT, right),
    "noise": flip(Verdict.UNSTABLE, right),
    "failing_differently": flip(Verdict.TIMEOUT, failing),
}


def test_equal_results_have_no_change(sides, capsys):
    lists, document = changed(sides, capsys)
    assert lists == {}
    assert document["unchanged"] > 1000


@pytest.mark.parametrize("heading", PLANTED)
def test_a_planted_change_is_under_its_heading_and_nowhere_else(sides, capsys, heading):
    before = {row.cell: row for row in read_jsonl(sides / "old" / "conformance.jsonl", Record)}
    rewrite(sides / "new", PLANTED[heading])
    after = {row.cell: row for row in read_jsonl(sides / "new" / "conformance.jsonl", Record)}
    touched = {cell for cell in before if after.get(cell) != before[cell]}
    lists, document = changed(sides, capsys)
    lists.pop("claims", None)  # the flipped cell may show one
    assert list(lists) == [heading]
    assert {f"{change['case']}::{change['compiler']}" for change in lists[heading]} == touched
    assert document["unchanged"] == len(before) - len(touched)
    assert _run(["diff", str(sides / "old"), str(sides / "new")]) == 0
    out = capsys.readouterr().out
    assert f"{heading.replace('_', ' ').capitalize()}: {len(touched)}" in out
    case = next(iter(touched)).rsplit("::", 1)[0]
    assert out.count(f"  {case}\n") + out.count(f"({case}::") == 1


def test_added_cells_are_those_that_the_old_side_lacks(sides, capsys):
    rewrite(sides / "old", lambda rows: [row for row in rows if row.case != rows[0].case])
    lists, _ = changed(sides, capsys)
    assert list(lists) == ["added"]


def test_a_package_that_changed_is_no_changed_cell(sides, capsys):
    path = sides / "new" / "environment.json"
    environment = json.loads(path.read_bytes())
    environment["packages"]["scipy"] = "99.1"
    path.write_text(json.dumps(environment))
    lists, _ = changed(sides, capsys)
    assert list(lists) == ["environment"]
    assert [(fact["name"], fact["new"]) for fact in lists["environment"]] == [("scipy", "99.1")]


def test_the_same_failure_in_other_words_is_gathered(sides, capsys):
    def reword(rows):
        return [
            msgspec.structs.replace(
                row,
                error=msgspec.structs.replace(
                    row.error, message=f"{row.error.message} planted", fingerprint=f"{row.error.fingerprint[:-1]}x"
                ),
            )
            if row.verdict is Verdict.ERROR and row.error
            else row
            for row in rows
        ]

    rewrite(sides / "new", reword)
    number = sum(row.verdict is Verdict.ERROR for row in read_jsonl(sides / "new" / "conformance.jsonl", Record))
    assert _run(["diff", str(sides / "old"), str(sides / "new")]) == 0
    out = capsys.readouterr().out
    assert f"  {number} cells with the same failure in other words:" in out
    assert "(nothing) → planted" in out
    assert len(out.splitlines()) < 120, "one line for a wording, not one for a cell"


def test_the_numbers_by_suite_and_compiler_come_before_the_cells(sides, capsys):
    rewrite(sides / "new", lambda rows: [flip_row(row) if row.compiler == "fx" else row for row in rows])
    assert _run(["diff", str(sides / "old"), str(sides / "new")]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith(("suite ", "compiler "))]
    first = next(number for number, line in enumerate(lines) if line.startswith("Newly wrong"))
    assert len(heads) == 2
    assert max(heads) < first
    rows = read_jsonl(sides / "old" / "conformance.jsonl", Record)
    number = sum(row.compiler == "fx" and row.verdict in RIGHT for row in rows)
    (row,) = [line for line in lines if line.startswith("fx ")]
    assert str(number) in row.split()


def flip_row(row):
    return flip(Verdict.WRONG, lambda _: True)([row])[0] if row.verdict in RIGHT else row


def test_several_results_are_compared_step_by_step(sides, capsys):
    shutil.copytree(sides / "old", sides / "middle")
    rewrite(sides / "middle", PLANTED["newly_wrong"])
    places = [str(sides / name) for name in ("old", "middle", "new")]
    assert _run(["diff", *places]) == 0
    out = capsys.readouterr().out
    assert out.count("Newly wrong: 1") == out.count("Fixed: 1") == 1
    assert out.splitlines()[0] == "From one to the next"
    assert out.splitlines()[1].split()[:1] == ["regressions"]
    assert _run(["diff", *places, "--fail-on", "regression"]) == 1
    capsys.readouterr()
    assert _run(["diff", *places, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [len(step["newly_wrong"]) for step in document["diffs"]] == [1, 0]
    assert [len(step["fixed"]) for step in document["diffs"]] == [0, 1]
    assert _run(["diff", *places, "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# From one to the next\n")
    assert _run(["diff", places[0]]) == 2
    assert "two results or more" in capsys.readouterr().err
