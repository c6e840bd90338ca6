"""Builds tensors from their parts, with the private functions of torch that this needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def ignoring_subclasses() -> AbstractContextManager[Any]:
    """Treat tensors of subclasses as ordinary tensors inside the block: ``__torch_function__`` is not called."""
    import torch

    context: AbstractContextManager[Any] = torch._C.DisableTorchFunctionSubclass()  # noqa: SLF001
    return context


def leaf_of_type(kind: type, plain: Any, *, requires_grad: bool) -> Any:
    """Return a leaf of the class `kind` on the memory of an ordinary tensor, without running the class's own code."""
    import torch

    return torch.Tensor._make_subclass(kind, plain, requires_grad)  # noqa: SLF001


def with_bits_of(original: Any, tensor: Any) -> Any:
    """Return a tensor, or a view of it, with the conjugate and negative bits of the original."""
    import torch

    if tensor.is_conj() != original.is_conj():
        tensor = tensor.conj()
    return torch._neg_view(tensor) if tensor.is_neg() != original.is_neg() else tensor  # noqa: SLF001
