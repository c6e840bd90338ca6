"""Two observations of one call → what differs, and whether the difference is one a user would be misled by."""

from __future__ import annotations

import cmath
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recapture.base.scrub import encodable
from recapture.results.records import Difference

if TYPE_CHECKING:
    from recapture.conformance.observe import Observation, Seen, TensorSeen

__all__ = ["Comparison", "compare"]

TOLERANCES = {
    # (relative, absolute), as torch.testing.assert_close has them; types that are absent compare exactly.
    "torch.float16": (1e-3, 1e-5),
    "torch.bfloat16": (1.6e-2, 1e-5),
    "torch.float32": (1.3e-6, 1e-5),
    "torch.float64": (1e-7, 1e-7),
    "torch.complex32": (1e-3, 1e-5),
    "torch.complex64": (1.3e-6, 1e-5),
    "torch.complex128": (1e-7, 1e-7),
}

PYTHON_FLOAT = (1.3e-6, 1e-5)
"""A Python float may have been read from a float32 tensor."""

ERROR_FACTOR = 3.0
"""A result may be this much further from the float64 result than eager's own (dynamobench's rule)."""

PLAUSIBLE = {"torch.float16": 0.05, "torch.bfloat16": 0.2, "torch.float32": 1e-2}
PLAUSIBLE |= {"torch.complex32": 0.05, "torch.complex64": 1e-2}
"""How far eager may be from the float64 result, relative to its largest element, before they are two computations: a
branch on the dtype or another random number makes the float64 result say nothing about rounding."""

FAR_OFF = {"torch.float32": 0.01, "torch.complex64": 0.01}
"""An error of this much of an element (of the whole of it in half precision) is far off where eager is right."""

CHANCE = 10.0
"""Rounding may leave so many times the number of elements far off that is expected of it."""


@dataclass
class Comparison:
    """What differs between eager and a compiled callable on one input."""

    differences: list[Difference]
    """These mislead a user: values, types, shapes, side effects."""
    notes: list[str]
    """These do not change what is computed: strides, requires_grad, aliasing."""


Exact = Callable[[], "Observation | None"]
"""Makes, when asked, the same observation with every floating-point input in float64; None where that fails."""


def compare(
    eager: Observation, other: Observation, *, exact: Exact | None = None, show_values: bool = True
) -> Comparison:
    """Compare a call with eager's on the same input.

    An exception on both sides counts as equal here when the types agree (the caller decides what another type means);
    returning where eager raises is a difference. Types, structure, dtypes and shapes must be equal exactly, integers
    too, other numbers within TOLERANCES; NaN equals NaN, and -0.0 equals 0.0. `exact` is asked for a float64 reference
    only where rounding is in question. `show_values` False leaves figures out of the details: for artifacts that may
    read memory they do not own.
    """
    found = _Comparer(eager.input, show_values)
    if eager.raised is not None and other.raised is None:
        found.differ("result", "exception", f"eager raises {eager.raised.type}, this returned")
    elif eager.result is not None and other.result is not None:
        found.exact = _lazily(exact, lambda observation: observation.result)
        found.values("result", eager.result, other.result)
    found.exact = _lazily(exact, lambda observation: observation.args)
    found.kind = "mutation"
    found.values("args", eager.args, other.args)
    if eager.state is not None and other.state is not None:
        found.exact = _lazily(exact, lambda observation: observation.state)
        found.kind = "state"
        found.values("state", eager.state, other.state)
    found.exact = None
    if eager.watched is not None and other.watched is not None:
        found.kind = "watched"
        found.values("watched", eager.watched, other.watched)
    found.kind = None
    if eager.output != other.output:
        found.differ("output", "output", f"eager printed {_short(eager.output)}, this printed {_short(other.output)}")
    for name, value in eager.torch_state.items():
        if other.torch_state[name] != value:
            found.differ(f"torch.{name}", "state", f"eager leaves {value}, this leaves {other.torch_state[name]}")
    if eager.result is not None and other.result is not None and not found.differences:
        found.aliases(eager, other)
    return Comparison(found.differences, found.notes)


