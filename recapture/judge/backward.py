"""Runs a backward of what a call returned, with weights that the caller chooses, and returns the gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from recapture.judge.snapshot import without_repetitions


class Leaf(NamedTuple):
    """A tensor that requires grad before a call, with its path; `grad_fn` is that of a tensor that is no leaf."""

    path: str
    tensor: Any
    grad_fn: Any


def leaves_of(arrays: Iterable[tuple[str, Any]]) -> list[Leaf]:
    """Return the tensors that require grad, each once, under its first path."""
    leaves: dict[int, Leaf] = {}
    for path, array in arrays:
        if getattr(array, "requires_grad", False):
            leaves.setdefault(id(array), Leaf(path, array, array.grad_fn))
    return list(leaves.values())


def backward(
    results: Iterable[Any], arguments: Iterable[Any], leaves: Sequence[Leaf], weigh: Callable[[Any, int], Any]
) -> dict[str, Any] | None:
    """Call backward on every result that requires grad; return the gradient of each leaf, or None without such results.

    `weigh` returns the weights of a result's elements, given the result and its number. A sparse result counts as the
    dense one, as in most losses. `arguments` are the tensors passed to the call: those with another history than before
    count as results. The ``.grad`` of the leaves is empty before and restored afterwards. Errors of the backward
    propagate.
    """
    import torch

    before = {id(leaf.tensor): leaf.grad_fn for leaf in leaves}
    changed = [argument for argument in arguments if getattr(argument, "grad_fn", None) is not before.get(id(argument))]
    roots: dict[int, Any] = {}
    for value in [*results, *changed]:
        # A leaf that the call returns as it is, such as its argument, gets the weights themselves as its gradient.
        has_history = getattr(value, "grad_fn", None) is not None or id(value) in before
        differentiable = isinstance(value, torch.Tensor) and value.requires_grad and has_history
        if differentiable and not value.is_nested and id(value) not in roots:
            roots.update((id(value), root) for root in _dense(value))
    if not roots:
        return None
    gradients_before = [(leaf.tensor, leaf.tensor.grad) for leaf in leaves if leaf.tensor.is_leaf]
    for tensor, _ in gradients_before:
        tensor.grad = None
    for leaf in leaves:
        if not leaf.tensor.is_leaf and leaf.tensor.requires_grad:
            leaf.tensor.retain_grad()
    try:
        torch.autograd.backward(
            list(roots.values()), [weigh(root, number) for number, root in enumerate(roots.values())]
        )
        return {leaf.path: None if leaf.tensor.grad is None else leaf.tensor.grad.detach() for leaf in leaves}
    finally:
        for tensor, grad in gradients_before:
            tensor.grad = grad
        for leaf in leaves:
            if not leaf.tensor.is_leaf and leaf.tensor.retains_grad:
                leaf.tensor.grad = None  # it is described where the call itself leaves one


def _dense(value: Any) -> list[Any]:
    """Return a tensor, or the dense one of a sparse tensor, in a list; an empty list if it cannot be made dense."""
    import torch

    if value.layout == torch.strided:
        return [value]
    try:
        with torch.enable_grad():
            return [value.to_dense()]
    except (NotImplementedError, RuntimeError):  # a layout that this release of torch cannot differentiate
        return []


def descend(leaves: Sequence[Leaf], gradients: dict[str, Any], rate: float) -> None:
    """Move every parameter by minus `rate` times its gradient, as plain SGD does; arguments stay as they are."""
    import torch

    with torch.no_grad():
        for leaf in leaves:
            gradient = gradients.get(leaf.path)
            if gradient is not None and leaf.tensor.is_leaf and not leaf.path.startswith("args"):
                leaf.tensor.add_(gradient, alpha=-rate)


BLOCK = 65_537
"""Number of elements after which weights repeat; a prime number, so that the rows of a tensor have different ones."""

LARGE = 15.8
"""Factor of the weight of every eighth element, the first among them: a gradient that is clamped shows there.

No weight is a whole number, so that a gradient that is rounded shows as well.
"""


def weights(root: Any, number: int, first: int) -> Any:
    """Return the weights of the `number`-th result for its backward; `first` chooses the sign of the first by parity.

    They have many sizes, so that errors do not cancel in a sum, and both signs, without a period: a backward that
    clamps or rectifies what it gets, or takes its absolute value, gives other gradients. Those of a complex result are
    complex, so that a backward that conjugates them, or takes their real part, does so too. Twice as many weights would
    need a second backward, for which a graph would have to be kept; torch.compile refuses that where it reuses memory.
    Instead, inputs and results alternate in the sign of the first element, which may be the only one.
    """
    import torch

    if root.is_meta:  # it has no numbers, and may have any size
        return torch.empty_like(root)

    index = torch.arange(min(root.numel(), BLOCK))
    parity = index + 0
    for bits in (16, 8, 4, 2, 1):
        parity = parity ^ (parity >> bits)
    sign = (
        1.0 - 2.0 * ((parity + number + first) % 2).double()
    )  # the Thue–Morse sequence: no block of it comes three times
    size = _sizes(index + number) * torch.where(index % 8 == 0, LARGE, 1.0)
    block = sign * size
    if root.is_complex():
        block = torch.polar(size, index.double() + 0.7) * sign
    return _repeated(block, root)


def training_weights(root: Any) -> Any:
    """Return positive weights for the elements of a loss, which a step along the gradient is to make smaller."""
    import torch

    return torch.empty_like(root) if root.is_meta else _repeated(_sizes(torch.arange(min(root.numel(), BLOCK))), root)


def _sizes(index: Any) -> Any:
    return index.double().cos().mul(0.5).add(1)


def _repeated(block: Any, root: Any) -> Any:
    """Return a block of weights, repeated to the size of a result, with its shape, dtype and device."""
    single = without_repetitions(root.detach())  # all elements of an expanded view may not fit into memory
    copies = -(-single.numel() // BLOCK)
    values = block.repeat(max(copies, 1))[: single.numel()].reshape(single.shape)
    return values.to(device=root.device, dtype=root.dtype).expand(root.shape)
