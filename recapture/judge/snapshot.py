"""Describes any Python value as plain data that later calls cannot change and that is the same in every process."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import io
import logging
import os
import sys
import types
from collections import UserList, defaultdict, deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, field
from typing import Any

from recapture.base.exceptions import qualified
from recapture.judge.contents import (
    CACHE,
    MAX_OBJECTS,
    PLAIN,
    Cut,
    Unreadable,
    attribute,
    bound_in,
    cached,
    contents_of,
    entry,
    function_text,
    has_address,
    has_attributes_of_its_own,
    is_named,
    members,
    module_items,
    of_library,
    own_attributes,
    plain,
    position,
    ranks_of,
    slots,
    state_of_generator,
    value_or_error,
    yielded,
)
from recapture.torch_api.compat import has_names, is_out_of_memory, zeros_without_memory

MAX_DEPTH = 1_000
"""Number of nesting levels that are described; deeper values are compared only by type, which a note says."""

SHALLOW = 12
"""Number of nesting levels in which any number of containers is described."""

FRAMES = 4_000
"""Python's limit of nested calls while values of that depth are described or compared.

A ``__repr__`` without end still meets it before the stack of the process is full.
"""

REPEATED = 2**20
"""Number of elements from which a view that repeats elements is copied without the repetitions."""

SETTINGS_OF_A_LOGGER = ("name", "level", "disabled", "propagate")
"""What a call may change of a logger."""


@dataclass(frozen=True)
class TensorSnapshot:
    """A snapshot of a tensor or numpy array: `data` is a detached copy, None if its values cannot be read.

    In a large view that repeats elements, such as an expanded one, `data` has one element along each such dimension.
    Two snapshots are equal if all but their elements is.
    """

    data: Any = field(compare=False)
    dtype: str
    shape: tuple[int, ...]
    device: str
    layout: str
    stride: tuple[int, ...] | None
    requires_grad: bool
    flags: tuple[str, ...] = ()
    """What changes how later operations treat the tensor: ``leaf`` (if it requires grad), ``inference``, ``conj``,
    ``neg``, and those of tensors and arrays that cannot be written to."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a Python value: its exact type, and its tensor, its children, or its scalar.

    The children of a tensor are its gradient, ``.grad``, attributes that Python code put on it, and quantization
    parameters. `default` is what a ``defaultdict`` fills in. A value that cannot be described has only a type. `cut`
    says why a part of the value was not described, if one was not.
    """

    type: str
    tensor: TensorSnapshot | None = None
    children: tuple[tuple[str, Snapshot], ...] | None = None
    ordered: bool = True
    scalar: Any = None
    default: str | None = None
    cut: str | None = None


@contextlib.contextmanager
def deep_calls() -> Iterator[None]:
    """Allow as many nested calls as describing or comparing deep values takes."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@dataclass(frozen=True)
class Described:
    """A described value, and the tensors and numpy arrays in it, each with its path below the value."""

    snapshot: Snapshot
    arrays: tuple[tuple[str, Any], ...]


def describe(
    value: Any, *, consume: bool = True, copy: bool = True, positions: bool = True, like: Snapshot | None = None
) -> Described:
    """Describe a value as plain data; only the type is kept for cycles, very deep values and undescribable values.

    Describing runs the value's own code (properties, ``__repr__``, ``__iter__``). Exceptions of that code are caught,
    except out-of-memory errors. With `consume`, iterators are read, which exhausts them; without it, only where they
    stand is described, or nothing without `positions`. Without `copy`, the elements of tensors are left out. `like` is
    what the value was described as before: a tensor that holds the same is not copied again.
    """
    copier = _no_copy if not copy else _copy if like is None else functools.partial(_copy_unless_same, like)
    describer = _Describer(copier, consume=consume, positions=positions)
    with deep_calls():
        snapshot = describer.describe(value)
    return Described(snapshot, tuple(describer.arrays))


def arrays_in(value: Any) -> tuple[tuple[str, Any], ...]:
    """Return the tensors and numpy arrays in a value with their paths, as `describe` without `consume` does."""
    if _is_bare(value):  # most values of most modules
        return (("", value),)
    return describe(value, consume=False, copy=False).arrays


