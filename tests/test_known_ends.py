"""How cells are known to end on a release of torch: from which results, and what identifies an end."""

from __future__ import annotations

import msgspec
import pytest
from test_environment import environment

from recapture.machine.environment import TorchInfo, write_environment
from recapture.records.difference import Difference
from recapture.records.record import ErrorInfo, Record, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.run.cell import CellResult
from recapture.run.shared_processes import CellOfCase, end_of, known_ends

RECORD = Record(case="s::f", compiler="fx", device="cpu", verdict=Verdict.PASS, case_hash="abc")


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr("recapture.run.shared_processes.data_folder", lambda _: tmp_path / "none")
    return tmp_path / "results"


def filed(results, image, version, **changes):
    """Write one record of a release into a folder of its own; return the folder."""
    folder = results / image / "cpu"
    folder.mkdir(parents=True)
    torch = TorchInfo(version=version, cuda=None, cudnn=None, git_version=None, arch_list=[])
    write_environment(folder / "environment.json", environment(torch=torch))
    write_jsonl(folder / "conformance.jsonl", [msgspec.structs.replace(RECORD, **changes)])
    return folder


def test_ends_of_one_release_on_any_device_and_build_are_known(results):
    filed(results, "one", "2.11.0+cu130")
    filed(results, "nested/two", "2.11.0+cpu", device="cuda", verdict=Verdict.UNSTABLE)
    filed(results, "three", "2.10.0+cu130", verdict=Verdict.TIMEOUT)
    ends = known_ends(results, "2.11.0+cu128")
    assert {end.verdict for end in ends.pop(CellOfCase("s::f", "fx", "abc"))} == {Verdict.PASS, Verdict.UNSTABLE}
    assert not ends


def test_an_edited_case_has_no_known_ends(results):
    filed(results, "one", "2.11.0", case_hash="def")
    assert CellOfCase("s::f", "fx", "abc") not in known_ends(results, "2.11.0")


def test_records_of_other_rules_and_what_cannot_be_read_are_left_out(results):
    filed(results, "one", "2.11.0", schema=1)
    (filed(results, "two", "2.11.0") / "environment.json").write_text("{")
    (filed(results, "three", "2.11.0") / "environment.json").unlink()
    assert known_ends(results, "2.11.0") == {}
    torn = filed(results, "four", "2.11.0") / "conformance.jsonl"
    torn.write_bytes(b"{\n" + torn.read_bytes() + b'{"case":')
    assert len(known_ends(results, "2.11.0")) == 1


SILENT = {"verdict": Verdict.WRONG, "input": "example"}


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({}, {"notes": ("warned: TracerWarning",)}, True),
        ({"graphs": 2, "graph_breaks": 1}, {"graphs": 2, "graph_breaks": 1}, True),
        ({"graphs": 2, "graph_breaks": 1}, {"graphs": 0, "graph_breaks": 1}, False),
        ({}, {"verdict": Verdict.PASS_WITH_BREAKS}, False),
        (
            {"verdict": Verdict.ERROR, "phase": "capture", "error": ErrorInfo("E", "on cpu", "0123")},
            {"verdict": Verdict.ERROR, "phase": "capture", "error": ErrorInfo("E", "on cuda", "0123")},
            True,
        ),
        (
            {"verdict": Verdict.ERROR, "phase": "capture", "error": ErrorInfo("E", "m", "0123")},
            {"verdict": Verdict.ERROR, "phase": "capture", "error": ErrorInfo("E", "m", "4567")},
            False,
        ),
        (
            {"verdict": Verdict.ERROR, "phase": "capture", "error": ErrorInfo("E", "m", "0123")},
            {"verdict": Verdict.ERROR, "phase": "call", "error": ErrorInfo("E", "m", "0123")},
            False,
        ),
        (
            {**SILENT, "differences": (Difference("example", "result", "value", "eager 1, this 2"),)},
            {**SILENT, "differences": (Difference("example", "result", "value", "eager 1, this 3"),)},
            True,
        ),
        (
            {**SILENT, "differences": (Difference("example", "result", "value", ""),)},
            {**SILENT, "differences": (Difference("example", "result", "dtype", ""),)},
            False,
        ),
    ],
)
def test_an_end_is_the_verdict_the_exception_the_places_and_kinds_of_differences_and_the_graphs(first, second, same):
    records = [msgspec.structs.replace(RECORD, **changes) for changes in (first, second)]
    assert (end_of(records[0]) == end_of(records[1])) is same


def test_findings_and_their_record_have_the_same_end():
    fields = {"verdict": Verdict.ERROR, "phase": "call", "input": "example", "error": ErrorInfo("E", "m", "0123")}
    assert end_of(CellResult(**fields)) == end_of(msgspec.structs.replace(RECORD, **fields))
