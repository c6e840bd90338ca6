import torch

from recapture import case
from recapture.cases.compiler import compiler


@case(example=lambda: (torch.ones(2),))
def fine(x):
    return x


@compiler('jit.trace')
def mine(fn, example):
    return fn