def _is_bare(value: Any) -> bool:
    """Whether a value is one of torch's own tensors that carries no other: no gradient, scale or attribute."""
    import torch

    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and not value.is_nested
        and not value.is_quantized
        and not vars(value)
        and not ((value.is_leaf or value.retains_grad) and value.grad is not None)
    )


def snapshot_of(value: Any) -> Snapshot:
    """Describe a value as `describe` does."""
    return describe(value).snapshot


def snapshot_form(value: Any) -> Snapshot:
    """Describe a value as `snapshot_of` does, without copying the elements of its tensors."""
    return describe(value, copy=False).snapshot


def snapshot_result_of(call: Callable[[], Any]) -> Snapshot:
    """Describe the result of a call without arguments, or the type of the exception that it raises."""
    return snapshot_of(value_or_error(call))


class _Describer:
    def __init__(self, copy: Callable[[Any], Any], *, consume: bool, positions: bool) -> None:
        self.copy = copy
        self.consume = consume
        self.positions = positions
        self.objects = 0
        self.deep = 0
        """Number of containers below SHALLOW levels: lists that hold one another twice have very many."""
        self.path: list[str] = []
        self.arrays: list[tuple[str, Any]] = []

    def describe(self, value: Any, depth: int = 0, parents: tuple[int, ...] = ()) -> Snapshot:
        name = qualified(type(value))
        try:
            if type(value) in PLAIN:  # most values of most states
                return Snapshot(name, scalar=value)
            return self._described(value, name, depth, parents)
        except BaseException as error:
            import torch

            if is_out_of_memory(error):
                raise
            # A tensor that is left out would equal every other: the record says so.
            cut = (
                f"a tensor that cannot be read: {qualified(type(error))}"
                if issubclass(type(value), torch.Tensor)
                else None
            )
            return Snapshot(name, cut=cut)

    def _described(self, value: Any, name: str, depth: int, parents: tuple[int, ...]) -> Snapshot:
        import torch
        from torch.utils.hooks import RemovableHandle

        if isinstance(value, torch.Tensor):
            return self._described_tensor(value, name, depth, parents)
        if isinstance(value, enum.Enum):
            own = own_attributes(value)
            if own and not of_library(type(value).__module__):
                return Snapshot(name, children=self._children([("", value.name), *own], depth, parents))
            return Snapshot(name, scalar=value.name)
        if isinstance(value, Unreadable):
            return Snapshot("unreadable", scalar=qualified(type(value.error)))
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            own = own_attributes(value)
            if own:
                return Snapshot(name, children=self._children([("", plain(value)), *own], depth, parents))
            return Snapshot(name, scalar=plain(value))
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, range, type, os.PathLike)):
            return Snapshot(name, scalar=repr(value))
        if isinstance(value, types.ModuleType):  # an attribute of torch would lead to all that is imported
            return Snapshot(name, scalar=value.__name__)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            return self._described_array(value, name, depth, parents)
        if numpy is not None and isinstance(value, numpy.generic):
            return Snapshot(name, scalar=value.item())
        if isinstance(value, RemovableHandle):  # its number counts the handles of the whole process
            registered = value.id in (value.hooks_dict_ref() or ())
            return Snapshot(name, children=self._children([(".registered", registered)], depth, parents))
        if isinstance(value, logging.Logger):  # the rest of it leads to the loggers and caches of all libraries
            settings = [(f".{key}", getattr(value, key)) for key in SETTINGS_OF_A_LOGGER]
            return Snapshot(name, children=self._children(settings, depth, parents))
        digest = state_of_generator(value)
        if digest is not None:
            return Snapshot(name, scalar=digest)
        if id(value) in parents:
            return Snapshot(name)
        self.deep += depth >= SHALLOW
        if depth >= MAX_DEPTH or self.deep > MAX_OBJECTS:
            return Snapshot(name, cut=f"more than {MAX_DEPTH} levels or {MAX_OBJECTS} values deep")
        items, ordered = self._items(value)
        if items is None and self.objects > MAX_OBJECTS:
            return Snapshot(name, cut=f"more than {MAX_OBJECTS} objects")
        if items is None:
            text = repr(value) if not callable(value) else function_text(value) if is_named(value) else None
            return Snapshot(name, scalar=text if text is None or not has_address(text) else None)
        # A value of the case may raise where it is asked for its class.
        cut = next((item.reason for _, item in items if type(item) is Cut), None)
        items = [(key, item) for key, item in items if type(item) is not Cut]
        if isinstance(value, WITH_ITEMS):
            known = {id(item) for _, item in items if type(item) not in PLAIN}  # a small number is always one object
            items += [(key, item) for key, item in own_attributes(value) if id(item) not in known]
        children = self._children(items, depth, (*parents, id(value)))
        default = repr(value.default_factory) if isinstance(value, defaultdict) else None
        if default is not None and has_address(default):
            default = "a function"
        return Snapshot(name, children=children, ordered=ordered, default=default, cut=cut)

    def _children(
        self, items: list[tuple[str, Any]], depth: int, parents: tuple[int, ...]
    ) -> tuple[tuple[str, Snapshot], ...]:
        children: dict[str, Snapshot] = {}
        times: dict[str, int] = {}
        for key, item in items:
            label = key
            while label in children:  # two keys may have one repr
                times[key] = times.get(key, 1) + 1
                label = f"{key} #{times[key]}"
            self.path.append(label)
            children[label] = self.describe(item, depth + 1, parents)
            self.path.pop()
        return tuple(children.items())

    def _items(self, value: Any) -> tuple[list[tuple[str, Any]] | None, bool]:
        """Return a value's items, by a path that is the same in every process, and whether their order matters."""
        import torch

        if isinstance(value, Mapping):
            ordered = type(value).__name__ == "OrderedDict"  # the only dict type whose equality depends on order
            ranks = ranks_of(value)
            return [item for key in value for item in entry(ranks.get(id(key)), key, value[key])], ordered
        if isinstance(value, (set, frozenset)):
            return members(value), True
        fields = getattr(value, "_fields", None)
        if isinstance(value, tuple) and isinstance(fields, tuple):
            return [(f".{key}", item) for key, item in zip(fields, value, strict=True)], True
        if isinstance(value, (list, tuple, deque, ValuesView, ItemsView)):
            items = [(f"[{index}]", item) for index, item in enumerate(value)]
            return items + ([(".maxlen", value.maxlen)] if isinstance(value, deque) else []), True
        if isinstance(value, KeysView):
            return members(value), True
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            if self.consume:
                return yielded(value), True
            return (position(value) if self.positions else None), True
        contents = contents_of(value)
        if contents:
            return contents, True
        if isinstance(value, slice):
            return [(".start", value.start), (".stop", value.stop), (".step", value.step)], True
        if isinstance(value, functools.partial):
            return [(".func", value.func), (".args", value.args), (".keywords", value.keywords)], True
        if qualified(type(value)) == CACHE and not of_library(value.__module__):
            return [(f"[{key}]", result) for key, result in cached(value).items()], False
        is_module = isinstance(value, torch.nn.Module)
        if isinstance(value, (types.FunctionType, types.MethodType)):
            return bound_in(value), True
        if callable(value) and not is_module and not has_attributes_of_its_own(value):
            return None, True
        self.objects += 1
        if self.objects > MAX_OBJECTS:
            return None, True
        if is_module:
            return module_items(value), True
        names: dict[str, None] = {}
        if dataclasses.is_dataclass(value):
            names.update((field.name, None) for field in dataclasses.fields(value))
        if isinstance(value, BaseException):
            names["args"] = None
        names.update((key, None) for key in sorted(getattr(value, "__dict__", ())) if not key.startswith("__"))
        names.update((key, None) for key in slots(type(value)))
        known = [(f".{name}", item) for name in names for item in attribute(value, name)]
        has_state = bool(known) or hasattr(value, "__dict__")
        return (known if has_state else None), True

    def _described_tensor(self, value: Any, name: str, depth: int, parents: tuple[int, ...]) -> Snapshot:
        import torch

        if id(value) in parents:
            return Snapshot(name)
        parents = (*parents, id(value))
        if value.is_nested:
            parts = [(f"[{index}]", part) for index, part in enumerate(value.unbind())]
            return Snapshot(name, children=self._children([(".layout", str(value.layout)), *parts], depth, parents))
        if hasattr(type(value), "__tensor_flatten__"):  # a subclass that wraps other tensors
            inner, _ = value.__tensor_flatten__()
            outer = [(".dtype", value.dtype), (".shape", tuple(value.shape))]
            parts = [*outer, *((f".{key}", getattr(value, key)) for key in inner)]
            return Snapshot(name, children=self._children(parts, depth, parents))
        self.arrays.append(("".join(self.path), value))
        plain_tensor = value.detach()
        if type(plain_tensor) is not torch.Tensor:
            plain_tensor = plain_tensor.as_subclass(torch.Tensor)
        strided = plain_tensor.layout == torch.strided
        described = TensorSnapshot(
            data=self.copy(plain_tensor),
            dtype=str(value.dtype),
            shape=tuple(int(size) for size in value.shape),
            device=value.device.type,
            layout=str(value.layout),
            stride=tuple(int(step) for step in plain_tensor.stride()) if strided else None,
            requires_grad=bool(value.requires_grad),
            flags=_flags(value),
        )
        properties = _properties(value)
        return Snapshot(
            name, tensor=described, children=self._children(properties, depth, parents) if properties else None
        )

    def _described_array(self, value: Any, name: str, depth: int, parents: tuple[int, ...]) -> Snapshot:
        import numpy as np
        import torch

        if isinstance(value, np.ma.MaskedArray):
            items = [(".data", np.asarray(value)), (".mask", np.ma.getmaskarray(value))]
            items.append((".fill_value", value.fill_value))
            return Snapshot(name, children=self._children(items, depth, parents))
        dtype, shape = str(value.dtype), tuple(value.shape)
        try:
            data = torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), copy=True, order="C"))
        except (TypeError, ValueError, RuntimeError):
            # Strings, objects, types that torch lacks, a numpy that this torch cannot convert.
            items = [(f"[{index}]", item) for index, item in enumerate(value.ravel().tolist())]
            return Snapshot(f"{name}[{dtype}]{shape}", children=self._children(items, depth, parents))
        self.arrays.append(("".join(self.path), value))
        # Of elements that do not lie at multiples of their size, as fields of records, the steps are bytes.
        item = value.itemsize if all(step % value.itemsize == 0 for step in value.strides) else 1
        stride = tuple(step // item for step in value.strides)
        flags = () if value.flags.writeable else (READ_ONLY,)
        tensor = TensorSnapshot(data, dtype, shape, "cpu", NUMPY, stride, False, flags)
        own = own_attributes(value)
        return Snapshot(name, tensor=tensor, children=self._children(own, depth, parents) if own else None)


NUMPY = "numpy"
"""The layout of numpy's arrays."""

READ_ONLY = "read-only"
"""The flag of an array of numpy that cannot be written to: where eager's can, writing to it raises."""

WITH_ITEMS = (dict, list, tuple, set, frozenset, deque, UserList, Mapping, Iterator, functools.partial)
"""What is described by its items; objects of own classes among them may have attributes beside these."""


def _flags(value: Any) -> tuple[str, ...]:
    flags = {
        "leaf": value.requires_grad and value.is_leaf,
        "inference": value.is_inference(),
        "conj": value.is_conj(),
        "neg": value.is_neg(),
        "zeros without memory": zeros_without_memory(value),  # writing to them raises
    }
    return tuple(name for name, is_set in flags.items() if is_set)


def _properties(value: Any) -> list[tuple[str, Any]]:
    """Return what a tensor carries besides its elements: gradient, quantization parameters, Python attributes."""
    import torch

    properties: list[tuple[str, Any]] = []
    # Asking another tensor that is no leaf for its gradient would warn.
    if (value.is_leaf or value.retains_grad) and value.grad is not None:
        properties.append((".grad", value.grad))
    if value.is_leaf and value.requires_grad:
        number = sum(len(getattr(value, group, None) or ()) for group in HOOKS_OF_TENSORS)
        if number:
            properties.append((".hooks", number))
    if value.is_quantized:
        per_tensor = value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
        names = _PER_TENSOR if per_tensor else _PER_CHANNEL
        properties += [(f".{name}()", getattr(value, name)()) for name in names]
    indices = _INDICES.get(str(value.layout))
    if indices is not None:
        properties.append((f".{indices}().dtype", getattr(value.detach(), indices)().dtype))
        if value.layout in (torch.sparse_bsr, torch.sparse_bsc):
            properties.append((".values().shape", tuple(value.detach().values().shape)))  # the size of its blocks
    elif value.layout == torch.sparse_coo:
        properties.append((".sparse_dim()", value.sparse_dim()))
        properties.append((COALESCED, value.is_coalesced()))
    if has_names(value):
        properties.append((".names", value.names))
    # Names with an underscore belong to torch: Dynamo, for example, marks tensors with `_dynamo_…`.
    own = vars(value) if hasattr(value, "__dict__") else {}
    return properties + [
        (f".{name}", own[name]) for name in sorted(own) if not name.startswith("_") and name not in MARKS
    ]


COALESCED = ".is_coalesced()"
"""The path of whether a sparse tensor has each place once: an operator may leave that open, so that it is noted."""

_PER_TENSOR = ("qscheme", "q_scale", "q_zero_point")
_PER_CHANNEL = ("qscheme", "q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis")
"""Methods that return the parameters of a quantized tensor."""

_INDICES = {
    "torch.sparse_csr": "crow_indices",
    "torch.sparse_bsr": "crow_indices",
    "torch.sparse_csc": "ccol_indices",
    "torch.sparse_bsc": "ccol_indices",
}
"""The method that returns indices of a compressed sparse tensor, by layout. Their dtype may be int32 or int64."""

HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""The attributes in which a tensor keeps hooks. Their number is compared, because two functions cannot be."""

MARKS = frozenset({"fake_device"})
"""Attributes that torch leaves on a user's tensor for its own use (from torch 2.13 on)."""


def _no_copy(_: Any) -> None:
    return


def _copy_unless_same(like: Snapshot, tensor: Any) -> Any:
    """Return the elements of an earlier description of a tensor if it still has these bits, or else a copy of it."""
    import torch

    before = like.tensor.data if like.tensor is not None else None
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if (
        before is not None
        and type(before) is torch.Tensor  # not a fake one, which an exporter left where this tensor is now
        and tensor.layout == torch.strided
        and not (tensor.is_meta or tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or has_names(tensor))
        and (tensor.dtype, tensor.shape, tensor.device) == (before.dtype, before.shape, before.device)
        and tensor.element_size() in whole
    ):
        integers = whole[tensor.element_size()]  # as integers: NaN equals NaN, and zeros of two signs are two numbers
        if torch.equal(tensor.view(integers), before.view(integers)):
            return before
    return _copy(tensor)


def _copy(tensor: Any) -> Any:
    """Return a dense copy on the CPU; None for tensors without values (meta device) or that cannot be copied."""
    import torch

    if tensor.is_meta:  # copying it to the CPU would allocate its whole size first
        return None
    try:
        if tensor.is_quantized:
            return tensor.int_repr().clone().cpu()
        if has_names(tensor):  # few operators know them
            tensor = tensor.rename(None)
        data = without_repetitions(tensor).resolve_conj().resolve_neg().clone()
        return (data if tensor.layout == torch.strided else data.to_dense()).cpu()
    except (NotImplementedError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        return None


def without_repetitions(tensor: Any) -> Any:
    """Return a large view that repeats elements with one element along each dimension of repetitions.

    A copy of all its elements may be far larger than the memory of the view. Other tensors are returned as they are.
    """
    import torch

    if tensor.layout == torch.strided and tensor.numel() >= REPEATED:
        for dim, (size, step) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            if step == 0 and size > 1:
                tensor = tensor.narrow(dim, 0, 1)
    return tensor
