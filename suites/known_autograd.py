"""Public issues about gradients, views and aliases under `torch.compile`; known_issues.toml has the facts."""

import torch

from recapture import case


def leaf(*shape):
    """Give random values that ask for a gradient."""
    return torch.randn(*shape, requires_grad=True)


@case(
    example=lambda: (leaf(5, 5), leaf(5)),
    held_out=[lambda: (torch.ones(5, 5, requires_grad=True), leaf(5))],
    compilers=("compile",),
)
def gradient_of_diagonal_scatter(x, source):
    """pytorch#183602: the gradient of a matrix whose diagonal was replaced: one everywhere but on the diagonal."""
    return torch.diagonal_scatter(x, source, 0).sum()


@case(
    example=lambda: (leaf(4, 8), leaf(4, 6)),
    held_out=[lambda: (torch.ones(4, 8, requires_grad=True), leaf(4, 6))],
    compilers=("compile",),
)
def gradient_of_slice_scatter(x, source):
    """pytorch#182012, #180164: the gradient of a matrix of which six columns were replaced."""
    return torch.slice_scatter(x, source, dim=1, start=0, end=6).sum(dim=1)


def adds_twice(x):
    """Add one column twice into another, through slices."""
    y = torch.zeros_like(x)
    y[:, 0] += x[:, 2].abs()
    y[:, 0] += x[:, 2].abs()
    return y.sum()


@case(
    example=lambda: (torch.randn(4, 3),),
    held_out=[lambda: (-torch.rand(4, 3),)],
    compilers=("compile",),
)
def functional_gradient_of_slices(x):
    """pytorch#136662: `torch.func.grad` of a function that adds twice into the same slice: 2 or -2."""
    return torch.func.grad(adds_twice)(x)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([5.0, -2.0]),)],
    compilers=("compile",),
)
def plus_zero_is_a_copy(x):
    """pytorch#197893: the sum with zero is a new tensor, and not the argument itself."""
    return x + 0


@case(
    example=lambda: (torch.tensor([[1.0, -2.0, 3.0, -4.0]]),),
    held_out=[lambda: (torch.tensor([[-5.0, 2.0, -3.0, 4.0]]),)],
    compilers=("compile",),
)
def absolute_value_of_windows(x):
    """pytorch#98143, #183888: takes the absolute value of overlapping windows in place."""
    y = x + 1
    windows = y.unfold(1, 2, 2)
    windows.abs_()
    return y, windows


@case(
    example=lambda: (torch.randn(3, requires_grad=True),),
    held_out=[lambda: (torch.rand(3),), lambda: (torch.rand(3, requires_grad=True),)],
    compilers=("compile:aot_eager",),
)
def first_for_inference_then_for_training(x):
    """pytorch#100977: one function is called with and without gradients; each call has its own graph."""
    with torch.set_grad_enabled(x.requires_grad):
        return (x * x).sum()
