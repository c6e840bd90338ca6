"""Reading regular files alone, bounded; and writing that never follows what was planted."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from recapture.base.decode import Format
from recapture.base.errors import UsageError
from recapture.base.files import read_regular, why_not_writable, write_atomically, write_output
from recapture.command.main import _run
from recapture.records.record import Record, Timing, read_jsonl, read_output
from tests.fuzz import corpus

pytestmark = pytest.mark.hostile


def plant(path, kind):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"link": "target", "loop": path.name, "dangling": "absent"}[kind])


KINDS = ["pipe", "socket", "folder", "link", "loop", "dangling"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_read_and_none_is_waited_for(tmp_path, kind):
    (tmp_path / "target").write_text("{}")
    plant(tmp_path / "file", kind)
    with pytest.raises(UsageError, match=r"cannot read .*file: .*not a regular file"):
        read_regular(tmp_path / "file")


def test_a_fifo_is_called_that(tmp_path):
    os.mkfifo(tmp_path / "file")
    with pytest.raises(UsageError, match=r"cannot read .*file: a FIFO, not a regular file"):
        read_regular(tmp_path / "file")


def test_a_file_that_is_too_large_is_refused_with_its_size(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 101)
    with pytest.raises(UsageError, match="101 bytes, more than the 100 that are read"):
        read_regular(tmp_path / "file", most=100)
    assert len(read_regular(tmp_path / "file", most=101)) == 101


@pytest.mark.parametrize("kind", KINDS)
def test_an_irregular_file_with_the_name_of_a_result_is_left_unchanged(tmp_path, kind):
    (tmp_path / "target").write_text("precious")
    plant(tmp_path / "file", kind)
    before = (tmp_path / "file").lstat()
    with pytest.raises(OSError, match="has its name"):
        write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").lstat().st_ino == before.st_ino
    assert (tmp_path / "target").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 2


def test_output_is_written_into_a_pipe_and_through_a_link_that_the_user_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    while not received and reader.is_alive():
        try:
            write_output(tmp_path / "pipe", b"x" * 200_000)
            break
        except OSError:  # the reader has not opened it yet
            continue
    reader.join()
    assert received == [b"x" * 200_000]
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode)
    (tmp_path / "link").symlink_to("file")
    write_output(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_cannot_be_written_is_known_before_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("absent")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "new", "link", "/dev/null"):
        assert why_not_writable(tmp_path / name) == "", name
    for name, why in (
        ("no/new", "No such file"),
        ("", "Is a dir"),
        ("file/new", "Not a dir"),
        ("/proc/new", "No such"),
    ):
        assert why in why_not_writable(tmp_path / name), name
    assert why_not_writable(tmp_path / "a\0b")
    assert why_not_writable(tmp_path / "loop")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "loop"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--junit"),
        ("check", "x.py:f", "--html"),
        ("check", "x.py:f", "--junit"),
        ("check", "x.py:f", "--save"),
        ("drift", "x.py:f", "--html"),
        ("bench", "--benchmark-json"),
        ("upgrade", "--across", "here", "--junit"),
    ],
)
def test_every_command_refuses_an_output_that_cannot_be_written_before_it_begins(words, tmp_path, capfd):
    assert _run([*words, str(tmp_path / "none" / "out")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"recapture: cannot write {tmp_path / 'none' / 'out'}: ")


def test_a_report_for_a_device_is_written_into_it(tmp_path, capfd):
    corpus.build(tmp_path)
    assert _run(["report", "--output", "/dev/null", str(tmp_path / "results" / corpus.OLD)]) == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    os.mkfifo(tmp_path / "pipe")
    assert _run(["report", "--output", str(tmp_path / "pipe"), str(tmp_path / "results" / corpus.OLD)]) == 2
    assert capfd.readouterr().err.startswith("recapture: cannot write ")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["conformance.jsonl", "environment.json", "speedups-nvidia-h200.json"])
def test_a_pipe_among_results_ends_every_reading_command_with_one_line(tmp_path, capfd, name):
    corpus.build(tmp_path)
    old, new = (str(tmp_path / "results" / image) for image in (corpus.OLD, corpus.NEW))
    (tmp_path / "results" / corpus.OLD / name).unlink()
    os.mkfifo(tmp_path / "results" / corpus.OLD / name)
    for arguments in (["report", old], ["diff", old, new]):
        assert _run(arguments) == 2
        assert "not a regular file" in capfd.readouterr().err.splitlines()[-1]


def test_printed_output_without_a_cell_or_of_another_shape_is_left_out(tmp_path):
    rows = [{"cell": "a::b::c", "stdout": "x", "stderr": ""}, {"stdout": "x"}, {"cell": 3}, [], "x"]
    lines = [json.dumps(row).encode() for row in rows] + [b"[" * 5000, b"\xff", b""]
    (tmp_path / "output.jsonl").write_bytes(b"\n".join(lines))
    assert read_output(tmp_path / "output.jsonl") == {"a::b::c": {"cell": "a::b::c", "stdout": "x"}}
    assert read_output(tmp_path / "absent") == {}


ROW = {"case": "s::a", "compiler": "c", "device": "cpu", "verdict": "pass", "case_hash": "0", "schema": 1}
DIFFERENCE = {"input": "example", "where": "result", "kind": "value", "detail": ""}
HELD_OUT = {**DIFFERENCE, "input": "held_out[0]"}
ERROR = {"type": "E", "message": "m", "fingerprint": "0"}


def line(**change):
    return json.dumps({**ROW, **change})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(differences=[DIFFERENCE]), "`verdict` is pass, but `differences` has 1"),
        (line(error=ERROR), "`verdict` is pass, but there is an `error`"),
        (line(verdict="pass_with_breaks", differences=[DIFFERENCE]), "`differences` has 1"),
        (line(verdict="wrong"), "`verdict` is wrong, but `differences` is empty"),
        (line(verdict="specialized"), "`verdict` is specialized, but `differences` is empty"),
        (line(verdict="wrong", input="held_out[0]", differences=[HELD_OUT]), "`differences` has none on example"),
        (
            line(verdict="specialized", input="held_out[0]", differences=[HELD_OUT, DIFFERENCE]),
            "`verdict` is specialized, but `differences` has one on example",
        ),
        (line(verdict="error", error=ERROR, differences=[DIFFERENCE]), "`verdict` is error, but .* has one on example"),
        (
            line(verdict="specialized", input="example", differences=[HELD_OUT]),
            r"`input` is example, but `differences` are on held_out\[0\]",
        ),
        (line(verdict="wrong", input="held_out[0]", differences=[DIFFERENCE]), "`input` is held_out"),
        (line(verdict="wrong", differences=[DIFFERENCE]), "`input` is None"),
        (line(verdict="error"), "`verdict` is error, but there is no `error`"),
        (line(graphs=-1), "`graphs` is negative"),
        (line(recompiles=2**63 + 1), "`recompiles` is negative or out of range|the number .* is out of range"),
        (line()[:-1] + ',"verdict":"wrong"}', "the field `verdict` appears twice"),
        (line(error=ERROR)[:-1].replace('"type"', '"type": "F", "type"') + "}", "the field `type` appears twice"),
        (
            json.dumps({name: value for name, value in ROW.items() if name != "schema"}),
            "missing required field `schema`",
        ),
        (line(graphs=0).replace('"graphs": 0', '"graphs": ' + "9" * 5000), "out of range"),
        (line(graphs=0).replace('"graphs": 0', '"graphs": 1e999'), "out of range"),
        (line(notes=0).replace('"notes": 0', '"notes": ' + "[" * 1100 + "]" * 1100), "notes"),
        ("[" * 200_000, "not a JSON record"),
        (line(zz=0).replace('"zz": 0', '"zz": ' + "[" * 1100 + "]" * 1100), "unknown field|nested too deeply"),
    ],
)
def test_a_record_that_cannot_be_true_is_refused_with_line_and_field(tmp_path, text, message):
    path = tmp_path / "c.jsonl"
    path.write_text(line(case="s::b") + "\n" + text + "\n")
    with pytest.raises(UsageError, match=rf"c\.jsonl:2: .*(?:{message})") as refused:
        read_jsonl(path, Record)
    assert len(str(refused.value)) < 1000


def test_a_timing_that_cannot_be_true_is_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"case": "s::a", "compiler": "c", "device": "cpu", "seconds": -1.0, "schema": 1}) + "\n")
    with pytest.raises(UsageError, match=r"t\.jsonl:1: `seconds` is negative"):
        read_jsonl(path, Timing)


def test_nesting_too_deep_for_python_is_one_clear_line():
    form = Format(dict, "document", 1, lambda _: None)
    with pytest.raises(ValueError, match="nested too deeply"):
        form.decode(b'{"a":' * 20_000 + b"1" + b"}" * 20_000)
