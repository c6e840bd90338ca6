"""Tables, locks, requirements, kept answers and attempts that are damaged or no regular files: one line, or none there."""

import json
import os
import re
from xml.etree import ElementTree as ET

import msgspec
import pytest

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.toml_file import MOST_BYTES, load_toml
from recapture.command.main import main
from recapture.images import engine
from recapture.images.lock_files import read_inputs_digest
from recapture.images.requirements import Requirements
from recapture.known.issues import ISSUES
from recapture.machine.pins import docker_directory, load_pins, lock_hash, lock_text, read_lock
from recapture.records.record import PARTIAL
from recapture.run.attempts import ATTEMPTS, attempts_of
from recapture.tools.check.across import AcrossReport, ReleaseAnswer, kept_answer, printed_report
from recapture.tools.check.answers import CheckReport, CheckRow
from recapture.tools.check.report import (
    LONGEST_ANNOTATION,
    across_annotations,
    check_annotations,
    check_junit,
    check_markdown,
)
from tests.fuzz import checks

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(60)]

DEEP = "[" * 100_000


@pytest.fixture(params=["a FIFO", "a directory", "a symbolic link"])
def irregular(request, tmp_path):
    """A path that is no regular file, and what it is; a link leads to itself."""
    path = tmp_path / "irregular"
    if request.param == "a FIFO":
        os.mkfifo(path)
    elif request.param == "a directory":
        path.mkdir()
    else:
        path.symlink_to(path.name)
    return path, request.param


def refused(read, path):
    """The one line with which a reader refuses a file."""
    with pytest.raises(UsageError) as error:
        read(path)
    assert "\n" not in str(error.value)
    return str(error.value)


class TestTables:
    def test_a_table_is_a_regular_file(self, irregular):
        path, kind = irregular
        message = refused(lambda file: load_toml(file, "the table", dict), path)
        assert message == f"cannot read the table: {path}: {kind}, not a regular file"

    def test_a_link_to_a_table_is_followed(self, tmp_path):
        (tmp_path / "real.toml").write_text("a = 1\n")
        (tmp_path / "link.toml").symlink_to("real.toml")
        assert load_toml(tmp_path / "link.toml", "the table", dict) == {"a": 1}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (f"a = {DEEP}".encode(), "nested too deeply"),
            (b"a = '\xff'", "can't decode byte"),
            (b"a = " + b"9" * 5000, "limit"),
            (b"#" * (MOST_BYTES + 1), "more than the"),
        ],
    )
    def test_a_damaged_table_is_refused_in_one_line(self, tmp_path, content, message):
        path = tmp_path / "table.toml"
        path.write_bytes(content)
        if message == "limit":  # Python 3.10 of some distributions has no limit on digits
            try:
                int("9" * 5000)
            except ValueError:
                pass
            else:
                pytest.skip("this Python reads numbers of any length")
        assert message in refused(lambda file: load_toml(file, "the table", dict), path)

    @pytest.mark.parametrize(
        "content", ["images = 'none'", "images = [1]", "[images]\na = 1", "[tools]\ncutoff = 2026-01-01\nplatform = 7"]
    )
    def test_images_that_are_no_tables_are_refused(self, tmp_path, content):
        path = tmp_path / "images.toml"
        path.write_text(content)
        assert str(path) in refused(load_pins, path)

    @pytest.mark.parametrize("name", ["torch", "python"])
    def test_a_version_in_the_images_is_one(self, tmp_path, name):
        text = (docker_directory() / "images.toml").read_text("utf-8")
        path = tmp_path / "images.toml"
        path.write_text(re.sub(rf'(?m)^{name} = ".*"', f'{name} = "2 or so"', text, count=1))
        assert f"{name}: Invalid version: '2 or so'" in refused(load_pins, path)

    def test_the_known_issues_say_nothing_about_a_release_that_is_no_version(self):
        known = ISSUES.shipped.values()
        assert {issue.says("2.6.0") for issue in known} > {None}
        assert {issue.says("2.11.0+cu130\n\n| injected |") for issue in known} == {None}


class TestLocks:
    @pytest.mark.parametrize("read", [lock_text, read_lock, lock_hash, read_inputs_digest])
    def test_a_lock_is_a_regular_file(self, irregular, read):
        path, kind = irregular
        assert f"{path}: {kind}, not a regular file" in refused(read, path)

    @pytest.mark.parametrize("line", ["torch>=2", "torch", "torch==2,==3", "a b c", "x; " + "(" * 3000])
    def test_a_line_without_a_version_is_named_with_its_number(self, tmp_path, line):
        path = tmp_path / "lock.txt"
        path.write_text(f"numpy==2.0\n{line}\n")
        assert refused(read_lock, path).startswith(f"{path}, line 2: ")

    def test_a_lock_that_is_no_text_is_refused(self, tmp_path):
        path = tmp_path / "lock.txt"
        path.write_bytes(b"\xff\xfe")
        assert refused(read_lock, path) == f"{path}: not a text file"


class TestRequirements:
    def test_they_are_regular_files(self, irregular):
        path, kind = irregular
        assert refused(lambda file: Requirements.read([file]), path).endswith(f"{path}: {kind}, not a regular file")

    def test_a_file_that_another_one_names_is_refused_in_the_same_way(self, tmp_path, irregular):
        path, kind = irregular
        (tmp_path / "first.txt").write_text(f"-r {path.name}\n")
        assert kind in refused(lambda file: Requirements.read([file]), tmp_path / "first.txt")

    def test_a_marker_that_is_nested_too_deeply_is_no_requirement(self, tmp_path):
        path = tmp_path / "requirements.txt"
        path.write_text("a==1; " + "(" * 3000 + "\n")
        assert refused(lambda file: Requirements.read([file]), path).endswith("is not a requirement: nested too deeply")


