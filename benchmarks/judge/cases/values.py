"""Cases with numbers of every dtype and size: tiny, ill-conditioned, complex, half, quantized, sparse, random."""

import random

import torch

from recapture import case


@case(example=lambda: (torch.randn(16),), held_out=[lambda: (torch.randn(40),)])
def halved(x):
    """One exact operation on float32 numbers."""
    return x * 0.5


@case(
    example=lambda: (torch.randn(16, dtype=torch.float64),), held_out=[lambda: (torch.randn(9, dtype=torch.float64),)]
)
def third_in_double(x):
    """One rounding in float64."""
    return x / 3


@case(example=lambda: (torch.randn(64).bfloat16(),), held_out=[lambda: (torch.randn(8, 32).bfloat16(),)])
def bfloat16_scaled(x):
    """One exact operation on bfloat16 numbers."""
    return x * 2


@case(example=lambda: (torch.randn(64).bfloat16(),), held_out=[lambda: (torch.randn(256).bfloat16(),)])
def bfloat16_third(x):
    """One rounding in bfloat16."""
    return x / 3


@case(example=lambda: (torch.randn(64).half(),), held_out=[lambda: (torch.randn(8, 32).half(),)])
def float16_third(x):
    """One rounding in float16."""
    return x / 3


@case(example=lambda: (torch.randn(4000),), held_out=[lambda: (torch.randn(3000),)])
def cast_to_halves(x):
    """One conversion to each half type."""
    return x.to(torch.bfloat16), x.to(torch.float16)


@case(
    example=lambda: (torch.randn(8).bfloat16(), torch.randn(8).half()),
    held_out=[lambda: (torch.randn(4).bfloat16(), torch.randn(4).half())],
)
def mixed_halves(x, y):
    """Adds bfloat16 and float16 numbers, which gives float32."""
    return x + y, x * 2, y * 2


@case(example=lambda: (torch.randn(1000) * 3e-3,), held_out=[lambda: (torch.randn(500) * 2e-3,)])
def tiny_variance(x):
    """The variance of small numbers is about 8e-6."""
    return x.var()


@case(example=lambda: (torch.rand(16) * 5e-7 + 1e-7,), held_out=[lambda: (torch.rand(5) * 5e-7 + 1e-7,)])
def tiny_expm1(x):
    """expm1 near zero."""
    return torch.expm1(x)


@case(example=lambda: (torch.full((4,), 1e-6),), held_out=[lambda: (torch.full((4,), 2e-6),)])
def tiny_scaled(x):
    """Numbers of about a millionth, in one exact operation."""
    return x * 2


@case(
    example=lambda: (torch.tensor([1.0]), 1e-6),
    held_out=[lambda: (torch.tensor([1.0]), 3e-6), lambda: (torch.tensor([2.0]), 1e-5)],
)
def learning_rate(x, rate):
    """Multiplies with a small Python number."""
    return x * rate


@case(example=lambda: (torch.tensor([2e-5, 1.0]),), held_out=[lambda: (torch.tensor([5e-6, 1.0]),)])
def branch_on_small(x):
    """Takes one of two paths by a comparison with 1e-5."""
    return x * 2 if x[0] > 1e-5 else x * 3


@case(example=lambda: (torch.linspace(0, 14, 32),), held_out=[lambda: (torch.linspace(-3, 12, 20),)])
def softmax_with_tail(x):
    """A softmax with probabilities below 1e-5."""
    return torch.softmax(x, 0)


@case(
    example=lambda: (torch.tensor([1e6, 0.005, 3e6, 2e6]),), held_out=[lambda: (torch.tensor([4e6, 0.003, 3e6, 1e6]),)]
)
def small_beside_large(x):
    """A small number beside large ones."""
    return x * 2


@case(
    example=lambda: (torch.randn(64, 64), torch.randn(64, 64)),
    held_out=[lambda: (torch.randn(32, 64), torch.randn(64, 16))],
)
def matrix_product(x, y):
    """A product of matrices, whose small elements are sums that cancel."""
    return x @ y


@case(example=lambda: (torch.rand(100_000),), held_out=[lambda: (torch.randn(100_000),)])
def long_sum(x):
    """A sum of many numbers."""
    return x.sum()


@case(
    example=lambda: (torch.randn(3, 4, dtype=torch.complex64),),
    held_out=[lambda: (torch.randn(5, dtype=torch.complex128),)],
)
def complex_scaled(x):
    """Complex numbers in one operation."""
    return x * (1 + 2j)


@case(
    example=lambda: (torch.randn(4, dtype=torch.complex64),),
    held_out=[lambda: (torch.randn(6, dtype=torch.complex64),)],
)
def lazily_conjugated(x):
    """Returns a conjugate, and a negative imaginary part, both of them lazy views."""
    return x.conj(), x.conj().imag


