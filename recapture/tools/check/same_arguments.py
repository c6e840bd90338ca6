"""Whether two descriptions of arguments are of the same arguments, or of tensors with as many dimensions."""

from __future__ import annotations

from recapture.judge.snapshot import Snapshot


def same_arguments(left: Snapshot, right: Snapshot) -> bool:
    """Whether two descriptions of arguments are of the same arguments, bit by bit, with the same strides."""
    import torch

    if (left.type, left.scalar, left.children is None) != (right.type, right.scalar, right.children is None):
        return False
    first, second = left.tensor, right.tensor
    if (first is None) != (second is None):
        return False
    if first is not None and second is not None:
        alike = all(
            getattr(first, key) == getattr(second, key) for key in ("dtype", "shape", "stride", "requires_grad")
        )
        if not alike or (first.data is None) != (second.data is None):
            return False
        if first.data is not None and not torch.equal(first.data, second.data):
            return False
    items, others = left.children or (), right.children or ()
    return [key for key, _ in items] == [key for key, _ in others] and all(
        same_arguments(item, other) for (_, item), (_, other) in zip(items, others, strict=True)
    )


def same_ranks(left: Snapshot, right: Snapshot) -> bool:
    """Whether tensors at the same places of two descriptions have equal numbers of dimensions."""
    if left.tensor is not None and right.tensor is not None:
        return len(left.tensor.shape) == len(right.tensor.shape)
    others = dict(right.children or ())
    return all(same_ranks(item, others[key]) for key, item in left.children or () if key in others)
