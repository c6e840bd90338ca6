"""Describes any Python value as plain data that later calls cannot change and that is the same in every process."""

from __future__ import annotations

import dataclasses
import enum
import functools
import io
import itertools
import os
import re
import sys
import types
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any

from recapture.base.exceptions import qualified
from recapture.base.torch_compat import is_out_of_memory

__all__ = ["Seen", "TensorSeen", "see", "see_form", "see_module", "see_result_of", "tensors_of"]

MAX_DEPTH = 12
"""Number of nesting levels that are described; deeper values are compared only by type."""

MAX_OBJECTS = 1_000
"""Number of objects with attributes described in one value; further objects are compared only by type."""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}|\bid=\d{6,}")


@dataclass(frozen=True)
class TensorSeen:
    """A snapshot of a tensor or numpy array: `data` is a detached copy, None if its values cannot be read."""

    data: Any
    dtype: str
    shape: tuple[int, ...]
    device: str
    layout: str
    stride: tuple[int, ...] | None
    requires_grad: bool
    storage: int | None
    """Address of the storage during the call; equal addresses mean aliases. Never reported."""


@dataclass(frozen=True)
class Seen:
    """A snapshot of a Python value: its exact type, and its tensor, its children, or its scalar.

    A tensor with a gradient also has a child ``.grad``. A value that cannot be described has only a type.
    """

    type: str
    tensor: TensorSeen | None = None
    children: tuple[tuple[str, Seen], ...] | None = None
    ordered: bool = True
    scalar: Any = None


def see(value: Any) -> Seen:
    """Describe a value as plain data; only the type is kept for cycles, very deep values and undescribable values.

    Describing runs the value's own code (properties, ``__repr__``, ``__iter__``). Exceptions of that code are caught,
    except out-of-memory errors.
    """
    return _Describer(_copy).see(value)


def see_form(value: Any) -> Seen:
    """Describe a value as `see` does, without copying the elements of its tensors."""
    return _Describer(lambda _: None).see(value)


def see_result_of(call: Callable[[], Any]) -> Seen:
    """Describe the result of a call without arguments, or the type of the exception that it raises."""
    return see(_value_or_error(call))


def see_module(module: Any) -> Seen:
    """Describe the state of an ``nn.Module``: parameters, all buffers and the parameters' gradients, by name."""
    return see_result_of(lambda: _state(module))


def tensors_of(path: str, seen: Seen) -> list[tuple[str, TensorSeen]]:
    """Return every tensor in a described value with its path, which starts with `path`."""
    if seen.tensor is not None:
        return [(path, seen.tensor)]
    return [found for key, child in seen.children or () for found in tensors_of(path + key, child)]


def _state(module: Any) -> dict[str, Any]:
    """Return the state of a module by name, including buffers that are not in its ``state_dict``."""
    state = dict(module.state_dict())
    for name, tensor in [*module.named_buffers(), *module.named_parameters()]:
        state.setdefault(name, tensor)
        if tensor.grad is not None:
            state[f"{name}.grad"] = tensor.grad
    return state


def _value_or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except BaseException as error:  # the case's own code
        if is_out_of_memory(error):
            raise
        return _Unreadable(error)


