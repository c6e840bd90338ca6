"""Python numbers, dtypes and promotion: values that a compiler may freeze, retype or compute in another width.

Arguments are annotated where TorchScript would otherwise take a number for a tensor.
"""

import torch

from recapture import case


@case(
    example=lambda: (torch.rand(5), 3),
    held_out=[lambda: (torch.rand(5), 4), lambda: (torch.rand(5), -2)],
    claims={
        "jit.script": [("T15", "error(call):RuntimeError message~inferred"), ("S4", "error(call):RuntimeError")],
        "compile": [("T15", "right"), ("S4", "right")],
    },
)
def add_unannotated_int(x, y):
    """Adds a Python int without annotations: TorchScript infers that it is a tensor and refuses the call."""
    return x + y


@case(
    example=lambda: (torch.rand(5), torch.tensor(3)),
    held_out=[lambda: (torch.rand(5), torch.tensor(4)), lambda: (torch.rand(5), torch.tensor(2.5))],
    claims={
        "jit.script": [("T15", "right"), ("S4", "right")],
        "compile": [("T15", "right"), ("S4", "right")],
    },
)
def add_annotated_tensor(x: torch.Tensor, y: torch.Tensor):
    """Adds a number that is annotated as a tensor and given as a 0-d tensor: TorchScript accepts that."""
    return x + y


@case(
    example=lambda: (torch.arange(4), 2),
    held_out=[lambda: (torch.arange(4), 2.0), lambda: (torch.arange(4), 2.5)],
)
def int_then_float_scale(x, scale: float):
    """Scales integers by 2 and then by 2.0: equal numbers, both fit for a float argument, give two dtypes."""
    return x * scale


@case(
    example=lambda: (torch.arange(3), 2**31),
    held_out=[lambda: (torch.arange(3), 2**40), lambda: (torch.arange(3), 7)],
)
def python_big_int(x, n: int):
    """Squares a Python int, which never overflows, and takes a remainder of it."""
    return x + (n * n) % 1_000_003


@case(
    example=lambda: (torch.arange(3), 2),
    held_out=[lambda: (torch.arange(3), -2), lambda: (torch.arange(3), 0)],
)
def python_int_power(x, n: int):
    """Raises 2 to an int: the result is an int for positive exponents and a float for negative ones."""
    return x * 2**n


@case(
    example=lambda: (torch.arange(3), 2.7),
    held_out=[lambda: (torch.arange(3), 2.5), lambda: (torch.arange(3), -0.5)],
)
def python_round(x, value: float):
    """Rounds a Python float, half to even, to a Python int: integers times it stay integers."""
    return x * round(value)


@case(
    example=lambda: (torch.rand(3), 0.0),
    held_out=[lambda: (torch.rand(3), -0.0), lambda: (torch.rand(3), 1.5)],
)
def signed_zero(x, zero: float):
    """Divides by a Python float that is 0.0 and then -0.0: the two compare equal and give infinities of either sign."""
    return 1 / (x * zero)


@case(
    example=lambda: (torch.tensor([True, False]), True),
    held_out=[lambda: (torch.tensor([True, False]), False), lambda: (torch.tensor([True, True]), True)],
)
def bool_plus_bool(x, flag: bool):
    """Adds a Python bool to a bool tensor, which stays a bool tensor: the sum is a logical or."""
    return x + flag


@case(
    example=lambda: (torch.tensor([1.0, 2.0], dtype=torch.float16),),
    held_out=[lambda: (torch.tensor([300.0, 2.0], dtype=torch.float16),)],
)
def half_overflows_between(x):
    """Squares half-precision numbers and takes the root: eager's intermediate overflows, a fused kernel's may not."""
    return (x * x).sqrt()


@case(
    example=lambda: (torch.arange(3, dtype=torch.int32), torch.tensor(2)),
    held_out=[
        lambda: (torch.arange(3, dtype=torch.int32), torch.tensor(2.5)),
        lambda: (torch.rand(3, dtype=torch.float16), torch.tensor(2.5, dtype=torch.float64)),
        lambda: (torch.arange(3, dtype=torch.int32), torch.tensor([2])),
    ],
)
def zero_dim_promotion(x, y):
    """Adds a 0-d tensor, which widens the kind of the other but not its size; a one-element vector widens both."""
    return x + y


@case(
    example=lambda: (torch.zeros(3), torch.rand(3)),
    held_out=[lambda: (torch.zeros(3, dtype=torch.int64), torch.rand(3))],
)
def float_into_int_in_place(x, y):
    """Adds floats in place: into integers that is a RuntimeError."""
    x += y
    return x


@case(
    example=lambda: (torch.rand(3), torch.tensor(2.7)),
    held_out=[lambda: (torch.rand(3), torch.tensor(-5.2))],
)
def tensor_to_python_int(x, y):
    """Casts a 0-d tensor with `int()`, towards zero, and goes on with the Python number."""
    return x + int(y)


@case(
    example=lambda: (torch.rand(3), torch.rand(3)),
    held_out=[lambda: (torch.rand(3), torch.rand(3, dtype=torch.float64)), lambda: (torch.rand(3), torch.arange(3))],
)
def dtype_of_the_other(x, y):
    """Makes a tensor in the dtype of an argument: captured once, later calls may keep the first dtype."""
    return torch.full_like(x, 0.1).to(y.dtype) + y


@case(
    example=lambda: (torch.randn(4, 3),),
    held_out=[lambda: (torch.randn(2, 5),), lambda: (torch.randn(1, 1),)],
)
def returns_shape_ints(x):
    """Returns a tensor together with Python ints read from its shape."""
    return x.sum(), x.shape[0], x.shape[0] * x.shape[1]
