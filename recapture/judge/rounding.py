"""Decides whether rounding explains the difference between two numbers, or two tensors of the same dtype and shape.

What rounding may do is measured on eager itself: `perturbation.perturbed` runs eager again with rounding-sized noise,
and the spread of each element over these runs is what another compiler may deviate by. There is no fixed tolerance, and
no absolute one: each element is judged by its own spread. Further rules are about all elements together, for errors
that are small everywhere.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recapture.judge.noise import real_dtype, spacing
from recapture.judge.spread import ENOUGH, Spread, same_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.judge.snapshot import Seen

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


def same_bits(eager: Seen, other: Seen) -> bool:
    """Whether two described values, scalars or tensors, have the same bits, with sign of zero and NaN payload."""
    import torch

    if eager.tensor is None or other.tensor is None:
        return bool(_scalar_bits(eager.scalar) == _scalar_bits(other.scalar))
    mine, theirs = eager.tensor.data, other.tensor.data
    if mine is theirs or mine is None or theirs is None:  # shared, or no values to compare
        return mine is theirs
    same_form = mine.dtype == theirs.dtype and mine.shape == theirs.shape
    return same_form and bool(torch.equal(_bits(mine), _bits(theirs)))


def unequal(eager: Any, other: Any) -> Any:
    """Return where two tensors of one dtype and shape hold different numbers; NaN equals NaN, and 0.0 equals -0.0."""
    import torch

    if eager.is_floating_point() or eager.is_complex():
        wide = torch.complex128 if eager.is_complex() else torch.float64
        return ~same_number(eager.to(wide), other.to(wide))
    bits = (_bits(eager) != _bits(other)).reshape(eager.numel(), eager.element_size())
    return bits.any(-1).reshape(eager.shape)


def distance(eager: Seen, other: Seen) -> Distance | None:
    """Return how two scalars of one type, or two tensors of one dtype and shape, differ; None if they do not."""
    if same_bits(eager, other):
        return None
    if eager.tensor is None or other.tensor is None:
        mine, theirs = _numbers(eager), _numbers(other)
        if mine is None or theirs is None:
            return Distance("value", None, None)
        found = _tensor_distance(mine, theirs)
        return Distance(found.bits, found.ulps, None)
    mine, theirs = eager.tensor.data, other.tensor.data
    if mine is None or theirs is None:
        return Distance("value", None, None)
    return _tensor_distance(mine, theirs)


def _tensor_distance(mine: Any, theirs: Any) -> Distance:
    import torch

    different = unequal(mine, theirs)
    if not different.any():  # only bits differ
        bits = (_bits(mine) != _bits(theirs)).reshape(mine.numel(), mine.element_size()).any(-1).reshape(mine.shape)
        payload = bool((bits & mine.isnan()).any())
        return Distance("nan-payload" if payload else "signed-zero", 0, (int(bits.sum()), mine.numel()))
    elements = (int(different.sum()), mine.numel())
    if mine.is_complex():
        mine, theirs = (torch.view_as_real(one.resolve_conj()) for one in (mine, theirs))
    return Distance("value", _ulps(mine, theirs) if mine.is_floating_point() else None, elements)


def explained(eager: Seen, other: Seen, sample: Callable[[int], Seen | None]) -> bool:
    """Whether rounding explains the difference between two scalars of one type or two tensors of one dtype and shape.

    `sample(k)` returns the same value from the k-th perturbed run of eager, k = 0, 1, …; None if that run has none.
    Where the perturbed runs fail or give values of another form, a relative tolerance decides (FALLBACK).
    """
    mine, theirs = _numbers(eager), _numbers(other)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return False
    unit = _unit(eager, other, mine)
    runs: list[Any] = []
    asked = 0
    for stage in STAGES:
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
        spread = Spread(mine, theirs, runs, unit)
        if spread.explains():
            return True
        if stage >= ENOUGH and spread.hopeless():
            return False
        if stage >= RARE and spread.beyond() > max(1, FEW * mine.numel()):
            return False
    return False


def largest_ratio(eager: Seen, other: Seen, samples: list[Seen]) -> float:
    """Return the largest ratio of an element's deviation to the allowed one, given these perturbed runs."""
    mine = _numbers(eager)
    runs = [_numbers(one) for one in samples]
    return Spread(mine, _numbers(other), runs, _unit(eager, other, mine)).excess()


def _among(mine: Any, theirs: Any, runs: list[Any]) -> bool:
    """Whether each integer that differs lies between the smallest and the largest one of eager and the runs."""
    import torch

    every = torch.stack([mine, *runs])
    return bool(((theirs >= every.amin(0)) & (theirs <= every.amax(0))).all())


def _within_tolerance(eager: Seen, other: Seen, mine: Any, theirs: Any) -> bool:
    """Whether two values are equal within FALLBACK, relative to each element and to their root mean square."""
    finite = mine.isfinite() & theirs.isfinite()
    if not bool((same_number(mine, theirs) | finite).all()):
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

    data = data.int_repr() if data.is_quantized else data
    plain = data.detach().resolve_conj().resolve_neg().contiguous()
    if not plain.numel():
        return plain.reshape(-1)
    # A contiguous view of one element may keep any stride, with which it cannot be viewed as bytes.
    return plain.reshape(-1, 1).clone(memory_format=torch.contiguous_format).view(torch.uint8)


def _ulps(mine: Any, theirs: Any) -> int:
    """Return the largest distance in units in the last place over the finite elements; it saturates at 2^62."""
    import torch

    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[mine.element_size()]
    finite = mine.to(torch.float64).isfinite() & theirs.to(torch.float64).isfinite()
    one, two = (data.resolve_neg().contiguous().view(whole)[finite].to(torch.int64) for data in (mine, theirs))
    if not one.numel():
        return 0
    least = -(2 ** (8 * mine.element_size() - 1))
    one, two = (torch.where(bits < 0, least - bits, bits) for bits in (one, two))  # ordered as the numbers are
    same_sign = (one < 0) == (two < 0)
    apart = torch.where(same_sign, (one - two).abs(), one.abs().clamp(max=2**61) + two.abs().clamp(max=2**61))
    return int(apart.max())
