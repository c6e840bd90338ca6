"""Tells whether derived arguments are those of an earlier input, and whether they have its ranks."""

from __future__ import annotations

from typing import Any


def same_arguments(one: Any, two: Any) -> bool:
    """Whether two descriptions of arguments are of the same arguments, bit by bit, with the same strides."""
    import torch

    if (one.type, one.scalar, one.children is None) != (two.type, two.scalar, two.children is None):
        return False
    mine, theirs = one.tensor, two.tensor
    if (mine is None) != (theirs is None):
        return False
    if mine is not None:
        alike = all(getattr(mine, key) == getattr(theirs, key) for key in ("dtype", "shape", "stride", "requires_grad"))
        if not alike or (mine.data is None) != (theirs.data is None):
            return False
        if mine.data is not None and not torch.equal(mine.data, theirs.data):
            return False
    left, right = one.children or (), two.children or ()
    return [key for key, _ in left] == [key for key, _ in right] and all(
        same_arguments(mine, theirs) for (_, mine), (_, theirs) in zip(left, right, strict=True)
    )


def same_ranks(one: Any, two: Any) -> bool:
    """Whether tensors at the same places of two descriptions have equal numbers of dimensions."""
    if one.tensor is not None and two.tensor is not None:
        return len(one.tensor.shape) == len(two.tensor.shape)
    theirs = dict(two.children or ())
    return all(same_ranks(mine, theirs[key]) for key, mine in one.children or () if key in theirs)
