"""Public issues about wrong values from `torch.compile`'s code generator, one a case; known_issues.toml has the facts.

Each docstring names the thread. What a release did about it is measured, not taken from the thread.
"""

import torch
from torch import nn
from torch.nn import functional

from recapture import case


def spread(*shape, step=0.37, start=-1.1):
    """Give well separated values in mixed order, so that one minimum and one maximum are clear."""
    count = torch.Size(shape).numel()
    order = (torch.arange(count) * 7) % count if count % 7 else (torch.arange(count) * 5) % count
    return (start + step * order.float()).reshape(shape)


@case(
    example=lambda: (torch.randn(4, 6),),
    held_out=[lambda: (torch.rand(4, 6),)],
    compilers=("compile",),
)
def argmin_of_a_transpose_after_tan(x):
    """pytorch#163929, #174073: the index of the smallest value of a transposed tensor that was changed in place."""
    x.tan_()
    return x.t().argmin()


@case(
    example=lambda: (torch.randn(5, 7),),
    held_out=[lambda: (torch.rand(5, 7),)],
    compilers=("compile",),
)
def argmax_of_a_transpose_after_sin(x):
    """pytorch#183082: the index of the largest value of a transposed copy."""
    x = x.clone()
    x.sin_()
    return x.t().argmax()


@case(
    example=lambda: (torch.randn(5, 7),),
    held_out=[lambda: (torch.rand(5, 7) - 2,)],
    compilers=("compile",),
)
def argmin_of_a_transpose_after_sin(x):
    """pytorch#183894: the same with the smallest value, and with the argument itself changed."""
    x.sin_()
    return x.t().argmin()


@case(
    example=lambda: (torch.tensor([[2.0, -1.0], [-3.0, 1.0]]),),
    held_out=[lambda: (torch.tensor([[2.0, -4.0], [-3.0, 1.0]]),)],
    compilers=("compile",),
)
def argmin_of_a_shifted_transpose(x):
    """pytorch#197739: the index of the smallest of four values after a transpose and an addition."""
    return (x.t() + 0.5).argmin()


@case(
    example=lambda: (torch.tensor(1000), torch.tensor(64)),
    held_out=[lambda: (torch.tensor(-5), torch.tensor(64)), lambda: (torch.tensor(3), torch.tensor(2))],
    compilers=("compile",),
)
def left_shift_by_the_width(x, count):
    """pytorch#143566, CVE-2025-46152: a shift of 64-bit integers to the left by 64, which gives zero."""
    return torch.bitwise_left_shift(x, count)


@case(
    example=lambda: (torch.tensor(1000), torch.tensor(64)),
    held_out=[lambda: (torch.tensor(-5), torch.tensor(64)), lambda: (torch.tensor(12), torch.tensor(2))],
    compilers=("compile",),
)
def right_shift_by_the_width(x, count):
    """pytorch#143555, CVE-2025-46152: a shift of 64-bit integers to the right by 64, which leaves the sign."""
    return torch.bitwise_right_shift(x, count)


@case(
    example=lambda: (torch.tensor([100, 7, -3], dtype=torch.int32), torch.tensor([-1, 40, 2])),
    held_out=[lambda: (torch.tensor([5, -5, 9], dtype=torch.int32), torch.tensor([33, -7, 1]))],
    compilers=("compile",),
)
def shift_by_negative_counts(x, count):
    """pytorch#118265: shifts whose counts are negative, or larger than the word."""
    return torch.bitwise_right_shift(x, count.int())


@case(
    example=lambda: (torch.randn(23, 1, 1, 1, 1),),
    held_out=[lambda: (torch.rand(23, 1, 1, 1, 1),)],
    compilers=("compile",),
    backward=False,
)
class InterpolateLinearMean(nn.Module):
    """pytorch#145268: two interpolations, a linear layer and a mean over the batch in one graph."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 34)

    def forward(self, x):
        first = functional.interpolate(x, size=[1, 1, 1], mode="trilinear")
        wide = self.linear(x)
        second = functional.interpolate(wide, size=[1, 39, 34], mode="trilinear")
        return first, second.mean(0), torch.gt(wide, second)


@case(
    example=lambda: (torch.tensor([0.25], dtype=torch.float64),),
    held_out=[lambda: (torch.tensor([3.0], dtype=torch.float64),)],
    compilers=("compile",),
)
def index_add_with_alpha_then_half(values):
    """pytorch#108963: twice a value is added into zeros, and half of that is returned beside its negative."""
    total = torch.zeros(1, dtype=torch.float64, device=values.device)
    place = torch.zeros(1, dtype=torch.int64, device=values.device)
    added = total.index_add(0, place, values, alpha=2.0) / 2
    return values.neg(), added


