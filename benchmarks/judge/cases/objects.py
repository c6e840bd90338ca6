"""Cases whose results are objects of own classes, functions, deep and many values, and tensors with properties."""

import types

import numpy as np
import torch

from recapture import case


def vector():
    return (torch.ones(3),)


def twos():
    return (torch.full((3,), 2.0),)


def threes():
    return (torch.full((3,), 3.0),)


class Numbered(int):
    """A number with attributes."""


class Listed(list):
    """A list with attributes."""


class Keyed(dict):
    """A dict with attributes."""


class Arrayed(np.ndarray):
    """An array with attributes."""


class Marked(torch.Tensor):
    """A tensor with attributes."""


class Key:
    """A key that is equal to every other one, and has the same text."""

    def __init__(self, mark):
        self.mark = mark

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

    def __repr__(self):
        return "Key"

    def method(self):
        return self.mark


def marked(value):
    value.mark = 1
    return value


@case(example=vector, held_out=[twos])
def own_classes(x):
    """Returns values of classes that derive from those of Python, numpy and torch, each with an attribute."""
    doubled = (x * 2).as_subclass(Marked)
    return x * 2, [marked(value) for value in (Numbered(1), Listed([1]), Keyed(a=1), np.ones(2).view(Arrayed), doubled)]


@case(example=vector, held_out=[twos])
def keys_with_attributes(x):
    """Returns a dict with a key whose text leaves something out."""
    return {Key(1): x * 2}


def scaled_by(number):
    return lambda x: x * number


@case(example=vector, held_out=[twos])
def functions(x):
    """Returns a function with a closure, one with a default, and a method."""

    def with_default(value, number=1):
        return value * number

    return x * 2, [scaled_by(2), with_default, Key(1).method]


@case(example=vector, held_out=[twos, threes])
def containers(x):
    """Returns what a caller may keep: a list, a dict and an object."""
    return [x * 2, {"doubled": x * 2}, types.SimpleNamespace(doubled=x * 2, calls=1)]


@case(example=vector, held_out=[twos])
def nested_dicts(x):
    """Returns a tensor in 30 dicts."""
    value = x * 2
    for _ in range(30):
        value = {"next": value}
    return value


@case(example=vector, held_out=[twos])
def linked_objects(x):
    """Returns 200 objects of which each holds the next."""
    first = None
    for number in range(200):
        first = types.SimpleNamespace(next=first, number=number)
    return x * 2, first


@case(example=vector, held_out=[twos])
def many_tensors(x):
    """Returns 1,500 tensors and a text of a million letters."""
    return [x[:1] + number for number in range(1500)], "a" * 1_000_000


@case(example=lambda: (torch.eye(4),), held_out=[lambda: (torch.ones(4, 4),)])
def tensors_with_properties(x):
    """Returns tensors with names, blocks, scales and inner lengths."""
    scales, zeros = torch.tensor([0.5, 0.25, 0.5, 0.25]), torch.zeros(4, dtype=torch.long)
    return [
        (x * 2).rename("rows", "columns"),
        (x * 2).to_sparse_bsr((2, 2)),
        (x * 2).to_sparse(),
        torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8),
        torch.nested.nested_tensor([x[0, :2], x[1, :3]], layout=torch.jagged),
    ]


def needs_gradient(start):
    return lambda: (torch.arange(3.0).add(start).requires_grad_(),)


@case(example=needs_gradient(0), held_out=[needs_gradient(1)])
def keeps_an_inner_gradient(x):
    """Returns a tensor that is no leaf and has a gradient."""
    inner = x * 2
    inner.retain_grad()
    (inner * 3).sum().backward()
    x.grad = None
    return inner
