"""The state that a call can change besides its arguments: a module's, and what the function's code refers to by name.

That is the module's parameters, buffers, attributes, hooks and training flags, and the globals, closure variables,
default arguments, function attributes and class attributes that its code names: those of the case's own file and of
the user's other modules, also where the call itself creates them. `Saver` saves such values and puts them back,
whatever their type.
"""

from __future__ import annotations

import builtins
import contextvars
import functools
import logging
import os
import random
import sys
import sysconfig
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence, MutableSet
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from recapture.base.paths import PACKAGE
from recapture.judge.snapshot import Described, Snapshot, attribute, describe
from recapture.torch_api.compat import is_out_of_memory

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Types of values that hold no other values."""

MARKS = ("_is_torch_compile",)
"""Attributes that torch.compile leaves on a user's module for its own use (from torch 2.13 on)."""

OF_TORCH = ("__", "_dynamo", "_torch", "_jit", "_is_torch", "_abc_")
"""Beginnings of the names of attributes that Python and torch put on a user's functions, classes and modules."""

SET_BY_COMPILERS = ("TORCH", "TRITON_", "CUDA_", "NCCL_", "KMP_", "OMP_")
"""Beginnings of the names of environment variables that compilers set for themselves, once in a process."""


class Reachable:
    """The state that a function or module can reach."""

    def __init__(self, target: Any) -> None:
        import torch

        self.module = target if isinstance(target, torch.nn.Module) else None
        self._finder = _Finder(target)
        self.shared: list[Callable[[], None]] = []
        """Set by `save`: functions that restore what other executions of the case's file reach as well."""
        self._last: dict[str, Snapshot] = {}
        """The tensors among the places when they were last described: a call leaves most parameters as they are."""
        self._internal = frozenset({*vars(torch.nn.Module()), *MARKS}) - {"training"}

    def describe(self, module: Any = None, *, copy: bool = True) -> Described:
        """Describe the state; the parameters and buffers are those of `module`, the attributes those of the target.

        `module` is a compiler's result that works on copies. Where it lacks a name, the target's is described. Without
        `copy`, only what may hold tensors is described, and their elements are left out.
        """
        children: dict[str, Snapshot] = {}
        arrays: list[tuple[str, Any]] = []
        for path, value in self._values(module).items():
            if not copy and _holds_no_tensors(value):
                continue
            described = describe(value, consume=False, copy=copy, like=self._last.get(path))
            children[path] = described.snapshot
            if copy and described.snapshot.tensor is not None:
                self._last[path] = described.snapshot
            arrays += [(path + below, array) for below, array in described.arrays]
        return Described(Snapshot("state", children=tuple(children.items())), tuple(arrays))

    def save(self) -> Callable[[], None]:
        """Return a function that sets the state back to what it is now, as far as that is possible."""
        saver = Saver()
        undo = [saver.saved(value) for value in self._values().values()]
        variables = [(variable.owner, variable.key) for variable in self._finder.found()]
        names = [pair for _, part in self._parts() for pair in self._bindings(part)]
        bindings = [_saved_binding(owner, key) for owner, key in (*names, *variables) if owner is not None]
        added = [_saved_names(keys) for _, part in self._parts() for keys in _namespaces(part)]
        added += [_saved_names(owner) for owner in self._finder.met.values()]
        restore_environment = _saved_environment()

        def restore() -> None:
            for step in (*bindings, *added, *undo):
                with suppress(Exception):  # a container of the case's own, a deleted cell, a class that refuses
                    step()
            restore_environment()

        self.shared = [*saver.shared, restore_environment]
        if self._finder.shares_modules:  # all executions of the case's file share what other modules hold
            self.shared.append(restore)
        return restore

    def _values(self, module: Any = None) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self.module is not None:
            tensors = _tensors(self.module)
            tensors.update((name, tensor) for name, tensor in _tensors(module).items() if name in tensors)
            values.update((f"state[{name!r}]", tensor) for name, tensor in tensors.items())
            values.update(self._attributes(module))
        for variable in self._finder.found():
            values.update((variable.path, value) for value in variable.read())
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
                attributes[_path(name, key)] = value[0] if same else vars(part)[key]
            for group in HOOKS:
                number = len(vars(part).get(group) or ())
                if number:
                    attributes[_path(name, group)] = number
        return attributes

    def attribute_at(self, where: str) -> tuple[Any, str] | None:
        """Return the submodule and the name of the plain attribute in which a place is; None for other places."""
        for name, part in self._parts():
            for key in self._own_names(part):
                path = _path(name, key)
                if where == path or where.startswith((f"{path}[", f"{path}.")):
                    return part, key
        return None

    def _own_names(self, part: Any) -> list[str]:
        """Return the names of a module's attributes that are not torch's own."""
        return [key for key in vars(part) if key not in self._internal and not key.startswith(OF_TORCH)]

    def _parts(self) -> list[tuple[str, Any]]:
        return [] if self.module is None else list(self.module.named_modules())

    def _bindings(self, part: Any) -> Iterator[tuple[Any, Any]]:
        for key in self._own_names(part):
            yield _MappingView(vars(part)), key
        for group in ("_parameters", "_buffers"):
            for key in vars(part).get(group, ()):
                yield _MappingView(vars(part)[group]), key