@case(
    example=lambda: (torch.tensor([0.5, -2.0, 3.0, -5.0, 1.0]),),
    held_out=[lambda: (torch.tensor([0.5, 2.0, 3.0, 1.0, -7.0]),)],
    compilers=("compile",),
)
def argmax_with_nan(x):
    """pytorch#118266: the largest of values of which some are NaN is the first NaN."""
    return torch.argmax(torch.log1p(x))


@case(
    example=lambda: (torch.rand(3, 2, 3, 2, 2, 1, dtype=torch.float64),),
    held_out=[lambda: (torch.randn(3, 2, 3, 2, 2, 1, dtype=torch.float64),)],
    compilers=("compile",),
)
def diagonal_in_other_dimensions(x):
    """pytorch#117019: `diag_embed` whose two new dimensions are the last and the first."""
    return torch.diag_embed(x, dim1=-1, dim2=0, offset=1)


@case(
    example=lambda: (spread(3, 5, 2, 3, 1, 1),),
    held_out=[lambda: (-spread(3, 5, 2, 3, 1, 1),)],
    compilers=("compile",),
)
def argmax_of_a_mirrored_tensor(x):
    """pytorch#118177: the index of the largest value after `fliplr`."""
    return torch.argmax(torch.fliplr(x))


@case(
    example=lambda: (torch.tensor([1.0, 2.0, 4.0]), torch.tensor([-3, 0, 7], dtype=torch.int8)),
    held_out=[lambda: (torch.tensor([10.0, 2.0, 4.0]), torch.tensor([3, 1, 2], dtype=torch.int8))],
    compilers=("compile",),
)
def mean_before_its_operand_is_overwritten(x, y):
    """pytorch#118967: a mean is taken, then its operand is overwritten through `out=`."""
    mean = torch.mean(x)
    overwritten = torch.asinh(y, out=x)
    return mean, overwritten


@case(
    example=lambda: (torch.tensor([3.0, 10.0]),),
    held_out=[lambda: (torch.tensor([2.0, 0.5]),)],
    compilers=("compile",),
)
def log_before_log_in_place(x):
    """pytorch#94777: a logarithm is taken, then the argument is replaced by its logarithm."""
    y = torch.log(x)
    x.log_()
    return y


@case(
    example=lambda: (torch.tensor([-4.0, 3.140625, 8.0], dtype=torch.float16),),
    held_out=[lambda: (torch.tensor([6.28125, -3.140625, 1.0], dtype=torch.float16),)],
    compilers=("compile",),
)
def remainder_of_halves(x):
    """pytorch#183083: the remainder of half-precision numbers by 3.14, which half precision rounds to 3.140625."""
    return torch.remainder(x, 3.14)


@case(
    example=lambda: (torch.tensor([1.703125, -1.703125], dtype=torch.bfloat16),),
    held_out=[lambda: (torch.tensor([3.40625, -5.0], dtype=torch.bfloat16),)],
    compilers=("compile",),
)
def remainder_of_bfloat16(x):
    """pytorch#186875: the remainder of bfloat16 numbers by 1.7; without its rounding it is off by a whole period."""
    return torch.remainder(x, 1.7)


@case(
    example=lambda: (torch.tensor(2**31 - 1, dtype=torch.int32),),
    held_out=[lambda: (torch.tensor(-(2**31), dtype=torch.int32),)],
    compilers=("compile",),
)
def int32_sum_overflows_before_widening(x):
    """pytorch#108520: a sum that wraps around in 32 bits, and is widened afterwards."""
    return (x + x).to(torch.int64)


@case(
    example=lambda: (torch.tensor([2**31 - 1, 70_000], dtype=torch.int32),),
    held_out=[lambda: (torch.tensor([65_536, -50_000], dtype=torch.int32),)],
    compilers=("compile",),
)
def int32_product_overflows_before_compare(x):
    """pytorch#190764: a product that wraps around in 32 bits, and is compared with zero."""
    return x * x < 0, (x + 1) > x


