"""Lets observations share the large tensors that are the same in both.

A call leaves copies of every parameter and every gradient in its observation, most of them the same as after another
call. With many inputs they would take many times the memory of the model.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from recapture.judge.rounding import same_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recapture.judge.observe import Observation
    from recapture.judge.snapshot import Snapshot

LARGE = 2**14
"""Number of elements from which a tensor is shared."""

PARTS = ("result", "args", "state", "watched", "gradients")
"""The fields of an observation that hold tensors."""


def sharing(one: Observation, *others: Observation | None) -> Observation:
    """Return an observation that uses the others' large tensors where they have the same bits at the same place."""
    for other in others:
        if other is not None:
            one = _using(one, other, same_bits)
    return one


def without_unused(noisy: Observation, eager: Observation, other: Observation) -> Observation:
    """Return a run with noise without the large tensors that a comparison of `eager` with `other` does not read.

    Where the two share a tensor (see `sharing`), nothing differs, and that tensor stands for the one with noise.
    """
    shared = {id(one.tensor.data) for one in _large(other) if one.tensor is not None}
    return _using(noisy, eager, lambda _, theirs: theirs.tensor is not None and id(theirs.tensor.data) in shared)


def _using(one: Observation, other: Observation, same: Callable[[Snapshot, Snapshot], bool]) -> Observation:
    changed: dict[str, Any] = {}
    for name in PARTS:
        mine, theirs = getattr(one, name), getattr(other, name)
        merged = mine if mine is None or theirs is None else _merged(mine, theirs, same)
        if merged is not mine:
            changed[name] = merged
    return dataclasses.replace(one, **changed) if changed else one


def _merged(mine: Snapshot, theirs: Snapshot, same: Callable[[Snapshot, Snapshot], bool]) -> Snapshot:
    """Return `mine` with the elements of `theirs` in each large tensor that is the same."""
    if _is_large(mine) and _is_large(theirs) and same(mine, theirs):
        tensor = dataclasses.replace(mine.tensor, data=theirs.tensor.data)  # type: ignore[type-var,union-attr]
        mine = dataclasses.replace(mine, tensor=tensor)
    if mine.children and theirs.children:
        known = dict(theirs.children)
        merged = {key: _merged(child, known[key], same) for key, child in mine.children if key in known}
        if any(merged.get(key, child) is not child for key, child in mine.children):
            children = tuple((key, merged.get(key, child)) for key, child in mine.children)
            mine = dataclasses.replace(mine, children=children)
    return mine


def _is_large(seen: Snapshot) -> bool:
    return seen.tensor is not None and seen.tensor.data is not None and seen.tensor.data.numel() >= LARGE


def _large(observation: Observation) -> Iterator[Snapshot]:
    queue = [getattr(observation, name) for name in PARTS]
    while queue:
        seen = queue.pop()
        if seen is not None:
            if _is_large(seen):
                yield seen
            queue += [child for _, child in seen.children or ()]
