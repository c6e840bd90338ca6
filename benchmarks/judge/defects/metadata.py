"""Results with the right values and form, whose strides, attributes or scales differ."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.judge.planting import Run, change_first, plain, plants, tensors


@plants("metadata-stride", "metadata", level="stride")
def stride(run: Run) -> Any:
    """A matrix in memory of its own has the strides of its transpose."""
    owned = {tensor.untyped_storage().data_ptr() for tensor in tensors(run.args) if plain(tensor)}

    def changed(leaf: Any) -> Any:
        if plain(leaf) and leaf.untyped_storage().data_ptr() in owned:
            return None  # a copy would differ in more than its strides
        if not plain(leaf) or leaf.dim() != 2 or min(leaf.shape) < 2 or not leaf.is_contiguous():
            return None
        return leaf.t().contiguous().t()

    return change_first(run.result(), changed)


@plants("metadata-contiguous", "metadata", "alias", level="stride")
def contiguous(run: Run) -> Any:
    """A result that is not contiguous becomes contiguous; it lies in memory of its own."""
    owned = {tensor.untyped_storage().data_ptr() for tensor in tensors(run.args) if plain(tensor)}

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or leaf.is_contiguous() or leaf.untyped_storage().data_ptr() in owned or 0 in leaf.stride():
            return None
        if sum(leaf.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() for tensor in results) > 1:
            return None
        return leaf.contiguous()

    results = [tensor for tensor in tensors(run.result()) if plain(tensor)]
    return change_first(run.result(), changed)


@plants("metadata-memory-format", "metadata", level="stride")
def memory_format(run: Run) -> Any:
    """Images lie in memory with their channels last."""

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or leaf.dim() != 4 or leaf.shape[1] < 2 or max(leaf.shape[2:]) < 2:
            return None
        return leaf.contiguous(memory_format=torch.channels_last) if leaf.is_contiguous() else None

    return change_first(run.result(), changed)


@plants("metadata-attribute-lost", "metadata", "mutation")
def attribute_lost(run: Run) -> Any:
    """An attribute that the function puts on a tensor of the result is lost; those with an underscore are torch's."""

    def changed(leaf: Any) -> Any:
        names = [name for name in leaf.__dict__ if not name.startswith("_")] if plain(leaf) else []
        for name in names:
            delattr(leaf, name)
        return leaf if names else None

    return change_first(run.result(), changed)


@plants("metadata-attribute-extra", "metadata", "mutation")
def attribute_extra(run: Run) -> Any:
    """A tensor of the result carries an attribute that eager does not put there."""

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or any(leaf is tensor for tensor in tensors(run.args)):
            return None
        leaf.planted = 1
        return leaf

    return change_first(run.result(), changed)


@plants("metadata-attribute-of-argument-lost", "metadata", "mutation")
def attribute_of_argument_lost(run: Run) -> Any:
    """An attribute that the function puts on an argument is lost."""
    before = [(tensor, dict(tensor.__dict__)) for tensor in run.tensor_args()]
    result = run.result()

    for tensor, then in before:
        if tensor.__dict__.keys() != then.keys() or any(tensor.__dict__[key] is not then[key] for key in then):
            tensor.__dict__.clear()
            tensor.__dict__.update(then)
            return result
    return change_first(result, lambda _: None)


@plants("metadata-attribute-of-argument-extra", "metadata", "mutation")
def attribute_of_argument_extra(run: Run) -> Any:
    """The call puts an attribute on an argument."""
    result = run.result()
    run.tensor_args()[0].planted = 1
    return result


@plants("metadata-quantization-scale", "metadata", "value")
def quantization_scale(run: Run) -> Any:
    """A quantized result has another scale for the same stored integers."""

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_quantized or leaf.qscheme() != torch.per_tensor_affine:
            return None
        return torch._make_per_tensor_quantized_tensor(  # noqa: SLF001
            leaf.int_repr(), leaf.q_scale() * 1.25, leaf.q_zero_point()
        )

    return change_first(run.result(), changed)


@plants("metadata-quantization-zero-point", "metadata", "value")
def quantization_zero_point(run: Run) -> Any:
    """A quantized result has another zero point, and stored integers that stand for the same numbers."""

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_quantized or leaf.qscheme() != torch.per_tensor_affine:
            return None
        stored = leaf.int_repr()
        step = 1 if int(stored.max()) < torch.iinfo(stored.dtype).max else -1
        if step < 0 and int(stored.min()) == torch.iinfo(stored.dtype).min:
            return None
        return torch._make_per_tensor_quantized_tensor(  # noqa: SLF001
            stored + step, leaf.q_scale(), leaf.q_zero_point() + step
        )

    return change_first(run.result(), changed)


@plants("metadata-conjugate-bit", "metadata", "alias")
def conjugate_bit(run: Run) -> Any:
    """A lazily conjugated result, which is a view, is computed."""

    def changed(leaf: Any) -> Any:
        return leaf.resolve_conj() if plain(leaf) and leaf.is_conj() else None

    return change_first(run.result(), changed)


@plants("metadata-negative-bit", "metadata", "alias")
def negative_bit(run: Run) -> Any:
    """A lazily negated result, which is a view, is computed."""

    def changed(leaf: Any) -> Any:
        return leaf.resolve_neg() if plain(leaf) and leaf.is_neg() else None

    return change_first(run.result(), changed)
