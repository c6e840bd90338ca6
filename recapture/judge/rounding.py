"""Decides whether rounding explains the difference between two numbers, or two tensors of the same dtype and shape.

What rounding may do is measured on eager itself: `perturbation.perturbed` runs eager again with rounding-sized noise,
and the spread of each element over these runs is what another compiler may deviate by. There is no fixed tolerance, and
no absolute one: each element is judged by its own spread. Further rules are about all elements together, for errors
that are small everywhere.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recapture.judge.noise import is_short, real_dtype, spacing

if TYPE_CHECKING:
    from recapture.judge.snapshot import Snapshot

STAGES = (3, 8, 16, 32)
"""Numbers of perturbed runs after which a difference may count as explained; after the last one it is not."""

RARE = 16
"""Number of runs after which more are made only if few elements deviate too far.

A result that is rounded once stays as it is in a third of the runs. Among 10,000 such elements, one in 4,000
comparisons has an element that stays as it is in all of 16 runs.
"""

FEW = 1e-3
"""Share of the elements that are few, and at least one."""

FALLBACK = {"float16": 1e-3, "bfloat16": 1.6e-2, "complex32": 1e-3, "float64": 1e-7, "complex128": 1e-7}
"""Relative tolerance by dtype where eager cannot run perturbed, as in torch.testing.assert_close."""

FALLBACK_OTHERWISE = 1.3e-6
"""The same for float32, complex64, and Python floats that are float32 numbers."""


@dataclass(frozen=True)
class Distance:
    """How two values differ."""

    bits: str
    """``value``, ``signed-zero`` or ``nan-payload``."""
    ulps: int | None
    """Largest distance in units in the last place over the finite elements; None if not in floating point."""
    elements: tuple[int, int] | None
    """Number of elements that differ, and of all; None for a Python scalar."""


def same_bits(eager: Snapshot, other: Snapshot) -> bool:
    """Whether two described values, scalars or tensors, have the same bits, with sign of zero and NaN payload."""
    import torch

    if eager.tensor is None or other.tensor is None:
        return bool(_scalar_bits(eager.scalar) == _scalar_bits(other.scalar))
    expected, actual = eager.tensor.data, other.tensor.data
    if expected is actual or expected is None or actual is None:  # shared, or no values to compare
        return expected is actual
    same_form = expected.dtype == actual.dtype and expected.shape == actual.shape
    return same_form and bool(torch.equal(_as_integers(expected), _as_integers(actual)))


def unequal(eager: Any, other: Any) -> Any:
    """Return where two tensors of one dtype and shape hold different numbers; NaN equals NaN, and 0.0 equals -0.0."""
    import torch

    if eager.is_floating_point() or eager.is_complex():
        wide = torch.complex128 if eager.is_complex() else torch.float64
        return ~same_number(eager.to(wide), other.to(wide))
    bits = (_bits(eager) != _bits(other)).reshape(eager.numel(), eager.element_size())
    return bits.any(-1).reshape(eager.shape)


def distance(eager: Snapshot, other: Snapshot) -> Distance | None:
    """Return how two scalars of one type, or two tensors of one dtype and shape, differ; None if they do not."""
    if same_bits(eager, other):
        return None
    if eager.tensor is None or other.tensor is None:
        expected, actual = _numbers(eager), _numbers(other)
        if expected is None or actual is None:
            return Distance("value", None, None)
        between = _tensor_distance(expected, actual)
        return Distance(between.bits, between.ulps, None)
    expected, actual = eager.tensor.data, other.tensor.data
    if expected is None or actual is None:
        return Distance("value", None, None)
    return _tensor_distance(expected, actual)


def _tensor_distance(expected: Any, actual: Any) -> Distance:
    import torch

    different = unequal(expected, actual)
    if not different.any():  # only bits differ
        bits = (
            (_bits(expected) != _bits(actual))
            .reshape(expected.numel(), expected.element_size())
            .any(-1)
            .reshape(expected.shape)
        )
        payload = bool((bits & expected.isnan()).any())
        return Distance("nan-payload" if payload else "signed-zero", 0, (int(bits.sum()), expected.numel()))
    elements = (int(different.sum()), expected.numel())
    if expected.is_complex():
        expected, actual = (torch.view_as_real(values.resolve_conj()) for values in (expected, actual))
    return Distance("value", _ulps(expected, actual) if expected.is_floating_point() else None, elements)


def explained(eager: Snapshot, other: Snapshot, sample: Callable[[int], Snapshot | None]) -> bool:
    """Whether rounding explains the difference between two scalars of one type or two tensors of one dtype and shape.

    `sample(k)` returns the same value from the k-th perturbed run of eager, k = 0, 1, …; None if that run has none.
    Where the perturbed runs fail or give values of another form, a relative tolerance decides (FALLBACK).
    """
    expected, actual = _numbers(eager), _numbers(other)
    if expected is None or actual is None or expected.shape != actual.shape:
        return False
    unit = _unit(eager, other, expected)
    runs: list[Any] = []
    samples_taken = 0
    for stage in STAGES:
        for number in range(samples_taken, stage):
            snapshot = sample(number)
            values = _numbers(snapshot) if snapshot is not None and snapshot.type == eager.type else None
            if values is not None and values.shape == expected.shape:
                runs.append(values)
        samples_taken = stage
        if len(runs) < stage / 2:  # most runs fail: what they measure says little
            return unit is not None and _within_tolerance(eager, other, expected, actual)
        if unit is None:  # integers do not round, but noise before a floor or an argmax moves them
            if _among(expected, actual, runs):
                return True
            continue
        spread = Spread(expected, actual, runs, unit)
        if spread.explains():
            return True
        # The next stage costs as many runs of eager as all before: it is left out where it cannot change the answer.
        if stage >= ENOUGH and spread.hopeless():
            return False
        if stage >= RARE and spread.beyond() > max(1, FEW * expected.numel()):
            return False
    return False


REPEATED = 1e-13
"""Largest relative deviation of a float64 number in a second run of eager, as of sums in another order on a GPU."""


def repeats(eager: Snapshot, other: Snapshot) -> bool:
    """Whether eager may give the second of two values in another run, if the operators are the same.

    A Python number has to be the same one, unless it may come from a float32 tensor: it may be a time. Nothing is asked
    of narrower dtypes, in which a time is no longer one.
    """
    if eager.tensor is None or other.tensor is None:
        return _from_float32(eager, other) if isinstance(eager.scalar, (float, complex)) else False
    if eager.tensor.dtype not in ("torch.float64", "torch.complex128", "float64", "complex128"):
        return True
    expected, actual = _numbers(eager), _numbers(other)
    finite = expected.isfinite() & actual.isfinite()
    level = expected[finite].abs().max() if finite.any() else 0.0
    return bool(((actual - expected)[finite].abs() <= REPEATED * level).all())


@dataclass(frozen=True)
class Deviation:
    """By how much two values differ."""

    largest: float
    """The largest difference between two of their numbers."""
    level: float
    """The largest number."""
    unit: float
    """The relative size of a rounding: 2^-24 for float32, and for Python's numbers, which may come from it."""


