"""Lets observations share the large tensors that are the same in both.

A call leaves copies of every parameter and every gradient in its observation, most of them the same as after another
call. With many inputs they would take many times the memory of the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from recapture.judge.rounding import same_bits
from recapture.judge.snapshot import deep_calls

if TYPE_CHECKING:
    from recapture.judge.observe import Observation
    from recapture.judge.snapshot import Snapshot

LARGE = 2**14
"""Number of elements from which a tensor is shared."""

PARTS = ("result", "args", "state", "watched", "gradients")
"""The fields of an observation that hold tensors."""


def sharing(observation: Observation, *others: Observation | None) -> Observation:
    """Return an observation that uses the others' large tensors where they have the same bits at the same place."""
    for other in others:
        if other is not None:
            observation = _using(observation, other, same_bits)
    return observation


def without_unused(noisy: Observation, eager: Observation, other: Observation) -> Observation:
    """Return a run with noise without the large tensors that a comparison of `eager` with `other` does not read.

    Where the two share a tensor (see `sharing`), nothing differs, and that tensor stands for the one with noise.
    """
    shared = {id(value.tensor.data) for value in _large(other) if value.tensor is not None}
    return _using(noisy, eager, lambda _, value: value.tensor is not None and id(value.tensor.data) in shared)


def _using(observation: Observation, other: Observation, same: Callable[[Snapshot, Snapshot], bool]) -> Observation:
    changed: dict[str, Any] = {}
    for name in PARTS:
        value, other_value = getattr(observation, name), getattr(other, name)
        with deep_calls():
            merged = value if value is None or other_value is None else _merged(value, other_value, same)
        if merged is not value:
            changed[name] = merged
    return dataclasses.replace(observation, **changed) if changed else observation


def _merged(value: Snapshot, other: Snapshot, same: Callable[[Snapshot, Snapshot], bool]) -> Snapshot:
    """Return `value` with the elements of `other` in each large tensor that is the same."""
    if value.tensor is None and not value.children:
        return value
    if _is_large(value) and _is_large(other) and same(value, other):
        tensor = dataclasses.replace(value.tensor, data=other.tensor.data)  # type: ignore[type-var,union-attr]
        value = dataclasses.replace(value, tensor=tensor)
    if value.children and other.children:
        known = dict(other.children)
        merged = {key: _merged(child, known[key], same) for key, child in value.children if key in known}
        if any(merged.get(key, child) is not child for key, child in value.children):
            children = tuple((key, merged.get(key, child)) for key, child in value.children)
            value = dataclasses.replace(value, children=children)
    return value


def _is_large(snapshot: Snapshot) -> bool:
    return snapshot.tensor is not None and snapshot.tensor.data is not None and snapshot.tensor.data.numel() >= LARGE


def _large(observation: Observation) -> Iterator[Snapshot]:
    queue = [getattr(observation, name) for name in PARTS]
    while queue:
        snapshot = queue.pop()
        if snapshot is not None:
            if _is_large(snapshot):
                yield snapshot
            queue += [child for _, child in snapshot.children or ()]
