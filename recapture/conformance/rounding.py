"""Decides whether rounding explains the difference between two numbers, or two tensors of the same dtype and shape.

What rounding may do is measured on eager itself: `perturbation.perturbed` runs eager again with rounding-sized noise,
and the spread of each element over these runs is what another compiler may deviate by. There is no fixed tolerance, and
no absolute one: each element is judged by its own spread. Further rules are about all elements together, for errors
that are small everywhere.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.conformance.seen import Seen

__all__ = ["Distance", "distance", "explained", "same_bits"]

STAGES = (3, 8, 16)
"""Numbers of perturbed runs after which a difference may count as explained; after the last one it is not."""

HOPELESS = 100.0
"""Ratio of a deviation to the allowed one above which the second stage decides."""

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


def same_bits(eager: Seen, other: Seen) -> bool:
    """Whether two described values, scalars or tensors of one type, have the same bits, sign of zero and NaN included."""
    import torch

    if eager.tensor is None or other.tensor is None:
        return _scalar_bits(eager.scalar) == _scalar_bits(other.scalar)
    mine, theirs = eager.tensor.data, other.tensor.data
    if mine is None or theirs is None:  # no values to compare
        return mine is theirs
    return mine.dtype == theirs.dtype and mine.shape == theirs.shape and torch.equal(_bits(mine), _bits(theirs))


def distance(eager: Seen, other: Seen) -> Distance | None:
    """Return how two scalars of one type, or two tensors of one dtype and shape, differ; None if they do not."""
    if same_bits(eager, other):
        return None
    pair = _real_tensors(eager, other)
    if pair is None:
        elements = None
        if eager.tensor is not None and other.tensor is not None:
            different = _bits(eager.tensor.data) != _bits(other.tensor.data)
            elements = (int(different.reshape(different.shape[0], -1).any(1).sum()), eager.tensor.data.numel())
        return Distance("value", None, elements)
    mine, theirs = pair
    whole = _whole(mine.element_size())
    different = mine.contiguous().view(whole) != theirs.contiguous().view(whole)
    wide = (_wide(mine), _wide(theirs))
    unequal = (wide[0] != wide[1]) & ~(wide[0].isnan() & wide[1].isnan())
    complex_parts = eager.tensor is not None and eager.tensor.data.is_complex()
    count = int((different.any(-1) if complex_parts else different).sum())
    total = eager.tensor.data.numel() if eager.tensor is not None else 1
    elements = (count, total) if eager.tensor is not None else None
    if not unequal.any():
        return Distance("nan-payload" if (different & wide[0].isnan()).any() else "signed-zero", 0, elements)
    return Distance("value", _ulps(mine, theirs, wide[0].isfinite() & wide[1].isfinite()), elements)


def explained(eager: Seen, other: Seen, sample: Callable[[int], Seen | None]) -> bool:
    """Whether rounding explains the difference between two scalars of one type or two tensors of one dtype and shape.

    `sample(k)` returns the same value from the k-th perturbed run of eager, k = 0, 1, …; None if that run has none.
    Where the perturbed runs fail or give values of another form, a relative tolerance decides (FALLBACK).
    """
    mine, theirs = _numbers(eager), _numbers(other)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return False
    unit = _unit(eager, other, mine)
    if unit is None and not _is_whole(eager):
        return False
    runs: list[Any] = []
    asked = 0
    for index, stage in enumerate(STAGES):
        for number in range(asked, stage):
            seen = sample(number)
            values = _numbers(seen) if seen is not None and seen.type == eager.type else None
            if values is not None and values.shape == mine.shape:
                runs.append(values)
        asked = stage
        if len(runs) < stage / 2:
            return unit is not None and _within_tolerance(eager, other, mine, theirs)
        if unit is None:
            if _among(mine, theirs, runs):
                return True
            continue
        evidence = _Evidence(mine, theirs, runs, unit)
        if evidence.explains():
            return True
        if index == 1 and evidence.excess() > HOPELESS and not evidence.jumps():
            return False
    return False


class _Evidence:
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
        if len(self.runs) < STAGES[-1]:
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
        return abs(float(ours.mean())) <= mean and float(ours.pow(2).mean()) ** 0.5 <= square


def _infinite_agree(mine: Any, theirs: Any, runs: list[Any], finite: Any) -> bool:
    """Whether infinities and NaN are where eager or one of the runs has them."""
    if finite.all():
        return True
    there = ~finite
    mine, theirs = mine[there], theirs[there]
    allowed = _same(mine, theirs) | (mine.isfinite() & theirs.isfinite())
    for one in runs:
        allowed |= _same(one[there], theirs) | (theirs.isfinite() & one[there].isfinite())
    return bool(allowed.all())


def _same(one: Any, other: Any) -> Any:
    return (one == other) | (one.isnan() & other.isnan())


def _among(mine: Any, theirs: Any, runs: list[Any]) -> bool:
    """Whether each integer that differs lies between the smallest and the largest one of eager and the runs."""
    import torch

    every = torch.stack([mine, *runs])
    return bool(((theirs >= every.amin(0)) & (theirs <= every.amax(0))).all())


def _within_tolerance(eager: Seen, other: Seen, mine: Any, theirs: Any) -> bool:
    """Whether two values are equal within FALLBACK, relative to each element and to their root mean square."""
    finite = mine.isfinite() & theirs.isfinite()
    if not bool((_same(mine, theirs) | finite).all()):
        return False
    mine, theirs = mine[finite], theirs[finite]
    name = "float64" if eager.tensor is None else str(eager.tensor.data.dtype).rpartition(".")[2]
    relative = FALLBACK_OTHERWISE if _from_float32(eager, other) else FALLBACK.get(name, FALLBACK_OTHERWISE)
    level = mine.pow(2).mean().sqrt() if len(mine) else 0.0
    return bool(((theirs - mine).abs() <= relative * mine.abs().clamp(min=level)).all())


def _numbers(seen: Seen) -> Any:
    """Return a described value as a tensor of float64 (of integers for integers); None if it holds no numbers."""
    import torch

    if seen.tensor is not None:
        data = seen.tensor.data
        if data is None or data.is_quantized:
            return None
        if data.is_complex():
            return torch.view_as_real(data.to(torch.complex128))
        if data.is_floating_point():
            return data.to(torch.float64)
        return data.to(torch.int64) if data.dtype in _integers() else None
    value = seen.scalar
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


def _unit(eager: Seen, other: Seen, mine: Any) -> Any:
    """Return the distance to the next larger number for each element; None for integers."""
    import torch

    if not mine.is_floating_point():
        return None
    if eager.tensor is None:
        return spacing(mine, torch.float32 if _from_float32(eager, other) else torch.float64)
    data = eager.tensor.data
    if data.is_complex():
        return spacing(mine.norm(dim=-1, keepdim=True).expand_as(mine).contiguous(), real_dtype(data.dtype))
    return spacing(mine, data.dtype)


def _from_float32(eager: Seen, other: Seen) -> bool:
    """Whether two Python scalars may have been read from float32 tensors."""
    import torch

    if eager.tensor is not None or other.tensor is not None:
        return False
    values = torch.cat([_numbers(eager).flatten(), _numbers(other).flatten()])
    return bool((values.to(torch.float32).to(torch.float64) == values).all())


def _whole(size: int) -> Any:
    import torch

    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]


def _scalar_bits(value: Any) -> Any:
    """Return a scalar in a form in which equal bits are equal."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    return type(value), repr(value) if value != value else value  # noqa: PLR0124 - a NaN of another type


