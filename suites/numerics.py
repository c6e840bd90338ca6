"""Numbers at their limits: overflow, division, remainders, NaN, complex numbers, half precision, tiny magnitudes."""

import torch

from recapture import case

NAN = float("nan")
INF = float("inf")


@case(
    example=lambda: (torch.tensor([1, 2, 3], dtype=torch.int8), torch.tensor([1, 2, 3], dtype=torch.int8)),
    held_out=[lambda: (torch.tensor([127, -128, 100], dtype=torch.int8), torch.tensor([1, -1, 100], dtype=torch.int8))],
)
def int8_wraps_around(x, y):
    """Adds and multiplies bytes: results beyond 127 wrap around."""
    return x + y, x * y, -x


@case(
    example=lambda: (torch.tensor([5, -5, 7]), torch.tensor([2, 2, -3])),
    held_out=[lambda: (torch.tensor([-1, 1, -9]), torch.tensor([3, -3, 2]))],
)
def integer_division_three_ways(x, y):
    """Divides integers rounding down, rounding towards zero, and exactly: they differ for negative numbers."""
    return (
        torch.div(x, y, rounding_mode="floor"),
        torch.div(x, y, rounding_mode="trunc"),
        x / y,
    )


@case(
    example=lambda: (torch.tensor([5.5, -5.5]), torch.tensor([2.0, 2.0])),
    held_out=[
        lambda: (torch.tensor([5.5, -5.5]), torch.tensor([-2.0, INF])),
        lambda: (torch.tensor([INF, 1.0]), torch.tensor([2.0, 0.0])),
    ],
)
def remainder_and_fmod(x, y):
    """Takes two kinds of remainder: one has the divisor's sign, the other that of the dividend."""
    return torch.remainder(x, y), torch.fmod(x, y)


@case(
    example=lambda: (torch.tensor([1.0, 2.0, 3.0]),),
    held_out=[lambda: (torch.tensor([1.0, NAN, 3.0]),), lambda: (torch.tensor([NAN, INF, -INF]),)],
)
def extremes_with_nan(x):
    """Takes maxima, minima and their places: NaN is larger and smaller than everything."""
    return x.max(), x.min(), x.argmax(), x.amax(), torch.maximum(x, x.flip(0)), torch.fmax(x, x.flip(0))


@case(
    example=lambda: (torch.tensor([3.0, 1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([3.0, NAN, 1.0]),), lambda: (torch.tensor([NAN, NAN, 0.0]),)],
)
def sorts_nan_last(x):
    """Sorts and takes a median: NaN comes last, and makes the median NaN."""
    return x.sort().values, x.median(), x.nanmedian()


@case(
    example=lambda: (torch.tensor([0.5, 1.0]),),
    held_out=[lambda: (torch.tensor([1e-30, 1e-38]),), lambda: (torch.tensor([1e-20, 1e-45]),)],
)
def tiny_products(x):
    """Computes with tiny numbers: relative errors of what is left still count."""
    return x * x * 1e30, (x + 1) - 1, torch.log1p(x), torch.expm1(x)


@case(
    example=lambda: (torch.tensor([1.0, 2.0], dtype=torch.float16), torch.tensor([3.0, 4.0], dtype=torch.float16)),
    held_out=[
        lambda: (torch.tensor([400.0, 300.0], dtype=torch.float16), torch.tensor([400.0, 1.0], dtype=torch.float16))
    ],
)
def half_product_then_quotient(x, y):
    """Multiplies half-precision numbers and divides again: eager's product overflows to infinity."""
    return (x * y) / y


@case(
    example=lambda: (torch.tensor([1.0, 2.0], dtype=torch.bfloat16),),
    held_out=[lambda: (torch.tensor([256.0, 3.0], dtype=torch.bfloat16),)],
)
def bfloat16_cast_in_the_middle(x):
    """Rounds to bfloat16 between two operators by an explicit cast, which must not be left out."""
    return (x.float() + 1.0).to(torch.bfloat16).float() * 3


@case(
    example=lambda: (torch.tensor([1.0 + 2.0j, 3.0 - 1.0j]),),
    held_out=[lambda: (torch.tensor([-1.0 + 0.0j, 0.0 - 1.0j]),)],
)
def complex_functions(x):
    """Takes the root, the logarithm and the angle of complex numbers: the branch cut is on the negative axis."""
    return torch.sqrt(x), torch.log(x), x.angle(), x.conj() * x


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])),
    held_out=[lambda: (torch.tensor([-1.0, 0.0]), torch.tensor([-0.0, -0.0]))],
)
def complex_from_parts(x, y):
    """Builds complex numbers from parts and reads them as pairs of real numbers."""
    z = torch.complex(x, y)
    return torch.view_as_real(z * z), z.abs()


