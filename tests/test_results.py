"""Directories of results: found, read, and refused where they are incomplete."""

from pathlib import Path

import pytest

from recapture.base.errors import UsageError
from recapture.records.directories import find_results, holds_results, read_results

RESOURCES = Path(__file__).parent / "resources" / "results"
IMAGES = RESOURCES / "images"


def test_results_are_found_at_and_below_a_directory():
    everything = [f"{path.parent.name}/{path.name}" for path in find_results(IMAGES)]
    assert everything == ["bare-torch2.11.0-cu130/cpu", "torch2.11.0-cu130/sm_90", "torch2.6.0-cu124/cpu"]
    assert find_results(IMAGES / "torch2.6.0-cu124" / "cpu") == [IMAGES / "torch2.6.0-cu124" / "cpu"]


def test_results_know_their_image_and_capability_from_their_directory(monkeypatch):
    monkeypatch.chdir(IMAGES / "torch2.6.0-cu124" / "cpu")
    results = read_results(Path())
    assert (results.image, results.capability) == ("torch2.6.0-cu124", "cpu")
    assert results.environment.torch.version == "2.6.0+cu124"
    assert len(results.records) == 24


def test_results_without_an_environment_can_be_read(tmp_path):
    records = IMAGES / "torch2.6.0-cu124" / "cpu" / "conformance.jsonl"
    (tmp_path / "conformance.jsonl").write_bytes(records.read_bytes())
    assert read_results(tmp_path).environment is None


@pytest.mark.parametrize(("lines_kept", "message"), [(0, "0 records"), (1, "1 record")])
def test_records_that_are_fewer_than_were_recorded_are_refused(tmp_path, lines_kept, message):
    for path in (IMAGES / "torch2.6.0-cu124" / "cpu").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = tmp_path / "conformance.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines_kept]))
    with pytest.raises(UsageError, match=rf"conformance\.jsonl has {message}, but environment\.json beside it says 24"):
        read_results(tmp_path)


def test_an_environment_that_is_not_understood_is_named(tmp_path):
    (tmp_path / "conformance.jsonl").write_text("")
    (tmp_path / "environment.json").write_text('{"schema": 99}')
    with pytest.raises(UsageError, match=r"environment\.json: environment schema 99 is not understood"):
        read_results(tmp_path)


def test_an_interrupted_run_holds_results_that_cannot_be_read_yet(tmp_path):
    assert not holds_results(tmp_path)
    (tmp_path / "conformance.partial.jsonl").write_text("")
    assert holds_results(tmp_path)
    with pytest.raises(UsageError, match="finish it with --resume"):
        find_results(tmp_path)


def test_what_a_directory_keeps_of_another_installation_is_found_by_its_own_name_alone(tmp_path):
    for folder in (tmp_path, tmp_path / "before-1"):
        folder.mkdir(exist_ok=True)
        (folder / "conformance.jsonl").touch()
    assert find_results(tmp_path) == [tmp_path]
    assert find_results(tmp_path / "before-1") == [tmp_path / "before-1"]
