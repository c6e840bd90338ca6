"""Where graphs break, how many come out, and what happens to side effects between them."""

import functools
import zlib
from typing import NamedTuple

import torch
from torch import nn

from recapture import case


@case(
    example=lambda: (torch.randn(1, 3, 64, 64),),
    held_out=[lambda: (torch.rand(1, 3, 64, 64),)],  # the same shape: exactly one graph is claimed
    claims={
        "compile:eager": [("T17", "right graphs=1"), ("T21", "pass graph_breaks=0")],
        "compile:fullgraph": ("T21", "pass"),
        "export:strict": [("T22", "pass"), ("S6", "pass")],
    },
    requires=("torchvision",),
    codegen_on=("cuda",),  # on a CPU, C++ for its 121 layers takes minutes in each of six cells
)
class DenseNet121(nn.Module):
    """A whole convolutional network, densenet121 of torchvision in evaluation mode: it is captured as one graph."""

    def __init__(self):
        super().__init__()
        from torchvision.models import densenet121

        self.network = densenet121(weights=None).requires_grad_(requires_grad=False)
        self.eval()

    def forward(self, images):
        return self.network(images)


@case(
    example=lambda: (torch.randn(10), torch.rand(10)),
    held_out=[lambda: (torch.randn(10), -torch.rand(10))],
    claims={
        "compile:eager": ("T18", "right graphs=3"),
        "compile:fullgraph": ("T20", "error"),
        "export:strict": [("T22", "error(capture)"), ("S6", "error(capture)")],
    },
)
def bar(a, b):
    """Negates b if its sum is negative: one graph before the branch and one for each path after it."""
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@case(
    example=lambda: (torch.randn(10), torch.rand(10)),
    claims={
        "compile:eager": [
            ("T19", "pass_with_breaks graphs=2 graph_breaks=1"),
            # `explain` of the source's release says "generic_jump TensorVariable()"; later releases say it otherwise.
            ("T19", "pass_with_breaks reason~generic_jump reason~TensorVariable()"),
            ("T19", "pass_with_breaks reason~graphs.py"),  # with the source line
            ("L4", "pass_with_breaks reason~jump"),  # in the words of any release: generic_jump, attempted to jump
        ],
    },
)
def bar_once(a, b):
    """The same function on one input alone, so that the other path is never compiled: two graphs and one break."""
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@case(
    example=lambda: (torch.tensor([1.0, 2.0, 3.0]),),
    held_out=[lambda: (torch.tensor([1.0, -2.0, 3.0]),), lambda: (torch.tensor([-1.0, -2.0, -3.0]),)],
    claims={"compile": ("L2", "pass_with_breaks")},
)
def item_in_condition(x):
    """Reads the sum of a mask with `.item()` in an `if`, a graph break; doubles the whole tensor or nothing."""
    mask = x > 0
    if mask.sum().item() > 0:
        return x * 2
    return x


@case(
    example=lambda: (torch.tensor([1.0, 2.0, 3.0]),),
    held_out=[lambda: (torch.tensor([1.0, -2.0, 3.0]),), lambda: (torch.tensor([-1.0, -2.0, -3.0]),)],
    rewrite_of=item_in_condition,
    claims={"eager": ("L2", "pass"), "compile:fullgraph": ("L2", "pass")},
)
def where_instead_of_item(x):
    """The fix offered for it: no break any more, but element by element it doubles what the original would not."""
    mask = x > 0
    return torch.where(mask, x * 2, x)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([1.0, -2.0]),)],
    claims={"compile": [("L3", "pass_with_breaks"), ("L4", "pass_with_breaks reason~jump")]},
)
def breaks_at_data_dependent_branch(x):
    """Breaks the graph at a branch on the values of a tensor."""
    y = torch.sin(x)
    if (x > 0).all():
        y = y + 1
    return torch.cos(y)