def _holds_no_tensors(value: Any) -> bool:
    """Whether a value, such as the padding of a convolution, is plain or a list of plain values."""
    return isinstance(value, PLAIN) or (type(value) in (tuple, list) and all(type(item) in PLAIN for item in value))


def _path(module: str, key: str) -> str:
    """Return the path of an attribute of a submodule."""
    return f"state.{module}.{key}" if module else f"state.{key}"


HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
"""The attributes in which a module keeps hooks. Their number is compared, because two functions cannot be."""


def _namespaces(part: Any) -> list[Any]:
    """Return the dicts in which a module keeps attributes, tensors, submodules and hooks."""
    groups = ("_parameters", "_buffers", "_modules", *HOOKS)
    return [vars(part), *(vars(part)[group] for group in groups if isinstance(vars(part).get(group), dict))]


def _saved_binding(owner: Any, key: Any) -> Callable[[], None]:
    """Return a function that makes a name stand for what it stands for now, or for nothing."""
    before = _got(owner, key)

    def restore() -> None:
        now = _got(owner, key)
        if before and not (now and now[0] is before[0]):
            owner[key] = before[0]
        elif now and not before:
            owner.remove(key)

    return restore


def _saved_names(owner: Any) -> Callable[[], None]:
    """Return a function that removes the names which a dict, function or class has got since."""
    view = _MappingView(owner) if isinstance(owner, dict) else _view_of(owner)
    before = set(view)

    def restore() -> None:
        for name in set(view) - before:
            if isinstance(owner, dict) or not name.startswith(OF_TORCH):
                view.remove(name)

    return restore


def _view_of(owner: Any) -> _MappingView | _ClassView:
    return _ClassView(owner) if isinstance(owner, type) else _MappingView(vars(owner))


def _saved_environment() -> Callable[[], None]:
    before = dict(os.environ)

    def restore() -> None:
        for name in {*before, *os.environ}:
            if before.get(name) != os.environ.get(name) and not name.startswith(SET_BY_COMPILERS):
                if name in before:
                    os.environ[name] = before[name]
                else:
                    del os.environ[name]

    return restore


def _tensors(module: Any) -> dict[str, Any]:
    """Return a module's parameters and all its buffers by name; nothing for other callables."""
    import torch

    if not isinstance(module, torch.nn.Module):
        return {}
    try:
        return dict([*module.named_parameters(), *module.named_buffers()])
    except Exception:  # the case's own code
        return {}


class _Variable(NamedTuple):
    """A path, a function that returns a list with the value or an empty one, and the mapping and key that hold it."""

    path: str
    read: Callable[[], list[Any]]
    owner: Any
    key: Any


