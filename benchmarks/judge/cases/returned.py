"""Cases that return objects of own classes, functions, arrays and views, one sort each."""

import array
import collections
import ctypes
import datetime as dt
import enum
import functools
import io
import queue
import types
from dataclasses import dataclass, field

import numpy as np
import torch

from recapture import case


def vector():
    return (torch.ones(3),)


def twos():
    return (torch.full((3,), 2.0),)


ON = {"example": vector, "held_out": [twos]}


class Plain:
    """An object with an attribute."""

    def __init__(self, mark):
        self.mark = mark

    def __repr__(self):
        return "Plain"


class Slotted:
    """An object with slots, of which Python renames one."""

    __slots__ = ("__hidden", "mark")

    def __init__(self, mark):
        self.mark = mark
        self.__hidden = mark

    def change(self):
        self.__hidden += 1


class SlottedAndMore(Slotted):
    """An object with slots and a dict."""


@dataclass(frozen=True)
class Frozen:
    """A frozen dataclass with a field that is not in its text."""

    mark: int
    hidden: int = field(default=1, repr=False, compare=False)


class Point(collections.namedtuple("Base", "x y")):  # noqa: PYI024, SLOT002 - it has a dict
    """A named tuple with an attribute."""


class Sequence(collections.UserList):
    """A list of an own class."""


class Text(collections.UserString):
    """A text of an own class."""


class Members(set):
    """A set of an own class."""


class Items(dict):
    """A dict of an own class."""


class Failure(ValueError):
    """An exception with an attribute."""


class Day(dt.date):
    """A date with an attribute."""


class Counting:
    """An iterator with an attribute."""

    def __init__(self):
        self.mark = 1
        self.left = 3

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left


class Level(enum.IntEnum):
    """Numbers with attributes."""

    LOW = 1


class Scales(torch.nn.Module):
    """A module with a number."""

    def __init__(self):
        super().__init__()
        self.scale = 2

    def forward(self, x):
        return x * self.scale


def marked(value, mark=1):
    value.mark = mark
    return value


@case(**ON)
def plain_object(x):
    """Returns an object."""
    return x * 2, Plain(1)


@case(**ON)
def slotted_object(x):
    """Returns an object with slots."""
    return x * 2, Slotted(1)


@case(**ON)
def slots_and_dict(x):
    """Returns an object with slots and a dict."""
    return x * 2, marked(SlottedAndMore(1))


@case(**ON)
def frozen_dataclass(x):
    """Returns a frozen dataclass."""
    return x * 2, Frozen(1)


@case(**ON)
def named_tuple(x):
    """Returns a named tuple with an attribute."""
    return x * 2, marked(Point(1, 2))


@case(**ON)
def own_list(x):
    """Returns a list of an own class with an attribute."""
    return x * 2, marked(Sequence([1, 2]))


@case(**ON)
def own_text(x):
    """Returns a text of an own class."""
    return x * 2, marked(Text("text"))


@case(**ON)
def own_set(x):
    """Returns a set of an own class with an attribute."""
    return x * 2, marked(Members([1, 2]))


@case(**ON)
def own_deque(x):
    """Returns a dict of an own class that holds itself."""
    items = marked(Items(a=1))
    items["self"] = items
    return x * 2, items


@case(**ON)
def exception(x):
    """Returns an exception with an attribute."""
    return x * 2, marked(Failure("text"))


@case(**ON)
def date(x):
    """Returns a date with an attribute."""
    return x * 2, marked(Day(2026, 1, 1))


@case(**ON)
def iterator(x):
    """Returns an iterator with an attribute."""
    return x * 2, Counting()


@case(**ON)
def member(x):
    """Returns a member of an enumeration with an attribute."""
    return x * 2, marked(Level.LOW)


@case(**ON)
def module(x):
    """Returns a module."""
    return x * 2, Scales()


@case(**ON)
def partial_function(x):
    """Returns a partial function with an attribute."""
    return x * 2, marked(functools.partial(pow, 2))


@case(**ON)
def function_with_attribute(x):
    """Returns a function with an attribute."""

    def function(value, *, mark=1):
        return value + mark

    return x * 2, marked(function)


@case(**ON)
def namespace(x):
    """Returns a namespace in a proxy of a dict."""
    return x * 2, types.MappingProxyType({"inner": types.SimpleNamespace(mark=1)})


@case(**ON)
def function_of_torch(x):
    """Returns a function of torch."""
    return x * 2, [torch.sin]


@case(**ON)
def method_of_a_class(x):
    """Returns a function of the file."""
    return x * 2, [marked]


def numbers():
    yield 1
    return 2


@case(**ON)
def generator(x):
    """Returns a generator that returns something."""
    return x * 2, numbers()


@case(**ON)
def array_of_c(x):
    """Returns an array of C."""
    return x * 2, (ctypes.c_float * 3)(1, 2, 3)


@case(**ON)
def storage(x):
    """Returns the memory of a tensor."""
    return x * 2, (x * 2).untyped_storage()


@case(**ON)
def sliced(x):
    """Returns a slice with a tensor."""
    return x * 2, slice(x.sum(), 7)


@case(**ON)
def bytes_and_numbers(x):
    """Returns a place in a stream, packed numbers and a queue."""
    stream = io.BytesIO(b"abc")
    stream.seek(1)
    waiting = queue.Queue()
    waiting.put(1)
    return x * 2, stream, array.array("i", [1, 2]), waiting


@case(**ON)
def numpy_array(x):
    """Returns an array of numpy with two dimensions."""
    return x * 2, np.arange(6.0).reshape(2, 3) + float(x[0])


@case(**ON)
def numpy_masked(x):
    """Returns a masked array of numpy."""
    return x * 2, np.ma.array([1.0, 2.0], mask=[False, True], fill_value=7.0)


@case(**ON)
def numpy_records(x):
    """Returns an array of records."""
    return x * 2, np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f4")])


@case(example=lambda: (torch.randn(64, 64),), held_out=[lambda: (torch.randn(64, 64) + 1,)])
def view_of_a_large_tensor(x):
    """Returns the first row of a large result."""
    return (x * 2)[0]


@case(example=lambda: (torch.randn(64, 64),), held_out=[lambda: (torch.randn(64, 64) + 1,)])
def small_result(x):
    """Returns the double of a row."""
    return x[0] * 2


@case(**ON)
def zeros_with_memory(x):
    """Returns zeros that can be written to."""
    return torch.zeros(3), x * 2


@case(**ON)
def distribution(x):
    """Returns a distribution of torch."""
    return x * 2, torch.distributions.Normal(x, x + 1)
