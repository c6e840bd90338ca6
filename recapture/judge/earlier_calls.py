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
from recapture.judge.snapshot import Described, Snapshot, snapshot_of, without_repetitions
from recapture.torch_api.compat import is_out_of_memory


@dataclass
class EarlierCalls:
    """The calls so far by the name of their input, with the tensors and arrays that each returned and was given."""

    results: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    """The tensors and arrays of each result, with their paths."""
    _contents: dict[str, tuple[Any, Snapshot]] = field(default_factory=dict)
    """Tensors and arrays of results and arguments, and what they held, by the names that differences have."""

    def add(self, label: str, result: Described, args: Described) -> None:
        """Add a call: its result, and its arguments as it left them."""
        self.results[label] = [(path, without_history(array)) for path, array in result.arrays]
        for part, described in (("result", result), ("args", args)):
            contents = dict(_tensors("", described.snapshot))
            for path, array in described.arrays:
                if path in contents:
                    place = f"earlier[{label!r}].{part}{path}"
                    self._contents[place] = (without_history(array), contents[path])

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
        return Snapshot("earlier", children=tuple(changed))


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
