"""How arguments differ from the example's, which a callable that does not check its inputs takes them for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.judge.wording import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recapture.judge.snapshot import Seen, TensorSeen

ITEM_BYTES = {"64": 8, "32": 4, "16": 2, "complex128": 16, "complex64": 8, "complex32": 4}
"""Bytes of an element by the dtype's name or its last two digits; other dtypes have one byte."""

MOST_NAMED = 3
"""Largest number of arguments that are named."""


def unlike_example(example: Seen, given: Seen) -> str:
    """Return in words how described arguments differ in form or plain value from the example's; empty if they do not.

    The words depend on the two sets of arguments alone, not on what a callable reads.
    """
    found = [f"{where} {words}" for where, words in _unlike("args", example, given)]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more


def stays_inside(example: Seen, given: Seen) -> bool:
    """Whether a callable that takes each tensor for the example's reads no memory behind a tensor that it is given."""
    if example.tensor is not None:
        return given.tensor is not None and _span(example.tensor) <= _span(given.tensor)
    mine, theirs = dict(example.children or ()), dict(given.children or ())
    return all(key in theirs and stays_inside(child, theirs[key]) for key, child in mine.items())


def _unlike(where: str, example: Seen, given: Seen) -> Iterator[tuple[str, str]]:
    if example.type != given.type:
        yield where, f"is {given.type}, the example's {example.type}"
    elif example.tensor is not None and given.tensor is not None:
        for name in ("dtype", "shape", "stride"):
            one, two = getattr(example.tensor, name), getattr(given.tensor, name)
            if one != two:
                yield where, f"has {name} {two}, the example's {one}"
                return
    elif example.children is not None and given.children is not None:
        mine, theirs = dict(example.children), dict(given.children)
        if list(mine) != list(theirs):
            yield where, f"has {len(theirs)} items, the example's {len(mine)}"
            return
        for key, child in mine.items():
            yield from _unlike(f"{where}{key}", child, theirs[key])
    elif example.scalar != given.scalar:
        yield where, f"is {short(given.scalar)}, the example's {short(example.scalar)}"


def _span(tensor: TensorSeen) -> int:
    """Return the bytes from a tensor's first to the end of its last element."""
    if 0 in tensor.shape:
        return 0
    dtype = tensor.dtype.rpartition(".")[2]
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride or (), strict=False))
    return (last + 1) * ITEM_BYTES.get(dtype, ITEM_BYTES.get(dtype[-2:], 1))
