"""What names in modules and classes stand for, and which of those a call replaces.

Namespaces are read before and after each call, so that reading one has to be no more than copying a dict.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recapture.base.exceptions import safe_text


class Setting(NamedTuple):
    """How a setting is read and written, and what a record says of it after a call, given it before and after."""

    read: Callable[[], Any]
    write: Callable[[Any], None] | None = None
    """None for what cannot be restored: it tells whether another cell may run in a process."""
    tell: Callable[[Any, Any], str] = lambda _, after: safe_text(after)
    """What has no text that is the same in every process is told as a change."""


AS_BEFORE = "as before"
"""What a record says of a setting that has no text of its own and did not change."""


class Names:
    """What names stand for. It equals an earlier one if all names of that still stand for the same.

    New names may come: a module that is imported on first use is no change of a setting. A name that stood for
    something `ignored` may be gone or stand for something else.
    """

    def __init__(self, names: dict[str, Any], ignored: Callable[[str, Any], bool] | None = None) -> None:
        self.names = names
        self.ignored = ignored

    def __eq__(self, before: object) -> bool:
        return isinstance(before, Names) and not self.names_changed_since(before)

    __hash__ = None  # type: ignore[assignment]

    def names_changed_since(self, before: Names) -> list[str]:
        """Return the names that are gone or stand for something else, in order."""
        if _same_objects(self.names, before.names):
            return []
        return sorted(
            name
            for name, value in before.names.items()
            if self.names.get(name, self) is not value and not (self.ignored and self.ignored(name, value))
        )


class Functions:
    """What modules and classes hold. It equals an earlier one if none of their functions was replaced since.

    `parts` are copies of the owners' own names.
    """

    def __init__(self, owners: Sequence[Any], parts: list[Mapping[str, Any]]) -> None:
        self.owners = owners
        self.parts = parts

    def __eq__(self, before: object) -> bool:
        return isinstance(before, Functions) and not self.changed_since(before)

    __hash__ = None  # type: ignore[assignment]

    def changed_since(self, before: Functions) -> list[tuple[int, str]]:
        """Return the names of the replaced functions, each after the number of its owner."""
        if self is before:
            return []
        return [
            (number, name)
            for number, (part, earlier) in enumerate(zip(self.parts, before.parts, strict=True))
            if part is not earlier and not _same_objects(part, earlier)
            for name, value, now in _other_objects(part, earlier, _inherited(self.owners[number]))
            if name not in _SET_BY_TORCH and _is_replaced(value, now, before.parts)
        ]

    def put_back(self, before: Functions) -> None:
        """Set every replaced function back to what it was before."""
        for number, name in self.changed_since(before):
            if name in before.parts[number]:
                setattr(self.owners[number], name, before.parts[number][name])
            else:  # it hid what the class inherits
                delattr(self.owners[number], name)


_SET_BY_TORCH = frozenset({"Storage"})
"""Names that follow a setting: ``torch.Storage`` is the class of the default dtype."""


def _same_objects(part: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Whether two dicts are plainly the same, which Python finds out fast."""
    try:
        return part == earlier
    except Exception:  # objects that cannot be compared, which are not the same ones then
        return False


def _other_objects(
    part: Mapping[str, Any], earlier: Mapping[str, Any], inherited: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield each name that stood for something else: the name, what it stood for, and what it stands for now."""
    for name, value in earlier.items():
        now = part.get(name, inherited.get(name))
        if now is not value:
            yield name, value, now
    for name in part.keys() & inherited.keys() - earlier.keys():
        if part[name] is not inherited[name]:
            yield name, inherited[name], part[name]


def _is_replaced(before: Any, now: Any, known: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a function, class, property, constant or module was replaced, and not by torch itself.

    Torch wraps some of its own functions when a part of it is imported. Such a wrapper is new: one of torch's functions
    in the place of another was put there by somebody else.
    """
    if isinstance(before, types.ModuleType):
        return getattr(now, "__name__", None) != before.__name__
    if not (callable(before) or hasattr(before, "__get__") or isinstance(before, float)):
        return False
    if not _is_of_torch(now):
        return True
    return any(now is value for names in known for value in names.values())


def _is_of_torch(value: Any) -> bool:
    """Whether torch's own Python code defines a function, a property or a class."""
    function = getattr(value, "fget", None) or getattr(value, "__func__", value)
    if isinstance(function, type):
        return str(function.__module__).startswith("torch.")
    return str(getattr(function, "__globals__", {}).get("__name__", "")).startswith("torch.")


def patched(name: str, *owners: Any, full_names: bool = False) -> Setting:
    """Return a setting that says whether the functions of modules and classes are still those that they were.

    A record tells a replaced function's name, with `full_names` after that of its owner.
    """
    dicts = [vars(owner) for owner in owners]
    last = Functions(owners, [names.copy() for names in dicts])

    def read() -> Functions:
        nonlocal last
        if not all(map(_same_objects, dicts, last.parts)):  # a copy of what did not change would cost more
            pairs = zip(dicts, last.parts, strict=True)
            parts = [old if _same_objects(names, old) else names.copy() for names, old in pairs]
            last = Functions(owners, parts)
        return last

    def write(before: Functions) -> None:
        read().put_back(before)

    def tell(before: Functions, after: Functions) -> str:
        changed = after.changed_since(before)
        names = sorted(f"{_name(owners[number])}.{key}" if full_names else key for number, key in changed)
        return f"{name}: {', '.join(names)}" if names else AS_BEFORE

    return Setting(read, write, tell)


def _name(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)


_OF_EACH_CLASS = frozenset({"__dict__", "__doc__", "__module__", "__weakref__"})
"""Names that every class has for itself."""


@functools.cache
def _inherited(owner: Any) -> dict[str, Any]:
    """Return what a class has from those that it derives from; nothing for a module."""
    bases = owner.__mro__[:0:-1] if isinstance(owner, type) else ()
    return {key: value for base in bases for key, value in vars(base).items() if key not in _OF_EACH_CLASS}


@functools.cache
def public_namespaces_of_torch() -> tuple[Any, ...]:
    """Return the modules and classes of torch that are looked at besides torch, its tensors and functional."""
    import torch
    from torch.optim import lr_scheduler

    modules: tuple[Any, ...] = (torch.fft, torch.special, torch.sparse, torch.autograd)
    modules += (torch.nn, torch.nn.init, torch.nn.utils, torch.optim, lr_scheduler)
    with_classes = (torch.nn, torch.optim, lr_scheduler)
    classes = {value: None for module in with_classes for value in vars(module).values() if isinstance(value, type)}
    of_torch = [owner for owner in classes if owner.__module__.startswith("torch.") and owner is not torch.nn.Module]
    return *modules, *of_torch


@functools.cache
def public_namespaces_of_python() -> tuple[Any, ...]:
    """Return the modules and classes of Python's library that are looked at besides `builtins` and `math`."""
    names = ("time", "random", "os", "copy", "operator", "itertools", "functools", "collections", "statistics", "cmath")
    return *(sys.modules[name] for name in names if name in sys.modules), random.Random
