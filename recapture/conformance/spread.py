"""Compares a deviation from eager with what perturbed runs of eager deviate by, element by element and as a whole."""

from __future__ import annotations

from typing import Any

__all__ = ["Evidence", "same_number"]

FACTOR = 2.5
"""Largest accepted ratio of an element's deviation to the largest one among the perturbed runs."""

ENOUGH = 8
"""Number of runs from which an element that is the same in all of them counts as exact."""

MEAN = (0.75, 4.0)
"""Largest accepted mean deviation in units of the spread: for many elements, and what one element adds."""

MEAN_SQUARE = (1.8, 4.0)
"""Largest accepted root mean square of the deviations in units of the spread, in the same form."""

OUTLIER = 10.0
"""Deviation in units of the spread to which an element counts in the mean and the mean square."""


class Evidence:
    """What the perturbed runs say about one difference; all tensors are in float64, real and of one shape."""

    def __init__(self, mine: Any, theirs: Any, runs: list[Any], unit: Any, *, last: bool) -> None:
        import torch

        self.last = last
        self.finite = mine.isfinite() & theirs.isfinite()
        for one in runs:
            self.finite = self.finite & one.isfinite()
        self.infinite_agree = _infinite_agree(mine, theirs, runs, self.finite)
        self.mine, self.theirs = mine[self.finite], theirs[self.finite]
        self.unit = unit[self.finite]
        self.runs = torch.stack([one[self.finite] for one in runs]) - self.mine
        self.deviation = self.theirs - self.mine
        self.spread = self._spread(self.runs)

    def _spread(self, runs: Any) -> Any:
        """Return each element's largest deviation among the runs, and zero for an exact element."""
        import torch

        spread = runs.abs().amax(0)
        noisy = spread > 0
        if len(runs) >= ENOUGH or not noisy.any():
            return spread
        # With few runs, an element may have little noise by chance: it gets at least the typical relative spread.
        relative = spread[noisy] / self.mine[noisy].abs().clamp(min=1e-300)
        return torch.maximum(spread, torch.minimum(relative.median() * self.mine.abs(), spread.max()))

    def _allowed(self, spread: Any) -> Any:
        import torch

        return torch.where(spread > 0, FACTOR * spread + self.unit, torch.zeros_like(spread))

    def excess(self) -> float:
        """Return the largest ratio of a deviation to the allowed one."""
        if not len(self.deviation):
            return 0.0
        return float((self.deviation.abs() / self._allowed(self.spread).clamp(min=5e-324)).nan_to_num(0.0).max())

    def explains(self) -> bool:
        """Whether every element, and all elements together, deviate as the runs do."""
        if not self.infinite_agree:
            return False
        if not len(self.deviation):
            return True
        beyond = self.deviation.abs() > self._allowed(self.spread)
        return (not beyond.any() or self._as_in_a_run(beyond)) and self._as_a_whole()

    def jumps(self) -> bool:
        """Whether some run deviates at some element as no other run made likely: a branch, floor or clamp there."""
        return any(beyond.any() for beyond in self._jumps())

    def _jumps(self) -> list[Any]:
        """Return for each run where it deviates by more than the other runs allow."""
        import torch

        if len(self.runs) < 2:
            return []
        rows = range(len(self.runs))
        others = [self.runs[[other for other in rows if other != row]].abs().amax(0) for row in rows]
        nothing = torch.zeros_like(self.unit)
        return [
            self.runs[row].abs() > torch.where(others[row] > 0, FACTOR * others[row] + self.unit, nothing)
            for row in rows
        ]

    def _as_in_a_run(self, beyond: Any) -> bool:
        """Whether the elements beyond their own spread are as few and as far off as those that jump in a run.

        Near a discontinuity (relu, floor, a comparison), noise shows in few runs or in none.
        """
        if not self.last:
            return False
        jumps = self._jumps()
        if int(beyond.sum()) > 2 * max(int(one.sum()) for one in jumps):
            return False
        largest = max(float(run[jump].abs().max()) for run, jump in zip(self.runs, jumps, strict=True) if jump.any())
        return float(self.deviation[beyond].abs().max()) <= 2 * largest

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
        mean = max(2 * float(runs.mean(1).abs().max()), MEAN[0] + MEAN[1] / count**0.5)
        square = max(2 * float(runs.pow(2).mean(1).max()) ** 0.5, MEAN_SQUARE[0] + MEAN_SQUARE[1] / count**0.5)
        return bool(abs(float(ours.mean())) <= mean and float(ours.pow(2).mean()) ** 0.5 <= square)


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
