"""Cases that change what a global or a closure holds, and return twice their argument."""

import array
import collections
import contextvars
import ctypes
import enum
import functools
import io
import itertools
import queue
import random
import threading
import types

import numpy as np
import torch

from recapture import case


def vector():
    return (torch.ones(3),)


def zeros():
    return (torch.zeros(3),)


ON = {"example": vector, "held_out": [zeros]}


def closure_over(value, change):
    """Return a function that changes a value of its closure and doubles its argument."""

    def doubled(x):
        change(value)
        return x * 2

    return doubled


PYTHON = random.Random(1)


@case(**ON)
def random_of_python(x):
    """Draws from a generator of Python."""
    PYTHON.random()
    return x * 2


DRAWING = closure_over(torch.Generator().manual_seed(1), lambda generator: torch.rand(1, generator=generator))


@case(**ON)
def generator_in_a_closure(x):
    """Draws from a generator of torch in a closure."""
    return DRAWING(x)


ITEMS = iter([1, 2, 3, 4, 5, 6, 7, 8])


@case(**ON)
def iterator_of_a_list(x):
    """Takes the next item of an iterator."""
    next(ITEMS)
    return x * 2


NUMBERS = (number for number in range(100))


@case(**ON)
def generator_expression(x):
    """Takes the next number of a generator."""
    next(NUMBERS)
    return x * 2


COUNTER = itertools.count()


@case(**ON)
def counter(x):
    """Takes the next number of a counter."""
    next(COUNTER)
    return x * 2


COLOURS = itertools.cycle("abc")


@case(**ON)
def cycle(x):
    """Takes the next letter of a cycle."""
    next(COLOURS)
    return x * 2


PAIRS = zip(itertools.count(), itertools.count(), strict=True)


@case(**ON)
def pairs(x):
    """Takes the next pair of two counters."""
    next(PAIRS)
    return x * 2


@functools.lru_cache(maxsize=8)
def cached_square(number):
    return number * number


@case(**ON)
def filled_cache(x):
    """Fills the cache of a function, which gives the same without it."""
    cached_square(len(x))
    return x * 2


@functools.lru_cache(maxsize=8)
def buffer(size):
    return torch.zeros(size)


@case(**ON)
def cached_buffer(x):
    """Adds to a tensor that a cached function keeps."""
    buffer(3).add_(1)
    return x * 2


@functools.cache
def settings_of(name):
    return {"name": name, "calls": 0}


@case(**ON)
def cached_dict(x):
    """Counts in a dict that a cached function keeps."""
    settings_of("a")["calls"] += 1
    return x * 2


LEVEL = contextvars.ContextVar("LEVEL", default=0)


@case(**ON)
def context_variable(x):
    """Sets a variable of the context."""
    LEVEL.set(LEVEL.get() + 1)
    return x * 2


TEXT = io.StringIO()


@case(**ON)
def stream(x):
    """Writes to a stream."""
    TEXT.write("called")
    return x * 2


PACKED = array.array("i", [1])


@case(**ON)
def packed_numbers(x):
    """Adds to an array of Python."""
    PACKED.append(1)
    return x * 2


GROWING = closure_over(bytearray(b"a"), lambda data: data.extend(b"b"))


@case(**ON)
def bytes_in_a_closure(x):
    """Adds to bytes in a closure."""
    return GROWING(x)


WAITING = queue.Queue()


@case(**ON)
def waiting(x):
    """Puts something into a queue."""
    WAITING.put(1)
    return x * 2


OF_THE_THREAD = threading.local()


@case(**ON)
def of_the_thread(x):
    """Sets an attribute of the thread."""
    OF_THE_THREAD.calls = getattr(OF_THE_THREAD, "calls", 0) + 1
    return x * 2


WORDS = collections.Counter()


@case(**ON)
def counted_words(x):
    """Counts a word."""
    WORDS.update(["word"])
    return x * 2


class Registry(collections.UserDict):
    """A dict of an own class."""


REGISTRY = Registry(a=1)
REGISTRY.calls = 0


@case(**ON)
def attribute_of_an_own_dict(x):
    """Counts in an attribute of a dict."""
    REGISTRY.calls += 1
    return x * 2


class Colour(enum.Enum):
    """Members with an attribute."""

    RED = 1


Colour.RED.uses = 0


@case(**ON)
def attribute_of_a_member(x):
    """Counts in an attribute of a member of an enumeration."""
    Colour.RED.uses += 1
    return x * 2


class Private:
    """An object whose one attribute Python renames."""

    __slots__ = ("__calls",)

    def __init__(self):
        self.__calls = 0

    def count(self):
        self.__calls += 1


PRIVATE = Private()


