"""The two sides of a difference as text, with enough digits or characters to show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recapture.judge.rounding import unequal

if TYPE_CHECKING:
    from recapture.judge.snapshot import Snapshot, TensorSnapshot

FAR = {"float16": 1e-3, "bfloat16": 1.6e-2, "float64": 1e-7, "complex32": 1e-3, "complex128": 1e-7}
"""Relative difference from which two numbers are counted as different, by dtype; FAR_OTHERWISE for other dtypes.

Smaller ones may be rounding, which depends on the machine: their number would not be the same in two runs.
"""

FAR_OTHERWISE = 1.3e-6


def two_digits(ulps: int | None) -> int | None:
    """Return a distance to two digits: its exact value depends on how each machine rounds."""
    return None if ulps is None else int(float(f"{ulps:.2g}"))


def sides(eager: Snapshot, other: Snapshot, index: tuple[int, ...]) -> tuple[str | None, str | None]:
    """Return both scalars, or both elements of two tensors at an index; None for elements that are not numbers."""
    if eager.tensor is None or other.tensor is None:
        return _pair(eager.scalar, other.scalar)
    try:
        return _pair(eager.tensor.data[index].item(), other.tensor.data[index].item())
    except (NotImplementedError, RuntimeError):  # a bits dtype
        return None, None


def first_unequal(unequal: Any) -> tuple[int, ...]:
    """Return the index of the first true element; empty for a tensor without dimensions."""
    return tuple(int(position[0]) for position in unequal.nonzero(as_tuple=True)) if unequal.dim() else ()


def far_apart(eager: TensorSnapshot, other: TensorSnapshot) -> Any:
    """Return which elements of two tensors of one dtype and shape differ by more than FAR; if none, which differ."""
    import torch

    expected, actual = eager.data, other.data
    different = unequal(expected, actual)
    if not (expected.is_floating_point() or expected.is_complex()):
        return different
    double = torch.complex128 if expected.is_complex() else torch.float64
    relative = FAR.get(eager.dtype.rpartition(".")[2], FAR_OTHERWISE)
    unlike = ~torch.isclose(actual.to(double), expected.to(double), rtol=relative, atol=0.0, equal_nan=True)
    return unlike if unlike.any() else different


def parts(snapshot: Snapshot) -> str:
    """Return what a described value is made of."""
    if snapshot.tensor is not None:
        return "a tensor"
    return "a value" if snapshot.children is None else f"{len(snapshot.children)} items"


def listed(names: tuple[str, ...]) -> str:
    """Return the flags of a tensor as text."""
    return " and ".join(names) if names else "none of its flags"


def _pair(eager: Any, other: Any) -> tuple[str, str]:
    """Return two values as text, with enough digits or characters to show their difference."""
    if isinstance(eager, (float, complex)) and isinstance(other, (float, complex)):
        texts = [(f"{eager:.{digits}g}", f"{other:.{digits}g}") for digits in (4, 6, 9, 17)]
    else:
        texts = [(short(eager, length), short(other, length)) for length in (80, 400)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])


def short(value: Any, length: int = 80) -> str:
    """Return the repr of a value, cut to a length in characters."""
    text = repr(value)
    return text if len(text) <= length else text[: length - 3] + "…"
