"""Pairs of values that the judge has to call equal, or different in both directions."""

import collections
import dataclasses
import enum
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from observed_calls import Plain, Slotted, altered, kinds


class Point(NamedTuple):
    x: int
    y: int


class Other(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Box:
    content: object
    label: str = "a"


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


def cycle(value):
    out = [value]
    out.append(out)
    return out


EQUAL = {
    "None": (None, None),
    "tensors": (torch.ones(3), torch.ones(3)),
    "NaN": (torch.tensor([math.nan, 1.0]), torch.tensor([math.nan, 1.0])),
    "infinities": (torch.tensor([math.inf, -math.inf]), torch.tensor([math.inf, -math.inf])),
    "minus zero": (torch.tensor([-0.0]), torch.tensor([0.0])),
    "rounding": (torch.tensor([1.0]), torch.tensor([1.0 + 1e-6])),
    "half rounding": (torch.tensor([1.0]).half(), torch.tensor([1.0 + 2**-10]).half()),
    "bfloat16 rounding": (torch.tensor([1.0]).bfloat16(), torch.tensor([1.0 + 2**-7]).bfloat16()),
    "empty tensors": (torch.empty(0, 3), torch.empty(0, 3)),
    "0-d tensors": (torch.tensor(2.0), torch.tensor(2.0)),
    "complex NaN": (torch.tensor([complex(math.nan, 1)]), torch.tensor([complex(math.nan, 1)])),
    "sparse tensors": (torch.eye(3).to_sparse(), torch.eye(3).to_sparse()),
    "floats": (0.1 + 0.2, 0.3),
    "NaN floats": (math.nan, math.nan),
    "infinite floats": (math.inf, math.inf),
    "complex numbers": (1j, 1j + 1e-9),
    "dicts in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "sets": ({3, 1, 2}, {2, 3, 1}),
    "dataclasses": (Box(torch.ones(2)), Box(torch.ones(2))),
    "namedtuples": (Point(1, 2), Point(1, 2)),
    "enum members": (Colour.RED, Colour.RED),
    "sizes": (torch.Size([1, 2]), torch.Size([1, 2])),
    "dtypes": (torch.float16, torch.float16),
    "cycles": (cycle(1), cycle(1)),
    "arrays of strings": (np.array([["a", "b"]]), np.array([["a", "b"]])),
    "arrays of another byte order": (np.arange(3, dtype=">i4"), np.arange(3, dtype=">i4")),
    "reversed arrays": (np.arange(3)[::-1], np.array([2, 1, 0])),
    "plain objects": (Plain(a=[torch.ones(1)]), Plain(a=[torch.ones(1)])),
    "functions": (lambda: 1, lambda: 2),  # nothing but their type can be told
    "meta tensors": (torch.ones(2, device="meta"), torch.ones(2, device="meta")),
    "float8": (torch.ones(2).to(torch.float8_e4m3fn), torch.ones(2).to(torch.float8_e4m3fn)),
    "modules": (torch.nn.BatchNorm1d(1), torch.nn.BatchNorm1d(1)),
    "a 0-d tensor of bits": (
        torch.tensor(1, dtype=torch.int16).view(torch.bits16),
        torch.tensor(1, dtype=torch.int16).view(torch.bits16),
    ),
    "types that no arithmetic has": (
        torch.tensor([1], dtype=torch.uint8).view(torch.bits8),
        torch.tensor([1], dtype=torch.uint8).view(torch.bits8),
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name):
    assert kinds(*EQUAL[name]) == []


DIFFERENT = {
    "a shape that broadcasts": (torch.ones(3), torch.ones(1, 3), "result", "shape"),
    "one element and none": (torch.ones(1), torch.tensor(1.0), "result", "shape"),
    "empty tensors of two shapes": (torch.empty(0, 3), torch.empty(0, 4), "result", "shape"),
    "a dtype": (torch.ones(3), torch.ones(3).double(), "result", "dtype"),
    "a dtype of equal integers": (torch.ones(3).int(), torch.ones(3).long(), "result", "dtype"),
    "a Parameter": (torch.nn.Parameter(torch.ones(3)), torch.ones(3), "result", "type"),
    "list and tuple": ([1], (1,), "result", "type"),
    "namedtuple and tuple": (Point(1, 2), (1, 2), "result", "type"),
    "two namedtuples": (Point(1, 2), Other(1, 2), "result", "type"),
    "torch's own namedtuple": (torch.ones(2, 2).max(0), tuple(torch.ones(2, 2).max(0)), "result", "type"),
    "Size and tuple": (torch.Size([1]), (1,), "result", "type"),
    "bool and int": (True, 1, "result", "type"),
    "int and float": (1, 1.0, "result", "type"),
    "numpy's float and Python's": (np.float64(1), 1.0, "result", "type"),
    "a number and its tensor": (1.0, torch.tensor(1.0), "result", "type"),
    "array and tensor": (np.ones(2), torch.ones(2).double(), "result", "type"),
    "OrderedDict and dict": (collections.OrderedDict(a=1), {"a": 1}, "result", "type"),
    "None and a value": (None, 0, "result", "type"),
    "an int off by one": (2**60, 2**60 + 1, "result", "value"),
    "an integer tensor off by one": (torch.tensor([2**60]), torch.tensor([2**60 + 1]), "result", "value"),
    "uint64": (torch.tensor([1]).to(torch.uint64), torch.tensor([2]).to(torch.uint64), "result", "value"),
    "a float": (1.0, 1.001, "result", "value"),
    "a string": ("a", "b", "result", "value"),
    "float32 beyond rounding": (torch.tensor([1.0]), torch.tensor([1.0001]), "result", "value"),
    "float64 beyond rounding": (torch.ones(1).double(), torch.ones(1).double() + 1e-6, "result", "value"),
    "half beyond rounding": (torch.tensor([1.0]).half(), torch.tensor([1.01]).half(), "result", "value"),
    "bfloat16 beyond rounding": (torch.tensor([1.0]).bfloat16(), torch.tensor([1.05]).bfloat16(), "result", "value"),
    "NaN and a number": (torch.tensor([math.nan]), torch.tensor([0.0]), "result", "value"),
    "infinity and a number": (torch.tensor([math.inf]), torch.tensor([3.4e38]), "result", "value"),
    "two infinities": (torch.tensor([math.inf]), torch.tensor([-math.inf]), "result", "value"),
    "the imaginary part": (torch.tensor([1 + 1j]), torch.tensor([1 + 2j]), "result", "value"),
    "an infinite real part": (torch.tensor([complex(math.inf, 1)]), torch.tensor([complex(math.inf, 2)]), "result", "value"),
    "a layout": (torch.eye(2).to_sparse(), torch.eye(2), "result", "type"),
    "a sparse value": (torch.eye(2).to_sparse(), (2 * torch.eye(2)).to_sparse(), "result", "value"),
    "a device": (torch.ones(2), torch.ones(2, device="meta"), "result", "metadata"),
    "a length": ([1, 2], [1], "result", "type"),
    "keys": ({"a": 1}, {"b": 1}, "result", "type"),
    "the type of a key": ({1: 1}, {True: 1}, "result", "type"),
    "the order of an OrderedDict": (
        collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), "result", "type"
    ),
    "a set": ({1, 2}, {1, 3}, "result[1]", "value"),
    "deep inside": ({"a": [1, (2, torch.ones(1))]}, {"a": [1, (2, torch.zeros(1))]}, "result['a'][1][1]", "value"),
    "a dataclass's field": (Box(1), Box(2), "result.content", "value"),
    "a namedtuple's field": (Point(1, 2), Point(1, 3), "result.y", "value"),
    "an object's attribute": (Plain(a=1), Plain(a=2), "result.a", "value"),
    "a slot": (Slotted(1), Slotted(2), "result.a", "value"),
    "an attribute that is missing": (Plain(a=1), Plain(), "result", "type"),
    "an enum member": (Colour.RED, Colour.BLUE, "result", "value"),
    "an enum member and its value": (Level.LOW, 1, "result", "type"),
    "behind a cycle": (cycle(1), cycle(2), "result[0]", "value"),
    "a dtype as a value": (torch.float16, torch.float32, "result", "value"),
    "an array of strings": (np.array(["a", "b"]), np.array(["a", "c"]), "result[1]", "value"),
    "the shape of an array of strings": (np.array([["a"]]), np.array(["a"]), "result", "type"),
    "numpy's dtype": (np.ones(1, "f4"), np.ones(1, "f8"), "result", "dtype"),
    "another byte order": (np.arange(3, dtype=">i4"), np.arange(1, 4, dtype=">i4"), "result", "value"),
    "numpy's mask": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[0, 0]), "result.mask", "value"),
    "a date": (np.datetime64("2020-01-01"), np.datetime64("2020-01-02"), "result", "value"),
    "bytes that change": (bytearray(b"a"), bytearray(b"b"), "result", "value"),
    "a returned exception": (ValueError("a"), ValueError("b"), "result.args[0]", "value"),
    "bits of two bytes": (
        torch.tensor([1, 2], dtype=torch.int16).view(torch.bits16),
        torch.tensor([1, 3], dtype=torch.int16).view(torch.bits16),
        "result",
        "value",
    ),
    "a 0-d tensor of bits": (
        torch.tensor(1, dtype=torch.int16).view(torch.bits16),
        torch.tensor(2, dtype=torch.int16).view(torch.bits16),
        "result",
        "value",
    ),
    "a module's state": (torch.nn.BatchNorm1d(1), altered(torch.nn.BatchNorm1d(1)), "result['running_mean']", "value"),
    "bits": (
        torch.tensor([1], dtype=torch.uint8).view(torch.bits8),
        torch.tensor([2], dtype=torch.uint8).view(torch.bits8),
        "result",
        "value",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_both_ways(name):
    eager, other, where, kind = DIFFERENT[name]
    assert kinds(eager, other)[0] == (where, kind)
    assert kinds(other, eager)[0][1] == kind
