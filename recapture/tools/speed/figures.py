"""The figures of a row, computed from the samples of its processes: a ratio, its interval, and a finding.

Samples of eager and of the candidate from the same round share the state of the machine, so that their ratio is free of
drift. The estimate of a process is the median of these ratios. Processes differ (addresses, chosen algorithms, clocks),
so the interval comes from a bootstrap over processes and, within each, blocks of rounds, because neighbouring rounds
are correlated. A bootstrap over few processes underestimates their differences: if Student's interval over their
estimates is wider, it is used instead. One process does not show the differences at all: its interval is widened by
what they usually are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, variance
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from recapture.cases.claim import SpeedClaim
from recapture.tools.speed.speedups import LARGEST_RATIO, Claimed, Finding, Measured, Process, Row, Start

if TYPE_CHECKING:
    from recapture.tools.speed.job import Outcome

SMALLEST = 0.01
"""Smallest relative difference that is reported, however certain: memory layout can cause smaller ones."""

BETWEEN = 0.05
"""Smallest relative difference reported between two benchmarks, which are not interleaved (chosen by convention)."""

ALPHA = 0.01
"""Significance level at which the Mann-Whitney test must also reject equality."""

NOISY = 0.05
"""Relative half width of the interval above which a ratio without a certain difference is too noisy."""

DRAWS = 2000

ONE_PROCESS = {0.95: 0.1, 0.99: 0.2}
"""By level, how far the logarithm of one process's ratio may be from its row's, beyond the bootstrap's interval.

Of the 204 processes in the recorded rows of torch 2.11.0 on a CPU and an H200, 95 % are within 0.08 (CPU) and 0.11
(H200) of their row's estimate, and 98 % within 0.09 and 0.22.
"""


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
    from scipy.stats import mannwhitneyu  # here: the import takes more than a second, and only benchmarks need it

    # In logarithms a ratio of 2 and a ratio of ½ are equally far from 1.
    pairs = [(np.log(np.asarray(eager)), np.log(np.asarray(other))) for eager, other in processes]
    ratios = [eager - other for eager, other in pairs]
    medians = [float(np.median(logs)) for logs in ratios]
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
    return SpeedComparison(_ratio(estimate), _ratio(low), _ratio(high), p_value, finding)


def compare_runs(old: Sequence[float], new: Sequence[float]) -> SpeedComparison | None:
    """Compare two benchmarks by one estimate for each process, the logarithm of its speed.

    None if a side has only one process. The ratio is new ÷ old, with Welch's interval. The finding is faster or slower
    if the 99 % interval is outside 1 ± BETWEEN, otherwise as in `compare`.
    """
    from scipy.special import stdtr, stdtrit  # scipy.stats computes the same and takes a hundred times as long

    # One process does not show how much processes differ.
    if min(len(old), len(new)) < 2:
        return None
    middle = fmean(new) - fmean(old)
    shares = [variance(side) / len(side) for side in (old, new)]
    error = math.sqrt(sum(shares))
    # Equal estimates on each side leave no variance to divide by.
    if error == 0:
        low = high = surely_low = surely_high = middle
        p_value = float(middle == 0)
    else:
        # The degrees of freedom of Welch and Satterthwaite: the sides may differ in variance and in number.
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
    return SpeedComparison(_ratio(middle), _ratio(low), _ratio(high), p_value, finding)


def _ratio(logarithm: float) -> float:
    """Return a ratio, no smaller or larger than any that two credible times have."""
    # Student's interval of two processes that disagree can reach beyond every possible ratio.
    largest = math.log(LARGEST_RATIO)
    return math.exp(min(max(logarithm, -largest), largest))


def _interval(draws: Any, medians: Sequence[float], level: float) -> tuple[float, float]:
    """Return the wider, at each end, of the bootstrap's and Student's interval; with one process, a widened one."""
    import numpy as np
    from scipy.special import stdtrit

    low, high = (float(value) for value in np.quantile(draws, ((1 - level) / 2, (1 + level) / 2)))
    if len(medians) > 1:
        middle, deviation = float(np.mean(medians)), float(np.std(medians, ddof=1))
        half = float(stdtrit(len(medians) - 1, (1 + level) / 2)) * deviation / math.sqrt(len(medians))
        low, high = min(low, middle - half), max(high, middle + half)
    else:
        low, high = low - ONE_PROCESS[level], high + ONE_PROCESS[level]
    return low, high


def _bootstrap(ratios: Sequence[Any], seed: int) -> Any:
    """Draw processes, and blocks of rounds within each; return the mean of the medians for every draw."""
    import numpy as np

    random = np.random.default_rng(seed)
    medians = []
    for logs in ratios:
        values = np.asarray(logs)
        count = len(values)
        # The usual length for correlated samples: it grows with the cube root of their number.
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


def measure(processes: tuple[Process, ...], outcomes: list[Outcome], starts: list[Start | None]) -> Measured:
    """Return the figures of timed processes; `starts` are the cold start and the warm start, None if unknown."""
    # The median of medians: one disturbed process does not move the row's time.
    eager = median(median(process.eager.seconds) for process in processes)
    candidate = median(median(process.candidate.seconds) for process in processes)
    even = [_break_even(start, processes[0].eager_start, eager, candidate) for start in starts]
    return Measured(
        **_ratios(processes),
        seconds=candidate,
        eager_seconds=eager,
        kernel=_middle([outcome.kernel for outcome in outcomes]),
        eager_kernel=_middle([outcome.eager_kernel for outcome in outcomes]),
        device=_middle([median(process.device_time.candidate) for process in processes if process.device_time]),
        eager_device=_middle([median(process.device_time.eager) for process in processes if process.device_time]),
        memory=max((outcome.memory for outcome in outcomes if outcome.memory is not None), default=None),
        eager_memory=max(
            (outcome.eager_memory for outcome in outcomes if outcome.eager_memory is not None), default=None
        ),
        break_even_cold=even[0],
        break_even_warm=even[1],
    )


def derive(row: Row) -> Row:
    """Return a row with ratios, finding and claims recomputed from its samples by this version."""
    if row.measured is None or not row.processes:
        return row
    measured = msgspec.structs.replace(row.measured, **_ratios(row.processes))
    claims = tuple(_claimed(claimed, measured, row.processes) for claimed in row.claims)
    return msgspec.structs.replace(row, measured=measured, claims=claims)


def _claimed(claimed: Claimed, measured: Measured, processes: tuple[Process, ...]) -> Claimed:
    """Return a claim judged again; one about a range of releases stays as recorded, with torch's version known."""
    claim = SpeedClaim(claimed.id, claimed.expected, claimed.published)
    return claimed if claim.ranged else msgspec.structs.replace(claimed, holds=claim_holds(claim, measured, processes))


