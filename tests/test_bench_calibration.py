"""How exact the timing is: eager against itself, and against a planted slowdown of three per cent."""

import pytest

from benchmarks.calibration import PLANTED, collect
from recapture.tools.speed.figures import compare

PAIRS, PROCESSES, SECONDS = 20, 5, 0.4
"""The cost that was measured, less than the default of `recapture bench`."""

FEWEST = 19
"""Pairs of the twenty of which each rule must hold."""


@pytest.fixture(scope="module")
def comparisons():
    def of(planted):
        pairs = collect("cpu", PAIRS, PROCESSES, SECONDS, planted)
        return [compare([tuple(process["samples"]) for process in pair]) for pair in pairs]

    return of


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(1800)
def test_eager_against_itself_is_within_one_per_cent_in_19_of_20_pairs(comparisons):
    equal = comparisons(0.0)
    assert sum(abs(comparison.ratio - 1) <= 0.01 for comparison in equal) >= FEWEST
    assert sum(comparison.finding in ("faster", "slower") for comparison in equal) <= PAIRS - FEWEST


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(1800)
def test_a_slowdown_of_three_per_cent_is_found_in_19_of_20_pairs(comparisons):
    slower = comparisons(PLANTED)
    assert sum(comparison.finding == "slower" for comparison in slower) >= FEWEST
