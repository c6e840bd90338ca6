"""Public issues about lost checks, one a case: eager refuses a bad argument, and the compiled code returns something.

The umbrella thread is pytorch#197554. Each example is a good argument, which both sides must take; the held-out input
is the bad one.
"""

import torch
from torch import nn
from torch.nn import functional

from recapture import case


@case(
    example=lambda: (torch.full((3,), 0.5), torch.ones(3)),
    held_out=[lambda: (torch.ones(3), 1.5 * torch.ones(3))],
    compilers=("compile",),
)
def cross_entropy_of_a_target_above_one(x, target):
    """pytorch#193757: targets of a binary cross entropy that are no probabilities."""
    return functional.binary_cross_entropy(x, target)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), torch.tensor([1.5, 4.0]), 1.0),
    held_out=[lambda: (torch.tensor([1.0, 2.0]), torch.tensor([1.5, 4.0]), -1.0)],
    compilers=("compile",),
)
def smooth_loss_with_a_negative_beta(x, y, beta: float):
    """pytorch#194501: `smooth_l1_loss` with a negative beta."""
    return functional.smooth_l1_loss(x, y, beta=beta)


@case(
    example=lambda: (torch.tensor([1.0, -2.0], dtype=torch.float64),),
    held_out=[lambda: (torch.tensor([1.0, -2.0]),)],
    compilers=("compile",),
)
def clamp_beyond_the_dtype(x):
    """pytorch#195675: bounds of a clamp that float32 cannot hold."""
    return torch.clamp(x, -3.4e39, 3.4e39)


@case(
    example=lambda: (torch.tensor([[2.0, 1.0], [1.0, 2.0]]),),
    held_out=[lambda: (torch.tensor([[1.0, 2.0], [2.0, 1.0]]),)],
    compilers=("compile",),
)
def cholesky_of_an_indefinite_matrix(x):
    """pytorch#182965: the Cholesky factor of a matrix that is not positive definite."""
    return torch.linalg.cholesky(x)


@case(
    example=lambda: (torch.tensor([4.0, 5.0, 6.0]),),
    held_out=[lambda: (torch.tensor([1.0, 2.0, 3.0]),)],
    compilers=("compile",),
)
def select_outside_a_new_dimension(x):
    """pytorch#183769: the second entry of a dimension of size one, plus one."""
    return torch.select(x.unsqueeze(1), 1, 1) + 1


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), torch.tensor([1])),
    held_out=[lambda: (torch.tensor([1.0, 2.0]), torch.tensor([2]))],
    compilers=("compile",),
)
def index_select_outside(x, index):
    """pytorch#121251: `index_select` of the third of two values."""
    return torch.index_select(x, 0, index) * 2


@case(
    example=lambda: (torch.zeros(4), torch.zeros(4)),
    held_out=[lambda: (torch.zeros(4), torch.full((4,), -1.0))],
    compilers=("compile",),
)
def normal_with_a_negative_deviation(mean, deviation):
    """pytorch#185248: normal random numbers whose standard deviation is negative, times zero."""
    return torch.normal(mean, deviation) * 0


@case(
    example=lambda: (torch.tensor([0.0, 1.0, 0.0]),),
    held_out=[lambda: (torch.tensor([0.5, 1.5, -0.5]),)],
    compilers=("compile",),
)
def bernoulli_outside_zero_to_one(p):
    """pytorch#185246: coin flips whose probabilities are no probabilities, times zero."""
    return torch.bernoulli(p) * 0


@case(
    example=lambda: (torch.zeros(3, 2), torch.tensor([0, 2]), torch.ones(2, 2)),
    held_out=[lambda: (torch.zeros(3, 2), torch.tensor([0, 2]), torch.ones(1, 2))],
    compilers=("compile",),
)
def index_add_of_a_wrong_shape(x, index, source):
    """pytorch#121135: `index_add` of one row at two places."""
    return x.index_add(0, index, source)


@case(
    example=lambda: (torch.randn(1, 1),),
    held_out=[lambda: (torch.randn(1, 1, dtype=torch.float16),)],
    compilers=("compile",),
)
class HalfIntoFloatLinear(nn.Module):
    """pytorch#141865: a linear layer in float32 is given half-precision numbers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)
        self.eval()

    def forward(self, x):
        return self.linear(x)


@case(
    example=lambda: (torch.ones(2, 2, 3), torch.ones(2, 3, 2)),
    held_out=[lambda: (torch.ones(2, 2, 3, dtype=torch.float16), torch.ones(2, 3, 2))],
    compilers=("compile",),
)
def matmul_of_half_and_float(x, y):
    """pytorch#177630: a batched matrix product of half precision and single precision."""
    return torch.matmul(x, y)


@case(
    example=lambda: (torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 3)),
    held_out=[lambda: (torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 3, dtype=torch.float64))],
    compilers=("compile",),
)
def attention_with_a_mask_in_double(x, mask):
    """pytorch#171191: scaled dot-product attention in float32 is given a mask in float64."""
    return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