def deviation(eager: Snapshot, other: Snapshot) -> Deviation | None:
    """Return the deviation of two numbers, or of two tensors of one dtype and shape; None if it is infinite.

    Of anything but floating point, only equal values have one: zero.
    """
    same = same_bits(eager, other)
    expected, actual = _numbers(eager), _numbers(other)
    if expected is None or not expected.is_floating_point():
        return Deviation(0.0, 0.0, 0.0) if same else None
    if actual is None or expected.shape != actual.shape:
        return None
    level = float(expected[expected.isfinite()].abs().max()) if expected.isfinite().any() else 0.0
    different = ~same_number(expected, actual)
    largest = float((actual - expected)[different].abs().max()) if not same and different.any() else 0.0
    return Deviation(largest, level, _roundoff(eager)) if math.isfinite(largest) else None


def _roundoff(snapshot: Snapshot) -> float:
    import torch

    if snapshot.tensor is None:
        return 2.0**-24
    dtype = snapshot.tensor.data.dtype
    return float(torch.finfo(real_dtype(dtype) if dtype.is_complex else dtype).eps) / 2


def largest_ratio(eager: Snapshot, other: Snapshot, samples: list[Snapshot]) -> float:
    """Return the largest ratio of an element's deviation to the allowed one, given these perturbed runs."""
    expected = _numbers(eager)
    runs = [_numbers(sample) for sample in samples]
    return Spread(expected, _numbers(other), runs, _unit(eager, other, expected)).excess()


