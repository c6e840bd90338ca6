"""``recapture results verify``: what a careless hand changed in results is found, and committed results are clean."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from recapture.cases.collection import SuiteFile
from recapture.cases.source import closure
from recapture.command.main import main
from recapture.records.directories import read_results
from recapture.records.record import read_jsonl, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.report.conformance_report import write_report
from recapture.tools.contribute import suite_sources
from recapture.tools.contribute import verify as verifying
from recapture.tools.contribute.suite_sources import hashes_at
from recapture.tools.contribute.verify import verify

RESULTS = Path(__file__).parent.parent / "results"
IMAGE = "torch2.6.0-cu124"
OTHERS = ("torch2.5.1-cu124", "torch2.7.1-cu126")


@pytest.fixture(scope="module")
def references():
    return [read_results(RESULTS / image / "cpu") for image in (IMAGE, *OTHERS)]


@pytest.fixture
def folder(tmp_path):
    """Return a copy of committed results, as somebody sends them."""
    copy = tmp_path / "theirs" / IMAGE / "cpu"
    shutil.copytree(RESULTS / IMAGE / "cpu", copy)
    return copy


def rules(folder, references):
    return {problem.rule for problem in verify(folder, references).problems}


def changed(folder, change, *, timings=True):
    """Change the records, and write every file again, as somebody does who does not know what is compared."""
    records = [
        msgspec.structs.replace(record, **change(record))
        for record in read_results(folder).records
        if change(record) is not None
    ]
    write_jsonl(folder / "conformance.jsonl", records)
    if timings:
        keys = {record.key for record in records}
        write_jsonl(folder / "timings.jsonl", [row for row in read_timings(folder) if row.key in keys])
    path = folder / "environment.json"
    environment = json.loads(path.read_text())
    path.write_text(json.dumps({**environment, "recorded": len(records), "planned": len(records)}))
    write_report(folder)


def read_timings(folder):
    from recapture.records.record import Timing

    return read_jsonl(folder / "timings.jsonl", Timing)


def test_committed_results_have_no_problem(folder, references):
    verified = verify(folder, references)
    assert verified.problems == ()
    assert (verified.image, verified.capability, verified.cells) == (IMAGE, "cpu", len(references[0].records))
    assert verified.lock_hash.startswith("sha256:")


def test_an_edited_line_is_found(folder, references):
    path = folder / "conformance.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert rules(folder, references) == {"edited"}


def test_a_verdict_that_was_edited_without_rendering_the_report_is_found(folder, references):
    report = (folder / "conformance.md").read_bytes()
    first = next(record for record in read_results(folder).records if record.verdict is Verdict.SPECIALIZED)
    fields = {"verdict": Verdict.PASS, "input": None, "differences": ()}
    changed(folder, lambda record: fields if record.key == first.key else {})
    (folder / "conformance.md").write_bytes(report)
    assert rules(folder, references) == {"edited"}


def test_packages_that_are_not_the_lock_s_are_found(folder, references):
    path = folder / "environment.json"
    content = json.loads(path.read_text())
    content["packages"]["numpy"] = "1.26.4"
    path.write_text(json.dumps(content))
    problem = next(reported for reported in verify(folder, references).problems if reported.rule == "lock")
    assert "numpy 1.26.4, locked" in problem.message


def test_results_of_another_image_under_this_name_are_found(tmp_path, references):
    copy = tmp_path / IMAGE / "cpu"
    shutil.copytree(RESULTS / OTHERS[0] / "cpu", copy)
    assert "filing" in rules(copy, references)


def test_missing_cells_are_found_and_a_compiler_that_was_not_asked_for_is_no_gap(folder, references):
    changed(folder, lambda record: None if record.case == "types::signed_zero" and record.compiler == "fx" else {})
    problem = next(reported for reported in verify(folder, references).problems if reported.rule == "missing")
    assert problem.message.endswith("types::signed_zero::fx")
    changed(folder, lambda record: None if record.compiler == "fx" else {})
    assert rules(folder, references) == set()


def test_a_case_from_another_source_is_found(folder, references):
    changed(folder, lambda record: {"case_hash": "0" * 12} if record.case == "types::signed_zero" else {})
    assert rules(folder, references) == {"case"}


def test_a_source_of_the_commit_that_the_results_name_is_no_problem(monkeypatch):
    results = RESULTS / "zoo"
    references = [read_results(path.parent) for path in sorted(results.rglob("conformance.jsonl"))]
    # The models of timm with large images have another source than in the two results that came later.
    older = results / "timm" / "bare-torch2.11.0-cu130" / "cpu"
    monkeypatch.setattr(verifying, "hashes_at", lambda _commit, _case: set())
    assert rules(older, references) == {"case"}
    monkeypatch.undo()
    case = "zoo_timm::gemma4_vit_167m"
    (recorded,) = {record.case_hash for record in read_results(older).records if record.case == case}
    commit = read_results(older).environment.suite_commit
    if not hashes_at(commit, case):
        pytest.skip("this checkout does not have the commit")
    assert recorded in hashes_at(commit, case)
    assert rules(older, references) == set()


def test_hashes_of_another_commit_are_those_that_collecting_gives(monkeypatch, tmp_path):
    suites = tmp_path / "suites"
    suites.mkdir()
    text = (RESULTS.parent / "suites" / "types.py").read_text()
    (suites / "types.py").write_text(text)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-qm1"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    commit = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    (suites / "types.py").write_text(text.replace("def signed_zero(", "def signed_zero_renamed("))
    monkeypatch.setattr(suite_sources, "data_folder", lambda _: suites)
    monkeypatch.setattr(suite_sources, "shipped_suites", lambda: [SuiteFile("types", suites / "types.py")])
    expected = closure(RESULTS.parent / "suites" / "types.py", "signed_zero").hash
    assert hashes_at(commit.stdout.strip() + "-dirty", "types::signed_zero") == {expected}
    assert hashes_at("0" * 40, "types::signed_zero") == set()
    assert hashes_at(None, "types::signed_zero") == set()


def test_a_compiler_that_the_release_does_not_have_is_found(tmp_path, references):
    copy = tmp_path / "torch2.0.1-cu117" / "cpu"
    shutil.copytree(RESULTS / "torch2.0.1-cu117" / "cpu", copy)
    fields = {"verdict": Verdict.PASS, "reason": None}
    changed(
        copy, lambda record: fields if record.compiler == "export" and record.verdict is Verdict.NOT_APPLICABLE else {}
    )
    problem = next(reported for reported in verify(copy, references).problems if reported.rule == "impossible")
    assert "this torch does not have" in problem.message


def test_too_many_cells_that_end_otherwise_than_everywhere_are_doubted(folder, references, monkeypatch):
    monkeypatch.setattr(verifying, "SETTLED_RELEASES", 2)
    fields = {"verdict": Verdict.PASS, "input": None, "differences": (), "error": None, "phase": None}
    changed(folder, lambda record: fields if record.compiler in ("export", "make_fx", "jit.trace") else {})
    problem = next(reported for reported in verify(folder, references).problems if reported.rule == "implausible")
    assert "that end alike on every recorded release end otherwise" in problem.message


def test_timings_that_do_not_belong_to_the_cells_are_found(folder, references):
    rows = read_timings(folder)
    write_jsonl(folder / "timings.jsonl", rows[1:])
    assert rules(folder, references) == {"timings"}
    (folder / "timings.jsonl").unlink()
    assert rules(folder, references) == {"timings"}


def test_an_environment_that_is_missing_and_records_that_cannot_be_read_are_problems(folder, references):
    (folder / "environment.json").unlink()
    assert "environment" in rules(folder, references)
    (folder / "conformance.jsonl").write_text('{"case": 1}\n')
    assert rules(folder, references) == {"reading"}


def test_the_command_says_what_is_wrong_and_its_status(folder, tmp_path, capsys):
    words = ["results", "verify", str(tmp_path / "theirs"), "--against", str(tmp_path / "references")]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code
    assert capsys.readouterr().out.endswith("1 result, 0 problems\n")
    (folder / "timings.jsonl").unlink()
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    assert ended.value.code == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["problems"] == [{"rule": "timings", "message": "timings.jsonl is missing"}]


def test_a_folder_without_results_is_bad_input(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["results", "verify", str(tmp_path)])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