class _Unreadable:
    """Stands in for a value that raised an exception when it was read."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Describer:
    def __init__(self, copy: Callable[[Any], Any]) -> None:
        self.copy = copy
        self.objects = 0

    def see(self, value: Any, depth: int = 0, parents: tuple[int, ...] = ()) -> Seen:
        name = qualified(type(value))
        try:
            return self._see(value, name, depth, parents)
        except BaseException as error:
            if is_out_of_memory(error):
                raise
            return Seen(name)

    def _see(self, value: Any, name: str, depth: int, parents: tuple[int, ...]) -> Seen:
        import torch

        if isinstance(value, torch.Tensor):
            return self._see_tensor(value, name, depth, parents)
        if isinstance(value, enum.Enum):
            return Seen(name, scalar=value.name)
        if isinstance(value, _Unreadable):
            return Seen("unreadable", scalar=qualified(type(value.error)))
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return Seen(name, scalar=_plain(value))
        if isinstance(
            value, (torch.dtype, torch.device, torch.layout, torch.memory_format, slice, range, type, os.PathLike)
        ):
            return Seen(name, scalar=repr(value))
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            return self._see_array(value, name, depth, parents)
        if numpy is not None and isinstance(value, numpy.generic):
            return Seen(name, scalar=value.item())
        if id(value) in parents or depth >= MAX_DEPTH:
            return Seen(name)
        items, ordered = self._items(value)
        if items is None:
            text = None if callable(value) else repr(value)  # a date, a bytearray, …
            return Seen(name, scalar=text if text is None or not _ADDRESS.search(text) else None)
        return self._container(name, items, depth, (*parents, id(value)), ordered=ordered)

    def _container(
        self, name: str, items: list[tuple[str, Any]], depth: int, parents: tuple[int, ...], *, ordered: bool = True
    ) -> Seen:
        children: dict[str, Seen] = {}
        for key, item in items:
            label, again = key, 1
            while label in children:  # two keys may have one repr
                again += 1
                label = f"{key} #{again}"
            children[label] = self.see(item, depth + 1, parents)
        return Seen(name, children=tuple(children.items()), ordered=ordered)

    def _items(self, value: Any) -> tuple[list[tuple[str, Any]] | None, bool]:
        """Return a value's items, by a path that is the same in every process, and whether their order matters."""
        import torch

        if isinstance(value, Mapping):
            ordered = type(value).__name__ == "OrderedDict"  # the only dict type whose equality depends on order
            return [one for index, key in enumerate(value) for one in _entry(index, key, value[key])], ordered
        if isinstance(value, (set, frozenset)):
            return _members(value), True
        fields = getattr(value, "_fields", None)
        if isinstance(value, tuple) and isinstance(fields, tuple):
            return [(f".{key}", item) for key, item in zip(fields, value, strict=True)], True
        if isinstance(value, (list, tuple, deque, ValuesView, ItemsView)):
            return [(f"[{index}]", item) for index, item in enumerate(value)], True
        if isinstance(value, KeysView):
            return _members(value), True
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            return _yielded(value), True
        if isinstance(value, functools.partial):
            return [(".func", value.func), (".args", value.args), (".keywords", value.keywords)], True
        is_module = isinstance(value, torch.nn.Module)
        if callable(value) and not is_module and not _has_attributes_of_its_own(value):
            return None, True
        self.objects += 1
        if self.objects > MAX_OBJECTS:
            return None, True
        if is_module:
            return self._items(_state(value))
        names: dict[str, None] = {}
        if dataclasses.is_dataclass(value):
            names.update((one.name, None) for one in dataclasses.fields(value))
        if isinstance(value, BaseException):
            names["args"] = None
        names.update((key, None) for key in sorted(getattr(value, "__dict__", ())) if not key.startswith("__"))
        slotted = [getattr(kind, "__slots__", ()) for kind in type(value).__mro__]
        names.update((key, None) for keys in slotted for key in ([keys] if isinstance(keys, str) else keys))
        known = [(f".{name}", item) for name in names for item in _attribute(value, name)]
        has_state = bool(known) or hasattr(value, "__dict__")
        return (known if has_state else None), True

    def _see_tensor(self, value: Any, name: str, depth: int, parents: tuple[int, ...]) -> Seen:
        import torch

        if value.is_nested:
            parts = [(f"[{index}]", part) for index, part in enumerate(value.unbind())]
            return self._container(name, [(".layout", str(value.layout)), *parts], depth, parents)
        if hasattr(type(value), "__tensor_flatten__"):  # a subclass that wraps other tensors
            inner, _ = value.__tensor_flatten__()
            outer = [(".dtype", value.dtype), (".shape", tuple(value.shape))]
            return self._container(name, [*outer, *((f".{one}", getattr(value, one)) for one in inner)], depth, parents)
        plain = value.detach()
        if type(plain) is not torch.Tensor:
            plain = plain.as_subclass(torch.Tensor)
        strided = plain.layout == torch.strided
        seen = TensorSeen(
            data=self.copy(plain),
            dtype=str(value.dtype),
            shape=tuple(int(size) for size in value.shape),
            device=value.device.type,
            layout=str(value.layout),
            stride=tuple(int(step) for step in plain.stride()) if strided else None,
            requires_grad=bool(value.requires_grad),
            storage=_storage_address(plain) if strided and value.numel() else None,
        )
        if value.is_leaf and value.grad is not None:
            return Seen(name, tensor=seen, children=((".grad", self.see(value.grad, depth + 1, parents)),))
        return Seen(name, tensor=seen)

    def _see_array(self, value: Any, name: str, depth: int, parents: tuple[int, ...]) -> Seen:
        import numpy as np
        import torch

        if isinstance(value, np.ma.MaskedArray):
            items = [(".data", np.asarray(value)), (".mask", np.ma.getmaskarray(value))]
            return self._container(name, items, depth, parents)
        dtype, shape = str(value.dtype), tuple(value.shape)
        try:
            data = torch.from_numpy(np.array(value, copy=True, order="C"))
        except (TypeError, ValueError):  # strings, objects, another byte order, types that torch lacks
            items = [(f"[{index}]", item) for index, item in enumerate(value.ravel().tolist())]
            return self._container(f"{name}[{dtype}]{shape}", items, depth, parents)
        return Seen(name, tensor=TensorSeen(data, dtype, shape, "cpu", "numpy", None, False, None))


