"""What is committed under results/ was written by the tool and is whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from recapture.cases.collection import shipped_suites
from recapture.machine.pins import load_images
from recapture.records.directories import find_results, read_results
from recapture.records.verdicts import Verdict
from recapture.report.conformance_report import render_conformance
from recapture.tools.compare.overview import overview, to_markdown
from recapture.tools.speed.figures import derive
from recapture.tools.speed.report import render_speedups
from recapture.tools.speed.speedups import find_speedups, read_speedups

RESULTS = Path(__file__).resolve().parents[1] / "results"
DIRECTORIES = find_results(RESULTS)


@pytest.fixture(scope="module", params=DIRECTORIES, ids=lambda path: str(path.relative_to(RESULTS)))
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


def test_eager_runs_every_case(results):
    """A case that eager cannot run tells nothing: it is not applicable, or was too slow, but has no fault."""
    allowed = (Verdict.NOT_APPLICABLE, Verdict.TIMEOUT)
    refused = [row.cell for row in results.records if row.phase == "reference" and row.verdict not in allowed]
    assert refused == []


def test_no_path_of_the_machine_that_measured_is_left(results):
    for path in results.directory.iterdir():
        if path.name == "output.jsonl":  # what cells printed stays on the machine that measured: git ignores it
            continue
        text = path.read_text(encoding="utf-8")
        assert not any(folder in text for folder in ("/home/", "/root/", "/tmp/", "site-packages")), path.name


def test_the_overview_is_what_recapture_history_prints():
    assert (RESULTS / "README.md").read_text(encoding="utf-8") == to_markdown(overview(RESULTS))


def test_every_image_has_the_same_cells_of_all_suites_on_the_cpu():
    """`nox -s matrix` fills every image, drifted ones too; a new case is run on all of them."""
    cells = {
        image: {(row.case, row.compiler) for row in read_results(RESULTS / image / "cpu").records}
        for image in load_images()
        if (RESULTS / image).is_dir()  # patch releases between two recorded ones are for upgrade and bisect
    }
    assert len(cells) >= 20
    suites = {file.name for file in shipped_suites()}
    for image, image_cells in cells.items():
        assert {case.split("::")[0] for case, _ in image_cells} == suites, image
        assert image_cells == cells["torch2.10.0-cu128"], image


@pytest.fixture(params=find_speedups(RESULTS), ids=lambda path: str(path.relative_to(RESULTS)))
def timed(request):
    return request.param


def test_the_report_of_a_benchmark_is_what_its_rows_render_to(timed):
    assert timed.with_suffix(".md").read_text(encoding="utf-8") == render_speedups(read_speedups(timed))


def test_every_configuration_of_a_benchmark_has_one_row_and_only_what_is_right_a_number(timed):
    speedups = read_speedups(timed)
    keys = Counter((row.workload, row.configuration) for row in speedups.rows)
    assert max(keys.values()) == 1
    assert speedups.planned == len(speedups.rows)
    assert tuple(map(derive, speedups.rows)) == speedups.rows
    assert all((row.measured is not None) == row.right for row in speedups.rows)