def _among(expected: Any, actual: Any, runs: list[Any]) -> bool:
    """Whether each integer that differs lies between the smallest and the largest one of eager and the runs."""
    import torch

    every = torch.stack([expected, *runs])
    return bool(((actual >= every.amin(0)) & (actual <= every.amax(0))).all())


def _within_tolerance(eager: Snapshot, other: Snapshot, expected: Any, actual: Any) -> bool:
    """Whether two values are equal within FALLBACK, relative to each element and to their root mean square."""
    finite = expected.isfinite() & actual.isfinite()
    if not bool((same_number(expected, actual) | finite).all()):
        return False
    expected, actual = expected[finite], actual[finite]
    name = "float64" if eager.tensor is None else str(eager.tensor.data.dtype).rpartition(".")[2]
    relative = FALLBACK_OTHERWISE if _from_float32(eager, other) else FALLBACK.get(name, FALLBACK_OTHERWISE)
    level = expected.pow(2).mean().sqrt() if len(expected) else 0.0
    return bool(((actual - expected).abs() <= relative * expected.abs().clamp(min=level)).all())


def _numbers(snapshot: Snapshot) -> Any:
    """Return a described value as a tensor of float64 (of integers for integers); None if it holds no numbers."""
    import torch

    if snapshot.tensor is not None:
        data = snapshot.tensor.data
        if data is None or data.is_quantized:
            return None
        if data.is_complex():
            return torch.view_as_real(data.to(torch.complex128))
        if data.is_floating_point():
            return data.to(torch.float64)
        return data.to(torch.int64) if data.dtype in _integers() else None
    value = snapshot.scalar
    if isinstance(value, complex):
        return torch.tensor([value.real, value.imag], dtype=torch.float64)
    if isinstance(value, float):
        return torch.tensor([value], dtype=torch.float64)
    if isinstance(value, int) and abs(value) < 2**63:
        return torch.tensor([value])
    return None


def _integers() -> tuple[Any, ...]:
    import torch

    return torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64


def _unit(eager: Snapshot, other: Snapshot, expected: Any) -> Any:
    """Return the distance to the next larger number for each element; None for integers."""
    import torch

    if not expected.is_floating_point():
        return None
    if eager.tensor is None:
        return spacing(expected, torch.float32 if _from_float32(eager, other) else torch.float64)
    data = eager.tensor.data
    if data.is_complex():
        return spacing(expected.norm(dim=-1, keepdim=True).expand_as(expected).contiguous(), real_dtype(data.dtype))
    return spacing(expected, data.dtype)


def _from_float32(eager: Snapshot, other: Snapshot) -> bool:
    """Whether two Python scalars may have been read from float32 tensors."""
    import torch

    if eager.tensor is not None or other.tensor is not None:
        return False
    values = torch.cat([_numbers(eager).flatten(), _numbers(other).flatten()])
    return bool((values.to(torch.float32).to(torch.float64) == values).all())