def claim_holds(claim: SpeedClaim, measured: Measured, processes: tuple[Process, ...]) -> bool | None:
    """Return whether a claim holds; None if the interval contains its bound, or if the device was shared."""
    return None if _shared(processes) else claim.holds(*measured.speedup[1:])


def _shared(processes: tuple[Process, ...]) -> bool:
    return any(process.conditions.shared for process in processes)


def _ratios(processes: tuple[Process, ...]) -> dict[str, Any]:
    """Return the fields of `Measured` that depend only on the samples."""
    own = compare([(process.eager.seconds, process.candidate.seconds) for process in processes])
    # An interval describes the spread of samples, not a bias by other work: a shared device allows no conclusion.
    twins = [(process.twin.seconds, process.candidate.seconds) for process in processes if process.twin is not None]
    # Over eager with the same arithmetic: what compiling gains, without what a smaller dtype gains.
    over = compare(twins) if twins else None
    times = [process.device_time for process in processes if process.device_time is not None]
    device = compare([(time.eager, time.candidate) for time in times]) if times else None
    return {
        "speedup": (_short(own.ratio), _short(own.low), _short(own.high)),
        "finding": "too noisy" if _shared(processes) else own.finding,
        "p_value": _short(own.p_value),
        "over_twin": None if over is None else (_short(over.ratio), _short(over.low), _short(over.high)),
        "device_speedup": None if device is None else (_short(device.ratio), _short(device.low), _short(device.high)),
    }


def _break_even(start: Start | None, eager_start: Start, eager: float, candidate: float) -> float | None:
    """Return the iterations that save the compile time minus the time of eager's first calls; None means never."""
    if start is None or candidate >= eager:
        return None
    # Eager's first calls are slow, too: only what compiling costs beyond them has to be saved.
    cost = start.total - eager_start.total
    return max(0.0, round(cost / (eager - candidate), 1))


def _middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _short(median(known)) if known else None


def _short(value: float) -> float:
    return float(f"{value:.5g}")
