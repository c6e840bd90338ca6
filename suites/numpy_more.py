"""More of numpy and scipy: views, ufuncs, random generators, structured results, and functions that only scipy has.

Everything goes through the CPU (`.cpu().numpy()`) and back, so that the cases run on any device.
"""

from contextlib import suppress

import numpy as np
import torch

from recapture import case

with suppress(ImportError):  # cases that need scipy say so; the others run without it
    import scipy.ndimage
    import scipy.optimize
    import scipy.signal
    import scipy.sparse
    import scipy.special


def back(array, like):
    """Give an array as a tensor on the device of another tensor."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)


@case(
    example=lambda: (torch.tensor([3.0, 1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([1.0, 5.0, 5.0]),), lambda: (torch.tensor([2.0, -1.0]),)],
)
def numpy_argsort(x):
    """Sorts through indexes in numpy, with a stable order of equal values."""
    array = x.cpu().numpy()
    order = np.argsort(array, kind="stable")
    return back(array[order], x), back(order, x)


@case(
    example=lambda: (torch.tensor([1.0, -2.0, 3.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -2.0, -3.0]),), lambda: (torch.tensor([4.0, 5.0, 6.0]),)],
)
def numpy_boolean_mask(x):
    """Selects with a boolean mask in numpy: how many are left depends on the values."""
    array = x.cpu().numpy()
    return back(array[array > 0], x)


@case(
    example=lambda: (torch.tensor([1.0, -2.0, 3.0]),),
    held_out=[lambda: (torch.tensor([-1.0, 5.0, -3.0]),)],
)
def numpy_where_and_out(x):
    """Writes with `out=` and a `where=` mask: places that are masked keep what was there."""
    array = x.cpu().numpy()
    result = np.full_like(array, 9.0)
    np.sqrt(np.abs(array), out=result, where=array > 0)
    return back(result, x)


@case(
    example=lambda: (torch.arange(6.0).reshape(2, 3),),
    held_out=[lambda: (torch.arange(12.0).reshape(3, 4),)],
)
def numpy_transpose_is_a_view(x):
    """Writes through a transposed view of a copy: both arrays share memory."""
    array = x.cpu().numpy().copy()
    array.T[0] = -1
    return back(array, x)


@case(
    example=lambda: (torch.arange(6.0).reshape(2, 3), "ij,kj->ik"),
    held_out=[lambda: (torch.arange(6.0).reshape(2, 3), "ij,kj->k")],
)
def numpy_einsum_by_argument(x, equation: str):
    """Contracts two arrays by a formula that the caller gives."""
    array = x.cpu().numpy()
    return back(np.einsum(equation, array, array), x)


@case(
    example=lambda: (torch.tensor([7, -7, 5]),),
    held_out=[lambda: (torch.tensor([-1, 9, -9]),)],
)
def numpy_integer_division(x):
    """Divides integers in numpy: `//` rounds down, `%` has the divisor's sign, `fmod` that of the dividend."""
    array = x.cpu().numpy()
    return back(array // 3, x), back(array % 3, x), back(np.fmod(array, 3), x)


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), 3),
    held_out=[lambda: (torch.tensor([1.0, 2.0]), 5)],
)
def numpy_scalar_from_an_array(x, n: int):
    """Reads one element of an array, which is a numpy scalar, and multiplies by it."""
    table = np.arange(8, dtype=np.float32)
    return x * table[n] + float(table.max())


@case(
    example=lambda: (torch.tensor([1.5, 2.5]),),
    held_out=[lambda: (torch.tensor([0.5, -1.5]),), lambda: (torch.tensor([float("nan"), 2.0]),)],
)
def numpy_nan_functions(x):
    """Sums without NaN and replaces NaN in numpy."""
    array = x.cpu().numpy()
    return back(np.nan_to_num(array, nan=-1.0) + np.nansum(array), x)


@case(
    example=lambda: (torch.tensor([1.0, 2.0, 4.0]),),
    held_out=[lambda: (torch.tensor([0.0, 5.0, 5.0]),)],
)
def numpy_array_function_on_a_tensor(x):
    """Gives a tensor to a function of numpy, which converts it by itself."""
    return back(np.diff(np.asarray(x.cpu()), prepend=0), x)


@case(
    example=lambda: (torch.arange(6.0),),
    held_out=[lambda: (torch.arange(6.0) ** 2,), lambda: (torch.ones(6),)],
    requires=("scipy",),
)
def scipy_filter(x):
    """Filters a signal with scipy, in which each value depends on the one before."""
    return back(scipy.signal.lfilter([1.0], [1.0, -0.5], x.cpu().numpy()), x)


@case(
    example=lambda: (torch.tensor([1.0, -3.0]),),
    held_out=[lambda: (torch.tensor([2.0, -10.0]),)],
    requires=("scipy",),
)
def scipy_root(x):
    """Finds a root with scipy, which calls a Python function again and again."""
    slope, offset = x.tolist()
    return x + scipy.optimize.brentq(lambda value: slope * value + offset, -100.0, 100.0)


@case(
    example=lambda: (torch.eye(3),),
    held_out=[lambda: (torch.eye(3) * 2 + 1,)],
    requires=("scipy",),
)
def scipy_sparse_product(x):
    """Multiplies through a sparse matrix of scipy and comes back to a tensor."""
    matrix = scipy.sparse.csr_matrix(x.cpu().numpy())
    return back((matrix @ matrix.T).toarray(), x)


@case(
    example=lambda: (torch.arange(9.0).reshape(3, 3),),
    held_out=[lambda: (torch.eye(3) * 5,)],
    requires=("scipy",),
)
def scipy_image_filter(x):
    """Smooths an image with scipy."""
    return back(scipy.ndimage.uniform_filter(x.cpu().numpy(), size=2, mode="nearest"), x)


@case(
    example=lambda: (torch.tensor([0.5, 2.0]),),
    held_out=[lambda: (torch.tensor([3.0, 10.0]),)],
    requires=("scipy",),
)
def scipy_gamma_against_torch(x):
    """Takes the logarithm of the gamma function with scipy and with torch: the difference is rounding."""
    return back(scipy.special.gammaln(x.cpu().numpy()), x), torch.lgamma(x)