def _plain(value: Any) -> Any:
    """Return a scalar as the builtin type it derives from, so that comparing it later runs no code of the case."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.__getitem__(value, slice(None))
    kind: Any = next(one for one in (int, float, complex) if isinstance(value, one))
    return kind.__pos__(value)


def _entry(index: int, key: Any, item: Any) -> list[tuple[str, Any]]:
    """Return a mapping's item under the repr of its key, if that is the same in every process."""
    text = _readable(key)
    if text is not None:
        return [(f"[{text}]", item)]
    return [(f"[key {index}]", key), (f"[item {index}]", item)]


def _yielded(value: Iterator[Any]) -> list[tuple[str, Any]]:
    """Return what an iterator yields, up to MAX_OBJECTS items, and what it raises. This consumes the iterator."""
    found: list[tuple[str, Any]] = []
    try:
        for index, item in enumerate(itertools.islice(value, MAX_OBJECTS)):
            found.append((f"[{index}]", item))
    except BaseException as error:  # the case's own code
        if is_out_of_memory(error):
            raise
        found.append((".raised", _Unreadable(error)))
    return found


def _has_attributes_of_its_own(value: Any) -> bool:
    """Whether a callable is an object of a case's own class, not a function or a part of torch."""
    kind = type(value)
    return (
        not isinstance(value, (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType))
        and isinstance(kind.__dict__.get("__module__"), str)
        and kind.__module__.partition(".")[0] not in ("torch", "functorch", "functools", "builtins", "numpy", "scipy")
    )


def _members(value: Any) -> list[tuple[str, Any]]:
    texts = [(_readable(item), item) for item in value]
    if any(text is None for text, _ in texts):  # the order differs between processes: compare only the types
        return [(f"[{i}]", kind) for i, kind in enumerate(sorted(qualified(type(item)) for item in value))]
    return [(f"[{i}]", item) for i, (_, item) in enumerate(sorted(texts, key=lambda pair: str(pair[0])))]


def _readable(value: Any) -> str | None:
    try:
        text = repr(value)
    except Exception:  # the case's own code
        return None
    return text if len(text) <= 200 and not _ADDRESS.search(text) else None


def _attribute(value: Any, name: str) -> list[Any]:
    """Return a list with the attribute; an empty list if there is none."""
    try:
        return [getattr(value, name)]
    except AttributeError:
        return []
    except BaseException as error:  # a property defined by the case
        if is_out_of_memory(error):
            raise
        return [_Unreadable(error)]


def _copy(plain: Any) -> Any:
    """Return a dense copy on the CPU; None for tensors without values (meta device) or that cannot be copied."""
    import torch

    try:
        data = plain.clone()
        return (data if plain.layout == torch.strided else data.to_dense()).cpu()
    except (NotImplementedError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        return None


def _storage_address(tensor: Any) -> int | None:
    try:
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        return int(storage.data_ptr())
    except RuntimeError:  # a tensor without storage
        return None