def _scalar_bits(value: Any) -> Any:
    """Return a scalar in a form in which equal bits are equal."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    return type(value), repr(value) if value != value else value  # noqa: PLR0124 - a NaN of another type


def _as_integers(data: Any) -> Any:
    """Return the bits of each element as one integer without a copy, or as bytes where torch has no such view."""
    import torch

    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(data.element_size())
    if whole is None or data.is_quantized or data.is_conj() or data.is_neg() or data.layout != torch.strided:
        return _bits(data)
    return data.detach().view(whole)


def _bits(data: Any) -> Any:
    """Return the bytes of each element of a tensor, in a last dimension."""
    import torch

    data = data.int_repr() if data.is_quantized else data
    plain = data.detach().resolve_conj().resolve_neg().contiguous()
    if not plain.numel():
        return plain.reshape(-1)
    # A contiguous view of one element may keep any stride, with which it cannot be viewed as bytes.
    return plain.reshape(-1, 1).clone(memory_format=torch.contiguous_format).view(torch.uint8)


def _ulps(expected: Any, actual: Any) -> int:
    """Return the largest distance in units in the last place over the finite elements; it saturates at 2^62."""
    import torch

    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[expected.element_size()]
    finite = expected.to(torch.float64).isfinite() & actual.to(torch.float64).isfinite()
    expected_bits, actual_bits = (
        data.resolve_neg().contiguous().view(whole)[finite].to(torch.int64) for data in (expected, actual)
    )
    if not expected_bits.numel():
        return 0
    least = -(2 ** (8 * expected.element_size() - 1))
    expected_bits, actual_bits = (
        torch.where(bits < 0, least - bits, bits) for bits in (expected_bits, actual_bits)
    )  # ordered as the numbers are
    same_sign = (expected_bits < 0) == (actual_bits < 0)
    apart = torch.where(
        same_sign,
        (expected_bits - actual_bits).abs(),
        expected_bits.abs().clamp(max=2**61) + actual_bits.abs().clamp(max=2**61),
    )
    return int(apart.max())


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

BIAS = (0.45, 4.5)
"""Largest accepted mean deviation of distinct numbers, in units of the spread, and in standard errors beyond it.

