"""Results with wrong values that rounding never touches: integers, texts, arrays, quantized and sparse tensors."""

from __future__ import annotations

import enum
import sys
from typing import Any

import torch

from benchmarks.judge.planting import CONDITION, Nothing, Run, change_first, plain, plants, with_data


@plants("value-int-off-by-one", "value")
def integer_off_by_one(run: Run) -> Any:
    """An integer of a tensor is off by one."""

    def changed(leaf: Any) -> Any:
        whole = plain(leaf) and not leaf.is_floating_point() and not leaf.is_complex() and leaf.dtype is not torch.bool
        if not whole or not leaf.numel():
            return None
        data = leaf.clone(memory_format=torch.contiguous_format)
        data.view(-1)[-1] += 1
        return with_data(leaf, data)

    return change_first(run.result(), changed)


@plants("value-bool-flipped", "value")
def flipped(run: Run) -> Any:
    """An element of a mask is the other way round; rounding must not decide any element of the case's masks."""
    if CONDITION.get(str(torch.bool), {}).get("any", 0.0) > 0:
        raise Nothing

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or leaf.dtype is not torch.bool or not leaf.numel():
            return None
        data = leaf.clone(memory_format=torch.contiguous_format)
        data.view(-1)[0] ^= True
        return with_data(leaf, data)

    return change_first(run.result(), changed)


@plants("value-python-int", "value")
def python_int(run: Run) -> Any:
    """A Python int is off by one."""
    return change_first(run.result(), lambda leaf: leaf + 1 if type(leaf) is int else None)


@plants("value-python-bool", "value")
def python_bool(run: Run) -> Any:
    """A Python bool is the other one."""
    return change_first(run.result(), lambda leaf: not leaf if type(leaf) is bool else None)


@plants("value-python-float", "value")
def python_float(run: Run) -> Any:
    """A Python float is 1 % too large."""

    def changed(leaf: Any) -> Any:
        right = type(leaf) is float and leaf - leaf == 0 and leaf != 0
        return leaf * 1.01 if right and run.resolves(torch.float64, 0.01, "largest") else None

    return change_first(run.result(), changed)


@plants("value-text", "value")
def text(run: Run) -> Any:
    """A text lacks its last letter."""
    return change_first(run.result(), lambda leaf: leaf[:-1] if type(leaf) is str and leaf else None)


@plants("value-enum", "value")
def member(run: Run) -> Any:
    """Another member of an enumeration is returned."""

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, enum.Enum):
            return None
        return next((other for other in type(leaf) if other is not leaf), None)

    return change_first(run.result(), changed)


@plants("value-numpy-array", "value")
def numpy_array(run: Run) -> Any:
    """The first element of a numpy array is doubled."""

    def changed(leaf: Any) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is None or type(leaf) is not numpy.ndarray or leaf.dtype.kind not in "fi" or not leaf.size:
            return None
        again = leaf.copy()
        if not numpy.isfinite(again.flat[0]) or not again.flat[0]:
            return None
        again.flat[0] *= 2
        return again

    return change_first(run.result(), changed)


@plants("value-quantized", "value")
def quantized(run: Run) -> Any:
    """A quantized element is one step too high."""

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_quantized or leaf.qscheme() != torch.per_tensor_affine:
            return None
        steps = leaf.int_repr()
        flat = steps.view(-1)
        flat[0] += 1 if int(flat[0]) < torch.iinfo(steps.dtype).max else -1
        return torch._make_per_tensor_quantized_tensor(steps, leaf.q_scale(), leaf.q_zero_point())  # noqa: SLF001

    return change_first(run.result(), changed)


@plants("value-sparse", "value")
def sparse(run: Run) -> Any:
    """The elements of a sparse tensor are doubled."""

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.sparse_coo or not leaf._nnz():  # noqa: SLF001
            return None
        return leaf * 2

    return change_first(run.result(), changed)
