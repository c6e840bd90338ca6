"""`recapture run --publish`: whatever dies, a shard is published whole and once, and `merge` takes nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import REPOSITORY, results_below
from planted_shards import PlantedShards

from recapture.base.errors import UsageError
from recapture.command.main import _run
from recapture.run.attempts import attempts_of, is_published
from recapture.tools.fleet.merge import find_parts

SHARD = "a.cpu.1-of-2"


@pytest.fixture
def planted(tmp_path):
    return PlantedShards(tmp_path)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "published"


def published_rows(folder):
    """The lines of the published shard."""
    return (folder / "shards" / SHARD / "a" / "cpu" / "conformance.jsonl").read_text().splitlines()


@pytest.mark.parametrize(
    ("mode", "moment"),
    [
        ("0", "when its folder was made"),
        ("kill", ""),
        ("kill complete", ""),
        ("0", "before the rename"),
    ],
)
def test_an_attempt_that_is_killed_leaves_nothing_that_merge_takes_and_the_next_one_publishes(
    planted, folder, capsys, mode, moment
):
    planted.modes(mode)
    assert planted.run("--shard", "1/2", "--publish", folder, kill=moment)[0] == -signal.SIGKILL
    assert not is_published(folder, SHARD)
    with pytest.raises(UsageError, match="no results in"):
        find_parts([folder])
    assert _run(["merge", str(folder), "--incomplete", "--results", str(folder / "m")]) == 2
    assert not (folder / "m").exists()
    planted.modes("0")
    status, err = planted.run("--shard", "1/2", "--publish", folder)
    assert (status, err) == (0, f"recapture: published: {folder}/shards/{SHARD}\n")
    assert len(published_rows(folder)) == 2
    (part,) = find_parts([folder])
    assert part == folder / "shards" / SHARD / "a" / "cpu"
    (killed,) = attempts_of(folder, SHARD)
    assert killed.number == 1
    assert killed.status == (0 if moment == "before the rename" else None)


def test_an_attempt_that_is_killed_after_the_rename_has_published(planted, folder):
    planted.modes("0")
    assert planted.run("--shard", "1/2", "--publish", folder, kill="after the rename")[0] == -signal.SIGKILL
    before = published_rows(folder)
    assert len(before) == 2
    assert planted.run("--shard", "1/2", "--publish", folder)[0] == 0
    assert len(planted.arguments_of_runs()) == 1, "nothing ran again"
    assert published_rows(folder) == before


def test_of_attempts_at_once_one_is_published_and_no_other_is_lost(planted, folder):
    planted.modes(*["wait"] * 4)
    processes = []
    for number in range(4):  # one after the other, because the modes are in one file
        processes.append(planted.start("--shard", "1/2", "--publish", folder))
        while len(list(planted.root.glob("waits-*"))) <= number:
            time.sleep(0.01)
    (planted.root / "go").touch()
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sorted("was published first" in err for err in errors) == [False, True, True, True]
    assert len(published_rows(folder)) == 2
    assert [attempt.status for attempt in attempts_of(folder, SHARD)] == [0] * 3


def test_a_run_that_ends_well_without_a_planned_cell_is_not_published(planted, folder):
    planted.modes("short")
    status, err = planted.run("--shard", "1/2", "--publish", folder)
    assert status == 3
    assert "is not complete: 1 planned cell without a record, the first s::c" in err
    assert not is_published(folder, SHARD)


def test_a_shard_of_another_selection_is_not_taken_for_this_one(planted, folder):
    planted.modes("0", "0")
    assert planted.run("--shard", "1/2", "--publish", folder, "-k", "one")[0] == 0
    status, err = planted.run("--shard", "1/2", "--publish", folder, "-k", "two")
    assert status == 2
    assert "is of another run, which selects -k one" in err
    assert planted.run("--shard", "2/2", "--publish", folder, "-k", "one")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--publish is for one part of a run"),
        (["--shard", "1/2", "--results", "r"], "--results does not go with --publish"),
        (["--shard", "1/2", "--resume"], "--resume does not go with --publish"),
        (["--shard", "1/2", "--image", "torch2.6.0-cu124,torch2.7.1-cu126"], "--publish is for a shard of one image"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert _run(["run", "--publish", "p", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.hostile
@pytest.mark.parametrize("name", ["shards", "attempts", f"shards/{SHARD}"])
@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_folder_is_not_written_through(planted, folder, name, kind):
    elsewhere = planted.root / "elsewhere"
    elsewhere.mkdir()
    place = folder / name
    place.parent.mkdir(parents=True)
    if kind == "link":
        place.symlink_to(elsewhere)
    else:
        place.touch()
    planted.modes("0")
    status, err = planted.run("--shard", "1/2", "--publish", folder)
    assert status == 2
    assert f"{place} is {'a symbolic link' if kind == 'link' else 'a file'}, not a folder" in err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.slow
def test_real_runs_killed_at_any_moment_are_at_last_the_records_of_one_machine(tmp_path):
    """Two shards of a real run; every attempt but the last is killed, later and later."""
    words = ("control_flow", "--compiler", "eager", "--compiler", "fx", "--jobs", "2")
    bootstrap = REPOSITORY / "recapture" / "pool" / "bootstrap.py"

    def start(*more):
        command = [sys.executable, str(bootstrap), "recapture", "run", *words, *map(str, more)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)

    folder = tmp_path / "published"
    for shard in ("1/2", "2/2"):
        seconds = 0.5
        while True:
            with start("--shard", shard, "--publish", folder) as process:
                try:
                    process.communicate(timeout=seconds)
                    break
                except subprocess.TimeoutExpired:
                    os.kill(process.pid, signal.SIGKILL)
            seconds += 0.5
        assert process.returncode == 0
    with start("--results", tmp_path / "whole") as process:
        process.communicate(timeout=300)
    assert process.returncode == 0
    assert _run(["merge", str(folder), "--results", str(tmp_path / "merged")]) == 0
    whole, merged = results_below(tmp_path / "whole"), results_below(tmp_path / "merged")
    for name in ("conformance.jsonl", "conformance.md", "output.jsonl"):
        assert (merged / name).read_bytes() == (whole / name).read_bytes(), name
    shards = sorted((folder / "shards").iterdir())
    assert len(shards) == 2
    assert all(json.loads((shard / "attempt.json").read_bytes())["status"] == 0 for shard in shards)
    assert len(list((folder / "attempts").iterdir())) > 2, "attempts were killed"
