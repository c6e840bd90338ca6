"""What earlier calls returned and were given, and which of it a later call overwrites.

A caller may keep a result while it calls again. Eager's next call leaves it alone, unless it belongs to the state; a
compiler that uses its memory again does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from recapture.judge.aliases import without_history
from recapture.judge.rounding import same_bits
from recapture.judge.snapshot import Described, Snapshot, deep_calls, describe, snapshot_of, without_repetitions
from recapture.torch_api.compat import is_out_of_memory


@dataclass
class EarlierCalls:
    """The calls so far by the name of their input, with the tensors and arrays that each returned and was given."""

    results: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    """The tensors and arrays of each result, with their paths."""
    _contents: dict[str, tuple[Any, Snapshot]] = field(default_factory=dict)
    """Tensors and arrays of results and arguments, and what they held, by the names that differences have."""
    _forms: dict[str, tuple[Any, _Form]] = field(default_factory=dict)
    """Results and arguments, and what they were without the elements of their tensors."""

    def add(self, label: str, result: Described, args: Described, *objects: Any) -> None:
        """Add a call: its result and its arguments as it left them, described, and as objects if these may be kept."""
        self.results[label] = [(path, without_history(array)) for path, array in result.arrays]
        for part, value in zip(("result", "args"), objects, strict=False):
            self._add_form(f"earlier[{label!r}].{part}", value)
        for part, described in (("result", result), ("args", args)):
            contents = dict(_tensors("", described.snapshot))
            for path, array in described.arrays:
                if path in contents:
                    place = f"earlier[{label!r}].{part}{path}"
                    self._contents[place] = (without_history(array), contents[path])

    def _add_form(self, place: str, value: Any) -> None:
        form = _form(value)
        if form is not None:
            self._forms[place] = value, form

    def overwritten(self) -> Snapshot:
        """Return what changed since the last look, with a child for each place; the new content is then the known one.

        What can no longer be read is left out: torch refuses to read the results of an earlier replay of a CUDA graph.
        """
        changed: list[tuple[str, Snapshot]] = []
        for place, (array, before) in self._contents.items():
            try:
                if _holds(array, before):
                    continue
                now = snapshot_of(array)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                continue
            if now.tensor is not None and not same_bits(before, now):
                changed.append((place, now))
                self._contents[place] = (array, now)
        for place, (value, earlier_form) in self._forms.items():
            form = _form(value)
            if form is not None and not form.same(earlier_form):
                changed.append((place, form.snapshot))
                self._forms[place] = value, form
        return Snapshot("earlier", children=tuple(changed))


@dataclass(frozen=True)
class _Form:
    """A described value without the elements of its tensors, and these tensors."""

    snapshot: Snapshot
    arrays: tuple[Any, ...]

    def same(self, other: _Form) -> bool:
        """Whether nothing was changed, and every place has the tensor that it had."""
        with deep_calls():
            return (
                self.snapshot == other.snapshot
                and len(self.arrays) == len(other.arrays)
                and all(array is before for array, before in zip(self.arrays, other.arrays, strict=True))
            )


LARGEST_FORM = 1_000
"""Number of values in a result up to which its containers and objects are looked at again after each later call."""


def _form(value: Any) -> _Form | None:
    """Describe what a later call could change of a value besides the elements of tensors; None for a large one."""
    described = describe(value, consume=False, copy=False, positions=False)
    queue, count = [described.snapshot], 0
    while queue:
        count += 1
        if count > LARGEST_FORM:
            return None
        queue += [child for _, child in queue.pop().children or ()]
    return _Form(described.snapshot, tuple(array for _, array in described.arrays))


def _tensors(path: str, snapshot: Snapshot) -> Iterator[tuple[str, Snapshot]]:
    """Yield the described tensors and arrays with readable elements, each with its path."""
    queue = [(path, snapshot)]
    while queue:
        path, snapshot = queue.pop()
        if snapshot.tensor is not None and snapshot.tensor.data is not None:
            yield path, snapshot
        queue += [(path + key, child) for key, child in snapshot.children or ()]


def _holds(array: Any, before: Snapshot) -> bool:
    """Whether a tensor plainly holds what it held: a quick look, which says no to NaN and to other layouts."""
    import torch

    if before.tensor is None or not isinstance(array, torch.Tensor) or array.layout != torch.strided:
        return False
    if array.is_quantized or array.is_nested or array.is_conj() or array.is_neg():
        return False
    data, now = before.tensor.data, without_repetitions(array.detach())
    # Also zeros of another sign are equal numbers: to look at their bits would cost a copy.
    return now.dtype == data.dtype and now.shape == data.shape and bool(torch.equal(now.cpu(), data))
