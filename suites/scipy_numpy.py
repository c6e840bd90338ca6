"""Calls into numpy and scipy, which some compilers translate, some break at and some freeze as constants.

Everything goes through the CPU (`.cpu().numpy()`) and back, so that the cases run on any device.
"""

import math
from contextlib import suppress

import numpy as np
import torch

from recapture import case

with suppress(ImportError):  # cases that need scipy say so; the others run without it
    import scipy.fft
    import scipy.linalg
    import scipy.special


def from_numpy(array, like):
    """Give an array as a tensor on the device of another tensor."""
    return torch.from_numpy(array).to(like.device)


@case(
    example=lambda: (torch.rand(8, dtype=torch.float64),),
    held_out=[lambda: (torch.rand(8, dtype=torch.float64) - 3,), lambda: (torch.randn(8, dtype=torch.float64),)],
    claims={
        "jit.trace": ("T16", "specialized"),
        "jit.script": ("T16", "error(capture)"),
        "fx": ("T16", "error(capture)"),
        "compile": [("T16", "right"), ("S5", "error:InternalTorchDynamoError message~IF_NEEDED")],
    },
    requires=("scipy",),
)
def scipy_dct(x):
    """Takes a discrete cosine transform with scipy: it works or not by the pair of torch and scipy releases."""
    y = scipy.fft.dct(x.cpu().numpy())
    return from_numpy(y, x).double()


@case(
    example=lambda: (torch.randn(4),),
    held_out=[lambda: (torch.randn(4) + 5,)],
    requires=("scipy",),
)
def scipy_expit(x):
    """Calls a ufunc of scipy, which no compiler can look into."""
    return from_numpy(scipy.special.expit(x.cpu().numpy()), x) * 2


@case(
    example=lambda: (torch.eye(3, dtype=torch.float64) * 2, torch.ones(3, dtype=torch.float64)),
    held_out=[
        lambda: (torch.eye(3, dtype=torch.float64) * 4, torch.arange(3, dtype=torch.float64)),
        lambda: (torch.zeros(3, 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)),
    ],
    requires=("scipy",),
)
def scipy_solve(a, b):
    """Solves a linear system with scipy; a singular matrix raises LinAlgError."""
    return from_numpy(scipy.linalg.solve(a.cpu().numpy(), b.cpu().numpy()), a)


@case(
    example=lambda: (torch.randn(4),),
    held_out=[lambda: (torch.randn(4) + 5,), lambda: (torch.randn(2, 3, dtype=torch.float64),)],
)
def numpy_sine(x):
    """Takes a sine with numpy: `torch.compile` translates numpy from 2.1 on, tracers store the result."""
    return from_numpy(np.sin(x.cpu().numpy()), x) + 1


@case(
    example=lambda: (torch.zeros(3, dtype=torch.float32),),
    held_out=[lambda: (torch.zeros(5, dtype=torch.float32),)],
)
def numpy_default_dtypes(x):
    """Makes numpy arrays without saying a dtype: numpy's defaults are int64 and float64, in a quotient too."""
    counts = np.arange(x.shape[0])
    return from_numpy(counts, x), from_numpy(np.ones(x.shape[0]), x), from_numpy(counts / 3, x)


@case(
    example=lambda: (torch.tensor([1, 2, 3], dtype=torch.uint8),),
    held_out=[lambda: (torch.tensor([200, 100, 50], dtype=torch.uint8),)],
)
def numpy_sums_of_bytes(x):
    """Sums bytes with numpy, which widens them first: 200 + 100 is 300 there."""
    return from_numpy(np.cumsum(x.cpu().numpy()).astype(np.int64), x)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([1e-8, 3.0]),)],
)
def numpy_scalar_promotion(x):
    """Multiplies a float32 array by a numpy scalar: the dtype of the result changed with numpy 2."""
    return from_numpy(x.cpu().numpy() * np.float64(3), x)


@case(
    example=lambda: (torch.ones(3), np.float64(0.1)),
    held_out=[lambda: (torch.ones(3), np.float64(0.7)), lambda: (torch.ones(3), 0.1)],
)
def numpy_float64_argument(x, scale):
    """Takes a numpy float64, which is also a Python float: adding it leaves a float32 tensor float32."""
    return x + scale


@case(example=lambda: (torch.zeros(3),), held_out=[lambda: (torch.ones(3),)])
def numpy_random(x):
    """Draws from numpy's global stream; with the same seed eager repeats, and whoever promises numpy must as well."""
    return x + from_numpy(np.random.rand(3), x)  # noqa: NPY002 - the global stream is the point


@case(example=lambda: (torch.zeros(4),), held_out=[lambda: (torch.arange(4.0),)])
def shared_memory(x):
    """Writes into the numpy view of a tensor: both share memory."""
    y = x.cpu().clone()
    y.numpy()[1] += 10
    return y.to(x.device) + 1


@case(
    example=lambda: (torch.tensor([1.0, 2.0, 2.0]),),
    held_out=[lambda: (torch.tensor([5.0, 5.0, 5.0]),)],
)
def returns_numpy_array(x):
    """Returns a numpy array instead of a tensor."""
    return np.cumsum(x.cpu().numpy())


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([3.0, 4.0]),)],
)
def returns_numpy_scalar(x):
    """Returns what `sum` of an array gives: a numpy float32, which is neither a tensor nor a Python float."""
    return x.cpu().numpy().sum()


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([4.0, 5.0]),), lambda: (torch.tensor([-4.0, 1.0]),)],
)
def math_of_item(x):
    """Calls the math module on a value read from the tensor: `math.sqrt` raises ValueError below zero."""
    return x * math.sqrt(x.sum().item())
