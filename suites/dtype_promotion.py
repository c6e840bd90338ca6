"""Which dtype a result has, and what Python numbers do on their way into tensors."""

import math

import torch

from recapture import case


@case(
    example=lambda: (torch.arange(3), 6, 3),
    held_out=[lambda: (torch.arange(3), 7, 2), lambda: (torch.arange(3), -1, 4)],
)
def true_division_of_ints(x, a: int, b: int):
    """Divides Python ints with `/`: the quotient is a float, also where it is whole."""
    return x * (a / b)


@case(
    example=lambda: (torch.arange(3), 2.3),
    held_out=[lambda: (torch.arange(3), -2.3), lambda: (torch.arange(3), 5.0)],
)
def floor_and_ceiling(x, value: float):
    """Takes `math.floor`, `math.ceil` and `int` of a Python float: below zero all three differ from each other."""
    return x + math.floor(value) * 100 + math.ceil(value) * 10 + int(value)


@case(
    example=lambda: (torch.tensor([1.0, 5.0]), 3.0),
    held_out=[lambda: (torch.tensor([1.0, 5.0]), math.inf), lambda: (torch.tensor([1.0, 5.0]), math.nan)],
)
def infinite_bound(x, limit: float):
    """Clamps to a bound that is infinite, so that nothing happens, and then NaN, so that nothing is left."""
    return x.clamp(max=limit)


