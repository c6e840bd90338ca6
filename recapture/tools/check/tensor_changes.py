"""Changes of a tensor, each under a name: other sizes, ranks, values, dtypes and layouts.

A generated case contains the source of this module, so that a script printed from it needs torch alone. It therefore
imports nothing from this project but such modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

Named = Iterator["tuple[str, Callable[[Any], Any]]"]
"""Changes with their names."""

LARGE, TINY = 1e4, 1e-4
"""Factors of the variants ``large`` and ``tiny``."""

MOST_CONSTANTS = 6
"""The most numbers and strings of the target's source that are tried."""

LARGEST_SIZE = 64
"""The largest number of the target's source that is tried as a size."""


# --- sizes and ranks ------------------------------------------------------------------------------------------------


def batches(tensors: Sequence[tuple[str, Any]], numbers: Sequence[float]) -> Named:
    """Yield changes of the first dimension: one, one more, and sizes around numbers of the target's source."""
    batch = next((one.shape[0] for _, one in tensors if one.dim()), 0)
    mined = [int(one) + more for one in numbers[:MOST_CONSTANTS] if one == int(one) for more in (0, 1)]
    for size in dict.fromkeys(mined or [1, batch + 1]):
        if batch and size != batch and 1 <= size <= max(LARGEST_SIZE, batch + 1):
            yield f"batch={size}", partial(_resized, "first", batch, size)


def sizes(tensors: Sequence[tuple[str, Any]]) -> Named:
    """Yield changes of the last dimension, and of all dimensions that have the size of the first."""
    first = next((one for _, one in tensors if one.dim()), None)
    if first is None or not first.numel():
        return
    batch, last = first.shape[0], first.shape[-1]
    if any(list(one.shape).count(batch) > 1 for _, one in tensors) or len(tensors) > 1:
        yield f"every size {batch} is {batch + 1}", partial(_resized, "every", batch, batch + 1)
    if first.dim() > 1:
        yield f"last dimension={last + 1}", partial(_resized, "last", last, last + 1)
        yield "last dimension=1", partial(_resized, "last", last, 1)
    if first.dim() == 4:
        yield "other height", partial(_resized, "height", first.shape[2], first.shape[2] + 1)


def ranks(tensors: Sequence[tuple[str, Any]]) -> Named:
    """Yield an empty first dimension, another dimension in front, and one dimension fewer."""
    deepest = max((one.dim() for _, one in tensors), default=0)
    yield "another dimension", lambda one: one.unsqueeze(0).repeat(2, *[1] * one.dim())
    if deepest:
        yield "batch=0", lambda one: one[:0] if one.dim() else one
        yield "first row alone", lambda one: one[0] if one.dim() and one.shape[0] else one
    if deepest > 1:
        yield "transposed", lambda one: one.transpose(-1, -2).contiguous() if one.dim() > 1 else one


def _resized(which: str, before: int, after: int, one: Any) -> Any:
    """Return a tensor whose dimensions of one size have another one; values are repeated."""
    import torch

    dims = {"first": [0], "last": [one.dim() - 1], "height": [2], "every": [*range(one.dim())]}[which]
    for dim in dims:
        if one.dim() > dim >= 0 and one.shape[dim] == before:
            one = one.index_select(dim, torch.arange(after, device=one.device) % before)
    return one


# --- values ---------------------------------------------------------------------------------------------------------


def values(careful: bool) -> Named:
    """Yield other values of the same shape; with `careful`, integers keep to those of the example."""
    yield "negated", partial(_negated, careful)
    yield "zeros", lambda one: one & False if _is_bool(one) else one * 0
    yield "reversed", lambda one: one.flip(tuple(range(one.dim())))
    yield "large", partial(_large, careful)
    yield "tiny", partial(_scaled, TINY)
    yield "ones", partial(filled, 1, careful)


def mixed_values() -> Named:
    """Yield values in which single elements differ: the first one's sign, and a pair of equal ones."""
    yield "first value negated", _first_negated
    yield "first value repeated", lambda one: _with(one, -1, one.reshape(-1)[0]) if one.numel() else one


