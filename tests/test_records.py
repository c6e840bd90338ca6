"""Records and timings: written, read again in one order, and refused where they cannot be true."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from recapture.base import decode
from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.records import schema
from recapture.records.difference import Difference
from recapture.records.eager_file import PATH as EAGER_SCHEMA
from recapture.records.kinds import BITS, KINDS, STRICT, Bits
from recapture.records.record import (
    CONFORMANCE,
    OLDER_VERSIONS,
    PARTIAL,
    SCHEMA_VERSION,
    ClaimResult,
    ErrorInfo,
    Record,
    Timing,
    append_record,
    json_schema,
    read_conformance,
    read_jsonl,
    write_jsonl,
)
from recapture.records.verdicts import FAILING, NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.tools.speed.speedups import SCHEMA_PATH

pytestmark = pytest.mark.hostile

RESOURCES = Path(__file__).parent / "resources" / "results"


def record(case="s::a", compiler="compile", device="cpu", **more):
    return Record(**{"verdict": Verdict.PASS, "case_hash": "0", **more}, case=case, compiler=compiler, device=device)


FULL = record(
    verdict=Verdict.ERROR,
    phase="call",
    input="held_out[0]",
    error=ErrorInfo("RuntimeError", "größer\n\u2028 …", "0123456789"),
    reason="why",
    differences=(
        Difference(
            "held_out[1]",
            "result[0]",
            "value",
            unlike="value",
            eager="1",
            other="2",
            bits="value",
            ulps=8388608,
            elements=(1, 1),
        ),
    ),
    noted=(Difference("example", "result[0]", "metadata", unlike="stride", eager="(1, 2)", other="(2, 1)"),),
    notes=("warned: TracerWarning",),
    graphs=2,
    graph_breaks=1,
    recompiles=0,
    break_reasons=("print",),
    claims=(ClaimResult("T1", "pass", None), ClaimResult("T2", "right", False)),
)


def test_every_verdict_is_of_one_kind():
    kinds = [RIGHT, SILENTLY_WRONG, FAILING, NOT_RUN]
    assert sorted(str(verdict) for kind in kinds for verdict in kind) == sorted(str(verdict) for verdict in Verdict)


def test_what_is_written_is_read(tmp_path):
    rows = [FULL, record("s::b"), record("s::a", "aoti")]
    write_jsonl(tmp_path / CONFORMANCE, rows)
    assert read_conformance(tmp_path) == [rows[2], rows[0], rows[1]]
    assert (tmp_path / CONFORMANCE).read_bytes().count(b"\n") == 3


def test_what_was_written_is_parsed_once(tmp_path, monkeypatch):
    """The parse in Python that finds a field given twice takes ten times as long as the other."""
    older = msgspec.structs.replace(FULL, schema=1, noted=(), case="s::c")
    quoting = record("s::d", notes=('"explanation":[],', '\\"noted\\":[],', '"error":null,', ',"text":null'))
    rows = [FULL, record("s::b"), older, record("s::e", explanation=("a line",)), quoting]
    write_jsonl(tmp_path / CONFORMANCE, rows)
    monkeypatch.setattr(decode.json, "loads", None)
    assert set(read_conformance(tmp_path)) == set(rows)
    lines = (tmp_path / CONFORMANCE).read_bytes().splitlines()
    assert b'"noted":[]' not in lines[2]
    assert b'"graphs":null' not in lines[1]


def test_rows_are_sorted_from_any_order(tmp_path):
    rows = [record(case, how, device) for case in "ba" for how in "dc" for device in ("cuda", "cpu")]
    write_jsonl(tmp_path / "1", rows)
    write_jsonl(tmp_path / "2", reversed(rows))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    read = read_jsonl(tmp_path / "1", Record)
    assert [(row.case, row.compiler, row.device) for row in read[:2]] == [("a", "c", "cpu"), ("a", "c", "cuda")]


def test_a_cell_has_an_address():
    assert record().cell == "s::a::compile"


def test_timings_are_rows_too(tmp_path):
    rows = [Timing(case="s::a", compiler="compile", device="cpu", seconds=1.5, peak_rss=3)]
    write_jsonl(tmp_path / "t", rows)
    assert read_jsonl(tmp_path / "t", Timing) == rows


def test_appended_rows_are_whole_lines(tmp_path):
    handle = os.open(tmp_path / PARTIAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    append_record(handle, FULL)
    append_record(handle, record())
    os.close(handle)
    assert read_jsonl(tmp_path / PARTIAL, Record, tolerate_torn_tail=True) == [FULL, record()]


def test_a_torn_last_line_is_dropped_only_where_that_is_expected(tmp_path):
    path = tmp_path / PARTIAL
    line = msgspec.json.encode(record())
    path.write_bytes(line + b"\n" + line[:20])
    assert read_jsonl(path, Record, tolerate_torn_tail=True) == [record()]
    with pytest.raises(UsageError, match="cut off"):
        read_jsonl(path, Record)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": 4}, r"c\.jsonl:2: record schema 4 is not understood by this version, which reads 1 and 2 and 3"),
        ({"schema": 4, "brand_new": 1}, "record schema 4 is not understood"),
        ({"schema": None}, "record schema None"),
        ({"schema": "1"}, "record schema '1'"),
        ({"brand_new": 1}, "unknown field `brand_new`"),
        ({"verdict": "great"}, r"'great' - at `\$\.verdict`"),
        ({"phase": "later"}, r"\$\.phase"),
        ({"graphs": "3"}, r"\$\.graphs"),
        ({"case": None}, r"\$\.case"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(tmp_path, change, says):
    path = tmp_path / "c.jsonl"
    row = msgspec.json.decode(msgspec.json.encode(record()))
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, **change}) + "\n")
    with pytest.raises(UsageError, match=says):
        read_jsonl(path, Record)


@pytest.mark.parametrize("line", [b"", b"null", b"[1]", b"{", b"\xff\xfe", b'{"case":"\xff"}', b"nonsense"])
def test_a_line_that_is_no_record_is_named_by_its_number(tmp_path, line):
    path = tmp_path / "c.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(UsageError, match=r"c\.jsonl:1: "):
        read_jsonl(path, Record)


def test_a_missing_field_is_refused(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"case":"a","compiler":"b","device":"cpu","verdict":"pass","schema":1}\n')
    with pytest.raises(UsageError, match="missing required field `case_hash`"):
        read_jsonl(path, Record)


def test_a_last_line_that_was_never_a_record_is_not_called_cut_off(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(msgspec.json.encode(record()) + b"\n\x07\xfe\x01")
    with pytest.raises(UsageError, match=r"c\.jsonl:2: not a JSON record"):
        read_jsonl(path, Record)


def test_a_cell_that_is_recorded_twice_is_named_with_both_lines(tmp_path):
    path = tmp_path / "c.jsonl"
    rows = [record(), record(device="cuda"), record("s::b"), record(verdict=Verdict.CRASH)]
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    with pytest.raises(UsageError, match=r"c\.jsonl: s::a::compile on cpu is recorded twice, on lines 1 and 4"):
        read_jsonl(path, Record)
    assert read_jsonl(path, Record, tolerate_torn_tail=True) == rows


def test_results_that_are_missing_or_unfinished_say_so(tmp_path):
    with pytest.raises(UsageError, match=f"no {CONFORMANCE}"):
        read_conformance(tmp_path)
    (tmp_path / PARTIAL).touch()
    with pytest.raises(UsageError, match="--resume"):
        read_conformance(tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        read_jsonl(tmp_path / "nothing", Record)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")

    with pytest.raises(TypeError):
        write_atomically(path, "text, not bytes")
    assert path.read_text() == "old"
    write_atomically(path, b"new")
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["f"]


def test_written_files_have_the_rights_of_any_other(tmp_path):
    (tmp_path / "usual").touch()
    write_atomically(tmp_path / "ours", b"")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


# --- kinds of differences, and records of version 1 ---------------------------------------------------------------


def test_the_bit_classes_have_a_meaning_each():
    assert list(BITS) == list(get_args(Bits))


def test_what_a_case_may_ask_for_is_of_a_known_kind():
    assert {strict.kind for strict in STRICT.values()} <= KINDS.keys()


def test_empty_fields_are_not_written(tmp_path):
    different = Difference("example", "result", "dtype", unlike="dtype", eager="torch.int64", other="torch.int32")
    write_jsonl(tmp_path / "c", [record(noted=(different,))])
    assert (tmp_path / "c").read_text() == (
        '{"case":"s::a","compiler":"compile","device":"cpu","verdict":"pass","noted":[{"input":"example",'
        '"where":"result","kind":"dtype","unlike":"dtype","eager":"torch.int64","other":"torch.int32"}],'
        '"case_hash":"0","schema":3}\n'
    )


OLD_LINE = {
    "case": "s::a",
    "compiler": "compile",
    "device": "cpu",
    "verdict": "wrong",
    "phase": None,
    "input": "example",
    "error": None,
    "reason": None,
    "differences": [],
    "notes": ["result: requires_grad True in eager, False here"],
    "graphs": None,
    "graph_breaks": None,
    "recompiles": None,
    "break_reasons": [],
    "claims": [],
    "case_hash": "0",
    "schema": 1,
}


def old_line(*kinds_and_places, **changes):
    differences = [{"input": "example", "where": where, "kind": kind, "detail": ""} for kind, where in kinds_and_places]
    return json.dumps({**OLD_LINE, "differences": differences, **changes}, separators=(",", ":")) + "\n"


def test_a_record_of_version_1_is_read_with_the_present_names_of_the_kinds(tmp_path):
    old = [
        ("value", "result"),
        ("structure", "result"),
        ("device", "result"),
        ("watched", "watched"),
        ("state", "state['weight']"),
        ("state", "torch.grad_enabled"),
    ]
    (tmp_path / CONFORMANCE).write_text(old_line(*old))
    (row,) = read_conformance(tmp_path)
    assert [difference.kind for difference in row.differences] == [
        "value",
        "type",
        "metadata",
        "mutation",
        "mutation",
        "state",
    ]
    assert (row.schema, row.noted, row.notes) == (1, (), tuple(OLD_LINE["notes"]))


def test_a_record_of_version_1_is_written_as_version_1(tmp_path):
    (tmp_path / "old").write_text(old_line(("value", "result"), ("mutation", "args[0]")))
    write_jsonl(tmp_path / "new", [*read_jsonl(tmp_path / "old", Record), record("s::b")])
    first, second = (tmp_path / "new").read_text().splitlines(keepends=True)
    assert first == (tmp_path / "old").read_text()
    assert json.loads(second)["schema"] == SCHEMA_VERSION
    assert [row.schema for row in read_jsonl(tmp_path / "new", Record)] == [1, SCHEMA_VERSION]


WRONG = record(verdict=Verdict.WRONG, input="example", differences=(Difference("example", "result", "value", ""),))


def with_difference(**changes):
    return {"differences": [{"input": "example", "where": "result", "kind": "value", **changes}]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_difference(kind="vibes"), "`differences` has a difference of the unknown kind 'vibes'"),
        (with_difference(kind="watched"), "unknown kind 'watched'"),
        ({"noted": with_difference(kind="vibes")["differences"]}, "`noted` has a difference of the unknown kind"),
        (with_difference(bits="rounding"), "`differences` has one that is only rounding"),
        (with_difference(bits="other"), r"'other' - at `\$\.differences\[0\]\.bits`"),
        (with_difference(ulps=-1), "`ulps` of `differences` is negative"),
        (with_difference(elements=[3, 2]), r"`elements` of `differences` is \[3, 2\]"),
        (with_difference(elements=[0, 2]), "which is not a part of a whole"),
        (with_difference(elements=[1]), "Expected `array` of length 2"),
        (with_difference(unlike="mood"), r"'mood' - at `\$\.differences\[0\]\.unlike`"),
        (with_difference(detail="eager 1, this 2"), r"unknown field `detail` - at `\$\.differences\[0\]`"),
        (with_difference(unlike="dtype", eager="torch.int64"), "one unlike in dtype, but with other sides than"),
        (
            with_difference(input="held_out[0]") | {"input": "held_out[0]"},
            "wrong, but `differences` has none on example",
        ),
        ({"verdict": "pass", "input": None}, "`verdict` is pass, but `differences` has 1"),
        (
            {"schema": 1, "noted": with_difference(detail="")["differences"]} | with_difference(detail=""),
            "has no `noted`",
        ),
        ({"schema": 1} | with_difference(kind="vibes", detail=""), "unknown kind 'vibes'"),
        ({"schema": 2} | with_difference(), "missing required field `detail`"),
    ],
)
def test_impossible_differences_are_refused(tmp_path, change, says):
    path = tmp_path / "c.jsonl"
    row = json.loads(msgspec.json.encode(WRONG))
    path.write_text(json.dumps(row) + "\n")
    assert read_jsonl(path, Record) == [WRONG]
    path.write_text(json.dumps({**row, **change}) + "\n")
    with pytest.raises(UsageError, match=says):
        read_jsonl(path, Record)


def test_a_callable_that_changed_the_original_is_wrong_whatever_its_calls_did(tmp_path):
    differences = tuple(Difference(label, "result", "value", "") for label in ("held_out[0]", "original"))
    row = record(verdict=Verdict.WRONG, input="original", differences=differences)
    write_jsonl(tmp_path / "c.jsonl", [row])
    assert read_jsonl(tmp_path / "c.jsonl", Record) == [row]
    write_jsonl(tmp_path / "c.jsonl", [msgspec.structs.replace(row, input="held_out[0]")])
    with pytest.raises(UsageError, match=r"`input` is held_out\[0\], but `differences` are on original"):
        read_jsonl(tmp_path / "c.jsonl", Record)


def test_a_noted_difference_may_be_rounding_and_does_not_contradict_a_pass(tmp_path):
    noted = Difference("example", "result", "value", "", bits="rounding", ulps=1, elements=(1, 4))
    write_jsonl(tmp_path / "c.jsonl", [record(noted=(noted,))])
    assert read_jsonl(tmp_path / "c.jsonl", Record)[0].noted == (noted,)


# --- the schema ----------------------------------------------------------------------------------------------------


def validator(version=SCHEMA_VERSION):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(json_schema())
    path = schema.PATH.with_name(f"conformance-{version}.json")
    return jsonschema.Draft202012Validator(json.loads(path.read_text()))


def test_the_shipped_schema_is_in_sync():
    assert schema.PATH.read_text() == schema.text(), "run python -m recapture.records.schema"
    assert schema.PATH.name == f"conformance-{SCHEMA_VERSION}.json"
    assert json.loads(schema.text()) == json.loads(json.dumps(json_schema()))


def test_the_schema_is_written_by_its_module(tmp_path):
    paths = (schema.PATH, EAGER_SCHEMA, SCHEMA_PATH)
    before = [path.read_bytes() for path in paths]
    done = subprocess.run(
        [sys.executable, "-m", "recapture.records.schema"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(path) for path in paths]
    assert [path.read_bytes() for path in paths] == before


def test_records_obey_the_schema(tmp_path):
    checks = {version: validator(version) for version in (*OLDER_VERSIONS, SCHEMA_VERSION)}
    first = msgspec.structs.replace(FULL, noted=(), differences=(), case="s::c", schema=1)
    write_jsonl(tmp_path / CONFORMANCE, [FULL, record("s::b"), first])
    files = [tmp_path / CONFORMANCE, *sorted((RESOURCES / "images").rglob(CONFORMANCE))]
    lines = [json.loads(line) for path in files for line in path.read_bytes().splitlines()]
    assert len(lines) > 5
    for line in lines:
        checks[line["schema"]].validate(line)


@pytest.mark.parametrize(
    "change", [{"schema": 4}, {"verdict": "great"}, {"brand_new": 1}, {"graphs": "3"}, {"error": {"type": "E"}}]
)
def test_the_schema_refuses_what_the_reader_refuses(change):
    row = json.loads(msgspec.json.encode(FULL))
    assert validator().is_valid(row)
    assert not validator().is_valid({**row, **change})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps({**row, **change}), type=Record)
