"""Operators that take functions: cond, while_loop, vmap, functional calls, checkpoints and nested compilation."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from recapture import case


def cond(*arguments):
    """Call `torch.cond`, which older releases keep elsewhere."""
    return torch.cond(*arguments)


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (-torch.ones(3),)],
    since="2.4",
)
def cond_on_data(x):
    """Chooses between two functions by the sign of a sum: both are captured."""
    return cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))


def branch_instead_of_cond(x):
    """Choose by a Python branch."""
    return x * 2 if x.sum() > 0 else x - 1


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (-torch.ones(3),)],
    since="2.4",
    rewrite_of=branch_instead_of_cond,
)
def cond_as_a_rewrite(x):
    """The rewrite that the errors of `torch.export` propose for a branch on the values."""
    return cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))


def double_until_large(x):
    """Double until the sum is at least 100."""
    x = x.clone()
    while x.sum() < 100:
        x = x * 2
    return x


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.full((3,), 50.0),), lambda: (torch.full((3,), 0.1),)],
    since="2.5",
    rewrite_of=double_until_large,
)
def while_loop_as_a_rewrite(x):
    """Doubles until the sum is large with the `while_loop` operator: the number of rounds depends on the values."""
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda y: y.sum() < 100, lambda y: (y * 2,), (x,))[0]


@case(
    example=lambda: (torch.arange(6.0).reshape(2, 3), torch.ones(3)),
    held_out=[lambda: (torch.arange(12.0).reshape(4, 3), torch.ones(3))],
)
def vmap_over_rows(x, y):
    """Maps a function of one row over all rows; the other argument is the same for each."""
    return torch.func.vmap(lambda row, other: (row * other).sum() + row[0], in_dims=(0, None))(x, y)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-3.0, 0.0]),)],
)
def gradient_as_a_function(x):
    """Takes the gradient of a function with `torch.func.grad`, and the value beside it."""
    return torch.func.grad_and_value(lambda y: (y**3).sum())(x)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0])),
    held_out=[lambda: (torch.tensor([-3.0, 4.0]), torch.tensor([0.5, 2.0]))],
)
def forward_derivative(x, direction):
    """Takes a directional derivative in forward mode with `torch.func.jvp`."""
    return torch.func.jvp(lambda y: torch.sin(y) * y, (x,), (direction,))


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-3.0, 0.5]),)],
)
def hessian_of_a_cube(x):
    """Takes second derivatives with `torch.func.hessian`: twice over a function."""
    return torch.func.hessian(lambda y: (y**3).sum() + y[0] * y[1])(x)


@case(
    example=lambda: (torch.ones(2, 3), {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}),
    held_out=[lambda: (torch.ones(2, 3), {"weight": torch.full((2, 3), 2.0), "bias": torch.ones(2)})],
)
class CalledWithOtherWeights(nn.Module):
    """Calls a module with weights that are given at each call, through `torch.func.functional_call`."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x, weights):
        return torch.func.functional_call(self.linear, weights, (x,))


@case(
    example=lambda: (torch.randn(2, 4, requires_grad=True),),
    held_out=[lambda: (torch.randn(3, 4, requires_grad=True),)],
)
class CheckpointedBlock(nn.Module):
    """Runs a block under a checkpoint, which computes it again in the backward: gradients stay the same."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False) + x


@case(
    example=lambda: (torch.ones(2, 16, requires_grad=True),),
    held_out=[lambda: (torch.full((2, 16), 2.0, requires_grad=True),)],
)
def dropout_under_a_checkpoint(x):
    """Drops values under a checkpoint: the second run of the block must drop the same ones."""

    def block(y):
        kept = torch.nn.functional.dropout(y, 0.5, training=True)
        return torch.where(kept == 0, y, kept / 2)

    return checkpoint(block, x, use_reentrant=False)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])),
    held_out=[lambda: (torch.tensor([-1.0, 0.5]), torch.tensor([2.0, -4.0]))],
)
def vmap_of_a_gradient(x, y):
    """Takes a gradient for each element of a batch: `vmap` over `grad`."""
    return torch.func.vmap(torch.func.grad(lambda a, b: (a * b) ** 2))(x, y)


@case(
    example=lambda: (torch.ones(3, requires_grad=True),),
    held_out=[lambda: (torch.full((3,), 2.0, requires_grad=True),)],
)
class FunctionCompiledInside(nn.Module):
    """Calls a function that is compiled on its own from a module that is captured again."""

    def __init__(self):
        super().__init__()
        self.inner = torch.compile(lambda y: torch.sin(y) * 2, backend="eager")

    def forward(self, x):
        return self.inner(x) + x


def clip(x):
    """Clip by a branch on the values."""
    if bool(x.sum() > 0):
        return x.clamp(max=0.5)
    return x.clamp(min=-0.5)


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (-torch.ones(3),)],
)
class CallsAScriptedFunction(nn.Module):
    """Calls a function of TorchScript that branches on the values, which the other compilers did not make."""

    def __init__(self):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.clip = torch.jit.script(clip)

    def forward(self, x):
        return self.clip(x * 2) + 1