def at_constants(numbers: Sequence[float], careful: bool) -> Named:
    """Yield values beyond, at and below numbers of the target's source, and other values whose sum is so."""
    for number in numbers[:MOST_CONSTANTS]:
        beyond, below = number + abs(number) + 1, number - abs(number) / 2 - 0.5
        yield f"values beyond {number:g}", partial(filled, beyond, careful)
        yield f"values of {number:g}", partial(filled, number, careful)
        yield f"values below {number:g}", partial(filled, below, careful)


def _negated(careful: bool, one: Any) -> Any:
    if _is_bool(one):
        return ~one
    signed = one.is_floating_point() or one.is_complex() or (not careful and one.dtype.is_signed)
    return -one if signed else one


def _large(careful: bool, one: Any) -> Any:
    """Return numbers that are larger by a factor; integers up to the limit of their dtype."""
    import torch

    if one.is_floating_point() or one.is_complex() or _is_bool(one) or careful:
        return _scaled(LARGE, one)
    most = min(torch.iinfo(one.dtype).max, 1 << 31)
    return (one.to(torch.float64) * 100 + 100).clamp(max=most - 1).to(one.dtype)


def _scaled(factor: float, one: Any) -> Any:
    return one * factor if one.is_floating_point() or one.is_complex() else one


def shifted(step: int, one: Any) -> Any:
    """Return other values of the same kind, for a further training step."""
    return one.roll(step) * (1 + step / 8) if one.is_floating_point() else one.roll(step)


def filled(value: float, careful: bool, one: Any) -> Any:
    """Return a tensor of one value; integers, if that may be done, of the nearest one that their dtype has."""
    import torch

    if one.is_floating_point():
        return one * 0 + value
    if careful or one.is_complex():
        return one
    if _is_bool(one):
        return one | bool(value)
    limits = torch.iinfo(one.dtype)
    return torch.full_like(one, int(max(limits.min, min(limits.max, value))))


def with_first(value: float, one: Any) -> Any:
    """Return a floating-point tensor with another first value."""
    return _with(one, 0, value) if one.is_floating_point() and one.numel() else one


def _first_negated(one: Any) -> Any:
    if not one.numel() or not (one.is_floating_point() or one.is_complex() or one.dtype.is_signed):
        return one
    first = one.reshape(-1)[0]
    return _with(one, 0, -first if bool(first) else first - 1)


def _with(one: Any, place: int, value: Any) -> Any:
    made = one.contiguous().clone()
    made.view(-1)[place] = value
    return made


def _is_bool(one: Any) -> bool:
    return str(one.dtype) == "torch.bool"


# --- dtypes, layouts, autograd --------------------------------------------------------------------------------------


def dtype_changes() -> Named:
    """Yield the other common dtype of each kind: double precision, integers as floats, and floats as integers."""
    yield "dtype=float64", partial(cast, "float64")
    yield "integers as floats", _as_floats
    yield "floats as integers", lambda one: one.round().long() if one.is_floating_point() else one


def _as_floats(one: Any) -> Any:
    import torch

    if one.is_floating_point() or one.is_complex():
        return one
    return one.to(torch.float32) + (0 if _is_bool(one) else 0.5)


def cast(name: str, one: Any) -> Any:
    """Return a floating-point tensor in another dtype."""
    import torch

    return one.to(getattr(torch, name)) if one.is_floating_point() else one


def layouts() -> Named:
    """Yield the same values in other memory: strided, overlapping, and inside a larger tensor."""
    yield "non-contiguous", _non_contiguous
    yield "channels-last", _channels_last
    yield "part of a larger tensor", _inside
    yield "expanded", lambda one: one[:1].expand(one.shape) if one.dim() and one.shape[0] > 1 else one


def _non_contiguous(one: Any) -> Any:
    if one.dim() > 1:
        return one.transpose(0, -1).contiguous().transpose(0, -1)
    return one.repeat_interleave(2)[::2] if one.dim() == 1 else one


def _channels_last(one: Any) -> Any:
    import torch

    return one.contiguous(memory_format=torch.channels_last) if one.dim() == 4 else one


def _inside(one: Any) -> Any:
    import torch

    return torch.cat([one, one])[one.shape[0] :] if one.dim() else torch.stack([one, one])[1]


def flipped(_path: str, one: Any) -> Any:
    """Return a tensor that requires grad if the given one does not, and the other way round."""
    differentiable = one.is_floating_point() or one.is_complex()
    return one.detach().requires_grad_(not one.requires_grad) if differentiable and one.is_leaf else one
