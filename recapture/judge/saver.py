"""Saves values and puts their contents back, whatever their type."""

from __future__ import annotations

import contextvars
import functools
import logging
import random
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, MutableMapping, MutableSequence, MutableSet
from typing import Any

from recapture.base.exceptions import qualified
from recapture.judge.contents import CACHE, cached
from recapture.torch_api.compat import is_out_of_memory

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
