"""Draws rounding-sized noise: steps of one unit in the last place, and the errors of a sum in another order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

WALK = 3.0
"""Size of the random walk in a sum: one and a half times what the errors of two sequential sums differ by."""


def wide_dtype(dtype: Any) -> Any:
    """Return the dtype in which rounding to `dtype` can be seen: float64, or complex128."""
    import torch

    return torch.complex128 if dtype.is_complex else torch.float64


def can_round(value: Any) -> bool:
    """Whether a value is a tensor that noise can be put into: dense, in one block, with numbers that round."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and (value.is_floating_point() or value.is_complex())
        and value.layout == torch.strided
        and value.device.type != "meta"
        and not value.is_quantized
        and not value.is_nested  # arithmetic on its elements as on one block can end the process
    )


def can_round_inside(value: Any) -> bool:
    """Whether a value is a sparse tensor in the COO layout, whose stored numbers round."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.sparse_coo
        and (value.is_floating_point() or value.is_complex())
        and value.device.type != "meta"
    )


def unit_roundoff(dtype: Any) -> float:
    """Return the largest relative error of one rounding while operators compute on a dtype: in float32 at least."""
    import torch

    return 2.0**-53 if dtype in (torch.float64, torch.complex128) else 2.0**-24


def is_short(wide: Any) -> Any:
    """Return where float64 numbers have so few digits that sums and products of them are exact: multiples of 2^-10."""
    import torch

    if wide.is_complex():
        return is_short(wide.real) & is_short(wide.imag)
    scaled = wide * 1024
    return (scaled == scaled.round()) & (wide.abs() < 2.0**30) | ~torch.isfinite(wide)


def spacing(values: Any, dtype: Any) -> Any:
    """Return the distance from each real float64 number to the next larger one in `dtype`; 0 where not finite."""
    import torch

    limits = torch.finfo(dtype)
    _, exponent = torch.frexp(values)
    unit = torch.exp2(exponent.to(torch.float64) - 1) * limits.eps
    smallest = float(getattr(limits, "smallest_normal", limits.tiny)) * limits.eps
    return torch.where(torch.isfinite(values), unit.clamp(min=smallest), torch.zeros_like(unit))


class Noise:
    """A source of noise with a generator of its own on each device, so that the case's random numbers stay the same."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[Any, Any] = {}

    def _generator(self, device: Any) -> Any:
        import torch

        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self._generators[device]

    def steps(self, like: Any) -> Any:
        """Return -1, 0 or 1 for each element, with equal probability."""
        import torch

        device = like.device
        return torch.randint(-1, 2, like.shape, generator=self._generator(device), device=device, dtype=torch.float64)

    def uniform(self, like: Any) -> Any:
        """Return uniform numbers between -1 and 1."""
        import torch

        device = like.device
        numbers = torch.rand(like.shape, generator=self._generator(device), device=device, dtype=torch.float32)
        return numbers.mul_(2).sub_(1)

    def step(self, wide: Any, dtype: Any, scale: Any = None) -> Any:
        """Move each float64 or complex128 number by -1, 0 or 1 units in the last place of `dtype`.

        The unit is that of `scale` where given. A complex number's unit is that of its absolute value.
        """
        import torch

        if wide.is_complex():
            unit = spacing(wide.abs() if scale is None else scale, real_dtype(dtype))
            return wide + torch.complex(self.steps(unit) * unit, self.steps(unit) * unit)
        unit = spacing(wide if scale is None else scale, dtype)
        return wide + self.steps(unit) * unit

    def moved(self, value: Any) -> Any:
        """Return a tensor with each number that has many digits moved by up to one unit; any other value as it is."""
        import torch

        if not can_round(value):
            return value
        wide = value.to(wide_dtype(value.dtype))
        return torch.where(is_short(wide), wide, self.step(wide, value.dtype)).to(value.dtype)

    def accumulation(self, wide: Any, unit: float, groups: Iterable[tuple[int, ...]], *, common: bool = False) -> Any:
        """Perturb the terms of sums by what another order of summation may do to the sum.

        `groups` holds tuples of dimensions that are summed together. Adding a term rounds the partial sum so far, so it
        changes all terms before by the same relative error: a sequential sum is the exact sum of terms whose relative
        errors are a random walk along the sum. Sums in lanes or halves have smaller errors; Welford's algorithm for the
        variance has errors as large. With `common`, the errors are also those of a mean that all terms share.
        """
        error = 2 * self.uniform(wide) * wide  # each term is itself rounded, a product for example
        for dims in groups:
            walk = WALK * self._walk(wide, dims)
            error = error + walk * wide
            if common:
                error = error + walk * wide.abs().mean(dims, keepdim=True)
        return wide + error * unit

    def _walk(self, wide: Any, dims: tuple[int, ...]) -> Any:
        """Return a random walk along the dimensions taken together, with steps between -1 and 1.

        It is centred, so that the noise has one size from the first term to the last.
        """
        ends = tuple(range(-len(dims), 0))
        steps = self.uniform(wide).movedim(dims, ends)
        walk = steps.flatten(-len(dims)).cumsum(-1)
        walk = walk - walk[..., -1:] / 2
        return walk.reshape(steps.shape).movedim(ends, dims)


def real_dtype(dtype: Any) -> Any:
    """Return the dtype of the real part of a complex dtype."""
    import torch

    return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, torch.float16)
