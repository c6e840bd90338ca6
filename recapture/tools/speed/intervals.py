"""Computes a ratio, its interval and a finding from samples.

Samples of eager and of the candidate from the same round share the state of the machine, so that their ratio is free of
drift. The estimate of a process is the median of these ratios. Processes differ (addresses, chosen algorithms, clocks),
so the interval comes from a bootstrap over processes and, within each, blocks of rounds, because neighbouring rounds
are correlated. A bootstrap over few processes underestimates their differences: if Student's interval over their
estimates is wider, it is used instead.
"""

from __future__ import annotations

import math
from statistics import fmean, variance
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.tools.speed.speedups import Finding

SMALLEST = 0.01
"""Smallest relative difference that is reported, however certain: memory layout can cause smaller ones."""

BETWEEN = 0.05
"""Smallest relative difference reported between two benchmarks, which are not interleaved (chosen by convention)."""

ALPHA = 0.01
"""Significance level at which the Mann-Whitney test must also reject equality."""

NOISY = 0.05
"""Relative half width of the interval above which a ratio without a certain difference is too noisy."""

DRAWS = 2000


class SpeedComparison(NamedTuple):
    """The ratio eager ÷ candidate, its 95 % interval, the p-value of the Mann-Whitney test, and the finding."""

    ratio: float
    low: float
    high: float
    p_value: float
    finding: Finding


def compare(processes: Sequence[tuple[Sequence[float], Sequence[float]]], *, seed: int = 0) -> SpeedComparison:
    """Compare samples (seconds) of eager and a candidate, given as one pair for each process.

    The finding is faster or slower if the 99 % interval is outside 1 ± SMALLEST and the test rejects equality.
    Otherwise it is too noisy if the interval is wide, else no difference shown, which does not mean equality.
    """
    import numpy as np
    from scipy.stats import mannwhitneyu

    pairs = [(np.log(np.asarray(eager)), np.log(np.asarray(other))) for eager, other in processes]
    ratios = [eager - other for eager, other in pairs]
    medians = [float(np.median(one)) for one in ratios]
    estimate = float(np.mean(medians))
    draws = _bootstrap(ratios, seed)
    low, high = _interval(draws, medians, 0.95)
    surely_low, surely_high = _interval(draws, medians, 0.99)
    # Remove each process's common effect on both sides before pooling its samples with those of the others.
    centres = [np.median(np.concatenate(pair)) for pair in pairs]
    eager = np.concatenate([pair[0] - centre for pair, centre in zip(pairs, centres, strict=True)])
    other = np.concatenate([pair[1] - centre for pair, centre in zip(pairs, centres, strict=True)])
    p_value = float(mannwhitneyu(eager, other, alternative="two-sided").pvalue)
    finding: Finding = "no difference shown"
    if surely_low > math.log1p(SMALLEST) and p_value < ALPHA:
        finding = "faster"
    elif surely_high < -math.log1p(SMALLEST) and p_value < ALPHA:
        finding = "slower"
    elif (high - low) / 2 > NOISY:
        finding = "too noisy"
    return SpeedComparison(math.exp(estimate), math.exp(low), math.exp(high), p_value, finding)


def compare_runs(old: Sequence[float], new: Sequence[float]) -> SpeedComparison | None:
    """Compare two benchmarks by one estimate for each process, the logarithm of its speed.

    None if a side has only one process. The ratio is new ÷ old, with Welch's interval. The finding is faster or slower
    if the 99 % interval is outside 1 ± BETWEEN, otherwise as in `compare`.
    """
    from scipy.special import stdtr, stdtrit  # scipy.stats computes the same and takes a hundred times as long

    if min(len(old), len(new)) < 2:
        return None
    middle = fmean(new) - fmean(old)
    shares = [variance(side) / len(side) for side in (old, new)]
    error = math.sqrt(sum(shares))
    if error == 0:
        low = high = surely_low = surely_high = middle
        p_value = float(middle == 0)
    else:
        freedom = sum(shares) ** 2 / sum(
            share**2 / (len(side) - 1) for share, side in zip(shares, (old, new), strict=True)
        )
        half, wide = (float(stdtrit(freedom, (1 + level) / 2)) * error for level in (0.95, 0.99))
        low, high, surely_low, surely_high = middle - half, middle + half, middle - wide, middle + wide
        p_value = float(2 * stdtr(freedom, -abs(middle) / error))
    finding: Finding = "no difference shown"
    if surely_low > math.log1p(BETWEEN):
        finding = "faster"
    elif surely_high < -math.log1p(BETWEEN):
        finding = "slower"
    elif (high - low) / 2 > NOISY:
        finding = "too noisy"
    return SpeedComparison(math.exp(middle), math.exp(low), math.exp(high), p_value, finding)


def _interval(draws: Any, medians: Sequence[float], level: float) -> tuple[float, float]:
    """Return the wider, at each end, of the bootstrap's and Student's interval; with one process, the bootstrap's."""
    import numpy as np
    from scipy.special import stdtrit

    low, high = (float(value) for value in np.quantile(draws, ((1 - level) / 2, (1 + level) / 2)))
    if len(medians) > 1:
        middle, deviation = float(np.mean(medians)), float(np.std(medians, ddof=1))
        half = float(stdtrit(len(medians) - 1, (1 + level) / 2)) * deviation / math.sqrt(len(medians))
        low, high = min(low, middle - half), max(high, middle + half)
    return low, high


def _bootstrap(ratios: Sequence[Any], seed: int) -> Any:
    """Draw processes, and blocks of rounds within each; return the mean of the medians for every draw."""
    import numpy as np

    random = np.random.default_rng(seed)
    medians = []
    for one in ratios:
        values = np.asarray(one)
        count = len(values)
        block = max(1, round(count ** (1 / 3)))
        starts = random.integers(0, count, size=(DRAWS, math.ceil(count / block)))
        wrapped = np.concatenate([values, values[: block - 1]])  # for equal probabilities
        blocks = np.lib.stride_tricks.sliding_window_view(wrapped, block)
        drawn = np.sort(blocks[starts].reshape(DRAWS, -1)[:, :count], axis=1)
        medians.append((drawn[:, (count - 1) // 2] + drawn[:, count // 2]) / 2)  # np.median takes twice as long
    table = np.stack(medians, axis=1)
    chosen = random.integers(0, len(ratios), size=(DRAWS, len(ratios)))
    return np.take_along_axis(table, chosen, axis=1).mean(axis=1)


def geometric_mean(values: Sequence[float]) -> float | None:
    """Return the geometric mean, or None without values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