def report(**changed):
    row = CheckRow(compiler="compile", verdict="wrong", input="example", reason="value", wrong_on=("example",))
    return CheckReport(target="m:f", torch="2.11.0", device="cpu", rows=(msgspec.structs.replace(row, **changed),))


class TestKeptAnswers:
    def keep(self, path, text):
        path.write_text(text)
        return kept_answer(path)

    def test_what_is_no_answer_counts_as_none(self, tmp_path, irregular):
        path = tmp_path / "answer.json"
        answer = ReleaseAnswer(release="2.11.0", image="an-image", report=report())
        good = msgspec.json.encode(("key", answer)).decode()
        assert self.keep(path, good) == ("key", answer)
        for text in ("", DEEP, "null", '["key"]', good.replace('"wrong"', '"great"'), good[:-3]):
            assert self.keep(path, text) is None
        assert kept_answer(irregular[0]) is None
        assert kept_answer(tmp_path / "absent") is None

    def test_what_another_environment_printed_is_a_report_or_refused_in_one_line(self):
        assert printed_report(msgspec.json.encode(report())) == report()
        for output in (b"", DEEP.encode(), b"\xff", msgspec.json.encode(report()).replace(b'"wrong"', b'"great"')):
            with pytest.raises(EnvironmentUnfitError, match="printed no report") as error:
                printed_report(output)
            assert "\n" not in str(error.value)

    def test_an_annotation_is_one_line_of_limited_length(self):
        hostile_report = report(reason="x%\n" * 100_000)
        across = AcrossReport(
            target="m:f", device="cpu", releases=(ReleaseAnswer(release="1", image="i", gap="y" * 9**6),)
        )
        for line in (*check_annotations(hostile_report), *across_annotations(across, ["z" * 9**6])):
            assert "\n" not in line
            assert len(line) <= 3 * LONGEST_ANNOTATION + 200  # a per cent sign becomes three characters

    def test_inputs_that_eager_refuses_are_text_in_a_report_in_markdown(self):
        hostile_report = msgspec.structs.replace(report(), refused=(("<img src=x>", "[a](javascript:b)\n\n# heading"),))
        text = check_markdown(hostile_report)
        assert checks.markdown(text, "it") == []
        assert "img src=x" in text

    def test_junits_file_is_xml_whatever_a_compiler_is_called(self):
        hostile_report = report(compiler="a\x00\x1b[31m\ud800<b>")
        [case] = ET.fromstring(check_junit(hostile_report)).iter("testcase")
        assert case.get("name") == "a\ufffd\ufffd[31m\ufffd<b>"


def test_the_lines_of_an_attempt_are_counted_in_regular_files_alone(tmp_path, irregular):
    name = "a.cpu.1-of-1"
    for number in (1, 2):
        place = tmp_path / ATTEMPTS / f"{name}.{number}" / "a" / "cpu"
        place.mkdir(parents=True)
    irregular[0].rename(place / PARTIAL)
    (tmp_path / ATTEMPTS / f"{name}.1" / "a" / "cpu" / PARTIAL).write_text("{}\n{}\n")
    assert [attempt[::3] for attempt in attempts_of(tmp_path, name)] == [(1, 2), (2, 0)]


def test_a_damaged_docker_context_is_unknown(tmp_path, monkeypatch, irregular):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name, text in (("deep", DEEP), ("list", "[]"), ("number", '{"Name": 1, "Endpoints": {"docker": {"Host": 2}}}')):
        folder = tmp_path / "contexts" / "meta" / name
        folder.mkdir(parents=True)
        (folder / "meta.json").write_text(text)
    (tmp_path / "contexts" / "meta" / "irregular").mkdir()
    irregular[0].rename(tmp_path / "contexts" / "meta" / "irregular" / "meta.json")
    stored = {"Name": "good", "Endpoints": {"docker": {"Host": "tcp://192.0.2.1:1"}}}
    (tmp_path / "contexts" / "meta" / "list" / "meta.json").write_text(json.dumps(stored))
    pytest.importorskip("docker")
    with pytest.raises(UsageError, match="no Docker context 'deep'"):
        engine._context("deep")
    assert engine._context("good") == {"base_url": "tcp://192.0.2.1:1"}


def test_a_warning_of_a_merge_is_one_line_of_limited_length(tmp_path, capsys):
    from planted_diffs import OLD

    for name, package in (("first", "numpy"), ("second", "x" * 50_000)):
        (tmp_path / name).mkdir()
        document = json.loads((OLD / "environment.json").read_text())
        document["packages"] = {**document["packages"], package: "1.0"}
        (tmp_path / name / "environment.json").write_text(json.dumps(document))
        (tmp_path / name / "conformance.jsonl").write_bytes((OLD / "conformance.jsonl").read_bytes())
        with pytest.raises(SystemExit):
            main(["merge", "--incomplete", str(tmp_path / name), "--results", str(tmp_path / "results")])
    lines = capsys.readouterr().err.splitlines()
    assert any("of another installation" in line for line in lines)
    assert max(map(len, lines)) < 5000