Rounding to nearest has no direction. Truncation deviates by half a unit on average, which is 0.61 of the spread of one
rounding; a constant that a compiler rounds beforehand deviates by at most 0.44. A mean of independent deviations lies
4.5 standard errors beyond the first by chance in one of 100,000 comparisons.
"""

DISTINCT = 64
"""Number of distinct numbers from which their mean deviation is tested: equal numbers are all rounded alike."""

FEW_BITS = 2.0**-6
"""Relative size of a unit in the last place from which a type has few bits: float8, and not bfloat16."""

BIAS_IN_FEW_BITS = 0.35
"""Largest accepted mean deviation in such a type. Nothing is computed in one, so that no constant is rounded to it."""

DISTINCT_IN_FEW_BITS = 20
"""Number of distinct numbers, in effect, from which the mean deviation is tested in such a type."""

ROUNDED = 4.0
"""Units in the last place of an element up to which a jump of it is a rounding, and none at a discontinuity."""

MEAN_SQUARE = (1.8, 4.0)
"""Largest accepted root mean square of the deviations in units of the spread, in the same form."""

OUTLIER = 10.0
"""Deviation in units of the spread to which an element counts in the mean and the mean square."""


class Spread:
    """What the perturbed runs say about one difference; all tensors are in float64, real and of one shape."""

    def __init__(self, expected: Any, actual: Any, runs: list[Any], unit: Any) -> None:
        import torch

        self.finite = expected.isfinite() & actual.isfinite()
        for run in runs:
            self.finite = self.finite & run.isfinite()
        self.infinite_agree = _infinite_agree(expected, actual, runs, self.finite)
        self.expected, self.actual = expected[self.finite], actual[self.finite]
        self.unit = unit[self.finite]
        self.runs = torch.stack([run[self.finite] for run in runs]) - self.expected
        self.deviation = self.actual - self.expected
        largest = self.runs.abs().topk(min(2, len(runs)), dim=0)
        self.spread_of_runs, self.second, self.largest_run = largest.values[0], largest.values[-1], largest.indices[0]
        self.spread = self._spread()

    def _spread(self) -> Any:
        """Return each element's largest deviation among the runs, and zero for an exact element."""
        import torch

        spread = self.spread_of_runs
        noisy = spread > 0
        if not noisy.any():
            return spread
        if bool((self.expected.abs() <= FACTOR * spread).all()):
            # No element has a digit that the runs agree on, as in the gradient of a bias before a batch norm, whose
            # exact value is zero: all elements are noise, and by chance the runs show too little of it in some.
            return torch.where(noisy, spread.max(), spread)
        if len(self.runs) >= ENOUGH:
            return spread
        # With few runs, an element may have little noise by chance: it gets at least the typical relative spread.
        relative = spread[noisy] / self.expected[noisy].abs().clamp(min=1e-300)
        return torch.maximum(spread, torch.minimum(relative.median() * self.expected.abs(), spread.max()))

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
        full = ~is_short(self.expected) & (self.unit <= self.expected.abs() * 2.0**-22)
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
            left_out = self._left_out(row)
            jumps = left_out > 1
            if jumps.any():
                most = max(most, int(jumps.sum()))
                worst = max(worst, float(left_out.max()))
                # An element that moves by a rounding of its own says nothing about how far smaller ones may move.
                wide = jumps & (run.abs() > ROUNDED * self.unit)
                farthest = max(farthest, float((run.abs() * wide).max()))
        allowed = (2 * ROUNDED * self.unit).clamp(min=2 * farthest)
        return (
            int(beyond.sum()) <= 2 * most
            and float(ratio.max()) <= 2 * worst
            and bool((self.deviation.abs() <= allowed)[beyond].all())
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
        for direction in (1.0, self.expected[rounded].sign()):
            mean = max(2 * float((runs * direction).mean(1).abs().max()), MEAN[0] + MEAN[1] / count**0.5)
            if abs(float((ours * direction).mean())) > mean:
                return False
            if self._biased(ours * direction, runs * direction, rounded):
                return False
        return True

    def _biased(self, ours: Any, runs: Any, rounded: Any) -> bool:
        """Whether distinct numbers deviate in one direction, as truncated ones do, and the runs do not.

        Each distinct number counts once. In a type of eight bits many numbers become one, and each counts as often as
        it comes.
        """
        import torch

        if abs(float(ours.mean())) <= BIAS[0] or len(ours) < DISTINCT:
            return False
        expected = self.expected[rounded]
        few_bits = float((self.unit[rounded] / expected.abs()).median()) > FEW_BITS
        _, group = torch.unique(expected, return_inverse=True)
        count = int(group.max()) + 1
        members = torch.bincount(group, minlength=count)
        shares = members.double() if few_bits else torch.ones_like(members, dtype=torch.float64)
        shares /= shares.sum()
        bias, fewest = (BIAS_IN_FEW_BITS, DISTINCT_IN_FEW_BITS) if few_bits else (BIAS[0], DISTINCT)
        if 1 / float(shares.square().sum()) < fewest:  # the number of groups, in effect
            return False
        means = torch.stack([torch.bincount(group, values, count) / members for values in (ours, *runs)])
        own, *others = (means * shares).sum(-1)
        accepted = max(bias, 2 * max(abs(float(other)) for other in others))
        error = float((shares * (means[0] - own)).square().sum().sqrt())
        return bool(abs(float(own)) > accepted + BIAS[1] * error)


def _infinite_agree(expected: Any, actual: Any, runs: list[Any], finite: Any) -> bool:
    """Whether infinities and NaN are where eager or one of the runs has them."""
    if finite.all():
        return True
    elsewhere = ~finite
    expected, actual = expected[elsewhere], actual[elsewhere]
    allowed = same_number(expected, actual) | (expected.isfinite() & actual.isfinite())
    for run in runs:
        allowed |= same_number(run[elsewhere], actual) | (actual.isfinite() & run[elsewhere].isfinite())
    return bool(allowed.all())


def same_number(left: Any, right: Any) -> Any:
    """Return where two tensors hold the same number, or NaN both."""
    return (left == right) | (left.isnan() & right.isnan())
