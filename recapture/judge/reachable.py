"""The state that a call can change besides its arguments: a module's, and what the function's code refers to by name.

That is the module's parameters, buffers, attributes, hooks and training flags, and the globals, closure variables,
default arguments, function attributes and class attributes that its code names: those of the case's own file and of
the user's other modules, also where the call itself creates them.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from recapture.base.exceptions import qualified
from recapture.judge.contents import HOOKS, OF_TORCH, PLAIN, attribute, function_text, make_up, own_names
from recapture.judge.saver import Saver
from recapture.judge.snapshot import Described, Snapshot, arrays_in, describe
from recapture.judge.variables import Finder
from recapture.judge.views import ClassView, MappingView, values_at

SET_BY_COMPILERS = ("TORCH", "TRITON_", "CUDA_", "NCCL_", "KMP_", "OMP_")
"""Beginnings of the names of environment variables that compilers set for themselves, once in a process."""


_FLAT = {id(kind) for kind in (str, bytes, int, bool, type(None))}
"""The identities of these types: a class of the case may define how it compares."""


class Reachable:
    """The state that a function or module can reach."""

    def __init__(self, target: Any) -> None:
        import torch

        self.module = target if isinstance(target, torch.nn.Module) else None
        self._finder = Finder(target)
        self.shared: list[Callable[[], None]] = []
        """Set by `save`: functions that restore what other executions of the case's file reach as well."""
        self._last: dict[str, Snapshot] = {}
        """The tensors among the places when they were last described: a call leaves most parameters as they are."""
        self._flat: dict[str, tuple[tuple[Any, ...], Snapshot]] = {}
        """The same of flat containers, with what they held: a vocabulary can have very many entries."""

    def describe(self, module: Any = None) -> Described:
        """Describe the state; the parameters and buffers are those of `module`, the attributes those of the target.

        `module` is a compiler's result that works on copies. Where it lacks a name, the target's is described.
        """
        children: dict[str, Snapshot] = {}
        arrays: list[tuple[str, Any]] = []
        for path, value in self._values(module).items():
            if type(value) in PLAIN:
                children[path] = Snapshot(qualified(type(value)), scalar=value)
                continue
            held = _held(value)
            if held is not None and path in self._flat and self._flat[path][0] == held:
                children[path] = self._flat[path][1]
                continue
            described = describe(value, consume=False, like=self._last.get(path))
            children[path] = described.snapshot
            if held is not None:
                self._flat[path] = (held, described.snapshot)
            if described.snapshot.tensor is not None:
                self._last[path] = described.snapshot
            arrays += [(path + below, array) for below, array in described.arrays]
        return Described(Snapshot("state", children=tuple(children.items())), tuple(arrays))

    def arrays(self, module: Any = None) -> tuple[tuple[str, Any], ...]:
        """Return the tensors and numpy arrays of the state with their paths, as `describe` does; nothing is copied."""
        return tuple(
            (path + below, array)
            for path, value in self._values(module).items()
            if not _holds_no_tensors(value)
            for below, array in arrays_in(value)
        )

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
            yield MappingView(vars(part)), key
        for group in ("_parameters", "_buffers"):
            for key in vars(part).get(group, ()):
                yield MappingView(vars(part)[group]), key


def _holds_no_tensors(value: Any) -> bool:
    """Whether a value, such as the padding of a convolution, is plain or a list or dict of plain values."""
    items = _items(value)
    return isinstance(value, PLAIN) or (items is not None and all(type(item) in PLAIN for item in items))


def _items(value: Any) -> tuple[Any, ...] | None:
    """Return the items of a list or tuple, or the keys and values of a dict; None for other types."""
    if type(value) is dict:
        return (*value, *value.values())
    return tuple(value) if type(value) in (list, tuple) else None


def _held(value: Any) -> tuple[Any, ...] | None:
    """Return what a flat list, tuple or dict holds; None for others. Equal ones are described alike.

    Flat means texts, bytes, integers, bools and None alone. Other equal values may be described unlike: 0.0 and -0.0.
    """
    items = _items(value)
    if items is None:
        return None
    kinds = tuple(map(type, items))
    return (type(value), items, kinds) if {*map(id, kinds)} <= _FLAT else None


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
    before = values_at(owner, key)
    if before and isinstance(before[0], Iterator) and type(before[0]).__module__ in ("builtins", "itertools"):
        with suppress(Exception), warnings.catch_warnings():  # generators, and from Python 3.14 on most others
            warnings.simplefilter("ignore", DeprecationWarning)
            original = copy.deepcopy(before[0])
            return lambda: owner.__setitem__(key, copy.deepcopy(original))

    def restore() -> None:
        now = values_at(owner, key)
        if before and not (now and now[0] is before[0]):
            owner[key] = before[0]
        elif now and not before:
            owner.remove(key)

    return restore


def _saved_names(owner: Any) -> Callable[[], None]:
    """Return a function that removes the names which a dict, function or class has got since."""
    view = MappingView(owner) if isinstance(owner, dict) else _view_of(owner)
    before = set(view)

    def restore() -> None:
        for name in set(view) - before:
            if isinstance(owner, dict) or not name.startswith(OF_TORCH):
                view.remove(name)

    return restore


def _view_of(owner: Any) -> MappingView | ClassView:
    return ClassView(owner) if isinstance(owner, type) else MappingView(vars(owner))


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
