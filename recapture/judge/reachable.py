"""The state that a call can change besides its arguments: a module's, and what the function's code refers to by name.

That is the module's parameters, buffers, attributes, hooks and training flags, and the globals, closure variables,
default arguments, function attributes and class attributes that its code names: those of the case's own file and of
the user's other modules, also where the call itself creates them. `Saver` saves such values and puts them back,
whatever their type.
"""

from __future__ import annotations

import builtins
import contextvars
import copy
import dis
import functools
import importlib.util
import logging
import os
import random
import sys
import sysconfig
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence, MutableSet
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from recapture.base.exceptions import SUITE_MODULES, qualified
from recapture.base.paths import PACKAGE
from recapture.judge.contents import (
    CACHE,
    HOOKS,
    OF_TORCH,
    PLAIN,
    attribute,
    cached,
    function_text,
    make_up,
    own_names,
)
from recapture.judge.snapshot import Described, Snapshot, describe
from recapture.torch_api.compat import is_out_of_memory

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

    def describe(self, module: Any = None, *, copy: bool = True) -> Described:
        """Describe the state; the parameters and buffers are those of `module`, the attributes those of the target.

        `module` is a compiler's result that works on copies. Where it lacks a name, the target's is described. Without
        `copy`, only what may hold tensors is described, and their elements are left out.
        """
        children: dict[str, Snapshot] = {}
        arrays: list[tuple[str, Any]] = []
        for path, value in self._values(module).items():
            if type(value) in PLAIN:
                if copy:
                    children[path] = Snapshot(qualified(type(value)), scalar=value)
                continue  # it holds no tensors
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
            if name:
                attributes[_path(name, "__class__")] = function_text(type(part))
            for key in sorted(own_names(part)):
                value = attribute(scripted[name], key) if name in scripted else []
                # TorchScript turns tuples into lists, and more: only a value of the same type can be compared.
                same = bool(value) and type(value[0]) is type(vars(part)[key])
                attributes[_path(name, key)] = value[0] if same else vars(part)[key]
            attributes |= {_path(name, key): value for key, value in make_up(part).items()}
        return attributes

    def attribute_at(self, where: str) -> tuple[Any, str] | None:
        """Return the submodule and the name of the plain attribute in which a place is; None for other places."""
        for name, part in self._parts():
            for key in own_names(part):
                path = _path(name, key)
                if where == path or where.startswith((f"{path}[", f"{path}.")):
                    return part, key
        return None

    def _parts(self) -> list[tuple[str, Any]]:
        return [] if self.module is None else list(self.module.named_modules())

    def _bindings(self, part: Any) -> Iterator[tuple[Any, Any]]:
        for key in own_names(part):
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


def _namespaces(part: Any) -> list[Any]:
    """Return the dicts in which a module keeps attributes, tensors, submodules and hooks."""
    groups = ("_parameters", "_buffers", "_modules", *HOOKS)
    return [vars(part), *(vars(part)[group] for group in groups if isinstance(vars(part).get(group), dict))]


def _saved_binding(owner: Any, key: Any) -> Callable[[], None]:
    """Return a function that makes a name stand for what it stands for now, or for nothing.

    Most iterators cannot be set back: their names stand for copies afterwards.
    """
    before = _got(owner, key)
    if before and isinstance(before[0], Iterator) and type(before[0]).__module__ in ("builtins", "itertools"):
        with suppress(Exception), warnings.catch_warnings():  # generators, and from Python 3.14 on most others
            warnings.simplefilter("ignore", DeprecationWarning)
            original = copy.deepcopy(before[0])
            return lambda: owner.__setitem__(key, copy.deepcopy(original))

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
        self.held: set[tuple[int, Any]] = set()
        """The ids of what holds the variables, and their keys."""
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

    def _add(self, path: str, owner: _View, key: Any, read: Callable[[_View, Any], list[Any]] | None = None) -> None:
        """Add a variable; another one of the same name, as in another closure, gets a number."""
        if (id(owner.of), key) in self.held:
            return
        self.held.add((id(owner.of), key))
        number, label = 1, path
        while label in self.variables:
            number += 1
            label = f"{path} #{number}"
        reader = _got if read is None else read
        self.variables[label] = _Variable(label, functools.partial(reader, owner, key), owner, key)

    def _value(self, path: str, value: Any) -> bool:
        """Follow a function or class of the user's; return False for anything else, which is a variable."""
        import torch

        if isinstance(value, functools.partial):
            self._bound(f"{path}.args", enumerate(value.args))
            for key in value.keywords:
                self._variable(f"{path}.keywords[{key!r}]", _MappingView(value.keywords), key)
            return self._value(path, value.func)
        if qualified(type(value)) == CACHE:
            self._value(path, value.__wrapped__)
            return not self._is_own(value.__module__)
        if callable(value) and hasattr(value, "__wrapped__"):
            if isinstance(value, types.FunctionType):
                self._function(value)  # a decorator's own, which may count
            value = value.__wrapped__
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
        if isinstance(value, torch.nn.Module):
            return False
        return isinstance(value, (types.ModuleType, types.BuiltinFunctionType)) or (
            callable(value) and type(value).__module__.partition(".")[0] in ("torch", "functools", "builtins", "numpy")
        )

    def _function(self, function: types.FunctionType) -> None:
        if id(function) in self.met or not self._is_own(function.__module__):
            return
        self.met[id(function)] = function
        name = function.__name__
        self._attributes_of_function(function)
        if not self._is_own(function.__globals__.get("__name__")):
            return  # a decorator of a library, which gives its functions the names of those that they call
        for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._variable(f"closure[{cell_name!r}]", _CellView(cell), "cell_contents")
        self._add(f"{name}.__code__", _AttributeView(function), "__code__", _code_of)
        self._bound(f"{name}.__defaults__", enumerate(function.__defaults__ or ()))
        keywords = function.__kwdefaults__ or {}
        for key in keywords:
            self._variable(f"{name}.__defaults__[{key!r}]", _MappingView(keywords), key)
        for module in _modules_imported_in(function):
            if self._is_own(module.__name__):
                self._names_in(function.__code__, vars(module), module.__name__)
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
            if not key.startswith(OF_TORCH) and (id(vars(function)), key) not in self.held:
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
            if key.startswith(OF_TORCH) or (id(kind), key) in self.held:
                continue
            path, owner = f"{kind.__name__}.{key}", _ClassView(kind)
            if isinstance(value, types.FunctionType) or self._value(key, value):
                self._add(path, owner, key, _named)
            elif not hasattr(type(value), "__get__"):
                self._add(path, owner, key)

    def _variable(self, path: str, owner: _View, key: str) -> None:
        values = _got(owner, key)
        followed = bool(values) and self._value(path, values[0])
        self._add(path, owner, key, _named if followed else None)

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
    if name.startswith(SUITE_MODULES):  # the executions of a case's file have one name; `file` is the one here
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or name == "__main__":
        return False
    return _is_users_file(file)


