"""Compares a deviation from eager with what perturbed runs of eager deviate by, element by element and as a whole."""

from __future__ import annotations

from typing import Any

from recapture.judge.noise import is_short

FACTOR = 2.5
"""Largest accepted ratio of an element's deviation to the largest one among the perturbed runs."""

ENOUGH = 8
"""Number of runs from which an element that is the same in all of them counts as exact."""

HOPELESS = 100.0
"""Ratio of a deviation to the allowed one, relative to the largest in the runs, from which more runs are useless."""

UNSEEN = 4.0
"""Units in the last place by which numbers may deviate that were not computed by torch's operators (math, numpy)."""

MEAN = (0.75, 4.0)
"""Largest accepted mean deviation in units of the spread: for many elements, and what one element adds."""

MEAN_SQUARE = (1.8, 4.0)
"""Largest accepted root mean square of the deviations in units of the spread, in the same form."""

OUTLIER = 10.0
"""Deviation in units of the spread to which an element counts in the mean and the mean square."""


class Spread:
    """What the perturbed runs say about one difference; all tensors are in float64, real and of one shape."""

    def __init__(self, mine: Any, theirs: Any, runs: list[Any], unit: Any) -> None:
        import torch

        self.finite = mine.isfinite() & theirs.isfinite()
        for one in runs:
            self.finite = self.finite & one.isfinite()
        self.infinite_agree = _infinite_agree(mine, theirs, runs, self.finite)
        self.mine, self.theirs = mine[self.finite], theirs[self.finite]
        self.unit = unit[self.finite]
        self.runs = torch.stack([one[self.finite] for one in runs]) - self.mine
        self.deviation = self.theirs - self.mine
        largest = self.runs.abs().topk(min(2, len(runs)), dim=0)
        self.spread_of_runs, self.second, self.largest_run = largest.values[0], largest.values[-1], largest.indices[0]
        self.spread = self._spread()

    def _spread(self) -> Any:
        """Return each element's largest deviation among the runs, and zero for an exact element."""
        import torch

        spread = self.spread_of_runs
        noisy = spread > 0
        if len(self.runs) >= ENOUGH or not noisy.any():
            return spread
        # With few runs, an element may have little noise by chance: it gets at least the typical relative spread.
        relative = spread[noisy] / self.mine[noisy].abs().clamp(min=1e-300)
        return torch.maximum(spread, torch.minimum(relative.median() * self.mine.abs(), spread.max()))

    def excess(self) -> float:
        """Return the largest ratio of a deviation to the allowed one, infinite where an exact element deviates."""
        return float(self._ratio(self.deviation, self.spread).max()) if len(self.deviation) else 0.0

    def beyond(self) -> int:
        """Return the number of elements that deviate farther than their spread allows."""
        return int((self._ratio(self.deviation, self.spread) > 1).sum())

    def explains(self) -> bool:
        """Whether every element, and all elements together, deviate as the runs do."""
        if not self.infinite_agree:
            return False
        if not len(self.deviation):
            return True
        return self._computed_elsewhere() or (self._element_by_element() and self._as_a_whole())

    def _computed_elsewhere(self) -> bool:
        """Whether the runs show no noise at all and numbers with all their digits differ in the last ones.

        Half types have too few digits for that.
        """
        if self.spread_of_runs.any():
            return False
        full = ~is_short(self.mine) & (self.unit <= self.mine.abs() * 2.0**-22)
        return bool(((self.deviation == 0) | full & (self.deviation.abs() <= UNSEEN * self.unit)).all())

    def hopeless(self) -> bool:
        """Whether some element deviates so much farther than any element of any run that more runs change nothing."""
        if not len(self.deviation):
            return False
        # An element without noise may have had none by chance, so it counts as if it were rounded once.
        farthest = float((self.deviation.abs() / (FACTOR * self.spread + self.unit)).nan_to_num(0.0).max())
        worst = max(float(self._left_out(row).max()) for row in range(len(self.runs)))
        return farthest > HOPELESS * max(worst, 1.0)

    def _ratio(self, deviation: Any, spread: Any) -> Any:
        """Return the ratio of each deviation to the one that a spread allows."""
        import torch

        allowed = torch.where(spread > 0, FACTOR * spread + self.unit, torch.zeros_like(spread))
        return torch.where(deviation == 0, torch.zeros_like(deviation), deviation.abs() / allowed)

    def _left_out(self, row: int) -> Any:
        """Return the ratio of each deviation in one run to the one that the other runs allow."""
        import torch

        others = torch.where(self.largest_run == row, self.second, self.spread_of_runs)
        return self._ratio(self.runs[row], others)

    def _element_by_element(self) -> bool:
        """Whether no element deviates too far, or those that do are as few and as far off as in one of the runs.

        By chance, the runs may show too little of the noise in a few elements among many. Near a discontinuity (relu,
        floor, a comparison), noise shows in few runs or in none. Each run is judged by the others in the same way.
        """
        ratio = self._ratio(self.deviation, self.spread)
        beyond = ratio > 1
        if not beyond.any():
            return True
        if len(self.runs) < ENOUGH:
            return False
        most, worst, farthest = 0, 0.0, 0.0
        for row, run in enumerate(self.runs):
            other = self._left_out(row)
            jumps = other > 1
            if jumps.any():
                most = max(most, int(jumps.sum()))
                worst = max(worst, float(other.max()))
                farthest = max(farthest, float(run[jumps].abs().max()))
        return (
            int(beyond.sum()) <= 2 * most
            and float(ratio.max()) <= 2 * worst
            and float(self.deviation[beyond].abs().max()) <= 2 * farthest
        )

    def _as_a_whole(self) -> bool:
        """Whether mean and root mean square of the deviations, in units of the spread, are as small as in the runs."""
        scale = self.runs.pow(2).mean(0).sqrt().clamp(min=0)
        rounded = (self.spread > 0) & ((scale > 0) | (self.deviation != 0))
        count = int(rounded.sum())
        if not count:
            return True
        scale = scale[rounded].maximum(self.unit[rounded] / 2)
        ours = (self.deviation[rounded] / scale).clamp(-OUTLIER, OUTLIER)
        runs = (self.runs[:, rounded] / scale).clamp(-OUTLIER, OUTLIER)
        square = max(2 * float(runs.pow(2).mean(1).max()) ** 0.5, MEAN_SQUARE[0] + MEAN_SQUARE[1] / count**0.5)
        if float(ours.pow(2).mean()) ** 0.5 > square:
            return False
        # Too large by a constant, and too large by a factor: away from zero on either side of it.
        for direction in (1.0, self.mine[rounded].sign()):
            mean = max(2 * float((runs * direction).mean(1).abs().max()), MEAN[0] + MEAN[1] / count**0.5)
            if abs(float((ours * direction).mean())) > mean:
                return False
        return True


def _infinite_agree(mine: Any, theirs: Any, runs: list[Any], finite: Any) -> bool:
    """Whether infinities and NaN are where eager or one of the runs has them."""
    if finite.all():
        return True
    there = ~finite
    mine, theirs = mine[there], theirs[there]
    allowed = same_number(mine, theirs) | (mine.isfinite() & theirs.isfinite())
    for one in runs:
        allowed |= same_number(one[there], theirs) | (theirs.isfinite() & one[there].isfinite())
    return bool(allowed.all())


def same_number(one: Any, other: Any) -> Any:
    """Return where two tensors hold the same number, or NaN both."""
    return (one == other) | (one.isnan() & other.isnan())
