"""Finds which tensors and numpy arrays share memory, and the bytes of an argument's storage outside its view.

Two tensors are aliases if one element of each lies at the same address: a write into one of them changes the other.
Their element addresses are compared, because a real write would change values that later calls and gradients need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from recapture.judge.snapshot import without_repetitions

MOST_BYTES = 1 << 26
"""Length in bytes of the longest overlap that is examined element by element; in a longer one all elements overlap."""


@dataclass(frozen=True)
class Block:
    """Where the elements of one tensor or array are: sizes in elements, steps and `item` in bytes."""

    path: str
    device: str
    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    item: int

    @property
    def ends(self) -> tuple[int, int]:
        """The first address, and the one behind the last."""
        reach = [(size - 1) * step for size, step in zip(self.shape, self.steps, strict=True)]
        low = sum(distance for distance in reach if distance < 0)
        return self.start + low, self.start + sum(distance for distance in reach if distance > 0) + self.item


def blocks_of(arrays: Iterable[tuple[str, Any]]) -> list[Block]:
    """Return where tensors and numpy arrays are; those without elements or without strided memory are left out."""
    blocks = []
    for path, array in arrays:
        try:
            block = _block(path, array)
        except (NotImplementedError, RuntimeError, ValueError):
            continue  # no storage, an uninitialized parameter, or memory that torch has taken back (CUDA graphs)
        if block is not None and block.start and all(block.shape):
            blocks.append(block)
    return blocks


def without_history(array: Any) -> Any:
    """Return a tensor in the same memory that does not keep what a backward needs; anything else as it is.

    Where no backward runs, results that are kept would keep the memory of all operations that led to them.
    """
    if getattr(array, "grad_fn", None) is None:
        return array
    try:
        return array.detach()
    except (NotImplementedError, RuntimeError):
        return array


def shared(these: Sequence[Block], others: Sequence[Block]) -> set[tuple[str, str]]:
    """Return the pairs of paths, one from each side, that share memory."""
    return {
        (left.path, right.path) for left, right in _near(these, others) if left is not right and _overlap(left, right)
    }


def _near(these: Sequence[Block], others: Sequence[Block]) -> Iterator[tuple[Block, Block]]:
    """Yield the pairs whose ranges of addresses overlap, found in the order of the addresses.

    Comparing each with each would take minutes for a thousand tensors.
    """
    sides = [[(block.ends, block) for block in blocks] for blocks in (these, others)]
    begins = sorted(
        ((low, side, high, block) for side, blocks in enumerate(sides) for (low, high), block in blocks),
        key=lambda begin: begin[:2],
    )
    open_blocks: tuple[list[tuple[int, Block]], list[tuple[int, Block]]] = ([], [])
    for low, side, high, block in begins:
        for number in (0, 1):
            open_blocks[number][:] = [(end, other) for end, other in open_blocks[number] if end > low]
        for _, other in open_blocks[1 - side]:
            yield (block, other) if side == 0 else (other, block)
        open_blocks[side].append((high, block))


def bytes_outside(arrays: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return, for each storage that tensors view only in part, a copy of its bytes with all viewed elements zeroed.

    Each copy has the path of the first tensor that views the storage. Storages over MOST_BYTES are left out.
    """
    import torch

    storages: dict[int, tuple[str, Any]] = {}
    for path, tensor in arrays:
        if not isinstance(tensor, torch.Tensor):
            continue
        try:
            storage = tensor.untyped_storage()
            if tensor.layout != torch.strided or not 0 < storage.nbytes() <= MOST_BYTES:
                continue
            if storage.data_ptr() not in storages:
                if tensor.numel() * tensor.element_size() == storage.nbytes():
                    continue
                copy = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).clone()
                storages[storage.data_ptr()] = (path, copy)
            _zero(storages[storage.data_ptr()][1], without_repetitions(tensor))
        except (AttributeError, NotImplementedError, RuntimeError, ValueError):  # the same; torch 2.0 lacks parts
            continue
    return [(path, copy.cpu()) for path, copy in storages.values()]


def _zero(copy: Any, tensor: Any) -> None:
    """Zero the elements of `copy`, the bytes of a storage, that a tensor on that storage views."""
    import torch

    typed = torch.empty(0, dtype=tensor.dtype, device=copy.device).set_(copy.untyped_storage())
    torch.as_strided(typed, tensor.size(), tensor.stride(), tensor.storage_offset()).zero_()


def _block(path: str, array: Any) -> Block | None:
    import torch

    if not isinstance(array, torch.Tensor):  # numpy
        start = int(array.__array_interface__["data"][0])
        return Block(path, "cpu", start, tuple(array.shape), tuple(array.strides), int(array.itemsize))
    if array.layout != torch.strided:
        return None
    item = array.element_size()
    steps = tuple(int(step) * item for step in array.stride())
    # An expanded dimension repeats the same elements, any number of times.
    shape = tuple(min(int(size), 1) if step == 0 else int(size) for size, step in zip(array.shape, steps, strict=True))
    return Block(path, array.device.type, int(array.data_ptr()), shape, steps, item)


def _overlap(left: Block, right: Block) -> bool:
    if left.device != right.device:
        return False
    (low, high), (other_low, other_high) = left.ends, right.ends
    begin, end = max(low, other_low), min(high, other_high)
    if begin >= end:
        return False
    if _dense(left) and _dense(right):
        return True
    if _interleaved(left, right):
        return False
    first, last = min(low, other_low), max(high, other_high)
    if last - first > MOST_BYTES:
        return True
    return bool((_marks(left, first, last) & _marks(right, first, last)).any())


def _interleaved(left: Block, right: Block) -> bool:
    """Whether the elements lie beside each other in a common period, as two columns of a matrix do."""
    period = math.gcd(*(abs(step) for block in (left, right) for step in block.steps))
    if period < left.item + right.item:
        return False
    distance = (right.start - left.start) % period
    return left.item <= distance <= period - right.item


def _dense(block: Block) -> bool:
    low, high = block.ends
    count = 1
    for size in block.shape:
        count *= size
    return high - low == count * block.item


def _marks(block: Block, first: int, last: int) -> Any:
    """Return, for each byte from `first` to `last`, whether an element of the block covers it."""
    import torch

    marks = torch.zeros(last - first, dtype=torch.bool)
    # as_strided takes no negative steps, so a dimension with one is walked from its other end.
    start = block.ends[0] - first
    steps = [abs(step) for step in block.steps]
    torch.as_strided(marks, (*block.shape, block.item), (*steps, 1), start).fill_(True)
    return marks