@case(**ON)
def renamed_slot(x):
    """Counts in an attribute that Python renames."""
    PRIVATE.count()
    return x * 2


@case(**ON)
def module_imported_inside(x):
    """Counts in a module that the function imports."""
    from benchmarks.judge import kept_elsewhere

    kept_elsewhere.count()
    return x * 2


@case(**ON)
def function_imported_inside(x):
    """Counts by a function that the function imports."""
    from benchmarks.judge.kept_elsewhere import count

    count()
    return x * 2


class Layer(torch.nn.Module):
    """A module with a number."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.act = torch.nn.ReLU()
        self.register_buffer("kept", torch.zeros(2))

    def forward(self, x):
        return x * 2


GLOBAL_LAYER = Layer()


@case(**ON)
def attribute_of_a_global_module(x):
    """Counts in an attribute of a module that is a global."""
    GLOBAL_LAYER.calls += 1
    return x * 2


MODE_LAYER = Layer()


@case(**ON)
def mode_of_a_global_module(x):
    """Sets a module that is a global to the other mode."""
    MODE_LAYER.train(not MODE_LAYER.training)
    return x * 2


@case(**ON)
class ReplacesAPart(Layer):
    """Puts another activation in place of its own."""

    def forward(self, x):
        self.act = torch.nn.Tanh()
        return x * 2


@case(**ON)
class LeavesABufferOut(Layer):
    """Leaves a buffer out of `state_dict`."""

    def forward(self, x):
        self.register_buffer("kept", self.kept, persistent=False)
        return x * 2


ACTIVATION = torch.relu


@case(**ON)
def another_function(x):
    """Puts another function of torch in place of a global."""
    global ACTIVATION
    ACTIVATION = torch.tanh
    return x * 2


def square(value):
    return value**2


def cube(value):
    return value**3


class Model:
    """A class with a method."""

    def act(self, value):
        return square(value)


@case(**ON)
def another_method(x):
    """Puts another method in place of a class's."""
    Model.act = lambda self, value: cube(value)
    return x * 2


def scaled(value, *, factor=1):
    return value * factor


@case(**ON)
def another_default(x):
    """Changes the default of a keyword of a function."""
    scaled.__kwdefaults__["factor"] += 1
    return x * 2


def changed_code(value):
    return value + 1


@case(**ON)
def another_code(x):
    """Gives a function other code."""
    changed_code.__code__ = (lambda value: value + 2).__code__
    return x * 2


MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[False, False, False])


@case(**ON)
def mask_of_an_array(x):
    """Masks an element of an array."""
    MASKED[0] = np.ma.masked
    return x * 2


READ_ONLY = np.ones(3)


@case(**ON)
def read_only_array(x):
    """Makes an array read-only."""
    READ_ONLY.setflags(write=False)
    return x * 2


TYPED = (ctypes.c_int * 3)(1, 2, 3)


@case(**ON)
def array_of_c(x):
    """Writes into an array of C."""
    TYPED[0] += 1
    return x * 2


RESIZED = torch.zeros(4)


@case(**ON)
def resized_tensor(x):
    """Gives a tensor another size."""
    RESIZED.resize_(2)
    return x * 2


WEIGHT = torch.nn.Parameter(torch.ones(3))
OPTIMIZER = torch.optim.SGD([WEIGHT], lr=0.1, momentum=0.9)


@case(**ON)
def rate_of_an_optimizer(x):
    """Changes the learning rate of an optimizer."""
    OPTIMIZER.param_groups[0]["lr"] *= 0.5
    return x * 2


@case(**ON)
def hook_of_a_tensor(x):
    """Puts a hook on a tensor that is a global."""
    WEIGHT.register_hook(lambda gradient: gradient * 2)
    return x * 2


LAYERS = torch.nn.ModuleList([torch.nn.Linear(2, 2)])


@case(**ON)
def grown_list_of_modules(x):
    """Adds a module to a list of modules."""
    LAYERS.append(torch.nn.Linear(2, 2))
    return x * 2


@functools.singledispatch
def dispatched(value):
    return value


@case(**ON)
def registered_function(x):
    """Registers a function for a type."""
    dispatched.register(int, square)
    return x * 2


SCALED_BY_TWO = functools.partial(scaled, factor=2)


@case(**ON)
def keywords_of_a_partial(x):
    """Changes the keywords of a partial function."""
    SCALED_BY_TWO.keywords["factor"] += 1
    return x * 2


VIEWED = types.MappingProxyType({"calls": [0]})


@case(**ON)
def behind_a_proxy(x):
    """Counts in a list behind a proxy of a dict."""
    VIEWED["calls"][0] += 1
    return x * 2
