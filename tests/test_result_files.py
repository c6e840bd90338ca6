"""The files of results: finished rows when a run adds to them, replaces them, or is interrupted again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from conftest import SUITES

from recapture.base.errors import UsageError
from recapture.base.files import append_line
from recapture.base.option_fields import GIB
from recapture.cases.collection import CaseInfo, Selection
from recapture.judge.version import JUDGE_VERSION
from recapture.machine.environment import ENVIRONMENT, read_environment, write_environment
from recapture.records import record as records
from recapture.records.directories import find_results, read_results
from recapture.records.record import TIMINGS, Record, Timing, read_jsonl, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.report.environment_facts import origins as origins_in_words
from recapture.run import result_files as result_files_module
from recapture.run.cell import CellSpec
from recapture.run.plan import PlannedCell, RunOptions
from recapture.run.result_files import ResultFiles, settle

if TYPE_CHECKING:
    from pathlib import Path

INSTALLED = read_environment(SUITES.parent / "results" / "images" / "bare-torch2.11.0-cu130" / "cpu")


def result_files(
    directory: Path, cases: str, *words: str, resume: bool = False, revision: str = "a", **packages: str
) -> ResultFiles:
    """The files of a run of some cases with eager: a whole run without words, with the given packages."""
    selection = Selection((), tuple((word, None, None) for word in words), frozenset())
    options = RunOptions(
        selection=selection,
        keyword=None,
        compilers=(),
        device="cpu",
        jobs=1,
        timeout=10.0,
        memory=GIB,
        results=directory,
        resume=resume,
    )
    specs = [CellSpec(suite="s", path="s.py", case=name, compiler="eager", device="cpu") for name in cases]
    environment = msgspec.structs.replace(
        INSTALLED,
        packages=INSTALLED.packages | packages,
        suites=[],
        selection=list(words),
        suite_commit=revision,
    )
    return ResultFiles(
        directory, options, [PlannedCell(spec, CaseInfo(spec.case, "", "", {})) for spec in specs], environment
    )


def fill(result_files: ResultFiles, most: int = 99) -> str:
    """Record the missing cells, with an interruption after the first `most`; return the cases that ran."""
    with result_files:
        cases = [cell.spec.case for cell in result_files.missing()][:most]
        for name in cases:
            key = {"case": f"s::{name}", "compiler": "eager", "device": "cpu"}
            result_files.record(Record(**key, verdict=Verdict.PASS, case_hash=""), Timing(**key, seconds=1.0), "", "")
        if len(result_files.done) == len(result_files.cells):
            result_files.close()
    return "".join(cases)


def cases_in(directory: Path) -> str:
    return "".join(row.case.removeprefix("s::") for row in read_results(directory).records)


@pytest.mark.parametrize(("words", "resume"), [(("s",), False), (("s",), True), ((), True)])
def test_results_of_another_installation_are_set_aside_not_mixed_in_and_not_lost(tmp_path, words, resume):
    folder = tmp_path / "image" / "cpu"
    fill(result_files(folder, "ab", numpy="1"))
    newer = result_files(folder, "b", *words, resume=resume, numpy="2")
    assert fill(newer) == "b"
    assert newer.warnings == [
        f"warning: older results in {folder} are of another installation (numpy 1, now 2); they were moved to its folder before-1"
    ]
    assert (cases_in(folder), cases_in(folder / "before-1")) == ("b", "ab")
    assert read_results(folder).environment.packages["numpy"] == "2"
    assert read_results(folder / "before-1").environment.packages["numpy"] == "1"
    assert find_results(tmp_path) == [folder]
    assert find_results(folder / "before-1") == [folder / "before-1"]


def test_an_interrupted_run_of_another_installation_is_set_aside_too(tmp_path):
    fill(result_files(tmp_path, "ab", numpy="1"), most=1)
    newer = result_files(tmp_path, "ab", resume=True, numpy="2")
    assert fill(newer) == "ab"
    assert len(newer.warnings) == 1
    assert (tmp_path / "before-1" / "conformance.partial.jsonl").read_bytes().count(b"\n") == 1


def test_a_whole_run_replaces_the_results_of_another_installation_without_ado(tmp_path):
    fill(result_files(tmp_path, "ab", numpy="1"))
    again = result_files(tmp_path, "ab", numpy="2")
    assert fill(again) == "ab"
    assert again.warnings == []
    assert not (tmp_path / "before-1").exists()


@pytest.mark.parametrize("numpy", ["1", "2"])
def test_a_whole_run_again_is_resumed_where_it_was_interrupted(tmp_path, numpy):
    fill(result_files(tmp_path, "abc", numpy="1"))
    assert fill(result_files(tmp_path, "abc", numpy=numpy), most=1) == "a"
    resumed = result_files(tmp_path, "abc", resume=True, numpy=numpy)
    assert fill(resumed, most=1) == "b"
    assert resumed.warnings == []
    assert fill(result_files(tmp_path, "abc", resume=True, numpy=numpy)) == "c"
    assert cases_in(tmp_path) == "abc"


def test_what_was_resumed_from_finished_results_does_not_run_after_another_interruption(tmp_path):
    fill(result_files(tmp_path, "ab"))
    assert fill(result_files(tmp_path, "abcd", resume=True), most=1) == "c"
    assert fill(result_files(tmp_path, "abcd", resume=True)) == "d"


def test_cells_that_an_older_version_judged_run_again_and_keep_their_version_if_they_are_not_selected(tmp_path):
    fill(result_files(tmp_path, "abc"))
    path = tmp_path / "conformance.jsonl"
    path.write_text(path.read_text().replace('"schema":3', '"schema":1'))
    assert fill(result_files(tmp_path, "a", "s", resume=True)) == "a"
    assert [row.schema for row in read_results(tmp_path).records] == [3, 1, 1]
    assert fill(result_files(tmp_path, "abc", resume=True)) == "bc"
    assert [row.schema for row in read_results(tmp_path).records] == [3, 3, 3]


@pytest.mark.parametrize(
    ("words", "resume", "version"), [((), True, 1), (("s",), True, 1), (("s",), False, 1), ((), False, JUDGE_VERSION)]
)
def test_the_version_of_the_judge_is_the_oldest_of_the_rows(tmp_path, words, resume, version):
    fill(result_files(tmp_path, "ab"))
    assert read_results(tmp_path).environment.judge == JUDGE_VERSION
    write_environment(tmp_path / ENVIRONMENT, msgspec.structs.replace(read_environment(tmp_path), judge=None))
    fill(result_files(tmp_path, "abcd", *words, resume=resume), most=1)
    fill(result_files(tmp_path, "abcd", *words, resume=True))
    assert cases_in(tmp_path) == "abcd"
    assert read_results(tmp_path).environment.judge == version


def test_an_interrupted_selective_run_is_resumed_beside_the_finished_rows(tmp_path):
    fill(result_files(tmp_path, "abc"))
    assert fill(result_files(tmp_path, "de", "s"), most=1) == "d"
    assert fill(result_files(tmp_path, "de", "s", resume=True)) == "e"
    assert cases_in(tmp_path) == "abcde"
    assert read_results(tmp_path).environment.selection == []


@pytest.mark.parametrize("resume", [False, True])
def test_a_settled_run_counts_the_cells_that_were_planned(tmp_path, resume):
    fill(result_files(tmp_path, "abc"))
    fill(result_files(tmp_path, "ade", resume=resume), most=0)
    assert settle(tmp_path)
    results = read_results(tmp_path)
    assert cases_in(tmp_path) == ("a" if resume else "")
    assert (results.environment.planned, results.environment.recorded) == (3, len(results.records))
    assert cases_in(tmp_path / "before-1") == "abc"


def test_a_settled_selective_run_keeps_the_finished_rows(tmp_path):
    fill(result_files(tmp_path, "abc"))
    fill(result_files(tmp_path, "de", "s"), most=1)
    assert settle(tmp_path)
    environment = read_results(tmp_path).environment
    assert cases_in(tmp_path) == "abcd"
    assert (environment.planned, environment.recorded, environment.selection) == (5, 4, [])


def test_resume_runs_again_what_the_machine_was_at_fault_for(tmp_path):
    folder = tmp_path / "image" / "cpu"
    at_fault = result_files(folder, "ab")
    with at_fault:
        for name, verdict in (("a", Verdict.PASS), ("b", Verdict.ENVIRONMENT)):
            key = {"case": f"s::{name}", "compiler": "eager", "device": "cpu"}
            at_fault.record(Record(**key, verdict=verdict, case_hash=""), Timing(**key, seconds=1.0), "", "")
        at_fault.close()
    assert fill(result_files(folder, "ab", resume=True)) == "b"
    assert {str(row.verdict) for row in read_results(folder).records} == {"pass"}


def test_of_a_row_for_which_the_disk_has_no_room_nothing_is_left(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write = os.write
    append_line(handle, b"whole\n")
    monkeypatch.setattr(os, "write", lambda to, line: write(to, line[:3]))
    with pytest.raises(OSError, match="No space left"):
        append_line(handle, b"another\n")
    os.close(handle)
    assert path.read_bytes() == b"whole\n"


def test_a_whole_run_without_resume_takes_nothing_from_an_unfinished_one(tmp_path):
    folder = tmp_path / "image" / "cpu"
    assert fill(result_files(folder, "abcd"), most=3) == "abc"
    again = result_files(folder, "abcd")
    assert fill(again, most=1) == "a"
    assert again.warnings == [
        f"warning: the records of an unfinished run in {folder} were moved to its folder before-1; to continue a run, use --resume"
    ]
    assert fill(result_files(folder, "abcd", resume=True)) == "bcd"
    assert cases_in(folder) == "abcd"
    assert (folder / "before-1" / "conformance.partial.jsonl").read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("resume", [False, True])
def test_a_selection_is_refused_while_a_whole_run_is_unfinished(tmp_path, resume):
    folder = tmp_path / "image" / "cpu"
    fill(result_files(folder, "abcd"), most=2)
    with pytest.raises(UsageError, match="is unfinished: continue it with --resume and no selection"):
        fill(result_files(folder, "a", "s::a", resume=resume))
    assert fill(result_files(folder, "abcd", resume=True)) == "cd"
    assert fill(result_files(folder, "a", "s::a", resume=False)) == "a"


def test_a_selection_is_run_after_an_unfinished_one_was_ended(tmp_path):
    folder = tmp_path / "image" / "cpu"
    fill(result_files(folder, "abcd"), most=2)
    assert settle(folder)
    assert fill(result_files(folder, "c", "s::c")) == "c"
    assert cases_in(folder) == "abc"


def origins(directory: Path) -> dict[str | None, str]:
    """The cases that were measured with each revision of the suites, as the files say; None for rows that do not."""
    environment = read_environment(directory)
    commits = {name: origin.suite_commit for name, origin in environment.origins.items()}
    cases_by_commit: dict[str | None, str] = {}
    for row in read_jsonl(directory / TIMINGS, Timing):
        revision = commits[row.origin] if row.origin else None
        cases_by_commit[revision] = cases_by_commit.get(revision, "") + row.case.removeprefix("s::")
    counts = {origin.suite_commit: origin.cells for origin in environment.origins.values()}
    assert counts == {revision: len(cases) for revision, cases in cases_by_commit.items() if revision}
    return cases_by_commit


def test_rows_keep_the_origin_that_they_were_measured_at(tmp_path):
    fill(result_files(tmp_path, "abc"))
    assert origins(tmp_path) == {"a": "abc"}
    assert origins_in_words(read_environment(tmp_path)) == []
    fill(result_files(tmp_path, "cd", "s", revision="b"))
    assert origins(tmp_path) == {"a": "ab", "b": "cd"}
    fill(result_files(tmp_path, "a", "s", revision="c"))
    assert origins(tmp_path) == {"a": "ab", "b": "cd"}  # the record is the same: the files stay as they are
    fill(result_files(tmp_path, "ae", "s", revision="c"))
    assert origins(tmp_path) == {"a": "b", "b": "cd", "c": "ae"}
    first, second, third = origins_in_words(read_environment(tmp_path))
    assert [warning.rpartition(" (")[2] for warning in (first, second, third)] == [
        "2 of 5 cells)",
        "2 of 5 cells)",
        "1 of 5 cells)",
    ]
    assert third.endswith("; suites a (1 of 5 cells)")
    fill(result_files(tmp_path, "abcd", revision="d"))
    assert origins(tmp_path) == {"d": "abcd"}


@pytest.mark.parametrize("words", [(), ("s",)])
def test_a_run_that_goes_on_elsewhere_says_which_cells_ran_where(tmp_path, words):
    fill(result_files(tmp_path, "abcd", *words), most=2)
    fill(result_files(tmp_path, "abcd", *words, resume=True, revision="b"), most=1)
    assert settle(tmp_path)
    assert origins(tmp_path) == {"a": "ab", "b": "c"}


def test_rows_of_files_that_name_no_origin_are_counted_as_unknown(tmp_path):
    fill(result_files(tmp_path, "abc"))
    environment = msgspec.structs.replace(read_environment(tmp_path), origins={})
    write_environment(tmp_path / ENVIRONMENT, environment)
    write_jsonl(
        tmp_path / TIMINGS,
        [msgspec.structs.replace(row, origin=None) for row in read_jsonl(tmp_path / TIMINGS, Timing)],
    )
    assert origins_in_words(environment) == []
    fill(result_files(tmp_path, "d", "s", revision="b"))
    assert origins(tmp_path) == {None: "abc", "b": "d"}
    last = origins_in_words(read_environment(tmp_path))[-1]
    assert last == "an unknown machine, before origins were recorded (3 of 4 cells)"


@pytest.mark.parametrize("lines_written", [1, 2, 3])
def test_a_run_stopped_while_it_writes_a_cell_leaves_no_row_without_an_origin(tmp_path, monkeypatch, lines_written):
    lines = 0
    append = records.append_line

    def stopped(handle: int, line: bytes) -> None:
        nonlocal lines
        append(handle, line)
        lines += 1
        if lines == 3 + lines_written:  # a cell has three lines
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(records, "append_line", stopped)
        patch.setattr(result_files_module, "append_line", stopped)
        with pytest.raises(KeyboardInterrupt):
            fill(result_files(tmp_path, "abc"))
    fill(result_files(tmp_path, "abc", resume=True))
    assert origins(tmp_path) == {"a": "abc"}
    assert origins_in_words(read_environment(tmp_path)) == []


@pytest.mark.hostile
def test_what_a_killed_process_left_of_a_file_is_removed_by_the_next_run(tmp_path):
    script = (
        "import os, signal\nfrom pathlib import Path\nfrom recapture.base.files import write_atomically\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"write_atomically(Path({str(tmp_path)!r}) / 'environment.partial.json', b'half')\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".environment.partial.json.*"))) == 1
    (tmp_path / ".notes.json.abcd1234").write_text("a user's")
    fill(result_files(tmp_path, "ab"))
    assert list(tmp_path.glob(".environment.partial.json.*")) == []
    assert (tmp_path / ".notes.json.abcd1234").read_text() == "a user's"
