"""One case for every verdict that needs no harm done."""

import os
import subprocess
import time

import torch

from recapture import case
from recapture.cases.compiler import compiler


def ones():
    return (torch.ones(3),)


def negative():
    return (-torch.ones(3),)


@case(example=ones, held_out=[negative])
def neighbour(x):
    """Whatever captures it, it stays right."""
    return x + 1


@case(example=ones, held_out=[negative])
def branches(x):
    """Takes one of two paths."""
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(example=ones)
def raises_in_eager_alone(x):
    """Raises, unless it is being traced."""
    if not torch.jit.is_tracing():
        raise ValueError("eager refuses")
    return x + 1


@case(example=ones)
def random_bytes(x):
    """Never the same twice."""
    return x + int.from_bytes(os.urandom(4), "little")


@case(example=ones)
def time_of_day(x):
    """Returns what the clock says."""
    return x, time.perf_counter_ns()


@case(example=ones)
def raises_every_other_time(x):
    """Raises on its first call, and no more: the file it leaves tells."""
    if os.path.exists("called"):
        return x
    open("called", "w").close()
    raise ValueError("the first call")


@case(example=ones)
def prints(x):
    """Breaks the graph."""
    y = x + 1
    print("between two graphs")
    return y * 2


@case(example=ones, since="99.0")
def of_the_future(x):
    """Needs a torch nobody has."""
    return x + 1


@case(example=ones, requires=["a_module_nobody_has"])
def of_a_missing_module(x):
    """Needs a module nobody has."""
    return x + 1


@compiler("off-by-one")
def off_by_one(fn, example):
    """Silently wrong on everything."""
    return lambda *args: fn(*args) + 1


@compiler("refuses")
def refuses(fn, example):
    """Captures nothing."""
    raise NotImplementedError("this compiler captures nothing")


@compiler("fails-when-called")
def fails_when_called(fn, example):
    """Captures anything, runs nothing."""

    def fail(*args):
        raise ArithmeticError("this compiler runs nothing")

    return fail


@compiler("trace-without-check")
def trace_without_check(fn, example):
    """Traces, and does not look whether the function agrees."""
    return torch.jit.trace(fn, example, check_trace=False)


@compiler("of-the-future", since="99.0")
def of_the_future_compiler(fn, example):
    """A compiler of a torch nobody has."""
    return fn


@compiler("calls-a-compiler")
def calls_a_compiler(fn, example):
    """Starts g++, as whatever generates C++ does."""
    subprocess.run(["g++", "--version"], check=True)
    return fn
