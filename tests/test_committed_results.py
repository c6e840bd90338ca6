"""What is committed under results/ was written by the tool and is whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from recapture.report.markdown import render_conformance
from recapture.results import find_results, read_results

RESULTS = Path(__file__).resolve().parents[1] / "results"
DIRECTORIES = find_results(RESULTS)


@pytest.fixture(params=DIRECTORIES, ids=lambda path: str(path.relative_to(RESULTS)))
def results(request):
    return read_results(request.param)


def test_the_report_is_what_the_records_render_to(results):
    text = render_conformance(results.records, results.environment)
    assert (results.directory / "conformance.md").read_text(encoding="utf-8") == text


def test_every_cell_is_recorded_once(results):
    assert max(Counter((row.case, row.compiler, row.device) for row in results.records).values()) == 1


def test_planned_cells_are_recorded_cells(results):
    if results.environment is None:
        pytest.skip("the run was cut off with its machine before the environment was written")
    assert results.environment.planned == results.environment.recorded == len(results.records)


def test_no_path_of_the_machine_that_measured_is_left(results):
    for path in results.directory.iterdir():
        if path.name == "output.jsonl":  # what cells printed stays on the machine that measured: git ignores it
            continue
        text = path.read_text(encoding="utf-8")
        assert not any(folder in text for folder in ("/home/", "/root/", "/tmp/", "site-packages")), path.name
