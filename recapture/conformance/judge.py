"""Compares a call with eager's: which differences are silently wrong, and which are only noted.

Equality is defined here (types, structure, dtypes, shapes) and in `recapture.conformance.rounding` (values).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recapture.base.scrub import encodable
from recapture.conformance.rounding import distance, explained, unequal
from recapture.conformance.seen import tensors_of
from recapture.results.records import Difference

if TYPE_CHECKING:
    from recapture.conformance.observe import Observation
    from recapture.conformance.seen import Seen, TensorSeen

__all__ = ["Comparison", "compare", "compare_form"]


@dataclass
class Comparison:
    """What differs between eager and a compiled callable on one input."""

    differences: list[Difference]
    """Silent differences, which decide the verdict: values, types, shapes, side effects."""
    notes: list[str]
    """Differences that do not change what is computed: strides, requires_grad, aliasing."""


Perturbed = Callable[[int], "Observation | None"]
"""A function that returns the same observation of the k-th perturbed run of eager, or None if that fails."""


def compare(
    eager: Observation, other: Observation, *, perturbed: Perturbed | None = None, show_values: bool = True
) -> Comparison:
    """Compare a call with eager's on the same input.

    Exceptions on both sides are not a difference here (`recapture.conformance.verdict` compares their types). Returning
    where eager raises is a difference. Types, structure, dtypes, shapes and integers must be exactly equal, other
    numbers equal except for rounding, which `perturbed` shows; NaN equals NaN, and -0.0 equals 0.0. Without
    `show_values`, details contain no numbers: for callables that may read memory that they do not own.
    """
    found = _Comparer(eager.input, show_values=show_values)
    if eager.raised is not None and other.raised is None:
        found.differ("result", "exception", f"eager raises {eager.raised.type}, this returned")
    elif eager.result is not None and other.result is not None:
        found.perturbed = _part(perturbed, lambda observation: observation.result)
        found.values("result", eager.result, other.result)
    found.perturbed = _part(perturbed, lambda observation: observation.args)
    found.kind = "mutation"
    found.values("args", eager.args, other.args)
    if eager.state is not None and other.state is not None:
        found.perturbed = _part(perturbed, lambda observation: observation.state)
        found.kind = "state"
        found.values("state", eager.state, other.state)
    found.perturbed = None
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


def compare_form(where: str, eager: Seen, other: Seen) -> Difference | None:
    """Return the first difference in type, structure, dtype, shape, device or plain value, or None.

    Tensors described with `seen.see_form` are compared without their elements, for callers with their own rule.
    """
    found = _Comparer("", show_values=True)
    found.values(where, eager, other)
    return found.differences[0] if found.differences else None


class _Comparer:
    def __init__(self, label: str, *, show_values: bool) -> None:
        self.label = label
        self.show_values = show_values
        self.kind: str | None = None
        self.perturbed: Callable[[int], Seen | None] | None = None
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
            # This includes tensor subclasses: Parameter and Tensor are different Python types.
            self.differ(here, "type", f"eager gives {eager.type}, this {other.type}")
            return
        if (eager.tensor is None) != (other.tensor is None) or (eager.children is None) != (other.children is None):
            # Only one side has a gradient, or only one side could be described.
            self.differ(here, "structure", f"eager has {_parts(eager)}, this {_parts(other)}")
            return
        if eager.tensor is not None and other.tensor is not None:
            self._tensors(here, path, eager, other)
        if eager.children is not None and other.children is not None:
            self._containers(where, path, eager, other)
        elif eager.tensor is None and not self._equal(path, eager, other):
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

    def _tensors(self, here: str, path: tuple[str, ...], eager: Seen, other: Seen) -> None:
        mine, theirs = eager.tensor, other.tensor
        if mine is None or theirs is None:
            return
        for kind in ("dtype", "shape", "device", "layout"):
            one, two = getattr(mine, kind), getattr(theirs, kind)
            if one != two:
                self.differ(here, "structure" if kind == "layout" else kind, f"eager {one}, this {two}")
                return
        if mine.data is None or theirs.data is None:  # the meta device has no values
            return
        if not self._equal(path, eager, other):
            self.differ(here, "value", self._describe_values(mine, theirs))
            return
        if mine.stride != theirs.stride and mine.data.numel() > 1:
            self.note(f"{here}: stride {mine.stride} in eager, {theirs.stride} here")
        if mine.requires_grad != theirs.requires_grad:
            self.note(f"{here}: requires_grad {mine.requires_grad} in eager, {theirs.requires_grad} here")

    def _equal(self, path: tuple[str, ...], eager: Seen, other: Seen) -> bool:
        """Whether two numbers or tensors are equal except for rounding."""
        apart = distance(eager, other)
        if apart is None or apart.bits != "value":
            return True

        def sample(number: int) -> Seen | None:
            seen = self.perturbed(number) if self.perturbed is not None else None
            for key in path:
                seen = dict(seen.children).get(key) if seen is not None and seen.children is not None else None
            return seen

        return explained(eager, other, sample)

    def _describe_values(self, eager: TensorSeen, other: TensorSeen) -> str:
        """Return the number of elements that differ by more than rounding, and the first of them."""
        if not self.show_values:
            return "value differs"
        different = unequal(eager.data, other.data)
        index = tuple(int(position[0]) for position in different.nonzero(as_tuple=True)) if eager.shape else ()
        count = f"{int(different.sum())} of {eager.data.numel()} elements differ" if eager.shape else "value differs"
        try:
            mine, theirs = _pair(eager.data[index].item(), other.data[index].item())
        except (NotImplementedError, RuntimeError):  # a bits dtype, which is not a number
            return count
        return f"{count}: eager {mine}, this {theirs}" + (f" at {list(index)}" if index else "")

    def aliases(self, eager: Observation, other: Observation) -> None:
        """Note results that share memory with an argument on one side only."""
        mine, theirs = _shared(eager), _shared(other)
        for pair in sorted(mine - theirs):
            self.note(f"{pair[0]}: aliases {pair[1]} in eager, not here")
        for pair in sorted(theirs - mine):
            self.note(f"{pair[0]}: aliases {pair[1]} here, not in eager")


def _part(
    perturbed: Perturbed | None, part: Callable[[Observation], Seen | None]
) -> Callable[[int], Seen | None] | None:
    if perturbed is None:
        return None

    def ask(number: int) -> Seen | None:
        observation = perturbed(number)
        return None if observation is None else part(observation)

    return ask


def _shared(observation: Observation) -> set[tuple[str, str]]:
    addresses = {tensor.storage: path for path, tensor in tensors_of("args", observation.args) if tensor.storage}
    results = tensors_of("result", observation.result) if observation.result is not None else []
    return {(path, addresses[tensor.storage]) for path, tensor in results if tensor.storage in addresses}


def _parts(seen: Seen) -> str:
    if seen.tensor is not None:
        return "a tensor with a gradient" if seen.children else "a tensor without a gradient"
    return "a value" if seen.children is None else f"{len(seen.children)} items"


def _pair(eager: Any, other: Any) -> tuple[str, str]:
    """Return two values as text, with enough digits or characters to show their difference."""
    if isinstance(eager, (float, complex)) and isinstance(other, (float, complex)):
        texts = [(f"{eager:.{digits}g}", f"{other:.{digits}g}") for digits in (4, 6, 9, 17)]
    else:
        texts = [(_short(eager, length), _short(other, length)) for length in (80, 400)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])


def _short(value: Any, length: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= length else text[: length - 3] + "…"
