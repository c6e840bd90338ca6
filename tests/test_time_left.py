"""The time left that a run shows: recorded runs are played again, each estimated by the durations of another one."""

from __future__ import annotations

import heapq
import io

import pytest
from documents import ROOT
from rich.console import Console

from recapture.cases.compilers import builtin_compilers
from recapture.records.record import TIMINGS, Record, Timing, read_jsonl
from recapture.records.verdicts import Verdict
from recapture.report.run_progress import RunProgress

JOBS = 2

QUIET = "torch2.10.0-cu128"
"""An image that was recorded while the machine did nothing else: another load in a part of a run is no release's doing."""


def recorded(image):
    """The seconds that each cell of an image took, by its address."""
    rows = read_jsonl(ROOT / "results" / image / "cpu" / TIMINGS, Timing)
    return {f"{row.case}::{row.compiler}": row.seconds for row in rows}


def generates_code(cell):
    return builtin_compilers()[cell.rpartition("::")[2]].generates_code


def readings(took, likely):
    """Play a run in which cells take `took`, long ones first; yield the seconds, the time left shown, and the true one.

    As in a run of all suites, cells that generate code begin when all others have ended.
    """
    clock = [0.0]
    points = []
    order = sorted(took, key=likely.__getitem__, reverse=True)
    with RunProgress(Console(file=io.StringIO()), clock=lambda: clock[0]) as progress:
        progress.start({cell: likely[cell] for cell in took}, JOBS, guessed=False)
        for stage in ([c for c in order if not generates_code(c)], [c for c in order if generates_code(c)]):
            waiting, running = iter(stage), []
            while True:
                while len(running) < JOBS and (cell := next(waiting, None)) is not None:
                    progress.cell_started(cell)
                    heapq.heappush(running, (clock[0] + took[cell], cell))
                if not running:
                    break
                clock[0], cell = heapq.heappop(running)
                case, _, compiler = cell.rpartition("::")
                row = Record(case=case, compiler=compiler, device="cpu", verdict=Verdict.PASS, case_hash="0")
                progress.cell_finished(row, took[cell])
                points.append((clock[0], progress.seconds_left()))
    return [(now, left, clock[0] - now) for now, left in points]


def assert_within_a_factor_of_two(took, likely):
    checked = [row for row in readings(took, likely) if row[0] >= 60 and row[2] >= 60]
    assert len(checked) > 1000
    wrong = [row for row in checked if not 0.5 <= row[1] / row[2] <= 2]
    assert not wrong, (len(wrong), wrong[:3])


@pytest.mark.parametrize(
    ("image", "neighbour"),
    [
        (QUIET, "torch2.12.1-cu130"),
        (QUIET, "torch2.8.0-cu128"),
        ("torch2.9.1-cu128", "torch2.9.1-cu128-drifted"),
        ("torch2.2.2-cu121", "torch2.2.2-cu121-drifted"),
    ],
)
def test_from_one_minute_on_a_new_release_is_estimated_within_a_factor_of_two(image, neighbour):
    assert_within_a_factor_of_two(recorded(image), recorded(neighbour))


@pytest.mark.parametrize("factor", [0.4, 3.0])
def test_another_machine_is_estimated_within_a_factor_of_two(factor):
    took = recorded(QUIET)
    assert_within_a_factor_of_two({cell: seconds * factor for cell, seconds in took.items()}, took)


def test_a_machine_that_compiles_cxx_slowly_is_estimated_within_a_factor_of_two_once_it_compiles():
    """What is shown before the first C++ was compiled cannot know it."""
    took = recorded(QUIET)
    slow = {cell: seconds * (4 if generates_code(cell) else 1) for cell, seconds in took.items()}
    captured = sum(seconds for cell, seconds in took.items() if not generates_code(cell)) / JOBS
    wrong = [
        row
        for row in readings(slow, took)
        if row[0] > captured + 60 and row[2] > 120 and not 0.5 <= row[1] / row[2] <= 2
    ]
    assert not wrong


def test_a_cell_that_ends_before_its_deadline_does_not_shorten_the_others():
    likely = {"s::hangs::jit.trace": 300.0, **{f"s::c{i}::compile": 4.0 for i in range(200)}}
    took = {**likely, "s::hangs::jit.trace": 1.0}
    assert_readings = [row for row in readings(took, likely) if row[0] >= 20 and row[2] >= 20]
    assert all(0.5 <= left / truth <= 2 for _, left, truth in assert_readings)
