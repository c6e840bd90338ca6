"""Workloads that take no time, and compilers that fail in every way."""

import os
import time

import torch
from torch import nn
from torch.nn import functional as F

from recapture import compiler, workload


@workload(inputs=lambda: (torch.randn(32, 64),), claims={"fx": [("X1", ">=0.1", "1x"), ("X2", ">=1000", "2000x")]})
def tiny_eval():
    """Two linear layers."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


@workload(
    inputs=lambda: (torch.randn(32, 64),),
    targets=lambda: (torch.randint(8, (32,)),),
    loss=F.cross_entropy,
    optimizer=torch.optim.Adam,
    whole_step=True,
)
def tiny_train():
    """A training step of the same, with a norm that keeps statistics."""
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8))


@workload(inputs=lambda: (torch.randn(32, 64),), no_grad=False)
def tiny_with_grad():
    """The first again, its results keeping a backward pass pending."""
    return tiny_eval()


@workload(inputs=lambda: (torch.randn(32, 64),))
def drops_out():
    """Draws random numbers also in eval mode: nothing to compare with."""

    class Drops(nn.Module):
        def forward(self, x):
            return F.dropout(x, training=True)

    return Drops()


@compiler("slightly-wrong")
def slightly_wrong(fn, example):
    """Returns one per cent more."""
    return lambda *args: fn(*args) * 1.01


@compiler("wrong-later")
def wrong_later(fn, example):
    """Returns what the first call returned, as a graph replayed on stale inputs does."""
    first = []

    def call(*args):
        first.append(fn(*args))
        return first[0]

    return call


@compiler("wrong-gradients")
def wrong_gradients(fn, example):
    """Right values, twice the gradient of the last bias."""
    fn[-1].bias.register_hook(lambda grad: grad * 2)
    return fn


@compiler("slower")
def slower(fn, example):
    """Half as fast: everything twice."""

    def call(*args):
        fn(*args)
        return fn(*args)

    return call


@compiler("raises")
def raises(fn, example):
    """Refuses."""
    raise NotImplementedError("this model cannot be captured")


@compiler("dies")
def dies(fn, example):
    """Takes the process with it."""
    os.abort()


@compiler("hangs")
def hangs(fn, example):
    """Never comes back."""
    while True:
        time.sleep(0.1)


@compiler("runs-out-of-memory")
def runs_out_of_memory(fn, example):
    """Says what CUDA says."""

    def call(*args):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB")

    return call
