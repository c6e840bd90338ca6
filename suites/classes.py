"""Classes, dataclasses and enums: objects of one's own as arguments, results and helpers."""

import dataclasses
import enum
from typing import NamedTuple

import torch
from torch import nn

from recapture import case


@dataclasses.dataclass
class Batch:
    """Values with a scale."""

    values: torch.Tensor
    scale: float = 1.0


@case(
    example=lambda: (Batch(torch.ones(3)),),
    held_out=[lambda: (Batch(torch.ones(3), 2.0),), lambda: (Batch(torch.zeros(3), 0.5),)],
)
def dataclass_argument(batch):
    """Reads the fields of a dataclass: a number among them may be taken for a constant."""
    return batch.values * batch.scale + 1


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.zeros(3),)],
)
def dataclass_result(x):
    """Returns a dataclass: its type belongs to the result."""
    return Batch(x + 1, 3.0)


@case(
    example=lambda: (Batch(torch.ones(3)),),
    held_out=[lambda: (Batch(torch.ones(3), 2.0),)],
)
def dataclass_changed(batch):
    """Assigns to a field of its argument: the caller sees the new value."""
    batch.scale = batch.scale + 1
    return batch.values * batch.scale


@dataclasses.dataclass(frozen=True)
class Window:
    """A range of places."""

    start: int
    stop: int

    @property
    def size(self):
        """The number of places."""
        return self.stop - self.start


@case(
    example=lambda: (torch.arange(8.0), Window(1, 4)),
    held_out=[lambda: (torch.arange(8.0), Window(2, 8)), lambda: (torch.arange(8.0), Window(0, 1))],
)
def frozen_dataclass(x, window):
    """Slices by the fields of a frozen dataclass and divides by a property of it."""
    return x[window.start : window.stop] / window.size


@case(
    example=lambda: (torch.ones(3), Window(1, 2)),
    held_out=[lambda: (torch.ones(3), Window(1, 5))],
)
def dataclass_replaced(x, window):
    """Makes a changed copy with `dataclasses.replace`: the argument stays as it was."""
    moved = dataclasses.replace(window, start=window.start + 1)
    return x * moved.size, moved.start


class Mode(enum.Enum):
    """How values are reduced."""

    TOTAL = "total"
    AVERAGE = "average"


@case(
    example=lambda: (torch.arange(4.0), Mode.TOTAL),
    held_out=[lambda: (torch.arange(4.0), Mode.AVERAGE)],
)
def enum_argument(x, mode):
    """Branches on a member of an enum: there is one object for each member, compared by identity."""
    return x.sum() if mode is Mode.TOTAL else x.mean()


class Level(enum.IntEnum):
    """Numbers with names."""

    LOW = 1
    HIGH = 10


@case(
    example=lambda: (torch.ones(2), Level.LOW),
    held_out=[lambda: (torch.ones(2), Level.HIGH)],
)
def int_enum_in_arithmetic(x, level):
    """Multiplies by a member of an IntEnum, which is an int as well."""
    return x * level + level.value


class Options(enum.Flag):
    """Switches that can be combined."""

    NONE = 0
    SHIFT = 1
    SCALE = 2


@case(
    example=lambda: (torch.ones(2), Options.SHIFT),
    held_out=[lambda: (torch.ones(2), Options.SHIFT | Options.SCALE), lambda: (torch.ones(2), Options.NONE)],
)
def combined_flags(x, options):
    """Tests the bits of a Flag that was combined with `|`."""
    if Options.SHIFT in options:
        x = x + 5
    return x * 3 if Options.SCALE in options else x


class Vector:
    """A pair with operators of its own."""

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __mul__(self, factor):
        return Vector(self.x * factor, self.y * factor)

    __rmul__ = __mul__


@case(
    example=lambda: (torch.ones(2), torch.zeros(2), 2.0),
    held_out=[lambda: (torch.zeros(2), torch.ones(2), 3.0)],
)
def overloaded_operators(x, y, factor: float):
    """Computes with objects whose class defines `+` and `*`, also with the number on the left."""
    total = Vector(x, y) + factor * Vector(y, x)
    return total.x, total.y


class Point(NamedTuple):
    """A place."""

    x: torch.Tensor
    weight: float


@case(
    example=lambda: (Point(torch.ones(2), 2.0),),
    held_out=[lambda: (Point(torch.ones(2), 3.0),)],
)
def named_tuple_replaced(point):
    """Takes a named tuple and returns a changed copy of it: the type and the field names stay."""
    return point._replace(x=point.x * point.weight)


class Scaled:
    """Hold a factor behind a property that checks what is assigned."""

    def __init__(self, factor):
        self.factor = factor

    @property
    def factor(self):
        """The factor."""
        return self._factor

    @factor.setter
    def factor(self, value):
        if value < 0:
            raise ValueError("negative factor")
        self._factor = value * 2


@case(
    example=lambda: (torch.ones(2), 1.0),
    held_out=[lambda: (torch.ones(2), 3.0), lambda: (torch.ones(2), -1.0)],
)
def property_with_a_setter(x, factor: float):
    """Assigns through a property, whose setter doubles the value or raises ValueError."""
    return x * Scaled(factor).factor


class Base:
    """Compute with a class attribute that subclasses override."""

    offset = 1.0

    def __call__(self, x):
        return self.apply(x) + self.offset

    def apply(self, x):
        """Leave the values as they are."""
        return x


class Doubling(Base):
    """Double the values, with another offset."""

    offset = 5.0

    def apply(self, x):
        return super().apply(x) * 2


@case(
    example=lambda: (torch.ones(2), Base()),
    held_out=[lambda: (torch.ones(2), Doubling())],
)
def chosen_subclass(x, operation):
    """Calls an object: which methods run depends on its class."""
    return operation(x)


@case(
    example=lambda: (torch.ones(2), 2),
    held_out=[lambda: (torch.ones(2), 4)],
)
def class_made_inside(x, n: int):
    """Makes a class inside the function, whose method reads a variable of the function."""

    class Adder:
        def add(self, y):
            return y + n

    return Adder().add(x)


class Countdown:
    """An iterator of its own."""

    def __init__(self, start):
        self.left = start

    def __iter__(self):
        return self

    def __next__(self):
        if self.left <= 0:
            raise StopIteration
        self.left -= 1
        return self.left


@case(
    example=lambda: (torch.ones(2), 2),
    held_out=[lambda: (torch.ones(2), 4), lambda: (torch.ones(2), 0)],
)
def iterator_of_its_own(x, start: int):
    """Loops over an object that implements the iterator protocol."""
    for value in Countdown(start):
        x = x * 2 + value
    return x


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.zeros(3),), lambda: (torch.full((3,), 2.0),)],
)
class CallableAttribute(nn.Module):
    """Keeps an object with state on the module and calls it: its count goes up at every call."""

    def __init__(self):
        super().__init__()
        self.countdown = Countdown(10)

    def forward(self, x):
        return x + next(self.countdown)
