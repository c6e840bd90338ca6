"""Shards and their merge: balanced by recorded seconds, the same for everyone, and together one machine's bytes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest
from conftest import REPOSITORY, results_below

from recapture.base.errors import UsageError
from recapture.cases.collection import CaseInfo
from recapture.command.main import _run
from recapture.records.record import Record, read_jsonl, write_jsonl
from recapture.run.cell import CellSpec
from recapture.run.durations import frozen_seconds, recorded_seconds, usual_seconds
from recapture.run.plan import PlannedCell
from recapture.run.shards import divide, parse_shard

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ("control_flow", "--compiler", "eager", "--compiler", "fx", "--jobs", "2")
FILES = ("conformance.jsonl", "conformance.md", "environment.json", "output.jsonl")


def cells(number, device="cpu", compilers=("fx",)):
    return [
        PlannedCell(CellSpec("s", "s.py", f"c{index}", compiler, device), CaseInfo(f"c{index}", "h", "", {}))
        for index in range(number)
        for compiler in compilers
    ]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1/0", "1", "", "a/b", "-1/2", "1/2/3", "1/99999", "١/2"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(UsageError, match="no shard"):
        parse_shard(text)


def test_shards_take_equally_long_by_recorded_seconds():
    planned = cells(40)
    seconds = {cell.key: 1.0 + index % 7 for index, cell in enumerate(planned)}
    shards = divide([cell.key for cell in planned], 4, seconds)
    assert set(shards) == set(seconds)
    loads = [sum(seconds[key] for key, shard in shards.items() if shard == number) for number in (1, 2, 3, 4)]
    assert max(loads) - min(loads) <= 1.0
    assert divide([cell.key for cell in reversed(planned)], 4, seconds) == shards


def test_cells_without_a_duration_count_as_usual_and_every_shard_has_some():
    planned = cells(6, compilers=("fx", "compile"))
    shards = divide([cell.key for cell in planned], 6, {})
    assert sorted(map(list(shards.values()).count, range(1, 7))) == [2] * 6
    assert usual_seconds(("s::c0", "compile", "cpu"), {}) > usual_seconds(("s::c0", "fx", "cpu"), {})
    assert set(divide([cell.key for cell in cells(5)], 5, {cell.key: 0.0 for cell in cells(5)}).values()) == {
        1,
        2,
        3,
        4,
        5,
    }


def test_a_form_of_a_compiler_without_a_duration_is_expected_to_take_what_its_plain_form_took():
    seconds = {("s::c", "aoti", "cpu"): 3.0, ("s::c", "fx", "cpu"): 0.7, ("s::c", "compile", "cpu"): 5.0}
    assert usual_seconds(("s::c", "aoti:dynamic", "cpu"), seconds) == 3.0
    assert usual_seconds(("s::c", "fx:concrete_args", "cpu"), seconds) == 0.7
    for cell in (("s::c", "compile:eager", "cpu"), ("s::c", "fx:concrete_args", "cuda"), ("s::d", "fx", "cpu")):
        assert usual_seconds(cell, seconds) == usual_seconds(cell, {}), "no code, another device, another case"


def test_on_a_gpu_the_cells_of_a_case_stay_together():
    planned = cells(4, "cuda", ("fx", "export", "jit.trace"))
    shards = divide([cell.key for cell in planned], 2, {})
    assert all(len({shards[cell.key] for cell in planned if cell.spec.case == f"c{index}"}) == 1 for index in range(4))


def test_more_shards_than_cells_are_refused():
    with pytest.raises(UsageError, match="3 shards of a run that can be divided into 2 at most"):
        divide([cell.key for cell in cells(2)], 3, {})


def test_frozen_durations_divide_as_the_folder_does(tmp_path):
    results = REPOSITORY / "results"
    frozen = tmp_path / "durations.jsonl"
    frozen.write_bytes(frozen_seconds(results, "cpu"))
    from_frozen = recorded_seconds(frozen, "cpu")
    assert from_frozen == recorded_seconds(results, "cpu")
    assert len(from_frozen) > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--shard", "3/2"], "no shard '3/2'"),
        (["run", "--shard", "1/2", "--results", str(REPOSITORY / "results")], "choose another folder with --results"),
        (["run", "--shard", "1/2", "--durations", "nowhere", "--results", "x"], "nowhere does not exist"),
        (["run", "--durations", "nowhere"], "name one with --shard"),
        (["merge", "nowhere"], "nowhere does not exist"),
        (["merge", "."], "no results in ."),
        (["merge"], "Missing argument"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert _run(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.fixture(scope="module")
def recorded(pool, tmp_path_factory):
    """A run on one machine, and the three shards of the same run."""
    from conftest import share

    folder = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        share(pool, patch)
        assert _run(["run", *WORDS, "--results", str(folder / "whole")]) == 0
        for number in (1, 2, 3):
            assert _run(["run", *WORDS, "--shard", f"{number}/3", "--results", str(folder / f"part{number}")]) == 0
    return folder


@pytest.fixture
def parts(recorded, tmp_path):
    for path in recorded.iterdir():
        shutil.copytree(path, tmp_path / path.name)
    return tmp_path


def rewrite(directory: Path, change) -> None:
    path = results_below(directory) / "conformance.jsonl"
    write_jsonl(path, change(read_jsonl(path, Record)))


def test_merged_shards_are_the_bytes_of_one_machine(parts, capsys):
    assert _run(["merge", *(str(parts / f"part{number}") for number in (3, 1, 2)), "--results", str(parts / "m")]) == 0
    whole, merged = results_below(parts / "whole"), results_below(parts / "m")
    assert merged.relative_to(parts / "m") == whole.relative_to(parts / "whole")
    for name in FILES:
        assert (merged / name).read_bytes() == (whole / name).read_bytes(), name
    environment = json.loads((merged / "environment.json").read_bytes())
    assert environment["planned"] == environment["recorded"] == len((merged / FILES[0]).read_bytes().splitlines())
    assert sorted(path.name for path in merged.iterdir()) == sorted(path.name for path in whole.iterdir())
    assert [origin["cells"] for origin in environment["origins"].values()] == [environment["recorded"]]
    out = capsys.readouterr().out
    assert f"{environment['planned']} planned, {environment['recorded']} recorded" in out


def test_merged_shards_say_which_rows_are_of_which_machine(parts):
    described, timings = (results_below(parts / "part2") / name for name in ("environment.json", "timings.jsonl"))
    environment = json.loads(described.read_text())
    ((own, origin),) = environment["origins"].items()
    described.write_text(json.dumps(environment | {"origins": {"0badc0de": origin | {"cpu": "another"}}}))
    timings.write_text(timings.read_text().replace(own, "0badc0de"))
    assert _run(["merge", *(str(parts / f"part{number}") for number in (1, 2, 3)), "--results", str(parts / "m")]) == 0
    merged = json.loads((results_below(parts / "m") / "environment.json").read_text())
    assert merged["origins"].pop("0badc0de") == origin | {"cpu": "another"}
    (other_origin,) = merged["origins"].values()
    assert other_origin["cells"] == merged["recorded"] - origin["cells"]


def test_a_shard_is_a_part_of_the_plan_and_says_so(parts):
    numbers = []
    for number in (1, 2, 3):
        directory = results_below(parts / f"part{number}")
        plan = json.loads((directory / "shard.json").read_bytes())
        mine = {tuple(row[:3]) for row in plan["cells"] if row[4] == number}
        rows = read_jsonl(directory / "conformance.jsonl", Record)
        assert {(row.case, row.compiler, row.device) for row in rows} == mine
        numbers.append(len(rows))
    assert sum(numbers) == len(plan["cells"])
    assert min(numbers) > 0


def test_a_shard_run_again_with_resume_has_the_same_cells(parts, warm, capsys):
    directory = results_below(parts / "part2")
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "timings.jsonl"}
    arguments = ["run", *WORDS, "--shard", "2/3", "--resume", "--results", str(parts / "part2")]
    assert _run(arguments) == 0
    after = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "timings.jsonl"}
    assert after == before


def test_a_missing_shard_is_named_with_its_cells_and_nothing_is_written(parts, capsys):
    wanted = [str(parts / "part1"), str(parts / "part3"), "--results", str(parts / "m")]
    assert _run(["merge", *wanted]) == 2
    lacks = len(read_jsonl(results_below(parts / "part2") / "conformance.jsonl", Record))
    err = capsys.readouterr().err
    assert f"shard 2/3 lacks {lacks} cells: control_flow::" in err
    assert not (parts / "m").exists()
    assert _run(["merge", *wanted, "--incomplete"]) == 0
    environment = json.loads((results_below(parts / "m") / "environment.json").read_bytes())
    assert environment["planned"] - environment["recorded"] == lacks
    assert "but only" in (results_below(parts / "m") / "conformance.md").read_text()


def test_parts_that_overlap_and_agree_are_merged_and_others_are_refused(parts, capsys):
    shutil.copytree(parts / "part1", parts / "again")
    arguments = ["merge", *(str(parts / name) for name in ("part1", "part2", "part3", "again"))]
    assert _run([*arguments, "--results", str(parts / "m")]) == 0
    rewrite(parts / "again", lambda rows: [msgspec.structs.replace(rows[0], notes=("planted",)), *rows[1:]])
    assert _run([*arguments, "--results", str(parts / "other")]) == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert "differs between" in err
    assert "(in detail): keep one of them" in err
    assert not (parts / "other").exists()


def test_shards_of_different_runs_are_refused(parts, capsys):
    path = results_below(parts / "part2") / "shard.json"
    plan = json.loads(path.read_bytes())
    plan["cells"][0][3] = "edited"
    path.write_text(json.dumps(plan))
    assert _run(["merge", *(str(parts / f"part{number}") for number in (1, 2, 3)), "--results", str(parts / "m")]) == 2
    err = capsys.readouterr().err
    assert "shards of different runs: the suites differ, as in control_flow::" in err


def test_a_record_that_no_shard_planned_is_refused(parts, capsys):
    rewrite(parts / "part1", lambda rows: [*rows, msgspec.structs.replace(rows[0], case="control_flow::planted")])
    assert _run(["merge", *(str(parts / f"part{number}") for number in (1, 2, 3)), "--results", str(parts / "m")]) == 2
    assert "did not plan, the first control_flow::planted" in capsys.readouterr().err


def test_shards_of_other_packages_are_refused(parts, capsys):
    path = results_below(parts / "part2") / "environment.json"
    environment = json.loads(path.read_bytes())
    environment["packages"]["numpy"] = "0.1"
    path.write_text(json.dumps(environment))
    assert _run(["merge", *(str(parts / f"part{number}") for number in (1, 2, 3)), "--results", str(parts / "m")]) == 2
    assert "are of different installations: numpy" in capsys.readouterr().err


def test_what_the_target_has_of_other_selections_is_kept(parts, warm, capsys):
    target = str(parts / "m")
    assert _run(["run", "types", "--compiler", "eager", "--results", target]) == 0
    before = len(read_jsonl(results_below(parts / "m") / "conformance.jsonl", Record))
    assert _run(["merge", *(str(parts / f"part{number}") for number in (1, 2, 3)), "--results", target]) == 0
    rows = read_jsonl(results_below(parts / "m") / "conformance.jsonl", Record)
    whole = read_jsonl(results_below(parts / "whole") / "conformance.jsonl", Record)
    assert len(rows) == before + len(whole)
    environment = json.loads((results_below(parts / "m") / "environment.json").read_bytes())
    assert environment["planned"] == environment["recorded"] == len(rows)


def test_a_damaged_plan_of_a_shard_is_named(parts, capsys):
    path = results_below(parts / "part2") / "shard.json"
    path.write_text('{"schema": 2}')
    assert _run(["merge", str(parts / "part2"), "--results", str(parts / "m")]) == 2
    assert "shard.json: shard schema 2 is not understood" in capsys.readouterr().err
