"""The known changes between releases: the committed records show each of them, and `history` names them."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import pytest
from packaging.version import Version

from recapture.base.errors import UsageError
from recapture.cases.compilers import builtin_compilers
from recapture.command.main import main
from recapture.known.table import UNDOCUMENTED
from recapture.known.transitions import TRANSITIONS, transitions_of
from recapture.records.directories import EAGER_FILE
from recapture.records.eager_calls import change_of_calls
from recapture.records.eager_file import read_eager
from recapture.records.record import Record, read_jsonl
from recapture.records.verdicts import outcome_of

RESULTS = Path(__file__).parents[1] / "results"

ENTRY = """
[[transitions]]
case = "types::signed_zero"
compilers = ["compile"]
last = "2.13.0"
first = "2.15.0"
was = "wrong"
now = "right"
what = "Guards compare bits."
source = "not documented"
"""


@functools.cache
def recorded(release, device="cpu"):
    """The records of a release's image on a device by (case, compiler)."""
    (folder,) = [path for path in RESULTS.glob(f"torch{release}-*") if not path.name.endswith("-drifted")]
    (results,) = folder.glob("cpu" if device == "cpu" else "sm_*")
    rows = read_jsonl(results / "conformance.jsonl", Record)
    return {(row.case, row.compiler): row for row in rows}


@pytest.mark.parametrize(
    "change",
    [change for change in TRANSITIONS.shipped if change.case is not None],
    ids=lambda change: f"{change.case} {change.last} to {change.first}",
)
def test_the_committed_records_show_the_change(change):
    for compiler in change.compilers:
        cell = change.case, compiler
        before, after = (recorded(release, change.device)[cell] for release in (change.last, change.first))
        assert (outcome_of(before.verdict), outcome_of(after.verdict)) == (change.was, change.now), compiler
        assert before.case_hash == after.case_hash, "the case was edited between the two"


@pytest.mark.parametrize("change", [change for change in TRANSITIONS.shipped if change.case is None])
def test_a_change_of_all_cells_of_a_compiler_changes_the_outcome_of_some(change):
    before, after = recorded(change.last), recorded(change.first)
    for compiler in change.compilers:
        cells = [cell for cell in before if cell[1] == compiler]
        assert [cell for cell in cells if before[cell].verdict is not after[cell].verdict], compiler


@pytest.mark.parametrize("change", [change for change in TRANSITIONS.shipped if change.device == "cuda"])
def test_a_change_on_a_gpu_is_none_on_the_cpu(change):
    for compiler in change.compilers:
        cell = change.case, compiler
        before, after = (recorded(release)[cell] for release in (change.last, change.first))
        assert (outcome_of(before.verdict), outcome_of(after.verdict)) != (change.was, change.now), compiler


def what_is_recorded(record):
    """A record without its name and what only one of two names has: claims and counts."""
    return msgspec.structs.replace(record, compiler="", claims=(), graphs=None, graph_breaks=None, recompiles=None)


@pytest.mark.parametrize(("release", "same"), [("2.7.1", "export:strict"), ("2.8.0", "export:nonstrict")])
def test_export_is_the_default_of_its_release(release, same):
    rows = recorded(release)
    cases = {case for case, compiler in rows if compiler == "export"}
    other_mode = {"export:strict": "export:nonstrict", "export:nonstrict": "export:strict"}[same]
    assert all(what_is_recorded(rows[case, "export"]) == what_is_recorded(rows[case, same]) for case in cases)
    assert any(rows[case, "export"].verdict is not rows[case, other_mode].verdict for case in cases)


def test_no_recorded_release_between_contradicts_a_change():
    """Between the last old outcome and the first new one, no release has results: the range is as narrow as can be."""
    releases = {
        device: {
            path.parent.name.removeprefix("torch").split("-")[0]
            for path in RESULTS.glob(f"torch*/{folder}")
            if not path.parent.name.endswith("-drifted")
        }
        for device, folder in (("cpu", "cpu"), ("cuda", "sm_*"))
    }
    for change in TRANSITIONS.shipped:
        between = [
            release
            for release in releases[change.device]
            if Version(change.last) < Version(release) < Version(change.first)
        ]
        assert between == [], change.line


