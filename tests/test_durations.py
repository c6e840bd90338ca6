"""The cells that start first: those that took long or exceeded their deadline, here or in another environment."""

from __future__ import annotations

import os
from types import SimpleNamespace

import msgspec
import pytest
from test_result_files import result_files

from recapture.base.errors import UsageError
from recapture.records.record import CellKey, Record, Timing, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.run import durations
from recapture.run.durations import earlier_runs, recorded_seconds
from recapture.run.preparation import TwoServers


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(durations, "data_folder", lambda _: tmp_path / "none")
    return tmp_path / "results"


def cell(case, compiler="eager", device="cpu"):
    return {"case": f"s::{case}", "compiler": compiler, "device": device}


def record_cell(results, image, case, seconds=1.0, verdict=Verdict.PASS, device="cpu"):
    """Record one cell of another environment."""
    directory = results / image / "cpu"
    directory.mkdir(parents=True, exist_ok=True)
    key = cell(case, device=device)
    write_jsonl(directory / "timings.jsonl", [Timing(**key, seconds=seconds)])
    write_jsonl(directory / "conformance.jsonl", [Record(**key, verdict=verdict, case_hash="")])


def test_a_file_without_durations_is_refused(tmp_path):
    path = tmp_path / "some.txt"
    path.write_bytes(b"no durations\n\xff\n")
    with pytest.raises(UsageError, match=r"some\.txt has no durations"):
        recorded_seconds(path, "cpu")
    path.write_text("")
    assert recorded_seconds(path, "cpu") == {}
    row = Timing(**cell("a"), seconds=2.0)
    path.write_bytes(b"damaged\n" + msgspec.json.encode(row) + b"\n")
    assert recorded_seconds(path, "cpu") == {row.key: 2.0}


def order(results, cases):
    mine = result_files(results, cases)
    mine.directory = results / "image" / "cpu"
    with mine:
        return "".join(cell.spec.case for cell in mine.missing())


def test_cells_that_took_long_in_another_environment_start_first(results):
    record_cell(results, "one", "c", 5.0)
    record_cell(results, "nested/two", "b", 9.0)
    record_cell(results, "three", "a", 0.01)
    assert order(results, "abcd") == "bcda"


def test_a_cell_that_hung_in_another_environment_starts_before_all_others(results):
    record_cell(results, "one", "d", 2.0, Verdict.TIMEOUT)
    record_cell(results, "two", "a", 900.0)
    assert order(results, "abcd") == "dabc"


def test_a_cell_that_hung_here_starts_first_however_short_its_deadline_was(results):
    record_cell(results, "image", "d", 0.5, Verdict.TIMEOUT)
    record_cell(results, "two", "a", 900.0)
    assert order(results, "abcd") == "dabc"


def test_a_cell_that_hangs_no_more_here_is_not_kept_apart(results):
    record_cell(results, "image", "d", 0.5)
    record_cell(results, "two", "d", 300.0, Verdict.TIMEOUT)
    mine = result_files(results, "abcd")
    mine.directory = results / "image" / "cpu"
    with mine:
        assert mine.hanging == set()


def test_a_cell_is_likely_to_take_what_it_took_with_the_nearest_release_and_at_most_its_deadline(results):
    for image, seconds in (("torch2.2.2-cu121", 9.0), ("torch2.10.0-cu128", 4.0), ("torch2.15.0-cu132", 7.0)):
        record_cell(results, image, "a", seconds)
    record_cell(results, "torch2.10.0-cu128-apart", "d", 300.0, Verdict.TIMEOUT)
    likely = {
        key.case: expected.likely for key, expected in earlier_runs(results, "cpu", "bare-torch2.11.0-cpu").items()
    }
    assert likely == {"s::a": 4.0, "s::d": 300.0}
    assert earlier_runs(results, "cpu", "torch2.15.0-cu132")[CellKey("s::a", "eager", "cpu")].likely == 7.0
    own = result_files(results, "ad")
    own.directory = results / "image" / "cpu"
    with own:
        assert own.likely_seconds(own.missing())["s::d::eager"] == 10.0
        assert not own.mostly_guessed(own.missing())


def test_cells_that_never_ran_anywhere_are_guessed(results):
    record_cell(results, "torch2.10.0-cu128", "a", 4.0)
    own = result_files(results, "abc")
    own.directory = results / "image" / "cpu"
    with own:
        assert own.mostly_guessed(own.missing())


def test_another_device_has_no_effect(results):
    record_cell(results, "one", "b", 300.0, Verdict.TIMEOUT, device="cuda")
    assert earlier_runs(results, "cpu", "torch2.11.0-cu130") == {}
    assert order(results, "ab") == "ab"


def test_what_takes_long_on_another_device_in_the_same_image_is_expected_to_take_long(results):
    image = "torch2.6.0-cu124"
    for case, folder, seconds in (("a", image, 90.0), ("b", f"again/{image}", 50.0), ("c", "other", 90.0)):
        record_cell(results, folder, case, seconds)
    earlier = earlier_runs(results, "cuda", f"bare-{image}")
    assert {key: expected.seconds for key, expected in earlier.items()} == {CellKey("s::a", "eager", "cuda"): 90.0}


def test_files_that_cannot_be_read_are_passed_over(results):
    for image in ("a", "b", "c", "d"):
        (results / image / "cpu").mkdir(parents=True)
    (results / "a" / "cpu" / "timings.jsonl").write_bytes(b"[" * 100_000 + b"\n\xff\n{}\nnull\n")
    os.mkfifo(results / "b" / "cpu" / "timings.jsonl")
    (results / "c" / "cpu" / "timings.jsonl").mkdir()
    (results / "d" / "cpu" / "timings.jsonl").symlink_to("/nowhere")
    assert earlier_runs(results, "cpu", "torch2.11.0-cu130") == {}


def planned(case, compiler):
    return SimpleNamespace(
        key=(case, compiler, "cpu"), spec=SimpleNamespace(compiler=compiler), info=SimpleNamespace(compiles=False)
    )


def test_a_hanging_cell_does_not_keep_the_second_stage_waiting():
    a, b, c = planned("a", "eager"), planned("b", "jit.trace"), planned("c", "compile")
    hanging = {b.key}
    assert TwoServers("cpu", [], [a, b, c]).split([b, c, a], hanging) == ([a], [b, c])
    assert TwoServers("cpu", [], [a, b]).split([b, a], hanging) == ([b, a], [])  # there is no second stage
    assert TwoServers("cpu", [], [a, b, c], few=1).split([b, c, a], hanging) == ([b, c, a], [])  # one generates code
    assert TwoServers("cuda", [], [a, b, c]).split([b, c, a], hanging) == ([b, c, a], [])
