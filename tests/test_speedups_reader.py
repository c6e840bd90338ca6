"""A benchmark whose samples no ratio follows from is refused by the reader, with the row, the field and the reason."""

import copy
import json

import msgspec
import pytest

from recapture.base.errors import UsageError
from recapture.tools.speed.figures import derive
from recapture.tools.speed.selection import BenchOptions
from recapture.tools.speed.speedups import LARGEST_RATIO, MOST_PROCESSES, MOST_SAMPLES, read_speedups, write_speedups
from recapture.tools.speed.timing import MOST_ROUNDS
from tests.fuzz import corpus


@pytest.fixture
def benchmark(tmp_path):
    """Writes the benchmark of the corpus with one row changed; returns its path."""
    corpus.build(tmp_path)
    path = tmp_path / "results" / corpus.OLD / "speedups-nvidia-h200.json"
    document = json.loads(path.read_text())

    def changed(change):
        damaged = copy.deepcopy(document)
        change(damaged, damaged["rows"][0], damaged["rows"][0]["processes"][0])
        path.write_text(json.dumps(damaged))
        return path

    return changed


def samples(variant, value):
    def change(_document, _row, process):
        process[variant]["seconds"] = value

    return change


def test_what_was_measured_is_read(benchmark):
    assert len(read_speedups(benchmark(lambda *_: None)).rows) == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (samples("candidate", []), r"length >= 1 - at `\$\.rows\[0\]\.processes\[0\]\.candidate\.seconds`"),
        (samples("candidate", [0.1] * 11), r"`processes\[0\]\.candidate\.seconds` has 11 samples, `eager` has 12"),
        (samples("candidate", [0.0] * 12), r">= 1e-09 - at `\$\.rows\[0\]\.processes\[0\]\.candidate\.seconds\[0\]`"),
        (samples("eager", [-0.1] * 12), r">= 1e-09 - at `\$\.rows\[0\]\.processes\[0\]\.eager\.seconds\[0\]`"),
        (samples("eager", [1e-300] * 12), r">= 1e-09 - at `\$\.rows\[0\]\.processes\[0\]\.eager\.seconds\[0\]`"),
        (samples("eager", [1e300] * 12), r"<= 1000000\.0 - at `\$\.rows\[0\]\.processes\[0\]\.eager\.seconds\[0\]`"),
        (samples("eager", [0.1] * 1001), r"length <= 1000 - at `\$\.rows\[0\]\.processes\[0\]\.eager\.seconds`"),
        (lambda _d, _r, process: process["eager"].update(iterations=0), r">= 1 - at `\S*\.eager\.iterations`"),
        (lambda _d, _r, process: process.update(overhead=-0.1), r">= 0\.0 - at `\S*\.processes\[0\]\.overhead`"),
        (lambda _d, row, p: row.update(processes=[p] * 101), r"length <= 100 - at `\$\.rows\[0\]\.processes`"),
        (lambda _d, row, _p: row["cold"].update(calls=[1.0]), r"length >= 2 - at `\$\.rows\[0\]\.cold\.calls`"),
        (lambda _d, row, _p: row["warm"].update(calls=[]), r"length >= 2 - at `\$\.rows\[0\]\.warm\.calls`"),
        (lambda _d, _r, process: process["start"].update(calls=[]), r"length >= 2 - at `\S*\[0\]\.start\.calls`"),
        (lambda _d, row, _p: row["cold"].update(capture=-1.0), r">= 0\.0 - at `\$\.rows\[0\]\.cold\.capture`"),
        (lambda _d, row, _p: row["measured"].update(seconds=0.0), r">= 1e-15 - at `\$\.rows\[0\]\.measured\.seconds`"),
        (lambda _d, row, _p: row["measured"].update(memory=-1), r">= 0 - at `\$\.rows\[0\]\.measured\.memory`"),
        (lambda _d, row, _p: row["measured"].update(memory=2**63 + 1), "the number .* is out of range"),
        (lambda _d, row, _p: row.update(verdict="wrong"), "`verdict` is wrong, but `measured` has figures"),
        (lambda document, _r, _p: document.update(planned=-1), r">= 0 - at `\$\.planned`"),
        (lambda document, row, _p: document["rows"].append(row), "appears twice"),
        (lambda document, _r, _p: document["environment"]["cpu"].update(cores=-1), r">= 0 - at `\S*\.cpu\.cores`"),
        (lambda document, _r, _p: document.pop("schema"), "missing required field `schema`"),
        (lambda document, _r, _p: document.update(schema=2), "benchmark schema 2 is not understood"),
    ],
)
def test_a_benchmark_that_cannot_be_true_is_refused(benchmark, change, reason):
    with pytest.raises(UsageError, match=rf"speedups-nvidia-h200\.json: .*{reason}"):
        read_speedups(benchmark(change))


def test_every_benchmark_that_can_be_measured_is_read():
    assert MOST_ROUNDS <= MOST_SAMPLES
    assert BenchOptions.processes <= MOST_PROCESSES


def test_a_row_of_the_most_processes_is_read(benchmark):
    path = benchmark(lambda _d, row, process: row.update(processes=[process] * MOST_PROCESSES))
    assert len(read_speedups(path).rows[0].processes) == MOST_PROCESSES


def test_the_interval_of_two_processes_that_disagree_is_read_again(benchmark):
    def disagree(_document, row, process):
        slow = copy.deepcopy(process)
        slow["candidate"]["seconds"] = [1000 * seconds for seconds in process["candidate"]["seconds"]]
        row["processes"] = [process, slow]

    path = benchmark(disagree)
    speedups = read_speedups(path)
    write_speedups(path, msgspec.structs.replace(speedups, rows=tuple(map(derive, speedups.rows))))
    _, low, high = read_speedups(path).rows[0].measured.speedup
    assert (low, high) == (1 / LARGEST_RATIO, LARGEST_RATIO)


def test_samples_that_are_no_numbers_are_refused(benchmark):
    path = benchmark(samples("eager", ["@"] * 12))
    path.write_text(path.read_text().replace('"@"', "NaN"))
    with pytest.raises(UsageError, match="not a JSON benchmark"):
        read_speedups(path)
