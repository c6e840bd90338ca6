from __future__ import annotations

import numpy as np
import torch
from recapture import case, compiler

SCALE = 2
COUNTS = {"calls": 0}


def helper(x):
    return x * SCALE


@case(
    example=lambda: (torch.ones(2),),
    held_out=[
        lambda: (-torch.ones(2),),  # the other branch
    ],
    claims={"jit.trace": ("T1", "specialized")},
)
def branch(x: torch.Tensor):
    """Takes a branch \\d "quoted"."""
    if x.sum() > 0:
        return helper(x)
    return x - 1


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.ones(2),)])
def counts(x):
    COUNTS["calls"] += 1
    return x + COUNTS["calls"]


@case(example=lambda: (torch.rand(1, 3),), held_out=[lambda: (torch.zeros(1, 3),)])
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x)


@case(example=lambda: (torch.ones(2), 3, True), held_out=[lambda: (torch.ones(2), 4, True)], concrete_args=["flag"])
def chosen(x, n, flag):
    return x * n if flag else x


def inputs():
    return (torch.from_numpy(np.random.rand(2)),)


@case(example=inputs)
def with_numpy(x):
    return x + np.pi


@case(example=lambda: (torch.ones(2),))
def in_place(x):
    y = x.add_(1)
    return y * 2


def seed(x):
    return x * 7


def place(x):
    return x + 1


@case(example=lambda: (torch.ones(2),))
def observe(x):
    return place(seed(x))


@case(example=lambda: (torch.ones(2),), rewrite_of=helper)
def rewritten(x):
    return x + x + 1


@case(example=lambda: (torch.ones(2),))
def numpy_scalar(x):
    return np.float32(2)


@case(example=lambda: (torch.ones(2),))
def nested(x):
    return {"sum": (x / 3).sum(), "all": [x, 2.0]}


SHARED = {"example": lambda: (1,)}


@case(example=lambda: (torch.ones(4),), held_out=[lambda: (torch.ones(2),), lambda: (torch.arange(6.0)[4:],)])
def doubles(x):
    return x * 2


@case(**SHARED)
def hidden(x):
    return x


@compiler("mine")
def own(fn, example):
    """Adds what it was captured with."""
    return lambda x: fn(x) + example[0].sum()


@compiler("reads-on", checks_inputs=False)
def reads_on(fn, example):
    """Reads as much as the example had, whatever it is given."""
    size = example[0].numel()
    return lambda x: fn(x.as_strided((size,), (1,)))


@compiler("as-array")
def as_array(fn, example):
    """Gives an array."""
    return lambda x: np.asarray(fn(x))


@compiler("rounds")
def rounds(fn, example):
    """Is not exact."""
    return lambda x: {**fn(x), "sum": fn(x)["sum"] + 6e-8}


def made(name):
    @compiler(name)
    def capture(fn, example):
        return fn


made("made")


for number in (0, 7):

    @compiler(f"loop{number}")
    def loop(fn, example, number=number):
        return lambda *args: fn(*args)


@compiler("helped")
def helped(fn, example):
    return helper(fn)


@case(example=lambda: (torch.ones(2),))
def prints(x):
    print("once")
    return x


@compiler("silent")
def silent(fn, example):
    return lambda x: x


@case(example=lambda: (torch.ones(2),))
def make_fx(x):
    return x


@compiler("casts")
def casts(fn, example):
    """Forgets a dtype."""
    return lambda x: {**fn(x), "all": [x.long(), 2.0]}


@case(example=lambda: (torch.ones(2),))
def raises_unprintable(x):
    raise ValueError("a" + chr(0) + chr(27) + "[31m" + chr(0x202E) + "b" + chr(10) + chr(9) + "c")


@compiler("raises-another")
def raises_another(fn, example):
    def captured(x):
        raise TypeError(chr(27) + "]0;title" + chr(7))

    return captured
