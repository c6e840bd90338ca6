"""Runs a backward after a call and describes the gradients that it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Leaf(NamedTuple):
    """A tensor that requires grad before a call, with its path; `grad_fn` is that of a tensor that is no leaf."""

    path: str
    tensor: Any
    grad_fn: Any


def leaves_of(arrays: Iterable[tuple[str, Any]]) -> list[Leaf]:
    """Return the tensors that require grad, each once, under its first path."""
    found: dict[int, Leaf] = {}
    for path, one in arrays:
        if getattr(one, "requires_grad", False):
            found.setdefault(id(one), Leaf(path, one, one.grad_fn))
    return list(found.values())


def backward(results: Iterable[Any], arguments: Iterable[Any], leaves: Sequence[Leaf]) -> dict[str, Any] | None:
    """Call backward on every result that requires grad; return the gradient of each leaf, or None without such results.

    Each result is weighted by ``1 + cos(i) / 2`` at its i-th element, so that errors do not cancel in a sum.
    `arguments` are the tensors passed to the call: those with another history than before count as results. The
    ``.grad`` of the leaves is empty before and restored afterwards. Errors of the backward propagate.
    """
    import torch

    before = {id(leaf.tensor): leaf.grad_fn for leaf in leaves}
    changed = [one for one in arguments if getattr(one, "grad_fn", None) is not before.get(id(one))]
    roots: dict[int, Any] = {}
    for one in [*results, *changed]:
        differentiable = isinstance(one, torch.Tensor) and one.requires_grad and one.grad_fn is not None
        if differentiable and one.layout == torch.strided and not one.is_nested:
            roots.setdefault(id(one), one)
    if not roots:
        return None
    kept = [(leaf.tensor, leaf.tensor.grad) for leaf in leaves if leaf.tensor.is_leaf]
    for tensor, _ in kept:
        tensor.grad = None
    for leaf in leaves:
        if not leaf.tensor.is_leaf and leaf.tensor.requires_grad:
            leaf.tensor.retain_grad()
    try:
        torch.autograd.backward(list(roots.values()), [_weights(root) for root in roots.values()])
        return {leaf.path: None if leaf.tensor.grad is None else leaf.tensor.grad.detach() for leaf in leaves}
    finally:
        for tensor, grad in kept:
            tensor.grad = grad


def descend(leaves: Sequence[Leaf], gradients: dict[str, Any], rate: float) -> None:
    """Move every parameter by minus `rate` times its gradient, as plain SGD does; arguments stay as they are."""
    import torch

    with torch.no_grad():
        for leaf in leaves:
            gradient = gradients.get(leaf.path)
            if gradient is not None and leaf.tensor.is_leaf and not leaf.path.startswith("args"):
                leaf.tensor.add_(gradient, alpha=-rate)


def _weights(root: Any) -> Any:
    import torch

    steps = torch.arange(root.numel(), dtype=torch.float64).cos().mul(0.5).add(1).reshape(root.shape)
    return steps.to(device=root.device, dtype=root.dtype)
