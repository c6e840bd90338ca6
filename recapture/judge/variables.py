"""Finds the variables that a function's code names, in its own file and in the user's other modules.

Those are globals, closure variables, default arguments, function attributes and class attributes, also those that the
call itself creates. Python's own modules, installed packages and recapture are not followed.
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib.util
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from recapture.base.exceptions import SUITE_MODULES, qualified
from recapture.base.paths import PACKAGE
from recapture.judge.contents import CACHE, OF_TORCH, PLAIN, function_text
from recapture.judge.views import AttributeView, CellView, ClassView, MappingView, View, values_at


class Variable(NamedTuple):
    """A path, a function that returns a list with the value or an empty one, and the mapping and key that hold it."""

    path: str
    read: Callable[[], list[Any]]
    owner: Any
    key: Any


class Finder:
    """Follows the names in a function's code through its own file and the user's other modules."""

    def __init__(self, target: Any) -> None:
        import torch

        self.variables: dict[str, Variable] = {}
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

    def found(self) -> list[Variable]:
        """Return the variables, with the attributes that functions and classes have by now."""
        for owner in list(self.met.values()):
            if isinstance(owner, type):
                self._attributes_of_class(owner)
            else:
                self._attributes_of_function(owner)
        return list(self.variables.values())

    def _add(self, path: str, owner: View, key: Any, read: Callable[[View, Any], list[Any]] | None = None) -> None:
        """Add a variable; another one of the same name, as in another closure, gets a number."""
        if (id(owner.of), key) in self.held:
            return
        self.held.add((id(owner.of), key))
        number, label = 1, path
        while label in self.variables:
            number += 1
            label = f"{path} #{number}"
        reader = values_at if read is None else read
        self.variables[label] = Variable(label, functools.partial(reader, owner, key), owner, key)

    def _value(self, path: str, value: Any) -> bool:
        """Follow a function or class of the user's; return False for anything else, which is a variable."""
        import torch

        if isinstance(value, functools.partial):
            self._bound(f"{path}.args", enumerate(value.args))
            for key in value.keywords:
                self._variable(f"{path}.keywords[{key!r}]", MappingView(value.keywords), key)
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
            self._variable(f"closure[{cell_name!r}]", CellView(cell), "cell_contents")
        self._add(f"{name}.__code__", AttributeView(function), "__code__", _code_of)
        self._bound(f"{name}.__defaults__", enumerate(function.__defaults__ or ()))
        keywords = function.__kwdefaults__ or {}
        for key in keywords:
            self._variable(f"{name}.__defaults__[{key!r}]", MappingView(keywords), key)
        for module in _modules_imported_in(function):
            if self._is_own(module.__name__):
                self._names_in(function.__code__, vars(module), module.__name__)
        self._names_in(function.__code__, function.__globals__, "globals")

    def _bound(self, place: str, items: Iterable[tuple[Any, Any]]) -> None:
        """Follow what a function takes along, such as its defaults, which a call can change in place."""
        for key, item in items:
            if not isinstance(item, PLAIN) and not self._value(place, item):
                path = f"{place}[{key!r}]"
                self.variables.setdefault(path, Variable(path, functools.partial(_only, item), None, None))

    def _names_in(self, code: types.CodeType, namespace: dict[str, Any], place: str) -> None:
        """Follow what the names in a function's code stand for in a namespace, and in the user's modules there."""
        if (id(code), id(namespace)) in self.searched:
            return
        self.searched.add((id(code), id(namespace)))
        for name in _names(code):
            path = f"globals[{name!r}]" if place == "globals" else f"{place}.{name}"
            if name in namespace:
                self._variable(path, MappingView(namespace), name)
                module = namespace[name]
                if isinstance(module, types.ModuleType) and self._is_own(module.__name__):
                    self._names_in(code, vars(module), module.__name__)
            elif name.isidentifier() and not hasattr(builtins, name):  # the call may create it on first use
                self._add(path, MappingView(namespace), name)

    def _attributes_of_function(self, function: types.FunctionType) -> None:
        for key in list(vars(function)):
            if not key.startswith(OF_TORCH) and (id(vars(function)), key) not in self.held:
                self._variable(f"{function.__name__}.{key}", MappingView(vars(function)), key)

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
            path, owner = f"{kind.__name__}.{key}", ClassView(kind)
            if isinstance(value, types.FunctionType) or self._value(key, value):
                self._add(path, owner, key, _named)
            elif not hasattr(type(value), "__get__"):
                self._add(path, owner, key)

    def _variable(self, path: str, owner: View, key: str) -> None:
        values = values_at(owner, key)
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


def _named(owner: View, key: Any) -> list[Any]:
    """Return which function, class or module a name stands for, or another value itself."""
    values = values_at(owner, key)
    if values and (callable(values[0]) or isinstance(values[0], (types.ModuleType, *_ACCESSORS))):
        return [function_text(values[0])]
    return values


_ACCESSORS = (staticmethod, classmethod, property)


def _code_of(owner: View, key: Any) -> list[Any]:
    """Return where the code of a function begins: a compiler may put other code of the same meaning in its place."""
    return [f"{code.co_name}:{code.co_firstlineno}" for code in values_at(owner, key)]


def _only(value: Any) -> list[Any]:
    return [value]
