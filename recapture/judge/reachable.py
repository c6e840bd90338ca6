"""The state that a call can change besides its arguments: a module's, and what the function's code refers to by name.

That is the module's parameters, buffers, attributes and training flags, and the globals, closure variables, default
arguments, function attributes and class attributes of the case's own file that its code names. `Saver` saves such
values and puts them back, whatever their type.
"""

from __future__ import annotations

import functools
import logging
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence, MutableSet
from contextlib import suppress
from typing import Any

from recapture.judge.snapshot import Described, Snapshot, attribute, describe
from recapture.torch_api.compat import is_out_of_memory

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Types of values that hold no other values."""

MARKS = ("_is_torch_compile",)
"""Attributes that torch.compile leaves on a user's module for its own use (from torch 2.13 on)."""


class Reachable:
    """The state that a function or module can reach."""

    def __init__(self, target: Any) -> None:
        import torch

        self.module = target if isinstance(target, torch.nn.Module) else None
        self.variables = _Finder(target).variables
        self.shared: list[Callable[[], None]] = []
        """Set by `save`: functions that restore what other executions of the case's file reach as well."""
        self._internal = frozenset({*vars(torch.nn.Module()), *MARKS}) - {"training"}

    def describe(self, module: Any = None, *, copy: bool = True) -> Described:
        """Describe the state; the parameters and buffers are those of `module`, the attributes those of the target.

        `module` is a compiler's result that works on copies. Where it lacks a name, the target's is described. Without
        `copy`, only what may hold tensors is described, and their elements are left out.
        """
        children: dict[str, Snapshot] = {}
        arrays: list[tuple[str, Any]] = []
        for path, value in self._values(module).items():
            if not copy and isinstance(value, PLAIN):
                continue  # it holds no tensors
            described = describe(value, consume=False, copy=copy)
            children[path] = described.snapshot
            arrays += [(path + below, array) for below, array in described.arrays]
        return Described(Snapshot("state", children=tuple(children.items())), tuple(arrays))

    def save(self) -> Callable[[], None]:
        """Return a function that sets the state back to what it is now, as far as that is possible."""
        saver = Saver()
        undo = [saver.saved(value) for value in self._values().values()]
        self.shared = saver.shared
        bindings = [(owner, key, value) for owner, key in self._bindings() for value in _got(owner, key)]
        added = [(part, set(vars(part))) for _, part in self._parts()]

        def restore() -> None:
            for owner, key, value in bindings:
                if owner.get(key, undo) is not value:  # `undo` is no value of a case: a name that is gone differs
                    owner[key] = value
            for part, keys in added:
                for key in set(vars(part)) - keys:
                    del vars(part)[key]
            for step in undo:
                with suppress(Exception):  # a container of the case's own, or a deleted cell
                    step()

        return restore

    def _values(self, module: Any = None) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self.module is not None:
            tensors = _tensors(self.module)
            tensors.update((name, tensor) for name, tensor in _tensors(module).items() if name in tensors)
            values.update((f"state[{name!r}]", tensor) for name, tensor in tensors.items())
            values.update(self._attributes(module))
        for path, read, _ in self.variables:
            values.update((path, value) for value in read())
        return values

    def _attributes(self, module: Any) -> dict[str, Any]:
        """Return the plain attributes of the module and its submodules, by path; a scripted module has its own."""
        import torch

        scripted = dict(module.named_modules()) if isinstance(module, torch.jit.RecursiveScriptModule) else {}
        attributes = {}
        for name, part in self._parts():
            for key in sorted(self._own_names(part)):
                value = attribute(scripted[name], key) if name in scripted else []
                # TorchScript turns tuples into lists, and more: only a value of the same type can be compared.
                same = bool(value) and type(value[0]) is type(vars(part)[key])
                attributes[f"state{'.' if name else ''}{name}.{key}"] = value[0] if same else vars(part)[key]
        return attributes

    def _own_names(self, part: Any) -> list[str]:
        """Return the names of a module's attributes that are not torch's own."""
        return [key for key in vars(part) if key not in self._internal and not key.startswith(("__", "_dynamo"))]

    def _parts(self) -> list[tuple[str, Any]]:
        return [] if self.module is None else list(self.module.named_modules())

    def _bindings(self) -> Iterator[tuple[Any, Any]]:
        for _, part in self._parts():
            for key in self._own_names(part):
                yield vars(part), key
            for group in ("_parameters", "_buffers"):
                for key in vars(part).get(group, ()):
                    yield vars(part)[group], key
        for _, _, binding in self.variables:
            if binding is not None:
                yield binding


