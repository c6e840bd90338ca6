"""Eight compilers that change nothing: what is blamed under them is a false alarm of the judge.

``recapture generate --compilers-from benchmarks/unchanged_compilers.py`` runs the generated programs under all of them.
"""

import functools
import types

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from recapture import compiler


@compiler("unchanged:same", family="unchanged")
def same(fn, example):
    """Returns the function itself."""
    return fn


@compiler("unchanged:calls", family="unchanged")
def calls(fn, example):
    """Calls the function."""

    def call(*args):
        return fn(*args)

    return call


@compiler("unchanged:partial", family="unchanged")
def partial(fn, example):
    """Wraps the function in a partial."""
    return functools.partial(fn)


@compiler("unchanged:copied-code", family="unchanged")
def copied_code(fn, example):
    """Makes another function of the same code and globals."""
    return types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


@compiler("unchanged:disabled", family="unchanged")
def disabled(fn, example):
    """Turns Dynamo off for the function."""
    return torch.compiler.disable(fn)


@compiler("unchanged:method", family="unchanged")
def method(fn, example):
    """Calls the function from a method of an object."""

    class Caller:
        def __call__(self, *args):
            return fn(*args)

    return Caller()


@compiler("unchanged:function-mode", family="unchanged")
def function_mode(fn, example):
    """Watches every function of torch."""

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def call(*args):
        with Watching():
            return fn(*args)

    return call


@compiler("unchanged:dispatch-mode", family="unchanged")
def dispatch_mode(fn, example):
    """Watches every operator."""

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def call(*args):
        with Watching():
            return fn(*args)

    return call
