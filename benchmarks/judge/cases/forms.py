"""Cases with every form of result, such as containers, generators and numpy arrays; with exceptions, and output."""

import collections
import dataclasses
import enum
import logging
import sys
import typing
import warnings

import numpy as np
import torch
from torch import nn

from recapture import case


class Pair(typing.NamedTuple):
    """Two named results."""

    low: torch.Tensor
    high: torch.Tensor


@dataclasses.dataclass
class Summary:
    """A result with fields."""

    mean: torch.Tensor
    count: int


class Side(enum.Enum):
    """Two members."""

    LEFT = 1
    RIGHT = 2


class Tagged(torch.Tensor):
    """A subclass of tensors."""


def vector():
    return (torch.randn(4),)


def longer():
    return (torch.rand(6) + 1,)


@case(example=vector, held_out=[longer])
def in_a_tuple(x):
    """Returns a tuple of a tensor, a number and a text."""
    return x + 1, x.shape[0], "words"


@case(example=vector, held_out=[longer])
def in_a_list(x):
    """Returns a list of tensors in lists."""
    return [x + 1, [x + 2, x + 3]]


@case(example=vector, held_out=[longer])
def in_a_dict(x):
    """Returns a dict with a dict in it."""
    return {"first": x + 1, "second": {"third": x * 2, "fourth": 4}}


@case(example=vector, held_out=[longer])
def in_an_ordered_dict(x):
    """Returns an OrderedDict."""
    return collections.OrderedDict(a=x + 1, b=x + 2)


@case(example=vector, held_out=[longer])
def in_a_default_dict(x):
    """Returns a defaultdict."""
    return collections.defaultdict(list, {"a": x + 1, "b": x + 2})


@case(example=vector, held_out=[longer])
def in_a_named_tuple(x):
    """Returns a named tuple."""
    return Pair(x - 1, x + 1)


@case(example=vector, held_out=[longer])
def in_a_dataclass(x):
    """Returns a dataclass."""
    return Summary(x.mean(), len(x))


@case(example=vector, held_out=[longer])
def generator(x):
    """Returns a generator."""
    return (x + step for step in range(3))


@case(example=vector, held_out=[longer])
def numbers(x):
    """Returns Python numbers of each type."""
    return len(x), float(x.sum()), bool(x.sum() > 0), 1, 0


@case(example=vector, held_out=[longer])
def numpy_results(x):
    """Returns a numpy array and a numpy scalar."""
    values = x.detach().cpu().numpy().astype("float64")
    return values + 1, np.float64(values.sum())


@case(example=vector, held_out=[longer])
def size_and_member(x):
    """Returns a torch.Size and a member of an enumeration."""
    return x.shape, Side.RIGHT if len(x) > 4 else Side.LEFT


@case(example=vector, held_out=[longer])
def without_dimensions(x):
    """Returns a tensor without dimensions and one with a single element."""
    return x.sum(), x[:1] * 2


@case(example=vector, held_out=[longer])
def subclass(x):
    """Returns a tensor of a subclass."""
    return (x + 1).as_subclass(Tagged)


@case(example=vector, held_out=[longer])
class WithParameter(nn.Module):
    """Returns a Parameter of its own."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.weight


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),), lambda: (-torch.ones(2),)])
def raises_for_negative(x):
    """Raises for negative numbers, after it has changed its argument."""
    x.mul_(2)
    if x.sum() < 0:
        raise ValueError(f"negative: {len(x)}")
    return x + 1


@case(example=lambda: ({"a": torch.ones(2)},), held_out=[lambda: ({"b": torch.ones(2)},)])
def raises_for_missing_key(named):
    """Raises KeyError for a dict without a key."""
    return named["a"] * 2


@case(example=lambda: (torch.ones(2, 3), torch.ones(3)), held_out=[lambda: (torch.ones(2, 3), torch.ones(4))])
def raises_for_shapes(x, y):
    """Multiplies: shapes that do not fit raise RuntimeError."""
    return x * y


@case(example=vector, held_out=[longer])
def prints(x):
    """Prints its length."""
    print("length", len(x))
    return x + 1


@case(example=vector, held_out=[longer])
def warns(x):
    """Warns, logs, and writes to stderr."""
    warnings.warn("careful", UserWarning, stacklevel=2)
    logging.getLogger("cases").warning("logged")
    print("to stderr", file=sys.stderr)
    return x + 1


@case(example=lambda: (torch.randn(2, 2, 2, 2),), held_out=[lambda: (torch.randn(1, 3, 4, 4),)])
def channels_last(x):
    """Returns images with their channels last in memory."""
    return (x + 1).contiguous(memory_format=torch.channels_last)