class _Finder:
    """Follows the names in a function's code through its own file and the user's other modules."""

    def __init__(self, target: Any) -> None:
        import torch

        self.variables: dict[str, _Variable] = {}
        self.met: dict[int, Any] = {}
        """The functions and classes that were followed: a call may give them new attributes."""
        self.searched: set[tuple[int, int]] = set()
        """The ids of code, and of the namespaces in which its names were looked up."""
        self.file: str | None = None
        self.shares_modules = False
        """Whether modules were followed that all executions of the case's file share."""
        if isinstance(target, torch.nn.Module):
            for part in target.modules():
                self._class(type(part))
        else:
            self._value("", target)

    def found(self) -> list[_Variable]:
        """Return the variables, with the attributes that functions and classes have by now."""
        for owner in list(self.met.values()):
            if isinstance(owner, type):
                self._attributes_of_class(owner)
            else:
                self._attributes_of_function(owner)
        return list(self.variables.values())

    def _add(self, path: str, owner: Any, key: Any) -> None:
        if path not in self.variables:
            self.variables[path] = _Variable(path, functools.partial(_got, owner, key), owner, key)

    def _value(self, path: str, value: Any) -> bool:
        """Follow a function or class of the user's; return False for anything else, which is a variable."""
        if isinstance(value, functools.partial):
            self._bound(f"{path}.args", enumerate(value.args))
            self._bound(f"{path}.keywords", value.keywords.items())
            return self._value(path, value.func)
        value = getattr(value, "__wrapped__", value) if callable(value) else value
        if isinstance(value, types.MethodType):
            if not isinstance(value.__self__, type) and self._is_own(getattr(value.__func__, "__module__", None)):
                self._bound(path, [("__self__", value.__self__)])
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
        self.met[id(function)] = function
        name = function.__name__
        for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._variable(f"closure[{cell_name!r}]", _CellView(cell), "cell_contents")
        self._bound(f"{name}.__defaults__", enumerate(function.__defaults__ or ()))
        self._bound(f"{name}.__defaults__", (function.__kwdefaults__ or {}).items())
        self._attributes_of_function(function)
        self._names_in(function.__code__, function.__globals__, "globals")

    def _bound(self, place: str, items: Iterable[tuple[Any, Any]]) -> None:
        """Follow what a function takes along, such as its defaults, which a call can change in place."""
        for key, item in items:
            if not isinstance(item, PLAIN) and not self._value(place, item):
                path = f"{place}[{key!r}]"
                self.variables.setdefault(path, _Variable(path, functools.partial(_only, item), None, None))

    def _names_in(self, code: types.CodeType, namespace: dict[str, Any], place: str) -> None:
        """Follow what the names in a function's code stand for in a namespace, and in the user's modules there."""
        if (id(code), id(namespace)) in self.searched:
            return
        self.searched.add((id(code), id(namespace)))
        for name in _names(code):
            path = f"globals[{name!r}]" if place == "globals" else f"{place}.{name}"
            if name in namespace:
                self._variable(path, _MappingView(namespace), name)
                module = namespace[name]
                if isinstance(module, types.ModuleType) and self._is_own(module.__name__):
                    self._names_in(code, vars(module), module.__name__)
            elif name.isidentifier() and not hasattr(builtins, name):  # the call may create it on first use
                self._add(path, _MappingView(namespace), name)

    def _attributes_of_function(self, function: types.FunctionType) -> None:
        for key in list(vars(function)):
            if not key.startswith(OF_TORCH) and f"{function.__name__}.{key}" not in self.variables:
                self._variable(f"{function.__name__}.{key}", _MappingView(vars(function)), key)

    def _class(self, kind: type) -> None:
        if id(kind) in self.met or not self._is_own(kind.__module__):
            return
        self.met[id(kind)] = kind
        for base in kind.__bases__:
            self._class(base)
        self._attributes_of_class(kind)

    def _attributes_of_class(self, kind: type) -> None:
        for key, value in list(vars(kind).items()):
            if isinstance(value, types.FunctionType):
                self._function(value)  # special methods too
            elif (
                not key.startswith(OF_TORCH)
                and f"{kind.__name__}.{key}" not in self.variables
                and not self._value(key, value)
                and not hasattr(type(value), "__get__")
            ):
                self._add(f"{kind.__name__}.{key}", _ClassView(kind), key)

    def _variable(self, path: str, owner: Any, key: str) -> None:
        values = _got(owner, key)
        if not values or not self._value(path, values[0]):
            self._add(path, owner, key)

    def _is_own(self, module: str | None) -> bool:
        """Whether code is the user's: of the file of the first function or class, or of no library."""
        if module is None:
            return False
        if self.file is None and module.partition(".")[0] != "torch":
            self.file = module
        if module == self.file:
            return True
        if _is_users(module):
            self.shares_modules = True
            return True
        return False


