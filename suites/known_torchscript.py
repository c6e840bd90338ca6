"""Public issues about TorchScript, FX and export, one a case; known_issues.toml has the facts.

TorchScript is no longer developed, so most of its threads are closed without a fix. A case that is a module holds an
optimised function and is compared with the plain one: its `eager` cell says whether the optimisation was right.
"""

import io
import warnings

import torch
import torch.fx
from torch import nn
from torch.nn import functional

from recapture import case


class Wrapped(nn.Module):
    """Hold a function as a module, because only modules can be optimised for inference."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def optimized(function, *example):
    """Trace a function, optimise the trace for inference, and give it as a file's content."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(Wrapped(function).eval(), example, check_trace=False)
        torch.jit.save(torch.jit.optimize_for_inference(traced), file)
    return file.getvalue()


def run(saved, *arguments):
    """Load a saved trace and call it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.load(io.BytesIO(saved))(*arguments)


def argmin_then_write(x, y):
    """Take the index of the smallest value in each row, then overwrite the argument."""
    smallest = torch.argmin(x, dim=1)
    torch.special.erfc(y, out=x)
    return smallest


@case(
    example=lambda: (torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[2.0, 1.0, -1.0]])),
    held_out=[lambda: (torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[-1.0, 1.0, 5.0]]))],
    rewrite_of=argmin_then_write,
    compilers=(),
)
class OptimizedArgminThenWrite(nn.Module):
    """pytorch#118463: `optimize_for_inference` may move a search behind a write to its operand."""

    def __init__(self):
        super().__init__()
        self.saved = optimized(argmin_then_write, torch.rand(1, 3), torch.rand(1, 3))

    def forward(self, x, y):
        return run(self.saved, x, y)


def selu_then_threshold(x):
    """Apply selu, then replace small values of the argument in place."""
    y = functional.selu(x)
    z = functional.threshold(x, 7.2, -0.54, inplace=True)
    return y, z


@case(
    example=lambda: (torch.tensor([1.0, -2.0, 9.0]),),
    held_out=[lambda: (torch.tensor([8.0, 0.5, -3.0]),)],
    rewrite_of=selu_then_threshold,
    compilers=(),
)
class OptimizedSeluThenThreshold(nn.Module):
    """pytorch#118401: `optimize_for_inference` may move selu behind a threshold in place."""

    def __init__(self):
        super().__init__()
        self.saved = optimized(selu_then_threshold, torch.rand(3))

    def forward(self, x):
        return run(self.saved, x)


def silu_then_loss(x, target):
    """Apply silu in place, then compute a loss of the argument."""
    y = functional.silu(x, inplace=True)
    return y, functional.poisson_nll_loss(x, target)


@case(
    example=lambda: (torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, 0.0, 2.0])),
    held_out=[lambda: (torch.tensor([0.5, 4.0, -3.0]), torch.tensor([2.0, 2.0, 1.0]))],
    rewrite_of=silu_then_loss,
    compilers=(),
)
class OptimizedSiluThenLoss(nn.Module):
    """pytorch#118462: `optimize_for_inference` may move a loss before the change of its argument."""

    def __init__(self):
        super().__init__()
        self.saved = optimized(silu_then_loss, torch.rand(3), torch.rand(3))

    def forward(self, x, target):
        return run(self.saved, x, target)


def pool_then_threshold(x):
    """Pool an argument after relu in place, then replace its small values."""
    pooled = functional.adaptive_avg_pool1d(torch.relu_(x), 2)
    replaced = functional.threshold_(torch.relu_(x), 6.7, 9.5)
    return pooled, replaced


@case(
    example=lambda: (torch.tensor([[1.0, -2.0, 9.0, 3.0]]),),
    held_out=[lambda: (torch.tensor([[8.0, 7.0, -3.0, 1.0]]),)],
    rewrite_of=pool_then_threshold,
    compilers=(),
)
class OptimizedPoolThenThreshold(nn.Module):
    """pytorch#118302: `optimize_for_inference` may pool after a threshold in place."""

    def __init__(self):
        super().__init__()
        self.saved = optimized(pool_then_threshold, torch.rand(1, 4))

    def forward(self, x):
        return run(self.saved, x)


def scale_in_place(x, scale):
    """Scale the argument in place and return it."""
    x.mul_(scale)
    return x


@case(
    example=lambda: (torch.ones(3), torch.tensor(2.0)),
    held_out=[lambda: (torch.full((3,), 5.0), torch.tensor(3.0))],
    rewrite_of=scale_in_place,
    compilers=(),
)
class DeadCodeRemoved(nn.Module):
    """pytorch#68301: `eliminate_dead_code` of FX removes a change in place whose result nobody reads."""

    def __init__(self):
        super().__init__()
        module = torch.fx.symbolic_trace(scale_in_place)
        module.graph.eliminate_dead_code()
        module.recompile()
        self.cleaned = module

    def forward(self, x, scale):
        return self.cleaned(x, scale)


@case(
    example=lambda: (torch.ones(2), 2),
    held_out=[lambda: (torch.ones(2), 0), lambda: (torch.ones(2), -4)],
    compilers=("jit.script",),
)
def divides_by_an_int(x, n: int):
    """pytorch#53744: one divided by a Python zero, which raises ZeroDivisionError in Python."""
    return x + 1 / n


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([5.0, -1.0]),)],
    compilers=("jit.trace",),
)
def adds_to_a_zero(x):
    """pytorch#28360: adds the argument twice to a Python zero, which must leave the argument as it is."""
    total = 0
    total += x
    total += x
    return total


@case(
    example=lambda: (torch.randn(2, 4, requires_grad=True), torch.ones(4, requires_grad=True)),
    held_out=[
        lambda: (torch.randn(2, 4, requires_grad=True), torch.rand(4, requires_grad=True)),
        lambda: (torch.rand(2, 4, requires_grad=True), torch.rand(4, requires_grad=True)),
        lambda: (torch.rand(2, 4, requires_grad=True) * 3, torch.rand(4, requires_grad=True)),
    ],
    compilers=("jit.script",),
)
def layer_norm_by_hand(x, weight):
    """pytorch#108670: a layer norm by hand, whose gradients were wrong from the third call on."""
    mean = x.mean(-1, keepdim=True)
    deviation = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(deviation + 1e-5) * weight


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.full((3,), 2.0),)],
    since="2.1",
    compilers=("export:nonstrict",),
)
class EmptyBufferFilled(nn.Module):
    """pytorch#163189: fills a buffer that was None; after an export the original module must still hold real values."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", None)

    def forward(self, x):
        if self.kept is None:
            self.kept = x * 2
        return x + self.kept
