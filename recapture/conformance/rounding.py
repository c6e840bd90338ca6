"""Decides whether two numbers, or two tensors of the same dtype and shape, are equal except for rounding.

Every comparison of values uses these rules: the verdicts of cells, the scripts of `recapture repro`, and plain numbers
in the correctness check of `recapture bench`.
"""

from __future__ import annotations

import cmath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recapture.conformance.seen import Seen, TensorSeen

__all__ = ["all_close", "is_rounded_number", "is_rounded_tensor", "isclose", "may_round", "same_scalar"]

TOLERANCES = {
    # (relative, absolute), as in torch.testing.assert_close; other dtypes must be exactly equal.
    "torch.float16": (1e-3, 1e-5),
    "torch.bfloat16": (1.6e-2, 1e-5),
    "torch.float32": (1.3e-6, 1e-5),
    "torch.float64": (1e-7, 1e-7),
    "torch.complex32": (1e-3, 1e-5),
    "torch.complex64": (1.3e-6, 1e-5),
    "torch.complex128": (1e-7, 1e-7),
}

PYTHON_FLOAT = (1.3e-6, 1e-5)
"""Relative and absolute tolerance of Python floats, which may have been read from a float32 tensor."""

ERROR_FACTOR = 3.0
"""Largest accepted ratio of a result's error to eager's, both against float64 (the rule of torch's dynamobench)."""

PLAUSIBLE = {"torch.float16": 0.05, "torch.bfloat16": 0.2, "torch.float32": 1e-2}
PLAUSIBLE |= {"torch.complex32": 0.05, "torch.complex64": 1e-2}
"""Largest plausible error of eager against the float64 result, relative to its largest element, by dtype.

With a larger error, the float64 run computed something else (a branch on the dtype, a different random number) and is
not a valid reference.
"""

FAR_OFF = {"torch.float32": 0.01, "torch.complex64": 0.01}
"""Relative error from which an element counts as far off where eager is right, by dtype; 1 for other dtypes."""

CHANCE = 10.0
"""Largest accepted ratio of the number of far-off elements to the number that rounding is expected to cause."""


def isclose(eager: Any, other: Any, dtype: str) -> Any:
    """Return, for each element, whether two tensors of one dtype are equal within its tolerance; NaN equals NaN."""
    import torch

    exact = not (eager.dtype.is_floating_point or eager.dtype.is_complex)
    try:
        if exact:
            return eager == other
        relative, absolute = TOLERANCES.get(dtype, TOLERANCES.get(f"torch.{dtype}", (0.0, 0.0)))
        return torch.isclose(_double(other), _double(eager), rtol=relative, atol=absolute, equal_nan=True)
    except (NotImplementedError, RuntimeError):  # a dtype without arithmetic: compare its bytes
        whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[eager.element_size()]
        return eager.contiguous().view(whole) == other.contiguous().view(whole)


def all_close(eager: Any, other: Any, dtype: str) -> bool:
    """Whether every element of two tensors is close."""
    return bool(isclose(eager, other, dtype).all())


def same_scalar(eager: Any, other: Any) -> bool:
    """Whether two plain Python values of the same type are equal: floats within PYTHON_FLOAT, NaN equals NaN."""
    if isinstance(eager, (float, complex)) and isinstance(other, (float, complex)):
        if cmath.isnan(eager) or cmath.isnan(other):
            return cmath.isnan(eager) and cmath.isnan(other)
        return cmath.isclose(eager, other, rel_tol=PYTHON_FLOAT[0], abs_tol=PYTHON_FLOAT[1])
    return bool(eager == other) or bool(eager != eager and other != other)  # noqa: PLR0124 - NaN, as numpy's longdouble


def may_round(seen: Seen) -> bool:
    """Whether rounding can change a value: a finite Python float, or a tensor of a dtype in PLAUSIBLE."""
    if seen.tensor is None:
        return isinstance(seen.scalar, (float, complex)) and cmath.isfinite(seen.scalar)
    return _torch_name(seen.tensor.dtype) in PLAUSIBLE


def is_rounded_number(eager: Any, other: Any, exact: Any) -> bool:
    """Whether `other` is about as close to the float64 result `exact` as eager, given that it may be a float32."""
    if not isinstance(exact, (float, complex)) or not cmath.isfinite(exact):
        return False
    size, error = abs(exact), abs(eager - exact)
    if error > PLAUSIBLE["torch.float32"] * size:
        return False
    return bool(abs(other - exact) <= ERROR_FACTOR * error + PYTHON_FLOAT[0] * size + PYTHON_FLOAT[1])


def is_rounded_tensor(eager: TensorSeen, other: TensorSeen, exact: TensorSeen) -> bool:
    """Whether `other` is about as close to the float64 result as eager, in each element and on average."""
    if exact.data is None or exact.shape != eager.shape:
        return False
    dtype = _torch_name(eager.dtype)
    reference, mine, theirs = _double(exact.data), _double(eager.data), _double(other.data)
    finite = mine.isfinite()
    if not finite.any() or not (theirs.isfinite() == finite).all() or not reference.isfinite()[finite].all():
        return False
    if not all_close(eager.data[~finite], other.data[~finite], eager.dtype):
        return False
    reference = reference[finite]
    eager_error, other_error = (mine[finite] - reference).abs(), (theirs[finite] - reference).abs()
    if eager_error.max() > PLAUSIBLE[dtype] * reference.abs().max():
        return False
    relative, absolute = TOLERANCES[dtype]
    allowed = absolute + relative * reference.abs()
    # The mean alone would hide one wrong element among many. Eager's own error at an element is not a usable bound:
    # where terms cancel, eager may be close by chance. So eager's largest error bounds the error of each element.
    group = float(ERROR_FACTOR * eager_error.max())
    if not bool((other_error <= allowed.clamp(min=group)).all()):
        return False
    # If large elements are present, that bound would accept any error in small ones. Sums with cancellation give a few
    # elements where eager is right and `other` is far off: by chance, because eager sums in a wider type, or because a
    # relu or clamp hides only eager's error. The expected number follows from the probability that a sum falls within
    # group / far_off of one point in a range as wide as the largest element. Many more far-off elements than expected
    # mean a different computation.
    far_off = FAR_OFF.get(dtype, 1.0)
    wrong = (other_error > allowed) & (other_error > far_off * reference.abs())
    wrong &= eager_error <= relative * reference.abs()
    if int(wrong.sum()) * far_off * float(reference.abs().max()) > CHANCE * reference.numel() * group:
        return False
    return _rms(other_error) <= ERROR_FACTOR * _rms(eager_error) + _rms(allowed)


def _torch_name(dtype: str) -> str:
    """Return torch's name of a dtype; numpy's names have no prefix."""
    return dtype if dtype.startswith("torch.") else f"torch.{dtype}"


def _double(data: Any) -> Any:
    import torch

    return data.to(torch.complex128 if data.is_complex() else torch.float64)


def _rms(values: Any) -> float:
    return float(values.pow(2).mean().sqrt())