@functools.cache
def eager_calls(release):
    """What eager gave on a release's CPU, by case."""
    (folder,) = [path for path in RESULTS.glob(f"torch{release}-*") if not path.name.endswith("-drifted")]
    path = folder / "cpu" / EAGER_FILE
    return {key.case: row.calls for key, row in read_eager(path).items()} if path.exists() else {}


def test_a_change_says_so_where_eager_itself_changed():
    """A cell can be fixed, or begin to fail, because eager gives something else than before."""
    changed = set()
    for change in TRANSITIONS.shipped:
        if change.case is None or change.device != "cpu":
            continue
        before, after = (eager_calls(release).get(change.case) for release in (change.last, change.first))
        if before and after:
            difference = change_of_calls(before, after)
            if difference is not None and difference.kind not in ("rounding", "inputs"):
                assert change.what.startswith("Eager itself changed: "), change.line
                changed.add(change.case)
    assert {"dtype_promotion::infinite_bound", "dtype_promotion::subtracts_masks"} <= changed


def test_at_least_twenty_changes_are_explained_and_most_are_confirmed():
    changes = TRANSITIONS.shipped
    assert len(changes) >= 20
    assert len({(change.case, change.last, change.first, change.device, change.was) for change in changes}) == len(
        changes
    )
    assert sum(change.source != UNDOCUMENTED for change in changes) >= 20
    assert {name for change in changes for name in change.compilers} <= builtin_compilers().keys()


def test_a_change_of_all_cells_is_one_of_each_cell():
    (change,) = [change for change in transitions_of("graphs::bar", "export") if change.case is None]
    assert change in transitions_of("modules::CachesATable", "export")
    assert change not in transitions_of("graphs::bar", "export:strict")
    assert change.line.startswith("2.7.1, 2.8.0: torch.export.export is not strict by default")


def test_changes_of_a_cell_come_oldest_first():
    entries = transitions_of("scipy_numpy::scipy_solve", "compile")
    assert [transition.first for transition in entries] == ["2.10.0", "2.12.1"]
    assert transitions_of("scipy_numpy::scipy_solve", "jit.script") == []


def test_history_tells_changes_of_a_gpu_beside_its_records(capfd):
    with pytest.raises(SystemExit):
        main(["history", "scipy_numpy::shared_memory::compile:reduce-overhead", "--results", str(RESULTS)])
    assert "2.11.0 failing, 2.13.0 right on a GPU: For CUDA graphs" in capfd.readouterr().out


@pytest.mark.parametrize("cell", ["types::signed_zero::compile", "types::signed_zero"])
@pytest.mark.parametrize("form", ["text", "markdown"])
def test_history_says_what_a_change_is_about(capfd, cell, form):
    with pytest.raises(SystemExit):
        main(["history", cell, "--results", str(RESULTS), "--format", form])
    printed = capfd.readouterr().out
    assert "2.14.1 wrong, 2.15.0 right: Guards on float arguments" in printed
    assert "192604" in printed
    assert printed.count("Guards on float") == printed.count("Known:")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2.15.0", "2.13.0", "2.13.0 is not before 2.13.0"),
        ('"right"', '"wrong"', "wrong to wrong is not a change"),
        ('"right"', '"great"', "Invalid enum value 'great'"),
        ("types::signed_zero", "signed_zero", "is not a case"),
        ('["compile"]', "[]", "no compiler is named"),
        ('was = "wrong"\n', "", "a case and both outcomes, or none of them"),
        ('case = "types::signed_zero"\n', "", "all cases, 2.13.0 to 2.15.0: a change has a case"),
        ("2.13.0", "new", "Invalid version"),
        ("not documented", "a friend", "neither an address nor"),
        ("what =", "why =", "unknown field"),
        ("[[transitions]]", "[[transitions", "Expected"),
    ],
)
def test_what_cannot_be_true_is_refused_in_one_line(tmp_path, old, new, message):
    path = tmp_path / "transitions.toml"
    path.write_text(ENTRY.replace(old, new, 1))
    with pytest.raises(UsageError, match=message) as refused:
        TRANSITIONS.load(path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the known changes: .*No such file"):
        TRANSITIONS.load(tmp_path / "none.toml")
