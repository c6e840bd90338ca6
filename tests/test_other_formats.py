"""What is written for other tools fits what they publish: JUnit's XML, and the JSON of two stores of benchmarks."""

import datetime as dt
import json
import math
from pathlib import Path

import msgspec
import pytest
from test_own_code_ci import REPORT

from recapture.command.main import main
from recapture.tools.check.answers import CheckReport, CheckRow
from recapture.tools.check.report import check_junit
from recapture.tools.speed.benchmark_json import FORMATS, benchmark_json
from recapture.tools.speed.speedups import read_speedups, write_speedups

RESOURCES = Path(__file__).parent / "resources"
SCHEMAS = RESOURCES / "schemas"
MEASURED = RESOURCES / "speedups" / "measured.json"
FILES = {"pytorch": "pytorch_benchmark_v3.json", "github-action-benchmark": "github_action_benchmark.json"}


@pytest.fixture(scope="module")
def stored():
    return read_speedups(MEASURED)


@pytest.fixture(scope="module")
def junit():
    return pytest.importorskip("xmlschema").XMLSchema(str(SCHEMAS / "junit.xsd"))


def invalid(form, entries):
    """The first complaint about entries, or None."""
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    errors = validator(json.loads((SCHEMAS / FILES[form]).read_text())).iter_errors(entries)
    return next(iter(errors), None)


def test_a_report_is_junit_as_its_strictest_readers_want_it(junit, tmp_path):
    file = tmp_path / "junit.xml"
    file.write_bytes(check_junit(REPORT))
    junit.validate(str(file))


def test_a_report_without_rows_and_with_hostile_texts_is_junit(junit, tmp_path):
    file = tmp_path / "junit.xml"
    hostile = "a\0b\x1b]0;t\x07<&>\"'\ud800\n]]>"
    row = CheckRow(compiler="x", verdict="wrong", reason=hostile, advice=hostile, differences=(hostile,))
    for rows in ((), (row,)):
        file.write_bytes(check_junit(CheckReport(target=hostile, torch="2", device="cpu", rows=rows)))
        junit.validate(str(file))


def test_the_schema_refuses_what_a_reader_refuses(junit, tmp_path):
    """The test above could not fail if the schema took anything."""
    good = check_junit(REPORT, dt.datetime(2026, 1, 2, 3, 4, 5)).decode()  # noqa: DTZ001
    assert 'timestamp="2026-01-02T03:04:05"' in good
    file = tmp_path / "junit.xml"
    for old, new in (
        (' hostname="localhost"', ""),
        ('errors="1"', 'errors="one"'),
        ("<system-err />", ""),
        (' type="specialized"', ""),
        ("T03:04:05", "T03:04:05Z"),
    ):
        assert old in good
        file.write_text(good.replace(old, new))
        assert not junit.is_valid(str(file)), new


@pytest.mark.parametrize("form", FORMATS)
def test_speedups_fit_the_format_of_the_other_tool(stored, form):
    entries = json.loads(benchmark_json([stored], form))
    assert invalid(form, entries) is None
    measured = [row for row in stored.rows if row.measured is not None]
    assert measured
    if form == "pytorch":
        speedups = [entry for entry in entries if entry["metric"]["name"] == "speedup"]
        assert [entry["metric"]["benchmark_values"] for entry in speedups] == [
            [row.measured.speedup[0]] for row in measured
        ]
        assert {entry["benchmark"]["mode"] for entry in entries} == {"inference", "training"}
        times = [entry["metric"]["benchmark_values"] for entry in entries if entry["metric"]["name"] == "latency_s"]
        assert [len(samples) for samples in times] == [len(row.processes) for row in measured]
    else:
        assert [entry["value"] for entry in entries] == [row.measured.seconds for row in measured]
        assert len({entry["name"] for entry in entries}) == len(measured)


@pytest.mark.parametrize("form", FORMATS)
def test_the_schema_refuses_wrong_entries(stored, form):
    (entry, *_) = json.loads(benchmark_json([stored], form))
    if form == "pytorch":
        spoilt = [
            {**entry, "metric": {"name": "speedup", "benchmark_values": ["1.5"]}},
            {**entry, "model": {"name": ""}},
            {**entry, "benchmark": {**entry["benchmark"], "extra_info": {"a": 1}}},
        ]
    else:
        spoilt = [{**entry, "value": "1 s"}, {key: entry[key] for key in ("name", "value")}]
    for spoilt_entry in spoilt:
        assert invalid(form, [spoilt_entry]) is not None


def test_a_report_writes_the_speedups_of_all_results(stored, tmp_path, capsys):
    for image in ("one", "two"):
        path = tmp_path / image / "cpu" / "speedups-cpu.json"
        path.parent.mkdir(parents=True)
        write_speedups(path, stored)
    target = tmp_path / "out.json"
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path), "--quiet", "--benchmark-json", str(target)])
    assert left.value.code == 0
    entries = json.loads(target.read_text())
    assert invalid("pytorch", entries) is None
    assert len(entries) == 2 * len(json.loads(benchmark_json([stored], "pytorch")))
    assert all(math.isfinite(value) for entry in entries for value in entry["metric"]["benchmark_values"])


def test_results_without_speeds_say_so_in_one_line(tmp_path, capsys):
    speedless = msgspec.structs.replace(read_speedups(MEASURED), rows=(), planned=0)
    assert json.loads(benchmark_json([speedless], "pytorch")) == []
    records = RESOURCES / "results"
    assert records.is_dir()
    with pytest.raises(SystemExit) as left:
        main(["report", str(records), "--quiet", "--benchmark-json", str(tmp_path / "out.json")])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
