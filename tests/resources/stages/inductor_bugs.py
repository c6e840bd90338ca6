"""Three faults of Inductor in torch 2.11.0, each known from a public issue."""

import torch

from recapture import case


@case(example=lambda: (torch.randn(5, 7),))
def argmin_of_a_transpose(x):
    """The index of the smallest value of a transposed argument that was changed in place."""
    x.sin_()
    return x.t().argmin()


@case(example=lambda: (torch.tensor([1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0]), torch.full((8,), float("inf"))))
def remainder_of_infinity(x, y):
    """The remainder of a division by infinity, which is the number itself or infinity."""
    return torch.remainder(x, y)


@case(example=lambda: (torch.randn(3, 3, requires_grad=True), torch.randn(3)))
def gradient_of_a_scatter(x, source):
    """The gradient of a sum after a diagonal was replaced."""
    torch.diagonal_scatter(x, source, 0).sum().backward()
    return x.grad