@case(
    example=lambda: (torch.tensor([100, 127, -128], dtype=torch.int8),),
    held_out=[lambda: (torch.tensor([64, -65, 1], dtype=torch.int8),)],
    compilers=("compile",),
)
def int8_sum_overflows_before_widening(x):
    """pytorch#109105: a sum that wraps around in 8 bits, and is widened afterwards."""
    return (x + x).to(torch.int32)


@case(
    example=lambda: (torch.ones(2, 3, dtype=torch.bool), torch.tensor([[1.0, 2.0, -1.0]]).half()),
    held_out=[lambda: (torch.zeros(2, 3, dtype=torch.bool), torch.tensor([[0.5, 3.0, -2.0]]).half())],
    compilers=("compile",),
)
def ldexp_of_bool_and_half(x, exponents):
    """pytorch#197091: `ldexp` of a mask and half-precision exponents stays in half precision."""
    return torch.ldexp(x, exponents)


@case(
    example=lambda: (torch.tensor(2.0),),
    held_out=[lambda: (torch.tensor(3.0),)],
    compilers=("compile",),
)
def normal_with_a_dtype(x):
    """pytorch#112449: `torch.normal` is asked for float64; times zero, so that only the dtype matters."""
    return torch.normal(2.0, 3.0, (3, 3), dtype=torch.float64, device=x.device) * 0 + x


@case(
    example=lambda: (torch.tensor([-668044.5]), torch.tensor([0.25])),
    held_out=[lambda: (torch.tensor([0.05]), torch.tensor([-1.0]))],
    compilers=("compile",),
)
def hinge_loss_of_fractional_targets(x, target):
    """pytorch#113012: a hinge embedding loss whose target is neither 1 nor -1."""
    return functional.hinge_embedding_loss(x, target, margin=0.11, reduction="sum")


@case(
    example=lambda: (torch.arange(24, dtype=torch.int64).reshape(2, 12),),
    held_out=[lambda: (torch.arange(24, dtype=torch.int64).reshape(2, 12) * 3 + 1,)],
    compilers=("compile",),
)
def write_after_reading_as_int32(x):
    """pytorch#198101: the bytes are read as 32-bit integers and doubled, then the original is overwritten."""
    y = x.view(torch.int32) * 2
    y.sub_(-4)
    x[:, 2:5] = 2
    return y.view(torch.int64)


@case(
    example=lambda: (torch.tensor([[float("inf"), 1.5]]),),
    held_out=[lambda: (torch.tensor([[float("-inf"), float("inf")]]),)],
    compilers=("compile",),
)
def infinity_to_the_largest_integer(x):
    """pytorch#151510, CVE-2025-55554: infinity becomes the largest 64-bit integer as a float, then an integer."""
    limits = torch.iinfo(torch.int64)
    return torch.nan_to_num(x, nan=0, posinf=limits.max, neginf=limits.min).long()


@case(
    example=lambda: (torch.randn(1, 4, 4),),
    held_out=[lambda: (torch.rand(1, 4, 4),)],
    compilers=("compile",),
)
class FoldPatches(nn.Module):
    """pytorch#147848, CVE-2025-46149: `nn.Fold` puts patches together; the code generator stopped at an assertion."""

    def __init__(self):
        super().__init__()
        self.fold = nn.Fold(output_size=(4, 4), kernel_size=(2, 2), stride=(2, 2))

    def forward(self, x):
        return self.fold(x)


@case(
    example=lambda: (torch.tensor([88.85, 89.2, 88.95, -89.0]),),
    held_out=[lambda: (torch.tensor([1.0, -2.0, 89.0, 0.0]),)],
    compilers=("compile",),
)
def sinh_near_the_largest_float(x):
    """pytorch#183763: `sinh` of numbers whose exponential overflows, while the result is still a float."""
    return torch.sinh(x)


@case(
    example=lambda: (torch.tensor([88.85, 88.9, 89.1, -89.2]),),
    held_out=[lambda: (torch.tensor([1.0, -2.0, 89.0, 0.0]),)],
    compilers=("compile",),
)
def cosh_near_the_largest_float(x):
    """pytorch#183765: `cosh` of numbers whose exponential overflows, while the result is still a float."""
    return torch.cosh(x)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([5.0, -2.0]),)],
    compilers=("compile",),
)
def plus_zero_before_a_change(x):
    """pytorch#174187: the sum with zero of a value that is changed in place afterwards."""
    y = x * 2
    kept = torch.add(y, 0)
    y.mul_(10)
    return kept, y
