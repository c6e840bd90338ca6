"""Results of another dtype, shape or type."""

from __future__ import annotations

import collections
import dataclasses
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.judge.planting import Nothing, Run, change_first, parts, plain, plants

NARROWER = {torch.float64: torch.float32, torch.float32: torch.float16, torch.bfloat16: torch.float16}
NARROWER |= {torch.int64: torch.int32, torch.int32: torch.int16, torch.complex128: torch.complex64}


def _tensor(run: Run, change: Callable[[torch.Tensor], Any]) -> Any:
    return change_first(run.result(), lambda leaf: change(leaf) if plain(leaf) else None)


def _container(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with its first container changed for which `change` does not return None."""
    new = change(value)
    if new is not None:
        return new
    items = parts(value) or []
    for key, item in items:
        try:
            inner = _container(item, change)
        except Nothing:
            continue
        if isinstance(value, (list, tuple)):
            changed = [inner if index == key else own for index, own in items]
            return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
        if isinstance(value, dict):
            return type(value)({**value, key: inner}) if type(value) is not collections.defaultdict else None
    raise Nothing


@plants("dtype-narrower", "dtype")
def narrower(run: Run) -> Any:
    """A result has half the bits: float32 for float64, int32 for int64."""
    return _tensor(run, lambda leaf: leaf.to(NARROWER[leaf.dtype]) if leaf.dtype in NARROWER else None)


@plants("dtype-wider", "dtype")
def wider(run: Run) -> Any:
    """A half-precision result stays in the float32 that it was computed in."""
    return _tensor(run, lambda leaf: leaf.float() if leaf.dtype in (torch.float16, torch.bfloat16) else None)


@plants("dtype-bool-as-integer", "dtype")
def bool_as_integer(run: Run) -> Any:
    """A mask is returned as integers."""
    return _tensor(run, lambda leaf: leaf.to(torch.uint8) if leaf.dtype is torch.bool else None)


@plants("dtype-integer-as-float", "dtype")
def integer_as_float(run: Run) -> Any:
    """Integers are returned as floats."""
    return _tensor(run, lambda leaf: leaf.float() if leaf.dtype in (torch.int64, torch.int32) else None)


@plants("dtype-numpy", "dtype")
def numpy_dtype(run: Run) -> Any:
    """A numpy array has single precision for double."""

    def changed(leaf: Any) -> Any:
        numpy = sys.modules.get("numpy")
        double = numpy is not None and type(leaf) is numpy.ndarray and leaf.dtype == numpy.float64
        return leaf.astype("float32") if double else None

    return change_first(run.result(), changed)


@plants("shape-one-for-none", "shape")
def one_for_none(run: Run) -> Any:
    """A result without dimensions has one."""
    return _tensor(run, lambda leaf: leaf.reshape(1) if leaf.dim() == 0 else None)


@plants("shape-none-for-one", "shape")
def none_for_one(run: Run) -> Any:
    """A result of shape (1,) has no dimension."""
    return _tensor(run, lambda leaf: leaf.reshape(()) if leaf.shape == (1,) else None)


@plants("shape-extra-dimension", "shape")
def extra_dimension(run: Run) -> Any:
    """A result has one more dimension, of size one, which broadcasts."""
    return _tensor(run, lambda leaf: leaf.unsqueeze(0) if leaf.dim() else None)


@plants("shape-transposed", "shape")
def transposed(run: Run) -> Any:
    """A matrix is returned transposed."""
    return _tensor(run, lambda leaf: leaf.t() if leaf.dim() == 2 and leaf.shape[0] != leaf.shape[1] else None)


@plants("shape-row-lost", "shape")
def row_lost(run: Run) -> Any:
    """A result has one row less."""
    return _tensor(run, lambda leaf: leaf[:-1] if leaf.dim() and leaf.shape[0] else None)


@plants("type-float-for-tensor", "type")
def float_for_tensor(run: Run) -> Any:
    """A Python number is returned for a tensor without dimensions."""
    return _tensor(run, lambda leaf: leaf.item() if leaf.dim() == 0 else None)


@plants("type-tensor-for-number", "type")
def tensor_for_number(run: Run) -> Any:
    """A tensor is returned for a Python number."""
    return change_first(run.result(), lambda leaf: torch.tensor(leaf) if type(leaf) in (int, float, bool) else None)


@plants("type-bool-for-int", "type")
def bool_for_int(run: Run) -> Any:
    """A bool is returned for the int 0 or 1, which is equal to it."""
    return change_first(run.result(), lambda leaf: bool(leaf) if type(leaf) is int and leaf in (0, 1) else None)


@plants("type-int-for-bool", "type")
def int_for_bool(run: Run) -> Any:
    """An int is returned for a bool, which is equal to it."""
    return change_first(run.result(), lambda leaf: int(leaf) if type(leaf) is bool else None)


@plants("type-float-for-int", "type")
def float_for_int(run: Run) -> Any:
    """A float is returned for an int, which is equal to it."""
    return change_first(run.result(), lambda leaf: float(leaf) if type(leaf) is int else None)


@plants("type-numpy-scalar-for-number", "type")
def numpy_scalar_for_number(run: Run) -> Any:
    """A numpy scalar is returned for a Python number."""
    import numpy as np

    kinds: dict[type, Any] = {int: np.int64, float: np.float64}
    return change_first(run.result(), lambda leaf: kinds[type(leaf)](leaf) if type(leaf) in kinds else None)


@plants("type-number-for-numpy-scalar", "type")
def number_for_numpy_scalar(run: Run) -> Any:
    """A Python number is returned for a numpy scalar."""

    def changed(leaf: Any) -> Any:
        numpy = sys.modules.get("numpy")
        return leaf.item() if numpy is not None and isinstance(leaf, numpy.generic) else None

    return change_first(run.result(), changed)


@plants("type-array-for-tensor", "type")
def array_for_tensor(run: Run) -> Any:
    """A numpy array is returned for a tensor."""

    def change(leaf: torch.Tensor) -> Any:
        if leaf.dtype is torch.bfloat16 or leaf.device.type != "cpu":
            return None
        return leaf.detach().resolve_conj().resolve_neg().numpy()

    return _tensor(run, change)


@plants("type-tensor-for-array", "type")
def tensor_for_array(run: Run) -> Any:
    """A tensor is returned for a numpy array."""

    def changed(leaf: Any) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is None or type(leaf) is not numpy.ndarray or leaf.dtype.kind not in "fi":
            return None
        return torch.from_numpy(leaf.copy())

    return change_first(run.result(), changed)


@plants("type-list-for-tuple", "type")
def list_for_tuple(run: Run) -> Any:
    """A list is returned for a tuple."""
    return _container(run.result(), lambda value: list(value) if type(value) is tuple else None)


@plants("type-tuple-for-list", "type")
def tuple_for_list(run: Run) -> Any:
    """A tuple is returned for a list."""
    return _container(run.result(), lambda value: tuple(value) if type(value) is list else None)


@plants("type-named-tuple-lost", "type")
def named_tuple_lost(run: Run) -> Any:
    """A tuple is returned for a named tuple."""
    return _container(run.result(), lambda value: tuple(value) if hasattr(value, "_fields") else None)


@plants("type-size-lost", "type")
def size_lost(run: Run) -> Any:
    """A tuple is returned for a torch.Size."""
    return change_first(run.result(), lambda leaf: tuple(leaf) if isinstance(leaf, torch.Size) else None)


@plants("type-dict-for-ordered-dict", "type")
def dict_for_ordered_dict(run: Run) -> Any:
    """A dict is returned for an OrderedDict."""
    ordered = collections.OrderedDict
    return _container(run.result(), lambda value: dict(value) if isinstance(value, ordered) else None)


@plants("type-dict-for-dataclass", "type")
def dict_for_dataclass(run: Run) -> Any:
    """A dict is returned for a dataclass."""

    def change(value: Any) -> Any:
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return None
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}

    return _container(run.result(), change)


@plants("type-item-lost", "type")
def item_lost(run: Run) -> Any:
    """A tuple or list has one item less."""
    return _container(run.result(), lambda value: value[:-1] if type(value) in (list, tuple) and value else None)


@plants("type-key-lost", "type")
def key_lost(run: Run) -> Any:
    """A dict lacks its last key."""

    def change(value: Any) -> Any:
        return dict(list(value.items())[:-1]) if type(value) is dict and value else None

    return _container(run.result(), change)


@plants("type-key-renamed", "type")
def key_renamed(run: Run) -> Any:
    """A key of a dict is an int for a text."""

    def change(value: Any) -> Any:
        if type(value) is not dict or not value or not isinstance(next(iter(value)), str):
            return None
        return {(0 if index == 0 else key): item for index, (key, item) in enumerate(value.items())}

    return _container(run.result(), change)


@plants("type-list-for-generator", "type")
def list_for_generator(run: Run) -> Any:
    """A list is returned for a generator."""
    return change_first(run.result(), lambda leaf: list(leaf) if isinstance(leaf, types.GeneratorType) else None)


@plants("type-none", "type")
def nothing_returned(run: Run) -> Any:
    """None is returned."""
    if run.result() is None:
        raise Nothing
    return None


@plants("type-tuple-around", "type")
def tuple_around(run: Run) -> Any:
    """A single result is returned in a tuple."""
    if isinstance(run.result(), tuple):
        raise Nothing
    return (run.result(),)


@plants("type-subclass-lost", "type")
def subclass_lost(run: Run) -> Any:
    """A tensor of torch's own class is returned for one of a subclass."""

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or type(leaf) in (torch.Tensor, torch.nn.Parameter):
            return None
        return None if hasattr(type(leaf), "__tensor_flatten__") else leaf.as_subclass(torch.Tensor)

    return change_first(run.result(), changed)


@plants("type-parameter-lost", "type")
def parameter_lost(run: Run) -> Any:
    """A tensor is returned for a Parameter."""
    return change_first(run.result(), lambda leaf: leaf.view_as(leaf) if type(leaf) is torch.nn.Parameter else None)


@plants("type-dense-for-sparse", "type")
def dense_for_sparse(run: Run) -> Any:
    """A dense tensor is returned for a sparse one."""

    def changed(leaf: Any) -> Any:
        sparse = isinstance(leaf, torch.Tensor) and leaf.layout in (torch.sparse_coo, torch.sparse_csr)
        return leaf.to_dense() if sparse else None

    return change_first(run.result(), changed)


@plants("type-dequantized", "type", "dtype")
def dequantized(run: Run) -> Any:
    """A float tensor is returned for a quantized one."""
    return change_first(
        run.result(), lambda leaf: leaf.dequantize() if isinstance(leaf, torch.Tensor) and leaf.is_quantized else None
    )


@plants("order-of-keys", "type", "metadata", level="order")
def order_of_keys(run: Run) -> Any:
    """The keys of a dict come in another order."""

    def change(value: Any) -> Any:
        return dict(reversed(value.items())) if type(value) is dict and len(value) > 1 else None

    return _container(run.result(), change)


@plants("default-factory-lost", "type", "metadata", level="order")
def default_factory_lost(run: Run) -> Any:
    """A defaultdict has lost its factory."""

    def change(value: Any) -> Any:
        if type(value) is not collections.defaultdict or value.default_factory is None:
            return None
        return collections.defaultdict(None, value)

    return _container(run.result(), change)