@case(
    example=lambda: (torch.tensor([0.5, 1.5, 2.4]),),
    held_out=[lambda: (torch.tensor([2.5, -0.5, -1.5]),), lambda: (torch.tensor([3.5, 1e20, -2.5]),)],
)
def rounds_half_to_even(x):
    """Rounds to the nearest integer: halves go to the even neighbour."""
    return torch.round(x), torch.round(x * 1.25, decimals=1)


@case(
    example=lambda: (torch.tensor([1.0, 2.0, 3.0]),),
    held_out=[lambda: (torch.tensor([1000.0, 1000.0, 999.0]),), lambda: (torch.tensor([-INF, 0.0, -INF]),)],
)
def softmax_of_large_values(x):
    """Takes a softmax and a logarithm of sums: without subtracting the maximum they overflow."""
    return torch.softmax(x, 0), torch.logsumexp(x, 0), torch.log_softmax(x, 0)


@case(
    example=lambda: (torch.tensor([1.7, -1.7, 2.0]),),
    held_out=[lambda: (torch.tensor([2.0**31, -(2.0**31), 0.5]),), lambda: (torch.tensor([-0.9, 200.5, -200.5]),)],
)
def float_to_int(x):
    """Converts to 64-bit integers, towards zero, and on to 16 bits, which wrap around."""
    return x.long(), x.long().short()


@case(
    example=lambda: (torch.tensor([True, False, True]),),
    held_out=[lambda: (torch.tensor([True, True, True]),), lambda: (torch.tensor([False, False, False]),)],
)
def arithmetic_of_masks(x):
    """Sums, averages and cumulates a mask: counts are 64-bit integers, and an average needs a float."""
    return x.sum(), x.float().mean(), x.cumsum(0), x + x, x ^ x.flip(0)


@case(
    example=lambda: (torch.tensor([2, 3]), torch.tensor([3, 2])),
    held_out=[
        lambda: (torch.tensor([-2, 10]), torch.tensor([63, 19])),
        lambda: (torch.tensor([0, 7]), torch.tensor([0, 30])),
    ],
)
def integer_powers(x, y):
    """Raises integers to integer powers, which wrap around in 64 bits."""
    return x**y, x**3


@case(
    example=lambda: (torch.linspace(0, 1, 5),),
    held_out=[lambda: (torch.linspace(-1, 1, 7),), lambda: (torch.full((3,), 1e30),)],
)
def variance_and_deviation(x):
    """Takes variances with and without the correction: of huge equal values both are zero."""
    return x.var(), x.var(correction=0), torch.std_mean(x, correction=1)


@case(
    example=lambda: (torch.linspace(0.5, 2, 64),),
    held_out=[lambda: (torch.linspace(1e-6, 1e-5, 64),), lambda: (torch.linspace(-0.01, 0.01, 64),)],
)
def functions_that_vanish_at_zero(x):
    """Computes functions that are nearly their argument near zero: `exp(x) - 1` and its like lose all digits there."""
    return torch.expm1(x), torch.erf(x), torch.tanh(x), torch.atanh(x * 0.4)
