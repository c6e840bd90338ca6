"""How two series of times are compared: intervals, drift, noise, and differences between processes."""

import math
import random

import pytest

from recapture.tools.speed.figures import compare, geometric_mean


def noisy(seed, rounds=40, level=1.0, sigma=0.01, processes=5, drift=0.0, apart=0.0):
    """Pairs of samples for each process: equal but for `level`, what each process adds to it, and a drift of both."""
    source = random.Random(seed)
    series = []
    for _ in range(processes):
        start = source.lognormvariate(0, 0.05)
        own = level * source.lognormvariate(0, apart)
        times = [start * (1 + drift * number / rounds) for number in range(rounds)]
        series.append(
            (
                [seconds * source.lognormvariate(0, sigma) for seconds in times],
                [seconds * own * source.lognormvariate(0, sigma) for seconds in times],
            )
        )
    return series


def test_samples_without_any_spread_show_no_difference():
    comparison = compare([([1.0] * 20, [1.0] * 20)] * 3)
    assert (comparison.ratio, comparison.p_value, comparison.finding) == (1.0, 1.0, "no difference shown")


def test_equal_samples_are_hardly_ever_called_different():
    called = [compare(noisy(seed)).finding for seed in range(200)]
    assert sum(finding in ("faster", "slower") for finding in called) <= 2
    assert called.count("no difference shown") >= 196


@pytest.mark.parametrize("processes", [2, 3, 5])
@pytest.mark.parametrize("apart", [0.0, 0.01, 0.05])
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says(processes, apart):
    comparisons = [compare(noisy(seed, level=0.8, processes=processes, apart=apart), seed=seed) for seed in range(100)]
    assert (
        sum(comparison.low <= 1.25 <= comparison.high for comparison in comparisons) >= 90
    )  # 95 % less twice the standard error


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_processes_that_differ_are_hardly_ever_called_different(processes):
    called = [compare(noisy(seed, processes=processes, apart=0.05), seed=seed).finding for seed in range(100)]
    assert sum(finding in ("faster", "slower") for finding in called) <= 3


def test_the_interval_of_one_process_has_room_for_what_processes_usually_differ():
    comparison = compare(noisy(1, processes=1, level=1.1))
    assert comparison.finding == "too noisy"
    assert comparison.high / comparison.low > 1.2
    assert comparison.low < 1 / 1.1 < comparison.high
    assert compare(noisy(1, processes=1, level=1.4)).finding == "slower"


def test_one_process_is_hardly_ever_called_different_where_processes_differ():
    called = [compare(noisy(seed, processes=1, apart=0.05), seed=seed).finding for seed in range(100)]
    assert sum(finding in ("faster", "slower") for finding in called) <= 1


def test_three_per_cent_are_found_in_one_per_cent_of_noise():
    assert all(compare(noisy(seed, level=1.03)).finding == "slower" for seed in range(30))
    assert all(compare(noisy(seed, level=1 / 1.03)).finding == "faster" for seed in range(30))


def test_drift_that_hits_both_alike_changes_nothing():
    comparison = compare(noisy(1, drift=0.5))
    assert comparison.ratio == pytest.approx(1, abs=0.01)
    assert comparison.finding == "no difference shown"


def test_half_a_per_cent_is_not_called_a_difference_however_sure_it_is():
    comparison = compare(noisy(2, level=1.005, sigma=0.0005, rounds=200))
    assert comparison.high < 1
    assert comparison.finding == "no difference shown"


def test_wide_samples_are_too_noisy_to_say():
    assert compare(noisy(3, rounds=10, sigma=0.3)).finding == "too noisy"


def test_processes_that_disagree_widen_the_interval():
    alike = compare(noisy(4, level=0.9, processes=3))
    first, second, third = noisy(4, level=0.9, processes=3)
    third = (third[0], [seconds * 1.2 for seconds in third[1]])
    apart = compare([first, second, third])
    assert math.log(apart.high / apart.low) > 5 * math.log(alike.high / alike.low)


def test_the_same_samples_give_the_same_figures():
    assert compare(noisy(5)) == compare(noisy(5))


def test_a_geometric_mean_of_nothing_is_nothing():
    assert geometric_mean([]) is None
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)