class _Comparer:
    def __init__(self, label: str, show_values: bool) -> None:
        self.label = label
        self.show_values = show_values
        self.kind: str | None = None
        self.exact: Callable[[], Seen | None] | None = None
        self.differences: list[Difference] = []
        self.notes: list[str] = []

    def differ(self, where: str, kind: str, detail: str) -> None:
        self.differences.append(Difference(self.label, encodable(where), self.kind or kind, encodable(detail)))

    def note(self, text: str) -> None:
        text = encodable(text)
        if text not in self.notes:
            self.notes.append(text)

    def values(self, where: str, eager: Seen, other: Seen, path: tuple[str, ...] = ()) -> None:
        here = where + "".join(path)
        if eager.type != other.type:
            # Tensor subclasses included: Parameter for Tensor is a different Python type.
            self.differ(here, "type", f"eager gives {eager.type}, this {other.type}")
            return
        if (eager.tensor is None) != (other.tensor is None) or (eager.children is None) != (other.children is None):
            # No gradient here, or a value that could be described on one side only.
            self.differ(here, "structure", f"eager has {_parts(eager)}, this {_parts(other)}")
            return
        if eager.tensor is not None and other.tensor is not None:
            self._tensors(where, path, eager.tensor, other.tensor)
        if eager.children is not None and other.children is not None:
            self._containers(where, path, eager, other)
        elif (
            eager.tensor is None
            and not _same_scalar(eager.scalar, other.scalar)
            and not self._rounded(path, eager.scalar, other.scalar)
        ):
            mine, theirs = _pair(eager.scalar, other.scalar)
            self.differ(here, "value", f"eager {mine}, this {theirs}" if self.show_values else "value differs")

    def _containers(self, where: str, path: tuple[str, ...], eager: Seen, other: Seen) -> None:
        mine, theirs = dict(eager.children or ()), dict(other.children or ())
        if mine.keys() != theirs.keys() or (eager.ordered and list(mine) != list(theirs)):
            here = where + "".join(path)
            if len(mine) != len(theirs):
                self.differ(here, "structure", f"eager has {len(mine)} items, this {len(theirs)}")
            else:
                self.differ(here, "structure", f"eager has {_short(list(mine))}, this {_short(list(theirs))}")
            return
        if list(mine) != list(theirs):
            self.note(f"{where}{''.join(path)}: keys in another order than in eager")
        for key, child in mine.items():
            self.values(where, child, theirs[key], (*path, key))

    def _tensors(self, where: str, path: tuple[str, ...], eager: TensorSeen, other: TensorSeen) -> None:
        here = where + "".join(path)
        for kind in ("dtype", "shape", "device", "layout"):
            mine, theirs = getattr(eager, kind), getattr(other, kind)
            if mine != theirs:
                self.differ(here, "structure" if kind == "layout" else kind, f"eager {mine}, this {theirs}")
                return
        if eager.data is None or other.data is None:  # device meta, say: there are no values
            return
        if not _close(eager.data, other.data, eager.dtype) and not self._rounding(path, eager, other):
            self.differ(here, "value", self._describe_values(eager, other))
            return
        if eager.stride != other.stride and eager.data.numel() > 1:
            self.note(f"{here}: stride {eager.stride} in eager, {other.stride} here")
        if eager.requires_grad != other.requires_grad:
            self.note(f"{here}: requires_grad {eager.requires_grad} in eager, {other.requires_grad} here")

    def _reference(self, path: tuple[str, ...]) -> Seen | None:
        """The float64 result at a path; None where there is none."""
        seen = self.exact() if self.exact is not None else None
        for key in path:
            seen = dict(seen.children).get(key) if seen is not None and seen.children is not None else None
        return seen

    def _rounded(self, path: tuple[str, ...], eager: Any, other: Any) -> bool:
        """Whether a Python number is about as near to the float64 result as eager's is: it may come from a float32."""
        if not all(isinstance(one, (float, complex)) and cmath.isfinite(one) for one in (eager, other)):
            return False
        seen = self._reference(path)
        if seen is None or not isinstance(seen.scalar, (float, complex)) or not cmath.isfinite(seen.scalar):
            return False
        size, error = abs(seen.scalar), abs(eager - seen.scalar)
        if error > PLAUSIBLE["torch.float32"] * size:
            return False
        return bool(abs(other - seen.scalar) <= ERROR_FACTOR * error + PYTHON_FLOAT[0] * size + PYTHON_FLOAT[1])

    def _rounding(self, path: tuple[str, ...], eager: TensorSeen, other: TensorSeen) -> bool:
        """Whether `other` is about as near to the float64 result as eager itself is, in each element and altogether."""
        dtype = eager.dtype if eager.dtype.startswith("torch.") else f"torch.{eager.dtype}"  # numpy's have bare names
        seen = self._reference(path) if dtype in PLAUSIBLE else None
        if seen is None or seen.tensor is None or seen.tensor.data is None or seen.tensor.shape != eager.shape:
            return False
        reference, mine, theirs = _double(seen.tensor.data), _double(eager.data), _double(other.data)
        finite = mine.isfinite()
        if not finite.any() or not (theirs.isfinite() == finite).all() or not reference.isfinite()[finite].all():
            return False
        if not _close(eager.data[~finite], other.data[~finite], eager.dtype):
            return False
        reference = reference[finite]
        eager_error, other_error = (mine[finite] - reference).abs(), (theirs[finite] - reference).abs()
        if eager_error.max() > PLAUSIBLE[dtype] * reference.abs().max():
            return False
        relative, absolute = TOLERANCES[dtype]
        allowed = absolute + relative * reference.abs()
        # The mean alone would let one wrong element hide among many. Eager's own error at an element is no measure: of
        # terms that cancel it may come near by luck, so that its largest anywhere bounds each element's.
        group = float(ERROR_FACTOR * eager_error.max())
        if not bool((other_error <= allowed.clamp(min=group)).all()):
            return False
        # Beside large numbers that bound would excuse anything in small ones. Sums that cancel leave elements where
        # eager is right and `other` far off too (by luck, or where eager sums in a wider type, or a relu or clamp hides
        # eager's error alone), but few: the sum must fall within group / far_off of one point of a range as wide as the
        # largest element. Many more than that were computed otherwise.
        far_off = FAR_OFF.get(dtype, 1.0)
        wrong = (other_error > allowed) & (other_error > far_off * reference.abs())
        wrong &= eager_error <= relative * reference.abs()
        if int(wrong.sum()) * far_off * float(reference.abs().max()) > CHANCE * reference.numel() * group:
            return False
        return _rms(other_error) <= ERROR_FACTOR * _rms(eager_error) + _rms(allowed)

    def _describe_values(self, eager: TensorSeen, other: TensorSeen) -> str:
        """How many elements differ by more than rounding, and the first of them."""
        if not self.show_values:
            return "value differs"
        different = ~_isclose(eager.data, other.data, *_tolerance(eager.dtype))
        index = tuple(int(position[0]) for position in different.nonzero(as_tuple=True)) if eager.shape else ()
        count = f"{int(different.sum())} of {eager.data.numel()} elements differ" if eager.shape else "value differs"
        try:
            mine, theirs = _pair(eager.data[index].item(), other.data[index].item())
        except (NotImplementedError, RuntimeError):  # a dtype of bits that is no number
            return count
        return f"{count}: eager {mine}, this {theirs}" + (f" at {list(index)}" if index else "")

    def aliases(self, eager: Observation, other: Observation) -> None:
        """Note results that share memory with an argument on one side only."""
        mine, theirs = _shared(eager), _shared(other)
        for pair in sorted(mine - theirs):
            self.note(f"{pair[0]}: aliases {pair[1]} in eager, not here")
        for pair in sorted(theirs - mine):
            self.note(f"{pair[0]}: aliases {pair[1]} here, not in eager")