@case(
    example=lambda: (torch.ones(2), torch.float32),
    held_out=[lambda: (torch.ones(2), torch.float64)],
)
def default_dtype_for_a_while(x, dtype):
    """Sets the default dtype for the time of one line: `torch.tensor(0.1)` follows it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    tenth = torch.tensor([0.1], device=x.device)
    torch.set_default_dtype(before)
    return x + tenth


@case(
    example=lambda: (torch.ones(2), 2),
    held_out=[lambda: (torch.ones(2), 2.0), lambda: (torch.ones(2), True), lambda: (torch.ones(2), 2j)],
)
def tensor_of_a_number(x, value):
    """Makes a tensor of a Python number: int, float, bool and complex give four dtypes."""
    return torch.tensor([value], device=x.device)


@case(
    example=lambda: (torch.tensor([1.5, 2.5]),),
    held_out=[lambda: (torch.tensor([1, 2]),), lambda: (torch.tensor([True, False]),)],
)
def item_of_its_argument(x):
    """Returns `x[0].item()`, a Python number: a float, an int or a bool by the dtype."""
    return x[0].item()


@case(
    example=lambda: (torch.tensor([0, 100, 255], dtype=torch.uint8), 100),
    held_out=[
        lambda: (torch.tensor([0, 100, 255], dtype=torch.uint8), 100.5),
        lambda: (torch.tensor([0, 1, 0], dtype=torch.bool), 1),
    ],
)
def compares_with_a_number(x, bound):
    """Compares bytes with an int, then with a float between two bytes, then truth values with an int."""
    return x > bound, x == bound


@case(
    example=lambda: (torch.tensor([100, 100], dtype=torch.int8),),
    held_out=[
        lambda: (torch.tensor([1.5, 2.5], dtype=torch.float16),),
        lambda: (torch.tensor([100, 100], dtype=torch.int32),),
    ],
)
def sum_widens_integers(x):
    """Sums and multiplies up: small integers widen to int64, half precision stays as it is."""
    return x.sum(), x.prod(), x.cumsum(0)


@case(
    example=lambda: (torch.tensor([3, 5], dtype=torch.uint8), torch.tensor([1, 6], dtype=torch.uint8)),
    held_out=[
        lambda: (torch.tensor([True, False]), torch.tensor([True, True])),
        lambda: (torch.tensor([3, 5]), torch.tensor([1, 6], dtype=torch.int16)),
    ],
)
def subtracts_masks(x, y):
    """Subtracts: bytes wrap around, wider integers do not, and bools are a RuntimeError."""
    return x - y


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), 2.0),
    held_out=[lambda: (torch.tensor([1.0, 2.0]), 2j), lambda: (torch.tensor([1.0, 2.0], dtype=torch.float64), 1 + 1j)],
)
def complex_number_argument(x, factor):
    """Multiplies by a Python float and then by a complex number: the result becomes complex, in its width."""
    return x * factor


@case(
    example=lambda: (torch.tensor([1.5, -2.5]), torch.float64),
    held_out=[lambda: (torch.tensor([1.5, -2.5]), torch.int32), lambda: (torch.tensor([1.5, 0.0]), torch.bool)],
)
def dtype_as_argument(x, dtype: torch.dtype):
    """Converts to a dtype that the caller gives: another kind of number rounds, or keeps the truth alone."""
    return x.to(dtype)


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2, dtype=torch.float64),), lambda: (torch.ones(2, dtype=torch.int16),)],
)
def returns_its_dtype(x):
    """Returns the dtype of its argument, as an object and as text."""
    return x * 2, x.dtype, str(x.dtype)


@case(
    example=lambda: (torch.ones(2), torch.ones(2, dtype=torch.int32)),
    held_out=[
        lambda: (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        lambda: (torch.ones(2, dtype=torch.int8), torch.ones(2, dtype=torch.uint8)),
    ],
)
def asks_for_the_common_dtype(x, y):
    """Asks `torch.result_type` for the dtype of a sum and makes a buffer of it."""
    buffer = torch.zeros(x.shape, dtype=torch.result_type(x, y), device=x.device)
    return buffer + x.to(buffer.dtype)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), torch.tensor([True, False])),
    held_out=[
        lambda: (torch.tensor([1.0, 2.0], dtype=torch.float16), torch.tensor([True, False])),
        lambda: (torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([False, True])),
    ],
)
def fills_with_the_smallest_number(scores, mask):
    """Masks with `torch.finfo(dtype).min`, the smallest number of a dtype: another dtype has another."""
    return scores.masked_fill(mask, torch.finfo(scores.dtype).min)


@case(
    example=lambda: (torch.ones(2, dtype=torch.float64), 0.1, 0.2),
    held_out=[
        lambda: (torch.ones(2, dtype=torch.float64), 1e308, 1e308),
        lambda: (torch.ones(2, dtype=torch.float64), 1e16, 1.0),
    ],
)
def adds_python_floats(x, a: float, b: float):
    """Adds Python floats before they meet a double tensor: in single precision, 0.1 + 0.2 would show it."""
    return x * (a + b)


@case(
    example=lambda: (torch.arange(3), 1),
    held_out=[lambda: (torch.arange(3), 2**53 + 1), lambda: (torch.arange(3), -(2**62) - 1)],
)
def int_beyond_double(x, n: int):
    """Adds an int that a double cannot hold: by way of a float, its last digit would be lost."""
    return x + n


@case(
    example=lambda: (torch.tensor([True, False]), 1),
    held_out=[lambda: (torch.tensor([True, False]), True), lambda: (torch.tensor([True, False]), 1.0)],
)
def one_true_and_one_point_zero(mask, n):
    """Adds 1, then True, then 1.0 to bools: the three are equal and have one hash, and give three dtypes."""
    return mask + n


@case(
    example=lambda: (torch.tensor([1, 2, 3]), 2),
    held_out=[lambda: (torch.tensor([1, 2, 3]), 0.5), lambda: (torch.tensor([1, 2, 3]), -1)],
)
def power_of_an_integer_tensor(x, exponent):
    """Raises integers to 2, to 0.5, which gives floats, and to -1, which is a RuntimeError."""
    return x**exponent


@case(
    example=lambda: (torch.tensor([1, 2]), torch.tensor([True, False]), 7),
    held_out=[
        lambda: (torch.tensor([1, 2]), torch.tensor([True, False]), 7.5),
        lambda: (torch.tensor([1, 2], dtype=torch.int8), torch.tensor([False, True]), 7),
    ],
)
def promotion_in_where(x, mask, other):
    """Chooses between a tensor and a Python number: `torch.where` promotes as a sum would."""
    return torch.where(mask, x, other)


@case(
    example=lambda: (torch.tensor([1, 2]), torch.tensor([3, 4])),
    held_out=[
        lambda: (torch.tensor([1, 2]), torch.tensor([3.5])),
        lambda: (torch.tensor([1, 2], dtype=torch.int8), torch.tensor([3, 4], dtype=torch.uint8)),
    ],
)
def concatenates_two_dtypes(x, y):
    """Concatenates tensors of two dtypes: the result has their common one, which may be neither."""
    return torch.cat([x, y])


@case(
    example=lambda: (torch.tensor([10.0, 20.0]), torch.tensor([1, 0])),
    held_out=[
        lambda: (torch.tensor([10.0, 20.0]), torch.tensor([True, False])),
        lambda: (torch.tensor([10.0, 20.0]), torch.tensor([0, 0, 1])),
    ],
)
def index_or_mask(x, index):
    """Indexes with integers, which are positions, and then with bools, which are a mask."""
    return x[index] * 2


@case(
    example=lambda: (torch.arange(3), "3"),
    held_out=[lambda: (torch.arange(3), "-4"), lambda: (torch.arange(3), "2.5")],
)
def number_from_text(x, text: str):
    """Parses text as an int or, where it has a point, as a float: the text decides the dtype of the result."""
    return x * (float(text) if "." in text else int(text))