def _bits(data: Any) -> Any:
    """Return the bytes of each element of a tensor, in a last dimension."""
    import torch

    plain = data.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1, 1).view(torch.uint8) if plain.numel() else plain.reshape(-1)


def _ulps(mine: Any, theirs: Any, finite: Any) -> int:
    """Return the largest distance in units in the last place; it saturates at 2^62."""
    import torch

    whole = _whole(mine.element_size())
    one, two = (data.contiguous().view(whole)[finite].to(torch.int64) for data in (mine, theirs))
    if not one.numel():
        return 0
    least = -(2 ** (8 * mine.element_size() - 1))
    one, two = (torch.where(bits < 0, least - bits, bits) for bits in (one, two))  # ordered as the numbers are
    same_sign = (one < 0) == (two < 0)
    apart = torch.where(same_sign, (one - two).abs(), one.abs().clamp(max=2**61) + two.abs().clamp(max=2**61))
    return int(apart.max())


def _real_tensors(eager: Seen, other: Seen) -> tuple[Any, Any] | None:
    """Return two values as real floating-point tensors of their own precision; None if they are not floating-point."""
    import torch

    def real(seen: Seen) -> Any:
        if seen.tensor is not None:
            data = seen.tensor.data.detach().resolve_conj().resolve_neg()
            data = torch.view_as_real(data) if data.is_complex() else data
            return data if data.is_floating_point() else None
        return _numbers(seen) if isinstance(seen.scalar, (float, complex)) else None

    mine, theirs = real(eager), real(other)
    return None if mine is None or theirs is None else (mine, theirs)
