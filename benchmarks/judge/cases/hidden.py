"""Cases whose effects are easy to overlook: state made on first use, generators, deep and many values, buffers."""

import collections
import io
import os
import random

import numpy as np
import torch

from recapture import case

GENERATOR = torch.Generator().manual_seed(3)


def vector():
    return (torch.ones(3),)


def zeros():
    return (torch.zeros(3),)


@case(example=vector, held_out=[zeros])
def makes_a_global(x):
    """Makes a global variable in its first call."""
    global last_sum
    last_sum = float(x.sum())
    return x * 2


@case(example=vector, held_out=[zeros])
def makes_a_function_attribute(x):
    """Makes an attribute of the function in its first call."""
    makes_a_function_attribute.calls = getattr(makes_a_function_attribute, "calls", 0) + 1
    return x * 2


class Cache:
    """A class without attributes of its own."""


@case(example=vector, held_out=[zeros])
def makes_a_class_attribute(x):
    """Makes an attribute of a class in its first call."""
    Cache.calls = getattr(Cache, "calls", 0) + 1
    return x * 2


def with_generators(seed):
    return lambda: (
        torch.ones(3),
        torch.Generator().manual_seed(seed),
        random.Random(seed),
        np.random.default_rng(seed),
    )


@case(example=with_generators(1), held_out=[with_generators(2)])
def takes_generators(x, generator, python, numpy):
    """Uses the generators that it gets."""
    return x + torch.rand(3, generator=generator) + python.random() + float(numpy.random())


@case(example=vector, held_out=[zeros])
def uses_a_global_generator(x):
    """Uses a generator of the file."""
    return x + torch.rand(3, generator=GENERATOR)


@case(example=vector, held_out=[zeros], strict=("environment",))
def sets_a_variable(x):
    """Sets an environment variable."""
    os.environ["RECAPTURE_BENCHMARK"] = "1"
    return x * 2


@case(example=vector, held_out=[zeros])
def deep(x):
    """Returns a tensor in 40 lists."""
    value = x * 2
    for _ in range(40):
        value = [value]
    return value


class Item:
    """An object with a number."""

    def __init__(self, number):
        self.number = number


@case(example=vector, held_out=[zeros])
def many(x):
    """Returns a tensor with 2,000 objects."""
    return x * 2, [Item(number) for number in range(2000)]


@case(example=vector, held_out=[zeros])
def expanded(x):
    """Returns a view that repeats one element a million times a million."""
    return (x * 2)[:1].expand(10**12)


@case(example=lambda: (torch.ones(3), torch.zeros(3)), held_out=[lambda: (torch.zeros(3), torch.ones(3))])
def two_arguments(x, y):
    """Gets two tensors of one size."""
    return x + y


@case(example=vector, held_out=[zeros])
def buffers(x):
    """Returns a memoryview, a stream and a deque."""
    return x * 2, memoryview(b"abc"), io.StringIO("text"), collections.deque([1, 2], maxlen=3)


@case(example=lambda: (torch.eye(3),), held_out=[lambda: (torch.ones(3, 3),)])
def sparse_rows(x):
    """Returns a matrix in the CSR layout."""
    return (x * 2).to_sparse_csr()