@functools.cache
def _folders_of_libraries() -> tuple[Path, ...]:
    """Return the folders of Python's own modules, of installed packages, and of recapture."""
    paths = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {path for path in sys.path if path.endswith(("site-packages", "dist-packages")) or _holds_packages(path)}
    return (*(Path(path).resolve() for path in paths), PACKAGE)


def _holds_packages(folder: str) -> bool:
    """Whether packages were installed into a folder, as with ``pip install --target``: each has its ``.dist-info``."""
    with suppress(OSError):
        return any(path.suffix == ".dist-info" for path in Path(folder or ".").iterdir())
    return False


@functools.cache
def _is_users(name: str) -> bool:
    """Whether an imported module is the user's own: it has a file outside the folders of libraries."""
    if name.startswith("recapture_suite_"):  # the executions of a case's file have one name; `file` is the one here
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or name == "__main__":
        return False
    path = Path(file).resolve()
    return not any(folder in path.parents for folder in _folders_of_libraries())


def _names(code: types.CodeType) -> list[str]:
    """Return every global name, attribute and text that code and the functions inside it use.

    A text may be the name of a global, as in ``globals()["name"]``.
    """
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(dict.fromkeys(_names(constant)))
        elif isinstance(constant, str):
            names[constant] = None
    return list(names)


def _only(value: Any) -> list[Any]:
    return [value]


def _got(owner: Any, key: Any) -> list[Any]:
    try:
        return [owner[key]]
    except (KeyError, ValueError):  # deleted; an empty closure cell
        return []


class _MappingView:
    """The names in a mapping, such as a function's globals."""

    def __init__(self, mapping: Any) -> None:
        self.mapping = mapping

    def __getitem__(self, key: str) -> Any:
        return self.mapping[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.mapping[key] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.mapping))

    def remove(self, key: Any) -> None:
        self.mapping.pop(key, None)


class _CellView:
    """A closure cell, read and written like a mapping."""

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def __getitem__(self, key: str) -> Any:
        return self.cell.cell_contents

    def __setitem__(self, key: str, value: Any) -> None:
        self.cell.cell_contents = value

    def remove(self, key: str) -> None:  # noqa: ARG002 - a cell has no names
        del self.cell.cell_contents


class _ClassView:
    """The attributes of a class, written through `setattr`."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __getitem__(self, key: str) -> Any:
        return vars(self.kind)[key]

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self.kind, key, value)

    def __iter__(self) -> Iterator[str]:
        return iter(list(vars(self.kind)))

    def remove(self, key: str) -> None:
        if key in vars(self.kind):
            delattr(self.kind, key)


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
        restore_generator = _saved_generator(value)
        if restore_generator is not None:
            return restore_generator
        if isinstance(value, contextvars.ContextVar):
            before = value.get(None)
            return lambda: None if value.get(None) is before else _set(value, before)
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


def _set(variable: contextvars.ContextVar[Any], value: Any) -> None:
    variable.set(value)


def _saved_generator(value: Any) -> Callable[[], None] | None:
    """Return a function that restores the state of a generator of random numbers; None for anything else."""
    import torch

    if isinstance(value, torch.Generator):
        return functools.partial(value.set_state, value.get_state())
    if isinstance(value, random.Random):
        return functools.partial(value.setstate, value.getstate())
    numpy_random = sys.modules.get("numpy.random")  # numpy imports it at first use
    if numpy_random is not None and isinstance(value, numpy_random.RandomState):
        return functools.partial(value.set_state, value.get_state())
    if numpy_random is not None and isinstance(value, numpy_random.Generator):
        return functools.partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    return None


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
