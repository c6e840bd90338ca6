"""Cases that ask for what is otherwise a note: every option of `strict`."""

import collections
import os
import warnings

import torch

from recapture import case


def vector():
    return (torch.randn(4),)


def longer():
    return (torch.rand(6) - 0.5,)


@case(example=lambda: (torch.randn(2, 3),), held_out=[lambda: (torch.randn(4, 3),)], strict=("stride",))
def strides(x):
    """Cares for the strides of a matrix."""
    return x + 1, (x * 2).t()


@case(example=lambda: (torch.randn(2, 3, 4, 4),), held_out=[lambda: (torch.randn(1, 2, 3, 3),)], strict=("stride",))
def memory_format(x):
    """Cares for the memory format of images."""
    return x + 1


@case(example=vector, held_out=[longer], strict=("order",))
def order(x):
    """Cares for the order of keys and for the factory of a defaultdict."""
    return {"a": x + 1, "b": x + 2}, collections.defaultdict(int, a=x - 1)


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)], strict=("message",))
def message(x):
    """Cares for the message of its exception."""
    if x.sum() < 0:
        raise ValueError("negative")
    return x + 1


@case(example=vector, held_out=[longer], strict=("random_state",))
def random_state(x):
    """Cares for the random numbers after it."""
    return x + torch.rand(1, device=x.device)


@case(example=vector, held_out=[longer], strict=("output",))
def output(x):
    """Cares for what it prints and warns."""
    print("length", len(x))
    warnings.warn("careful", UserWarning, stacklevel=2)
    return x + 1


@case(example=vector, held_out=[longer], compare_output=True)
def compared_output(x):
    """Asks for its output with the older option."""
    print("sum", len(x))
    return x * 2


@case(example=vector, held_out=[longer], strict=("signed_zero",))
def signed_zero(x):
    """Cares for the sign of zero."""
    return torch.relu(x)


@case(
    example=lambda: (torch.tensor([0.0, 1.0]),), held_out=[lambda: (torch.tensor([0.0, 0.0]),)], strict=("nan_payload",)
)
def nan_payload(x):
    """Cares for the bits of NaN."""
    return x / x


@case(example=vector, held_out=[longer], strict=("environment",))
def environment(x):
    """Cares for environment variables."""
    os.environ["CASES"] = str(len(x))
    return x + 1
