"""Public issues that were seen on GPUs alone, one a case; known_issues.toml has the facts.

On a CPU only the eager cells run. The shapes are those of the threads where a smaller one does not show the fault.
"""

import torch
from torch.nn import functional

from recapture import case


@case(
    example=lambda: (torch.zeros(1),),
    held_out=[lambda: (torch.ones(1),)],
    codegen_on=("cuda",),
    compilers=("compile",),
)
def large_integers_from_a_range(x):
    """pytorch#175966, #183901: a range of 64-bit integers times a billion, which 32 bits cannot hold."""
    return torch.arange(0, 11, device=x.device) * torch.tensor([10**9], device=x.device)


@case(
    example=lambda: (torch.randn(4, 6),),
    held_out=[lambda: (torch.rand(4, 6),)],
    codegen_on=("cuda",),
    compilers=("compile",),
)
def copy_of_its_own_mirror(x):
    """pytorch#162410: a tensor is overwritten by its mirror image, then by its own sums."""
    x.copy_(x.flip(1))
    return x.sum(1, keepdim=True) + x


@case(
    example=lambda: (torch.randn(80_000, 5, 5),),
    held_out=[lambda: (torch.rand(80_000, 5, 5),)],
    codegen_on=("cuda",),
    compilers=("compile",),
)
def copy_of_its_own_transpose(x):
    """pytorch#198280: each of 80,000 small matrices is overwritten by its own transpose."""
    return x.copy_(x.transpose(-1, -2) * 1.0)


@case(
    example=lambda: (torch.tensor([1e8, -1e8, 3e9]), torch.tensor([3.0, 3.0, 7.0])),
    held_out=[lambda: (torch.tensor([5.0, -7.0, 1e10]), torch.tensor([3.0, 3.0, 3.0]))],
    codegen_on=("cuda",),
    compilers=("compile",),
)
def remainder_of_large_ratios(x, y):
    """pytorch#194345: remainders of numbers that are far larger than the divisor."""
    return torch.remainder(x, y), torch.fmod(x, y)


@case(
    example=lambda: (torch.tensor([float("inf"), -1.0]), torch.tensor([2.0, float("inf")])),
    held_out=[lambda: (torch.tensor([7.0, -7.0]), torch.tensor([2.0, 2.0]))],
    codegen_on=("cuda",),
    compilers=("compile",),
)
def floor_division_of_infinity(x, y):
    """pytorch#188048: a division rounded down whose operands are infinite."""
    return torch.div(x, y, rounding_mode="floor")


@case(
    example=lambda: (torch.tensor([7, -7, 5]), torch.tensor([2, -2, 1])),
    held_out=[lambda: (torch.tensor([7, -7, 5]), torch.tensor([2, 2, 0]))],
    codegen_on=("cuda",),
    compilers=("compile",),
)
def integer_division_by_zero(x, y):
    """pytorch#178013: an integer division by zero: an error on a CPU, a value on a GPU."""
    return torch.div(x, y, rounding_mode="floor")


@case(
    example=lambda: (torch.randn(3, 10), torch.randn(3, 10)),
    held_out=[lambda: (torch.rand(3, 10), torch.randn(3, 10))],
    codegen_on=("cuda",),
    compilers=("compile",),
)
def logaddexp_into_a_slice(x, y):
    """pytorch#125999: a result is written into a part of a tensor whose last dimension is no multiple of four."""
    part = x[:, 1:8]
    part.copy_(torch.logaddexp(part, y[:, 1:8]))
    return x * 1


@case(
    example=lambda: (torch.randn(1, 2, 5, 5).bfloat16(),),
    held_out=[lambda: (torch.rand(1, 2, 5, 5).bfloat16(),)],
    codegen_on=("cuda",),
    compilers=("compile",),
)
def nearest_upsampling_of_bfloat16(x):
    """pytorch#170682: nearest-neighbour upsampling of bfloat16 by a factor that is no integer."""
    return functional.interpolate(x, size=(7, 11), mode="nearest")


@case(
    example=lambda: (torch.randn(2, 8, 64, requires_grad=True), torch.randn(2, 1, 64, requires_grad=True)),
    held_out=[lambda: (torch.rand(2, 8, 64, requires_grad=True), torch.randn(2, 1, 64, requires_grad=True))],
    codegen_on=("cuda",),
    compilers=("compile",),
)
def chained_modulated_norms(x, shift):
    """pytorch#193061: two layer norms in a row that share a scale and a shift: their gradients add up."""
    for _ in range(2):
        x = functional.layer_norm(x, (64,)) * (1 + shift) + shift
    return x