def _is_users_file(file: str | None) -> bool:
    """Whether a file is outside the folders of libraries."""
    if not file or file in ("built-in", "frozen", "namespace"):
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


def _modules_imported_in(function: types.FunctionType) -> list[types.ModuleType]:
    """Import the user's modules that a function's code imports, so that their state is known before the first call."""
    names: list[str] = []
    instructions = list(dis.get_instructions(function.__code__))
    for index, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            level, listed = instructions[index - 2].argval, instructions[index - 1].argval
            with suppress(Exception):
                package = function.__globals__.get("__package__") or ""
                name = importlib.util.resolve_name("." * level + str(instruction.argval), package)
                names += [name, *(f"{name}.{item}" for item in listed or ())]
    return [module for name in names for module in _users_module(name)]


def _users_module(name: str) -> list[types.ModuleType]:
    """Return a list with a module of the user's, imported; an empty one for others and for what is no module."""
    with suppress(Exception):  # a module that is missing here, or that raises: the call may never come to it
        if name not in sys.modules:
            spec = importlib.util.find_spec(name)
            if spec is None or not _is_users_file(spec.origin):
                return []
        return [importlib.import_module(name)]
    return []


def _named(owner: _View, key: Any) -> list[Any]:
    """Return which function, class or module a name stands for, or another value itself."""
    values = _got(owner, key)
    if values and (callable(values[0]) or isinstance(values[0], (types.ModuleType, *_ACCESSORS))):
        return [function_text(values[0])]
    return values


_ACCESSORS = (staticmethod, classmethod, property)


def _code_of(owner: _View, key: Any) -> list[Any]:
    """Return where the code of a function begins: a compiler may put other code of the same meaning in its place."""
    return [f"{code.co_name}:{code.co_firstlineno}" for code in _got(owner, key)]


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
        self.of = self.mapping = mapping

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
        self.of = self.cell = cell

    def __getitem__(self, key: str) -> Any:
        return self.cell.cell_contents

    def __setitem__(self, key: str, value: Any) -> None:
        self.cell.cell_contents = value

    def remove(self, key: str) -> None:  # noqa: ARG002 - a cell has no names
        del self.cell.cell_contents


class _ClassView:
    """The attributes of a class, written through `setattr`."""

    def __init__(self, kind: type) -> None:
        self.of = self.kind = kind

    def __getitem__(self, key: str) -> Any:
        return vars(self.kind)[key]

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self.kind, key, value)

    def __iter__(self) -> Iterator[str]:
        return iter(list(vars(self.kind)))

    def remove(self, key: str) -> None:
        if key in vars(self.kind):
            delattr(self.kind, key)


class _AttributeView:
    """The attributes of Python itself that a function has."""

    def __init__(self, function: types.FunctionType) -> None:
        self.of = self.function = function

    def __getitem__(self, key: str) -> Any:
        return getattr(self.function, key)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self.function, key, value)


_View = _MappingView | _CellView | _ClassView | _AttributeView

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
        if qualified(type(value)) == CACHE:
            return self._saved_cache(value, depth)
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

    def _saved_cache(self, function: Any, depth: int) -> Callable[[], None]:
        """Save what a function with a cache keeps; an entry that a call adds is left out again if it is the first."""
        inner = [self.saved(result, depth + 1) for result in cached(function).values()]
        empty = function.cache_info().currsize == 0

        def restore() -> None:
            if empty:
                function.cache_clear()
            for restore_result in inner:
                restore_result()

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