def _tensors(module: Any) -> dict[str, Any]:
    """Return a module's parameters and all its buffers by name; nothing for other callables."""
    import torch

    if not isinstance(module, torch.nn.Module):
        return {}
    try:
        return dict([*module.named_parameters(), *module.named_buffers()])
    except Exception:  # the case's own code
        return {}


Variable = tuple[str, "Callable[[], list[Any]]", "tuple[Any, Any] | None"]
"""A path, a function that returns a list with the value or an empty one, and the mapping and key that hold it."""


class _Finder:
    """Follows the names in a function's code through its own file."""

    def __init__(self, target: Any) -> None:
        import torch

        self.variables: list[Variable] = []
        self.names: set[str] = set()
        self.met: set[int] = set()
        self.file: str | None = None
        if isinstance(target, torch.nn.Module):
            for part in target.modules():
                self._class(type(part))
        else:
            self._value("", target)

    def _add(self, path: str, read: Callable[[], list[Any]], binding: tuple[Any, Any] | None) -> None:
        if path not in self.names:
            self.names.add(path)
            self.variables.append((path, read, binding))

    def _value(self, path: str, value: Any) -> bool:
        """Follow a function or class of the case's own file; return False for anything else, which is a variable."""
        if isinstance(value, functools.partial):
            return self._value(path, value.func)
        value = getattr(value, "__wrapped__", value) if callable(value) else value
        if isinstance(value, types.MethodType):
            value = value.__func__
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, property):
            for accessor in (value.fget, value.fset):
                self._value(path, accessor)
            return True
        if isinstance(value, types.FunctionType):
            self._function(value)
            return True
        if isinstance(value, type):
            self._class(value)
            return True
        self._class(type(value))  # its methods may use other names
        return isinstance(value, (types.ModuleType, types.BuiltinFunctionType)) or (
            callable(value) and type(value).__module__.partition(".")[0] in ("torch", "functools", "builtins", "numpy")
        )

    def _function(self, function: types.FunctionType) -> None:
        if id(function) in self.met or not self._is_own(function.__module__):
            return
        self.met.add(id(function))
        name = function.__name__
        for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._variable(f"closure[{cell_name!r}]", _CellView(cell), "cell_contents")
        for index, default in enumerate(function.__defaults__ or ()):
            if isinstance(default, (list, dict, set)):
                self._add(f"{name}.__defaults__[{index}]", functools.partial(_only, default), None)
        for key in vars(function):
            if not key.startswith("_"):
                self._add(f"{name}.{key}", functools.partial(_got, vars(function), key), (vars(function), key))
        for used in _names(function.__code__):
            if used in function.__globals__:
                self._variable(f"globals[{used!r}]", function.__globals__, used)

    def _class(self, kind: type) -> None:
        if id(kind) in self.met or not self._is_own(kind.__module__):
            return
        self.met.add(id(kind))
        for base in kind.__bases__:
            self._class(base)
        for key, value in list(vars(kind).items()):
            if isinstance(value, types.FunctionType):
                self._function(value)  # special methods too
            elif not key.startswith("__") and not self._value(key, value) and not hasattr(type(value), "__get__"):
                self._add(
                    f"{kind.__name__}.{key}", functools.partial(_got, _ClassView(kind), key), (_ClassView(kind), key)
                )

    def _variable(self, path: str, owner: Any, key: str) -> None:
        for value in _got(owner, key):
            if not self._value(path, value):
                self._add(path, functools.partial(_got, owner, key), (owner, key))

    def _is_own(self, module: str | None) -> bool:
        """Whether code belongs to the case's own file: the first function or class that is followed decides."""
        if self.file is None and module is not None and module.partition(".")[0] != "torch":
            self.file = module
        return module == self.file and module is not None


def _names(code: types.CodeType) -> list[str]:
    """Return every global name and attribute that code and the functions inside it use."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(dict.fromkeys(_names(constant)))
    return list(names)


def _only(value: Any) -> list[Any]:
    return [value]


def _got(owner: Any, key: Any) -> list[Any]:
    try:
        return [owner[key]]
    except (KeyError, ValueError):  # deleted; an empty closure cell
        return []


class _CellView:
    """A closure cell, read and written like a mapping."""

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def __getitem__(self, key: str) -> Any:
        return self.cell.cell_contents

    def __setitem__(self, key: str, value: Any) -> None:
        self.cell.cell_contents = value

    def get(self, key: str, default: Any) -> Any:
        return next(iter(_got(self, key)), default)


class _ClassView:
    """The attributes of a class, written through `setattr`."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __getitem__(self, key: str) -> Any:
        return vars(self.kind)[key]

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self.kind, key, value)

    def get(self, key: str, default: Any) -> Any:
        return vars(self.kind).get(key, default)


