"""`recapture history` without a cell: all cells through the releases."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from planted_records import evidence

from recapture.command.main import main
from recapture.records.difference import Difference
from recapture.records.record import Record, read_jsonl, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.tools.compare.overview import overview, to_json, to_markdown

IMAGES = Path(__file__).parent / "resources" / "results" / "images"
CASES = [f"s::c{number}" for number in range(10)]


def put(root, image, verdicts, capability="cpu", compilers=("compile", "fx"), hashes=None):
    """Results of an image: `verdicts` of the first cases under each compiler, the rest pass."""
    directory = root / image / capability
    directory.mkdir(parents=True)
    rows = [
        Record(
            case=case,
            compiler=compiler,
            device="cpu",
            verdict=verdicts.get((case, compiler), Verdict.PASS),
            case_hash=(hashes or {}).get(case, "0"),
            **evidence(verdicts.get((case, compiler))),
        )
        for case in CASES
        for compiler in compilers
    ]
    (directory / "conformance.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


@pytest.fixture
def releases(tmp_path):
    put(tmp_path, "torch2.9.1-cu128", {("s::c0", "compile"): Verdict.ERROR, ("s::c1", "fx"): Verdict.WRONG})
    put(tmp_path, "torch2.10.0-cu128", {("s::c1", "fx"): Verdict.WRONG, ("s::c2", "fx"): Verdict.SPECIALIZED})
    put(
        tmp_path,
        "torch2.2.2-cu121",
        {(case, "compile"): Verdict.NOT_APPLICABLE for case in CASES} | {("s::c3", "fx"): Verdict.CRASH},
    )
    return tmp_path


def run_history(root, *arguments, capfd):
    with pytest.raises(SystemExit) as left:
        main(["history", "--results", str(root), *arguments])
    captured = capfd.readouterr()
    return left.value.code, captured.out, captured.err


def rows(text, title):
    """The cells of the table under a title, by their first."""
    lines = text[text.index(title) :].split("\n\n")[1].splitlines()
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return {first: values for first, *values in [cells[0], *cells[2:]]}


def test_every_release_is_a_column_oldest_first_and_a_dash_stands_where_nothing_ran(releases):
    [summary] = overview(releases)
    assert [release.torch for release in summary.releases] == ["2.2.2+cu121", "2.9.1+cu128", "2.10.0+cu128"]
    assert (summary.cells, summary.left_out) == (20, {})
    text = to_markdown([summary])
    assert rows(text, "## Silently wrong") == {"compiler": ["2.2.2", "2.9.1", "2.10.0"], "fx": ["0", "1", "2"]}
    assert rows(text, "## Failing")["compile"] == ["–", "1", "0"]
    assert rows(text, "## Failing")["fx"] == ["1", "0", "0"]
    assert rows(text, "## Not run")["compile"] == ["10", "0", "0"]


def test_what_each_release_changed_is_what_diff_says(releases):
    [summary] = overview(releases)
    assert [step.changes for step in summary.steps] == [
        {
            "newly_wrong": ["s::c1::fx"],
            "fixed": ["s::c3::fx"],
            "newly_run": [f"{case}::compile" for case in CASES],
        },
        {"newly_wrong": ["s::c2::fx"], "fixed": ["s::c0::compile"]},
    ]
    text = to_markdown([summary])
    steps = rows(text, "## From one release to the next")
    assert steps[""] == ["newly wrong", "fixed", "newly run"]
    assert steps["2.9.1 → 2.10.0"] == ["1", "1", "0"]
    assert "### 2.9.1 → 2.10.0\n\n- newly wrong: `s::c2` (fx)\n- fixed: `s::c0` (compile)\n" in text


def test_twins_partial_results_and_what_ran_beside_an_image_are_left_out_and_said_to_be(releases):
    put(releases, "torch2.9.1-cu128-drifted", {})
    put(releases, "bare-torch2.10.0-cu128", {})
    put(releases, "torch2.6.0-cu124", {}, compilers=("fx",))
    [summary] = overview(releases)
    assert len(summary.releases) == 3
    assert summary.left_out == {
        "bare-torch2.10.0-cu128": "its release has an image",
        "torch2.6.0-cu124": "10 of 20 cells",
        "torch2.9.1-cu128-drifted": "packages of another time",
    }
    assert "torch2.6.0-cu124 (10 of 20 cells)" in to_markdown([summary]).replace("\\", "")


def test_only_cells_that_all_columns_hold_are_counted(releases, monkeypatch):
    put(releases, "torch2.11.0-cu130", {("s::c9", "fx"): Verdict.WRONG})
    path = releases / "torch2.11.0-cu130" / "cpu" / "conformance.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    [summary] = overview(releases)
    assert len(summary.releases) == 4
    assert summary.cells == 19
    assert summary.uncounted == dict.fromkeys(("torch2.2.2-cu121", "torch2.9.1-cu128", "torch2.10.0-cu128"), 1)
    assert summary.releases[-1].compilers["fx"].silently_wrong == 0
    assert summary.releases[-1].compilers["fx"].total == 9


def test_a_capability_with_only_results_to_leave_out_is_shown_in_full(tmp_path):
    put(tmp_path, "torch2.9.1-cu128-drifted", {("s::c0", "fx"): Verdict.WRONG}, capability="sm_90")
    [summary] = overview(tmp_path)
    assert [release.image for release in summary.releases] == ["torch2.9.1-cu128-drifted"]
    assert summary.steps == ()
    assert summary.left_out == {}


def test_one_release_with_more_cases_leaves_no_other_out(releases):
    put(releases, "torch2.11.0-cu130", {}, compilers=("compile", "fx", "export", "make_fx"))
    [summary] = overview(releases)
    assert (len(summary.releases), summary.cells, summary.left_out) == (4, 20, {})
    assert summary.uncounted == {"torch2.11.0-cu130": 20}
    assert "lack them: 20 of torch2.11.0-cu130." in to_markdown([summary]).replace("\\", "")


def test_an_edited_case_is_no_change_of_torch(releases):
    put(releases, "torch2.11.0-cu130", {("s::c5", "fx"): Verdict.WRONG}, hashes={"s::c5": "1"})
    [summary] = overview(releases)
    assert summary.steps[-1].changes["case_edited"] == ["s::c5::compile", "s::c5::fx"]
    assert "s::c5::fx" not in summary.steps[-1].changes.get("newly_wrong", [])


def test_what_became_of_a_published_claim_is_shown_for_every_release():
    claims = rows(to_markdown(overview(IMAGES)), "## Published claims reproduced")
    assert claims["claim"] == ["2.6.0", "2.11.0 (bare)"]
    claims = {name.split("]")[0].strip("["): cells for name, cells in claims.items()}
    assert (claims["S5"], claims["T10"], claims["T16"]) == (["yes", "no"], ["yes", "yes"], ["no", "yes"])


def test_a_rewrite_that_computes_something_else_is_not_blamed_on_eager(tmp_path, capfd):
    put(tmp_path, "torch2.9.1-cu128", {("s::c0", "eager"): Verdict.SPECIALIZED}, compilers=("eager",))
    assert "another function: a rewrite" in to_markdown(overview(tmp_path))
    assert "another function: a rewrite" in run_history(tmp_path, capfd=capfd)[1]


def test_the_terminal_shows_the_same_figures(releases, capfd):
    code, out, _ = run_history(releases, capfd=capfd)
    assert code == 0
    assert out.startswith("Through the releases: cpu\n20 cells (case × compiler) that 3 releases recorded.\n")
    lines = [line.split() for line in out.splitlines()]
    assert ["fx", "0", "1", "2"] in lines
    assert ["2.9.1", "→", "2.10.0", "1", "1", "0"] in lines


def test_json_holds_what_the_tables_are_made_of(releases, capfd):
    code, out, _ = run_history(releases, "--format", "json", capfd=capfd)
    assert code == 0
    assert out == to_json(overview(releases))
    [summary] = json.loads(out)["overviews"]
    assert summary["releases"][1]["compilers"]["compile"] == {
        "right": 9,
        "silently_wrong": 0,
        "failing": 1,
        "not_run": 0,
    }


def test_nothing_to_show_is_one_line_and_status_2(tmp_path, capfd):
    code, out, err = run_history(tmp_path, capfd=capfd)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize("address", [(), ("branch_on_sum",)], ids=["all", "cell"])
def test_an_environment_of_another_image_is_reported_beside_the_table(tmp_path, address, capfd):
    source = IMAGES / "torch2.6.0-cu124" / "cpu"
    filed = tmp_path / "torch2.5.1-cu124" / "cpu"
    shutil.copytree(source, filed)
    code, out, err = run_history(tmp_path, *address, capfd=capfd)
    assert (code, bool(out)) == (0, True)
    expected = "environment.json is of torch2.6.0-cu124/cpu, and is filed as torch2.5.1-cu124/cpu"
    assert err == f"recapture: warning: {filed}: {expected}\n"


def test_kinds_of_differences_are_counted_for_each_release(tmp_path, capfd):
    put(tmp_path, "torch2.9.1-cu128", {("s::c1", "fx"): Verdict.WRONG, ("s::c2", "fx"): Verdict.SPECIALIZED})
    put(tmp_path, "torch2.10.0-cu128", {("s::c1", "fx"): Verdict.WRONG})
    path = tmp_path / "torch2.10.0-cu128" / "cpu" / "conformance.jsonl"
    noted = (Difference("example", "result", "alias", ""),)
    records = read_jsonl(path, Record)
    write_jsonl(path, [msgspec.structs.replace(record, noted=noted) for record in records[:3]] + records[3:])
    _, out, _ = run_history(tmp_path, "--format", "markdown", capfd=capfd)
    assert rows(out, "Silently wrong, by kind of difference")["value"] == ["2", "1"]
    assert rows(out, "Cells with differences that do not decide a verdict, by kind")["alias"] == ["0", "3"]
    assert "noted differently" in out
    document = json.loads(run_history(tmp_path, "--format", "json", capfd=capfd)[1])
    assert document["schema"] == 2
    (summary,) = document["overviews"]
    assert [(release["silent"], release["noted"]) for release in summary["releases"]] == [
        ({"value": 2}, {}),
        ({"value": 1}, {"alias": 3}),
    ]
