"""Python branches and loops that depend on values, shapes, types and dtypes: what a tracer sees only one side of."""

import torch

from recapture import case


@case(
    example=lambda: (torch.rand(5, 5), torch.randn(5, 5)),
    held_out=[lambda: (-torch.rand(5, 5), torch.randn(5, 5))],
    concrete_args=("x",),
    claims={
        "jit.trace": ("T10", "specialized"),
        "jit.script": ("T11", "right"),
        "fx": ("T12", "error(capture):TraceError"),
        "fx:concrete_args": ("T13", "specialized"),
        "compile": ("T14", "right"),
    },
)
def branch_on_sum(x, y):
    """Takes one of two paths by the sign of a sum: a tracer records only the path it ran."""
    if x.sum() < 0:
        return -y
    return y


@case(
    example=lambda: (torch.tensor(5),),
    held_out=[lambda: (torch.tensor(15),)],
    concrete_args=("x",),
    claims={
        "jit.trace": ("S3", "specialized"),
        "fx:concrete_args": ("S3", "specialized"),
        "compile": ("S3", "right"),
    },
)
def branch_changes_dtype(x):
    """Returns a float zero below ten and the integer itself from ten on: the two paths differ in dtype as well."""
    if x < 10:
        return torch.zeros((), device=x.device)
    return x


@case(
    example=lambda: (torch.arange(8.0),),
    held_out=[lambda: (torch.arange(3.0),), lambda: (torch.arange(9.0),)],
)
def branch_on_length(x):
    """Chooses by the length of its argument, which is a Python int and not data."""
    if x.shape[0] > 4:
        return x * 2
    return x - 1


@case(
    example=lambda: (torch.randn(3, 2),),
    held_out=[lambda: (torch.randn(5, 2),), lambda: (torch.randn(1, 2),)],
)
def loop_over_rows(x):
    """Loops over the rows of a tensor: how often is known from the shape alone."""
    total = x[0] * 0
    for i in range(x.shape[0]):
        total = total * 0.5 + x[i]
    return total


@case(
    example=lambda: (torch.tensor([40.0, 3.0]),),
    held_out=[lambda: (torch.tensor([1000.0, 3.0]),), lambda: (torch.tensor([0.25, 0.5]),)],
)
def halve_until_small(x):
    """Halves its argument until the sum is below ten: how often depends on the values."""
    while x.sum() > 10:
        x = x / 2
    return x


@case(
    example=lambda: (torch.tensor(2.0), torch.tensor(3.0)),
    held_out=[lambda: (torch.tensor(0.0), torch.tensor(3.0)), lambda: (torch.tensor(2.0), torch.tensor(0.0))],
)
def python_and_of_tensors(x, y):
    """Writes `x and y`, which gives one of the two tensors and not a bool."""
    return (x and y) + 1


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([1.0, -2.0]),)],
)
def assert_on_data(x):
    """Asserts that all values are positive: AssertionError is the right outcome on the held-out input."""
    assert (x > 0).all(), "values must be positive"
    return torch.log(x)


@case(
    example=lambda: (torch.tensor([4.0, 9.0]),),
    held_out=[lambda: (torch.tensor([4.0, -9.0]),)],
)
def raise_on_data(x):
    """Raises ValueError when a value is negative, as careful functions do."""
    if bool((x < 0).any()):
        raise ValueError("negative value")
    return torch.sqrt(x)


@case(
    example=lambda: (torch.randn(4),),
    held_out=[lambda: (torch.randn(3, 4),), lambda: (torch.randn(2, 3, 4),)],
)
def match_on_rank(x):
    """Matches on the number of dimensions: capturing fixes the rank, and some artifacts do not check it afterwards."""
    match x.dim():
        case 1:
            return x + 1
        case 2:
            return x * 10
        case _:
            return x - 100


@case(
    example=lambda: (torch.arange(6.0).reshape(2, 3),),
    held_out=[lambda: (torch.arange(6.0).reshape(3, 2).t(),)],
)
def view_or_reshape(x):
    """Tries a view and falls back to a copy when the strides do not allow one: an exception as control flow."""
    try:
        return x.view(-1) + 1
    except RuntimeError:
        return x.reshape(-1) - 1


@case(
    example=lambda: (torch.randn(4),),
    held_out=[lambda: (torch.randn(4, dtype=torch.float64),), lambda: (torch.arange(4),)],
)
def branch_on_dtype(x):
    """Gives floating-point arguments another formula than integers."""
    if x.is_floating_point():
        return torch.sigmoid(x)
    return x // 2


@case(
    example=lambda: (torch.tensor([1.0, -2.0]),),
    held_out=[lambda: (torch.tensor([1.0, -2.0], requires_grad=True),)],
)
def branch_on_requires_grad(x):
    """Does something else when a gradient will be asked for."""
    if x.requires_grad:
        return (x * 3).detach()
    return x + 1


@case(
    example=lambda: (torch.randn(3), None),
    held_out=[lambda: (torch.randn(3), torch.randn(3)), lambda: (torch.rand(3),)],
)
def optional_bias(x, bias=None):
    """Skips a bias that is None: the usual way to write an optional argument."""
    y = torch.tanh(x)
    if bias is not None:
        y = y + bias
    return y


@case(
    example=lambda: (torch.randn(3),),
    held_out=[lambda: ([torch.randn(3), torch.randn(3)],)],
)
def tensor_or_list(x):
    """Accepts a tensor or a list of tensors."""
    if isinstance(x, list):
        return torch.stack(x).sum(0)
    return x * 2


@case(
    example=lambda: (torch.randn(4),),
    held_out=[lambda: (torch.zeros(0),), lambda: (torch.randn(1),)],
)
def mean_or_zero(x):
    """Gives zero for the mean of nothing: an empty tensor takes the other path."""
    if x.numel() == 0:
        return torch.zeros((), device=x.device)
    return x.mean()


@case(
    example=lambda: (torch.randn(3), True),
    held_out=[lambda: (torch.randn(3), False), lambda: (torch.rand(3), True)],
)
def flag_argument(x, double):
    """Branches on a bool that the caller gives."""
    return x * 2 if double else x - 1
