"""A benchmark whose samples no ratio follows from is refused by the reader, with the row, the field and the reason."""

import copy
import json

import pytest

from recapture.base.errors import UsageError
from recapture.tools.speed.selection import BenchOptions
from recapture.tools.speed.speedup_checks import MOST_PROCESSES, MOST_SAMPLES
from recapture.tools.speed.speedups import read_speedups
from recapture.tools.speed.timing import MOST_ROUNDS
from tests.fuzz import corpus


@pytest.fixture
def benchmark(tmp_path):
    """Writes the benchmark of the corpus with one row changed; returns its path."""
    corpus.build(tmp_path)
    path = tmp_path / "results" / corpus.OLD / "speedups-nvidia-h200.json"
    document = json.loads(path.read_text())

    def changed(change):
        other = copy.deepcopy(document)
        change(other, other["rows"][0], other["rows"][0]["processes"][0])
        path.write_text(json.dumps(other))
        return path

    return changed


def samples(variant, value):
    def change(_document, _row, process):
        process[variant]["seconds"] = value

    return change


def test_what_was_measured_is_read(benchmark):
    assert len(read_speedups(benchmark(lambda *_: None)).rows) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (samples("candidate", []), r"`processes\[0\]\.candidate\.seconds` is empty"),
        (samples("candidate", [0.1] * 11), r"`processes\[0\]\.candidate\.seconds` has 11 samples, `eager` has 12"),
        (samples("candidate", [0.0] * 12), "a sample that is not positive"),
        (samples("eager", [-0.1] * 12), "a sample that is not positive"),
        (samples("eager", [1e-300] * 12), "out of range"),
        (samples("eager", [1e300] * 12), "out of range"),
        (samples("eager", [0.1] * 1001), r"`processes\[0\]\.eager\.seconds` has 1001 samples, more than 1000"),
        (lambda _d, row, p: row.update(processes=[p] * 101), "`processes` has 101 items, more than 100"),
        (lambda _d, row, _p: row["cold"].update(calls=[1.0]), r"`cold\.calls` has 1 of the 2 first calls"),
        (lambda _d, row, _p: row["warm"].update(calls=[]), r"`warm\.calls` has 0 of the 2"),
        (lambda _d, _r, process: process["start"].update(calls=[]), r"`processes\[0\]\.start\.calls` has 0"),
        (lambda _d, row, _p: row["cold"].update(capture=-1.0), "`cold` has seconds that are negative"),
        (lambda _d, row, _p: row["measured"].update(seconds=0.0), r"`measured\.seconds` is not positive"),
        (lambda _d, row, _p: row["measured"].update(memory=-1), r"`measured\.memory` is negative"),
        (lambda _d, row, _p: row.update(verdict="wrong"), "`verdict` is wrong, but `measured` has figures"),
        (lambda document, _r, _p: document.update(planned=-1), "`planned` is negative"),
        (lambda document, row, _p: document["rows"].append(row), "appears twice"),
        (lambda document, _r, _p: document["environment"]["cpu"].update(cores=-1), r"`cpu\.cores` is negative"),
        (lambda document, _r, _p: document.pop("schema"), "missing required field `schema`"),
        (lambda document, _r, _p: document.update(schema=2), "benchmark schema 2 is not understood"),
    ],
)
def test_a_benchmark_that_cannot_be_true_is_refused(benchmark, change, said):
    with pytest.raises(UsageError, match=rf"speedups-nvidia-h200\.json: .*{said}"):
        read_speedups(benchmark(change))


def test_every_benchmark_that_can_be_measured_is_read():
    assert MOST_ROUNDS <= MOST_SAMPLES
    assert BenchOptions.processes <= MOST_PROCESSES


def test_a_row_of_the_most_processes_is_read(benchmark):
    path = benchmark(lambda _d, row, process: row.update(processes=[process] * MOST_PROCESSES))
    assert len(read_speedups(path).rows[0].processes) == MOST_PROCESSES


def test_samples_that_are_no_numbers_are_refused(benchmark):
    path = benchmark(samples("eager", ["@"] * 12))
    path.write_text(path.read_text().replace('"@"', "NaN"))
    with pytest.raises(UsageError, match="not a JSON benchmark"):
        read_speedups(path)
