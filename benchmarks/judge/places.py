"""Named values that a function can change beside its arguments: globals, cells of a closure, attributes."""

from __future__ import annotations

import copy
from typing import Any

import torch

from benchmarks.judge.planting import Nothing, Run, plain

SIMPLE = (int, float, str, list, dict, set, torch.Tensor)
"""Types of values in globals, closures and attributes that defects change."""


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Return everything in the storage of a tensor, in one dimension."""
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


def more_of(value: Any) -> Any:
    """Return a simple value with something added; raises Nothing for other values."""
    if isinstance(value, bool) or type(value) not in SIMPLE:
        raise Nothing
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "!"
    if isinstance(value, list):
        return [*value, 7]
    if isinstance(value, dict):
        return {**value, "planted": 7}
    if isinstance(value, set):
        return {*value, "planted"}
    if not plain(value) or not value.is_floating_point():
        raise Nothing
    return value.detach() + 1


def set_back(now: Any, then: Any) -> None:
    """Give a changed container or tensor its earlier content, in place; raises Nothing for other values."""
    if isinstance(now, list):
        now[:] = then
    elif isinstance(now, (dict, set)):
        now.clear()
        now.update(then)
    elif plain(now):
        now.detach().copy_(then)
    else:
        raise Nothing


def _changed(now: Any, then: Any) -> bool:
    if isinstance(now, torch.Tensor):
        return plain(now) and plain(then) and now.shape == then.shape and not torch.equal(now, then)
    return type(now) in SIMPLE and bool(now != then)


class Places:
    """Named values that can be read and replaced: globals, cells of a closure, attributes."""

    def __init__(self, places: dict[str, tuple[Any, str]]) -> None:
        self.places = {name: where for name, where in places.items() if type(self._of(*where)) in SIMPLE}

    @staticmethod
    def _of(owner: Any, name: str) -> Any:
        try:
            return owner[name] if isinstance(owner, dict) else getattr(owner, name)
        except Exception:  # an empty cell
            return None

    def read(self) -> dict[str, Any]:
        """Return copies of the values."""
        values = {}
        for name, (owner, key) in self.places.items():
            value = self._of(owner, key)
            try:
                values[name] = value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
            except Exception:  # noqa: S112 - what cannot be copied is left alone
                continue
        return values

    def lose(self, before: dict[str, Any]) -> None:
        """Set the first value that changed back; raises Nothing if none has."""
        for name, then in before.items():
            owner, key = self.places[name]
            now = self._of(owner, key)
            if not _changed(now, then):
                continue
            if isinstance(now, (list, dict, set, torch.Tensor)):
                set_back(now, then)
            else:
                self._put(owner, key, then)
            return
        raise Nothing

    def add(self) -> None:
        """Change the first simple value; raises Nothing if there is none."""
        for owner, key in self.places.values():
            now = self._of(owner, key)
            try:
                more = more_of(now)
            except Nothing:
                continue
            if isinstance(now, (list, dict, set, torch.Tensor)):
                set_back(now, more)
            else:
                self._put(owner, key, more)
            return
        raise Nothing

    @staticmethod
    def _put(owner: Any, name: str, value: Any) -> None:
        if isinstance(owner, dict):
            owner[name] = value
        else:
            setattr(owner, name, value)


def with_lost(run: Run, places: Places) -> Any:
    """Call, and set back the first value that the call changed."""
    before = places.read()
    result = run.result()
    places.lose(before)
    return result


def with_extra(run: Run, places: Places) -> Any:
    """Call, and change the first simple value."""
    result = run.result()
    places.add()
    return result


def global_places(run: Run) -> Places:
    """The global variables that the function's code names."""
    space = run.function.__globals__
    return Places({name: (space, name) for name in run.function.__code__.co_names if name in space})


def closure_places(run: Run) -> Places:
    """The cells of the function's closure."""
    cells = run.function.__closure__ or ()
    return Places({str(index): (cell, "cell_contents") for index, cell in enumerate(cells)})


def class_places(run: Run) -> Places:
    """The attributes of the module's class and of the classes that the function's code names."""
    space = run.function.__globals__
    kinds = [space[name] for name in run.function.__code__.co_names if isinstance(space.get(name), type)]
    if isinstance(run.target, torch.nn.Module):
        kinds.insert(0, type(run.target))
    places = {}
    for kind in kinds:
        if kind.__module__ == run.function.__module__:
            places.update({f"{kind.__name__}.{name}": (kind, name) for name in vars(kind) if not name.startswith("_")})
    return Places(places)


def module_places(run: Run) -> Places:
    """The plain attributes of the module."""
    own = [name for name in vars(run.module) if not name.startswith("_") and name != "training"]
    return Places({name: (run.module, name) for name in own})


def function_places(run: Run) -> Places:
    """The attributes of the function object, and the values in its defaults."""
    return Places({name: (run.function, name) for name in vars(run.function)})
