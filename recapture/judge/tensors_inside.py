"""Replaces the tensors inside a value, at any depth; every container and object keeps its identity."""

from __future__ import annotations

import functools
import types
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

OPAQUE = (type, types.ModuleType, types.BuiltinFunctionType, str, bytes, int, float, complex, type(None))
"""Types of values that hold no tensors of a call."""

LIBRARIES = ("torch", "functorch", "numpy", "scipy", "builtins")
"""Packages whose functions and slots are not searched: they hold no tensors of a call."""


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with `change` applied to every tensor in it.

    Searched are lists, tuples, dicts, sets, deques, attributes and slots of objects, bound methods, partial functions
    and the variables that a nested function captured. They are changed in place; only tuples, frozen sets, bound
    methods and partial functions, which cannot be changed, are made again if something in them was replaced. Numpy
    arrays are left alone.
    """
    return _Mapping(change).map(value)


class _Mapping:
    """One pass over a value; an object that occurs twice, or contains itself, is visited once."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.change = change
        # By id: the object and what replaces it. The object is kept alive, so that its id is not reused.
        self.seen: dict[int, tuple[Any, Any]] = {}

    def map(self, value: Any) -> Any:
        import torch

        if isinstance(value, OPAQUE):
            return value
        if id(value) not in self.seen:
            self.seen[id(value)] = (value, value)  # what contains itself
            mapped = self.change(value) if isinstance(value, torch.Tensor) else self._inside(value)
            self.seen[id(value)] = (value, mapped)
        return self.seen[id(value)][1]

    def _inside(self, value: Any) -> Any:
        """Map what a value holds; return the value, or what replaces a value that cannot be changed."""
        if isinstance(value, types.MethodType):
            owner = self.map(value.__self__)
            return value if owner is value.__self__ else types.MethodType(value.__func__, owner)
        if isinstance(value, types.FunctionType):
            self._captured(value)
            return value
        if isinstance(value, functools.partial):
            return self._partial(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if isinstance(value, (set, frozenset)):
            return self._set(value)
        if isinstance(value, dict):
            for key, item in list(dict.items(value)):
                dict.__setitem__(value, key, self.map(item))
        elif isinstance(value, (list, deque)):
            for index, item in enumerate(value):
                value[index] = self.map(item)
        self._attributes(value)
        return value

    def _attributes(self, value: Any) -> None:
        """Map the attributes of an object, past its own ``__setattr__``, which may refuse or check."""
        own = getattr(value, "__dict__", None)
        if type(own) is dict:
            for name, item in list(own.items()):
                own[name] = self.map(item)
        for kind in type(value).__mro__:
            for slot in vars(kind).values():
                if isinstance(slot, types.MemberDescriptorType) and not _of_a_library(kind):
                    try:
                        slot.__set__(value, self.map(slot.__get__(value)))
                    except (AttributeError, TypeError):  # an empty slot, or one that is only read
                        continue

    def _captured(self, function: types.FunctionType) -> None:
        if _of_a_library(function):
            return
        for cell in function.__closure__ or ():
            try:
                cell.cell_contents = self.map(cell.cell_contents)
            except ValueError:  # a variable that has no value yet
                continue
        for name, item in list(vars(function).items()):
            vars(function)[name] = self.map(item)

    def _partial(self, value: functools.partial[Any]) -> Any:
        parts = (value.func, value.args, value.keywords)
        mapped = tuple(self.map(part) for part in parts)
        if all(one is two for one, two in zip(parts, mapped, strict=True)):
            return value
        return type(value)(mapped[0], *mapped[1], **mapped[2])

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        import torch

        # Torch requires these sizes on the CPU, on every device.
        packed = value[1] if isinstance(value, torch.nn.utils.rnn.PackedSequence) else None
        mapped = [item if item is packed else self.map(item) for item in value]
        if all(one is two for one, two in zip(value, mapped, strict=True)):
            return value
        return getattr(type(value), "_make", type(value))(mapped)

    def _set(self, value: Any) -> Any:
        mapped = [self.map(item) for item in value]
        if all(one is two for one, two in zip(value, mapped, strict=True)):
            return value
        if isinstance(value, frozenset):
            return type(value)(mapped)
        value.clear()
        value.update(mapped)
        return value


def _of_a_library(value: Any) -> bool:
    return str(getattr(value, "__module__", None)).partition(".")[0] in LIBRARIES
