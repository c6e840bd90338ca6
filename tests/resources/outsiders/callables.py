"""Targets that are called like functions and are none, with a branch that a trace does not keep."""

import functools

import torch


def scaled(x, k, scale=2):
    return x * k if x.sum() > 0 else x * scale


partial = functools.partial(scaled, k=3)
anonymous = lambda x: x * 3 if x.sum() > 0 else x  # noqa: E731 - a lambda is what is tried


class Scaling:
    def __call__(self, x):
        return x * 3 if x.sum() > 0 else x

    @classmethod
    def of_class(cls, x):
        return x * 3 if x.sum() > 0 else x


called = Scaling()
method = called.__call__
of_class = Scaling.of_class


@functools.wraps(scaled)
def decorated(x):
    return scaled(x, 3)


def with_defaults(x=None):
    return x * 3 if x.sum() > 0 else x


def case(x):
    return x * 3 if x.sum() > 0 else x


builtin = torch.relu
operator = torch.ops.aten.relu
overload = torch.ops.aten.relu.default
sequential = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
forward = sequential.forward


def yields():
    yield torch.ones(3)


def nothing():
    pass