@case(
    example=lambda: (torch.tensor([1, 2, 3]),),
    held_out=[lambda: (torch.tensor([2**40, -5]),), lambda: (torch.tensor([4], dtype=torch.int32),)],
)
def integers(x):
    """Integers, and a mask."""
    return x * 3 + 1, x > 2


@case(example=lambda: (torch.tensor([1.0, 2.0, 2.0]),), held_out=[lambda: (torch.tensor([3.0, 3.0, 1.0, 4.0]),)])
def counts_as_floats(x):
    """Counts something in floating point: exact."""
    return (x == x[0]).float().sum(), torch.floor(x * 1.5)


@case(
    example=lambda: (torch.tensor([1.0, float("nan"), -1.0]),), held_out=[lambda: (torch.tensor([float("nan"), 0.5]),)]
)
def not_a_number(x):
    """Passes NaN on."""
    return x * 2


@case(example=lambda: (torch.tensor([1.0, 0.0, -1.0]),), held_out=[lambda: (torch.tensor([0.0, 2.0]),)])
def infinite(x):
    """Divides by zero."""
    return 1 / x


@case(example=lambda: (torch.tensor([1.0, -2.0]),), held_out=[lambda: (torch.tensor([-1.0, 0.5]),)])
def has_zeros(x):
    """Returns zeros."""
    return torch.relu(x)


@case(example=lambda: (torch.zeros(4),), held_out=[lambda: (torch.zeros(3),)])
def adds_random_numbers(x):
    """Adds random numbers."""
    return x + torch.rand(x.shape, device=x.device)


@case(example=lambda: (torch.zeros(2),), held_out=[lambda: (torch.ones(2),)])
def adds_a_python_random_number(x):
    """Adds a random number of Python."""
    return x + random.random()


@case(example=lambda: (torch.randn(4, 4),), held_out=[lambda: (torch.randn(2, 3),)])
def quantized(x):
    """Quantizes its argument."""
    return torch.quantize_per_tensor(x.cpu(), 0.1, 10, torch.quint8)


@case(example=lambda: (torch.eye(3),), held_out=[lambda: (torch.ones(2, 2),)])
def sparse(x):
    """Returns a sparse tensor."""
    return x.to_sparse() * 2


@case(example=lambda: (torch.randn(4), 2.0), held_out=[lambda: (torch.randn(4), 5.0), lambda: (torch.randn(7), 3)])
def scaled_by_number(x, factor):
    """Multiplies with a Python number."""
    return x * factor


@case(
    example=lambda: (torch.randn(4),),
    held_out=[lambda: (torch.randn(4, dtype=torch.float64),), lambda: (torch.arange(4),)],
)
def dtype_of_argument(x):
    """Keeps the dtype of its argument."""
    return torch.zeros(2, dtype=x.dtype, device=x.device) + 1, x + 1


@case(example=lambda: (torch.randn(4),), held_out=[lambda: (torch.randn(9),), lambda: (torch.randn(1),)])
def mean_by_length(x):
    """Divides by the length of its argument."""
    return x.sum() / x.shape[0], len(x)


@case(example=lambda: (torch.randn(4), torch.randn(4)), held_out=[lambda: (torch.rand(4), torch.rand(4))])
def difference(x, y):
    """Subtracts: the order of arguments matters."""
    return x - y


@case(example=lambda: (torch.randn(4000),), held_out=[lambda: (torch.randn(3000),)])
def cast_to_eighths(x):
    """One conversion to each type of eight bits."""
    return x.to(torch.float8_e4m3fn), x.to(torch.float8_e5m2)


@case(example=lambda: (torch.randn(4000).bfloat16(),), held_out=[lambda: (torch.randn(3000).bfloat16(),)])
def cast_half_to_eighth(x):
    """One conversion from a half type to a type of eight bits, after a scaling."""
    return (x * 3).to(torch.float8_e4m3fn)


@case(example=lambda: (torch.randn(4000, dtype=torch.float64),), held_out=[lambda: (torch.randn(3000).double() / 3,)])
def cast_to_single(x):
    """One conversion of float64 numbers to float32."""
    return x.float()


def half_layer(dtype):
    return lambda: (torch.randn(16, 32).to(dtype), torch.randn(24, 32).to(dtype), (torch.randn(24) * 4).to(dtype))


@case(example=half_layer(torch.bfloat16), held_out=[half_layer(torch.float16)])
def half_linear(x, weight, bias):
    """A linear layer in a half type, whose large bias cancels."""
    return torch.nn.functional.linear(x, weight, bias)