@case(
    example=lambda: (torch.randn(2, 3),),
    held_out=[lambda: (torch.randn(3, 3),), lambda: (torch.rand(2, 3),)],
    claims={"compile": ("L3", "pass_with_breaks")},
)
def breaks_at_library_call(x):
    """Calls a checksum written in C, which Dynamo cannot look into."""
    checksum = zlib.crc32(bytes(x.shape)) % 100
    return torch.sin(x) + checksum


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])),
    held_out=[lambda: (torch.tensor([-1.0, 5.0]), torch.tensor([0.0, 1.0]))],
    claims={"compile": ("L3", "pass_with_breaks")},
)
def breaks_at_data_attribute(x, y):
    """Replaces the values of a tensor through its Python attribute `data`: the caller's tensor changes."""
    x.data = y * 2
    return x + 1


class ClipIfLarge(torch.autograd.Function):
    """Halve in `forward` what sums up to more than one, and pass gradients through unchanged."""

    @staticmethod
    def forward(ctx, x):
        """Branch on the values: that is what breaks the graph."""
        return x / 2 if x.sum() > 1 else x.clone()

    @staticmethod
    def backward(ctx, gradient):
        """Pass the gradient through."""
        return gradient


@case(
    example=lambda: (torch.tensor([0.1, 0.2], requires_grad=True),),
    held_out=[lambda: (torch.tensor([3.0, 4.0], requires_grad=True),)],
    claims={"compile": ("L3", "pass_with_breaks")},
)
def breaks_at_autograd_function(x):
    """Applies a custom autograd Function that branches on data."""
    return ClipIfLarge.apply(torch.tanh(x) * 2) + 1


@case(
    example=lambda: (torch.randn(2, 3),),
    held_out=[lambda: (torch.randn(3, 2),), lambda: (torch.rand(2, 3),)],
    compare_output=True,
)
def prints_its_shape(x):
    """Prints at every call: the text must come out each time and not only while capturing."""
    print("shape", x.shape[0])
    return x + 1


CALLS = {"count": 0}


def calls_seen():
    """Give the global counter."""
    return CALLS["count"]


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),), lambda: (torch.full((2,), 3.0),)],
    watch=calls_seen,
)
def counts_calls_globally(x):
    """Counts its calls in a global dict and uses the count."""
    CALLS["count"] += 1
    return x * CALLS["count"]


@case(
    example=lambda: (torch.ones(2), []),
    held_out=[lambda: (torch.zeros(2), []), lambda: (torch.ones(2), [torch.ones(1)])],
)
def appends_to_argument(x, history):
    """Appends to a list that the caller passes in."""
    history.append(x * 2)
    return x + len(history)


@case(
    example=lambda: (torch.rand(3), 3),
    held_out=[lambda: (torch.rand(3), 5), lambda: (torch.rand(3), 0)],
)
def recursive_power(x, n: int):
    """Calls itself n times: annotated, because TorchScript would take n for a tensor."""
    if n == 0:
        return torch.ones_like(x)
    return x * recursive_power(x, n - 1)


class Extremes(NamedTuple):
    """The smallest and the largest value."""

    low: torch.Tensor
    high: torch.Tensor


@case(example=lambda: (torch.randn(4),), held_out=[lambda: (torch.rand(4),)])
def returns_named_tuple(x):
    """Returns a named tuple: its type and its field names belong to the result."""
    return Extremes(low=x.min(), high=x.max())


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),), lambda: (torch.full((2,), 3.0),)],
)
class CountsItsCalls(nn.Module):
    """Keeps a Python int on the module and adds it in: captured once, the count may stay where it was."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


SCALES = {"now": 1.0}


@functools.cache
def cached_scale(name):
    """Read a global once for each name; later changes are not seen."""
    return SCALES[name]


@case(
    example=lambda: (torch.ones(2), 2.0),
    held_out=[lambda: (torch.ones(2), 3.0), lambda: (torch.zeros(2), 4.0)],
)
def reads_through_a_cache(x, scale: float):
    """Changes a global and reads it through `functools.cache`, which must keep giving the first value."""
    SCALES["now"] = scale
    return x * cached_scale("now")


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),)],
    since="2.3",
)
def asks_whether_compiling(x):
    """Takes another path while being compiled: allowed, used by libraries, and a difference from eager by design."""
    if torch.compiler.is_compiling():
        return x + 1
    return x + 2
