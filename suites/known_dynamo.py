"""Public issues about Python that `torch.compile` gets wrong before any code is generated, one a case.

Most show with the backend that runs the captured graph as it is (`compile:eager`). known_issues.toml has the facts.
"""

import random

import torch
from torch import nn

from recapture import case


@case(
    example=lambda: (torch.ones(1),),
    held_out=[lambda: (torch.full((1,), 5.0),)],
    compilers=("compile:eager",),
)
def list_grows_while_iterated(x):
    """pytorch#175855: a generator walks through a list and appends to it."""
    values = [x.sum()]

    def grow():
        for item in values:
            if len(values) < 3:
                values.append(item + 1)
            yield item

    return torch.stack(list(grow())).sum()


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),)],
    compilers=("compile:eager",),
)
def map_is_no_tuple(x):
    """pytorch#130750: asks whether `map` gives a tuple."""
    doubled = map(abs, (1, -2))
    return x + 1 if isinstance(doubled, tuple) else x - 1


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),)],
    compilers=("compile:eager",),
)
def items_are_no_tuple(x):
    """pytorch#150110: asks whether the items of a dict are a tuple or a list."""
    items = {"a": 1, "b": "2"}.items()
    return x + 1 if isinstance(items, (tuple, list)) else x - len(items)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([3.0, 5.0]),)],
    watch=lambda target, result: [value.tolist() for value in result[1]] if isinstance(result, tuple) else None,
    compilers=("compile:eager",),
)
def generator_leaves_the_function(x):
    """pytorch#198190: returns a generator, which the caller runs afterwards."""
    scale = x.sum()
    lazy = (scale * k for k in range(3))
    scale = scale + 10
    return x + 1, lazy


class Recorder(nn.Module):
    """Hold a list on the class, which all instances share."""

    items: list[float] = []  # noqa: RUF012 - shared by design

    def forward(self, x):
        Recorder.items.append(1.0)
        return x * 2


def items_of_the_class():
    """Give what the class has recorded."""
    return list(Recorder.items)


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),), lambda: (torch.full((2,), 3.0),)],
    watch=items_of_the_class,
    reset=Recorder.items.clear,
    compilers=("compile:eager",),
)
class AppendsToTheClass(nn.Module):
    """pytorch#169253: a forward appends to a list that belongs to the class and not to the module."""

    def __init__(self):
        super().__init__()
        self.recorder = Recorder()

    def forward(self, x):
        return self.recorder(x)


def make_touching():
    """Make a function whose local class appends to a list of the closure."""
    state = []

    class Helper:
        def touch(self):
            state.append(1)

    def touching(x):
        Helper().touch()
        return x + 1

    return touching, state


TOUCHING, TOUCHED = make_touching()


def touches():
    """Give the number of entries of the closure's list."""
    return len(TOUCHED)


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),), lambda: (torch.full((2,), 3.0),)],
    watch=touches,
    reset=TOUCHED.clear,
    compilers=("compile:fullgraph",),
)
def local_class_changes_a_closure(x):
    """pytorch#197896: a method of a class inside a function appends to a list of the closure."""
    return TOUCHING(x)


@case(
    example=lambda: ([1, 2],),
    held_out=[lambda: ([3, 4],), lambda: ([5, 6],)],
    compilers=("compile",),
)
def tensor_from_a_list_of_ints(numbers):
    """pytorch#135432: `torch.Tensor` of Python ints, called again with other ints."""
    return torch.Tensor(numbers).to("cpu")


STREAM = random.Random(0)  # noqa: S311 - the stream is the point


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.full((3,), 2.0),), lambda: (torch.full((3,), 4.0),)],
    reset=lambda: STREAM.seed(0),
    compilers=("compile",),
)
def own_stream_of_random(x):
    """pytorch#198187: multiplies by a number from a `random.Random` of its own."""
    return x * STREAM.random()


@case(
    example=lambda: (torch.arange(12.0),),
    held_out=[lambda: (torch.arange(12.0) * 2,), lambda: (torch.arange(12.0) * 3,)],
    reset=lambda: random.seed(0),
    compilers=("compile:eager",),
)
def shuffles_a_list(x):
    """pytorch#197085: `random.shuffle` draws another order at each call."""
    order = list(range(12))
    random.shuffle(order)
    return x[torch.tensor(order, device=x.device)]


def size_under(dtype):
    """Set the default dtype, as a program does between two calls, and give the same argument each time."""
    torch.set_default_dtype(dtype)
    return (torch.zeros(2, dtype=torch.int32),)


@case(
    example=lambda: size_under(torch.float32),
    held_out=[lambda: size_under(torch.float64), lambda: size_under(torch.float32)],
    compilers=("compile",),
)
def default_dtype_changes(x):
    """pytorch#184405: makes ones in the default dtype, which the caller changes between the calls."""
    return torch.ones(2, device=x.device) + x


def grad_inside_no_grad(x):
    """Turn gradients on inside a function that is called without them."""
    with torch.no_grad():
        return gradients_on(x)


def gradients_on(x):
    """Add one with gradients on."""
    with torch.enable_grad():
        return x + 1


@case(
    example=lambda: (torch.zeros(4, requires_grad=True),),
    held_out=[lambda: (torch.ones(4, requires_grad=True),)],
    rewrite_of=grad_inside_no_grad,
    compilers=(),
)
class GradInsideNoGrad(nn.Module):
    """pytorch#114338: compiles a function that turns gradients on, and calls it with gradients off."""

    def __init__(self):
        super().__init__()
        self.compiled = torch.compile(gradients_on, backend="aot_eager")

    def forward(self, x):
        with torch.no_grad():
            return self.compiled(x)