def _lazily(exact: Exact | None, part: Callable[[Observation], Seen | None]) -> Callable[[], Seen | None] | None:
    if exact is None:
        return None

    def ask() -> Seen | None:
        observation = exact()
        return None if observation is None else part(observation)

    return ask


def _shared(observation: Observation) -> set[tuple[str, str]]:
    addresses = {tensor.storage: path for path, tensor in _tensors("args", observation.args) if tensor.storage}
    results = _tensors("result", observation.result) if observation.result is not None else []
    return {(path, addresses[tensor.storage]) for path, tensor in results if tensor.storage in addresses}


def _tensors(path: str, seen: Seen) -> list[tuple[str, TensorSeen]]:
    if seen.tensor is not None:
        return [(path, seen.tensor)]
    return [found for key, child in seen.children or () for found in _tensors(path + key, child)]


def _double(data: Any) -> Any:
    import torch

    return data.to(torch.complex128 if data.is_complex() else torch.float64)


def _isclose(eager: Any, other: Any, relative: float, absolute: float) -> Any:
    import torch

    exact = not (eager.dtype.is_floating_point or eager.dtype.is_complex)
    try:
        if exact:
            return eager == other
        return torch.isclose(_double(other), _double(eager), rtol=relative, atol=absolute, equal_nan=True)
    except (NotImplementedError, RuntimeError):  # a dtype without arithmetic: its bytes are its value
        whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[eager.element_size()]
        return eager.contiguous().view(whole) == other.contiguous().view(whole)


def _tolerance(dtype: str) -> tuple[float, float]:
    return TOLERANCES.get(dtype, TOLERANCES.get(f"torch.{dtype}", (0.0, 0.0)))


def _close(eager: Any, other: Any, dtype: str) -> bool:
    return bool(_isclose(eager, other, *_tolerance(dtype)).all())


def _rms(values: Any) -> float:
    return float(values.pow(2).mean().sqrt())


def _parts(seen: Seen) -> str:
    if seen.tensor is not None:
        return "a tensor with a gradient" if seen.children else "a tensor without a gradient"
    return "a value" if seen.children is None else f"{len(seen.children)} items"


def _same_scalar(eager: Any, other: Any) -> bool:
    if isinstance(eager, (float, complex)) and isinstance(other, (float, complex)):
        if cmath.isnan(eager) or cmath.isnan(other):
            return cmath.isnan(eager) and cmath.isnan(other)
        return cmath.isclose(eager, other, rel_tol=PYTHON_FLOAT[0], abs_tol=PYTHON_FLOAT[1])
    return bool(eager == other) or bool(eager != eager and other != other)  # noqa: PLR0124 - NaN, as numpy's longdouble


def _pair(eager: Any, other: Any) -> tuple[str, str]:
    """Two values as text, with as many digits or characters as it takes to tell them apart."""
    if isinstance(eager, (float, complex)) and isinstance(other, (float, complex)):
        texts = [(f"{eager:.{digits}g}", f"{other:.{digits}g}") for digits in (4, 6, 9, 17)]
    else:
        texts = [(_short(eager, length), _short(other, length)) for length in (80, 400)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])


def _short(value: Any, length: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= length else text[: length - 3] + "…"
