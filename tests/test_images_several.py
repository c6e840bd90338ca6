"""Several images one after the other: a failing one does not stop the rest, and the end says what each did."""

from __future__ import annotations

import shutil

import msgspec
import pytest
from conftest import REPOSITORY

from recapture.base.errors import EnvironmentUnfitError
from recapture.images.each_image import START_SECONDS, ImageOutcome, expected_seconds, run_in_each, seconds_left
from recapture.machine.environment import ENVIRONMENT, read_environment, write_environment
from recapture.machine.hardware import cores
from recapture.machine.pins import lock_hash, lock_path
from recapture.records.record import PARTIAL, Timing, write_jsonl


def test_what_one_image_cannot_do_does_not_stop_the_others():
    failures = {"b": EnvironmentUnfitError("no Python"), "c": OSError(28, "No space left on device", "/there")}

    def run(name):
        if name in failures:
            raise failures[name]
        return {"a": 0, "d": 2}[name]

    lines = []
    clock = iter(range(100))
    outcomes = run_in_each("abcd", run, lines.append, {}, clock=lambda: float(next(clock)))
    assert list(map(str, outcomes)) == [
        "a: done in 1 s",
        "b: not finished: no Python",
        "c: not finished: /there: No space left on device",
        "d: ended with exit status 2 in 1 s",
    ]
    assert [outcome.status for outcome in outcomes] == [0, 3, 3, 2]
    assert [line for line in lines if line.startswith("image ")] == [
        "image 1 of 4: a",
        "image 2 of 4: b; about 3 s left",
        "image 3 of 4: c; about 2 s left",
        "image 4 of 4: d; about 1 s left",
    ]


def test_an_interruption_ends_all_after_the_outcomes_so_far():
    lines = []

    def run(name):
        if name == "b":
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt):
        run_in_each("abc", run, lines.append, {})
    assert lines[-1].startswith("a: done")
    assert not any("image 3" in line for line in lines)


def test_the_time_left_comes_from_what_images_took_and_from_the_pace_so_far():
    expected = {"a": 100.0, "b": 300.0}
    assert seconds_left("abc", [], expected) == 600.0  # c counts as the mean
    slow = ImageOutcome("a", 0, "", 200.0)
    assert seconds_left("abc", [slow], expected) == 1000.0
    failed = ImageOutcome("a", 3, "no Python", 0.1)
    assert seconds_left("abc", [failed], expected) == 500.0


def test_the_time_of_an_image_is_the_sum_of_its_recorded_cells(tmp_path):
    for image in ("a", "b"):
        (tmp_path / image / "cpu").mkdir(parents=True)
    rows = [
        Timing(case="s::f", compiler=name, device="cpu", seconds=30.0, peak_rss=None, worker="fork")
        for name in ("fx", "trace")
    ]
    write_jsonl(tmp_path / "a" / "cpu" / "timings.jsonl", rows)
    (tmp_path / "b" / "cpu" / "timings.jsonl").write_text("damaged")
    seconds = expected_seconds(["a", "b", "c"], tmp_path, "cpu", resume=False)
    assert seconds == {"a": START_SECONDS + 60.0 / cores()}
    assert expected_seconds(["a"], tmp_path, "cuda", resume=False) == {}


def test_a_finished_image_takes_no_longer_than_starting_when_it_is_resumed(tmp_path):
    image = "torch2.6.0-cu124"
    shutil.copytree(REPOSITORY / "results" / image, tmp_path / image)
    environment = tmp_path / image / "cpu" / ENVIRONMENT
    described = read_environment(environment)
    lock = lock_hash(lock_path(image))
    write_environment(environment, msgspec.structs.replace(described, lock_hash=lock, recorded=described.planned))
    assert expected_seconds([image], tmp_path, "cpu", resume=True) == {image: START_SECONDS}
    assert expected_seconds([image], tmp_path, "cpu", resume=False)[image] > START_SECONDS
    (tmp_path / image / "cpu" / PARTIAL).touch()
    assert expected_seconds([image], tmp_path, "cpu", resume=True)[image] > START_SECONDS