MAX_DEPTH = 6
"""Number of nesting levels that are restored."""


class Saver:
    """Makes functions that restore the contents of values; an object that occurs twice is saved once."""

    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}
        self.shared: list[Callable[[], None]] = []
        """The functions that restore what belongs to the process: all executions of a file share its loggers."""

    def saved(self, value: Any, depth: int = 0) -> Callable[[], None]:
        """Return a function that restores the contents of a value, as far as that is possible."""
        if id(value) in self.kept or depth > MAX_DEPTH:
            return _nothing
        self.kept[id(value)] = value  # kept alive, so that its id is not reused
        try:
            return self._saved(value, depth)
        except BaseException as error:  # the case's own code
            if is_out_of_memory(error):
                raise
            return _nothing

    def _saved(self, value: Any, depth: int) -> Callable[[], None]:
        import torch

        if isinstance(value, torch.Tensor):
            return _saved_tensor(value)
        if isinstance(value, (MutableSequence, MutableMapping, MutableSet)):
            return self._saved_container(value, depth)
        if "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].ndarray):
            copy = value.copy()
            return lambda: value.__setitem__(..., copy)
        if isinstance(value, logging.Logger):
            self.shared.append(_saved_logger(value))
            return self.shared[-1]
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict) and not isinstance(value, (type, types.ModuleType, types.FunctionType)):
            return self._saved_container(own, depth)
        return _nothing

    def _saved_container(self, value: Any, depth: int) -> Callable[[], None]:
        items = _contents(value)
        inner = [self.saved(item, depth + 1) for item in (items.values() if isinstance(items, dict) else items)]

        def restore() -> None:
            if not _same_items(_contents(value), items):
                _refill(value, items)
            for restore_item in inner:
                restore_item()

        return restore


def _saved_logger(logger: logging.Logger) -> Callable[[], None]:
    """Save a logger's own settings: what else it holds leads to the loggers of all libraries."""
    level, disabled, propagate = logger.level, logger.disabled, logger.propagate
    handlers, filters = list(logger.handlers), list(logger.filters)

    def restore() -> None:
        logger.setLevel(level)  # which empties the caches of levels
        logger.disabled, logger.propagate = disabled, propagate
        logger.handlers[:], logger.filters[:] = handlers, filters

    return restore


def _own(value: Any) -> Any:
    """Return the type whose methods read and write what a container holds.

    A subclass may answer with something else: a dict of classes may make an object of a class that is looked up.
    """
    return next((kind for kind in (OrderedDict, dict, list, set) if isinstance(value, kind)), type(value))


def _contents(value: Any) -> Any:
    """Return what a container holds, as a dict or a list."""
    own = _own(value)
    return dict(own.items(value)) if isinstance(value, MutableMapping) else list(own.__iter__(value))


def _refill(value: Any, items: Any) -> None:
    """Put contents back into a container."""
    own = _own(value)
    own.clear(value)
    if isinstance(value, MutableMapping):
        for key, item in items.items():
            own.__setitem__(value, key, item)
        return
    add = own.append if isinstance(value, MutableSequence) else own.add
    for item in items:
        add(value, item)


def _same_items(now: Any, before: Any) -> bool:
    if isinstance(before, dict):
        return list(now) == list(before) and all(now[key] is before[key] for key in before)
    return len(now) == len(before) and all(item is old for item, old in zip(now, before, strict=True))


def _saved_tensor(tensor: Any) -> Callable[[], None]:
    copy = tensor.detach().clone()
    grad = tensor.grad if tensor.is_leaf else None
    grad_copy = None if grad is None else grad.detach().clone()
    leaf, required = tensor.is_leaf, tensor.requires_grad

    def restore() -> None:
        if tensor.shape == copy.shape and not _equal(tensor.detach(), copy):
            tensor.data.copy_(copy)
        if leaf and tensor.is_leaf:
            tensor.requires_grad_(required)
            tensor.grad = grad
            if grad is not None and grad_copy is not None:
                grad.data.copy_(grad_copy)

    return restore


def _equal(tensor: Any, other: Any) -> bool:
    import torch

    try:
        return bool(torch.equal(tensor, other))
    except RuntimeError:
        return False


def _nothing() -> None:
    return
