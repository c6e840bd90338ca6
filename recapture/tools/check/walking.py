"""Walks over the arguments of a call: nests of tuples, lists, dicts and dataclasses with tensors and Python values.

A generated case contains the source of this module, so that a script printed from it needs torch alone. It therefore
imports nothing from this project but such modules.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator
from typing import Any

Change = Callable[[Any], Any]
"""A function from a detached tensor to its changed values; it may return the same tensor."""


def changed(args: tuple[Any, ...], change: Change, alone: str = "") -> Any:
    """Return the arguments with every tensor changed, or only the one at the path `alone`."""

    def one(path: str, tensor: Any) -> Any:
        if alone not in ("", path):
            return tensor
        detached = tensor.detach()
        made = change(detached)
        if made is detached:
            return tensor
        grad = tensor.requires_grad and (made.is_floating_point() or made.is_complex())
        if type(tensor).__name__ == "Parameter":
            return type(tensor)(made, requires_grad=grad)
        return made.requires_grad_(grad)

    return mapped(args, "args", one)


def mapped(value: Any, path: str, change: Callable[[str, Any], Any]) -> Any:
    """Return a nest with its plain tensors changed; other objects stay as they are."""
    if _is_plain_tensor(value):
        return change(path, value)
    parts = _parts(value)
    if parts is None:
        return value
    return _made_again(value, [mapped(item, f"{path}{key}", change) for key, item in parts])


def put(value: Any, path: str, other: Any, at: str = "args") -> Any:
    """Return a nest with another value at a path."""
    if at == path:
        return other
    parts = _parts(value)
    if parts is None or not path.startswith(at):
        return value
    return _made_again(value, [put(item, path, other, f"{at}{key}") for key, item in parts])


def tensors_in(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return the plain tensors in a nest, with their paths."""
    found: list[tuple[str, Any]] = []

    def note(where: str, one: Any) -> Any:
        found.append((where, one))
        return one

    mapped(value, path, note)
    return found


def plain_values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the scalars, slices, ranges, members of enums, dtypes, functions and Nones in a nest, with their paths."""
    kinds = (int, float, complex, str, slice, range, type(None))  # flags are integers; numpy's are floats
    named = isinstance(value, (enum.Enum, types.FunctionType, types.BuiltinFunctionType))
    if isinstance(value, kinds) or named or type(value).__name__ == "dtype":
        yield path, value
    for key, item in _parts(value) or ():
        yield from plain_values(item, f"{path}{key}")


def containers_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the lists, dicts, tuples and sets in a nest, with their paths; not the nest itself."""
    for key, item in _parts(value) or ():
        if type(item) in (list, dict, tuple, set, frozenset):
            yield f"{path}{key}", item
        yield from containers_in(item, f"{path}{key}")


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return the items of a container with their places; None for anything else."""
    if type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return [(f"[{key}]", item) for key, item in enumerate(value)]
    if type(value) is dict:
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if _is_plain_dataclass(value):
        return [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def _made_again(value: Any, items: list[Any]) -> Any:
    """Return a container of the same type with other items."""
    if type(value) is dict:
        return dict(zip(value, items, strict=True))
    if _is_plain_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(value, **dict(zip(names, items, strict=True)))
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _is_plain_dataclass(value: Any) -> bool:
    """Whether an object is a dataclass that its fields make again: not one that is a container, as of transformers."""
    if not dataclasses.is_dataclass(value) or isinstance(value, (type, dict, list, tuple)):
        return False
    return all(field.init for field in dataclasses.fields(value))


def _is_plain_tensor(value: Any) -> bool:
    import torch

    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    return plain and value.layout == torch.strided and not value.is_quantized and not value.is_nested
