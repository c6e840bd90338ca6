"""Says what an ATen operator does to floating-point numbers: moves them, rounds once, or accumulates many terms."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import cache
from typing import Any

from recapture.torch_api.compat import operator_schema


class Arithmetic(Enum):
    """How an operator rounds."""

    NONE = "moves or selects numbers, or returns views, integers or random numbers"
    ONCE = "rounds each result once"
    TERMS = "computes each result from a few numbers, with several roundings or an approximation"
    MANY = "accumulates many terms in each result"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MOVING = _names("""
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d alias amax amin aminmax argmax argmin argsort as_strided
    as_strided_copy as_strided_scatter as_strided_ block_diag bucketize cat channel_shuffle clone col2im_backward
    constant_pad_nd contiguous cummax cummin detach diag_embed diagonal_copy diagonal_scatter embedding empty empty_like
    empty_permuted empty_strided equal expand_copy eye fill flip fractional_max_pool2d fractional_max_pool3d full
    full_like gather im2col index index_copy index_fill index_select isin kthvalue lift lift_fresh lift_fresh_copy
    masked_scatter masked_select max max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d median
    min mode nanmedian narrow_copy new_empty new_empty_strided new_full new_ones new_zeros nonzero nonzero_static
    ones ones_like permute_copy pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d
    repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d resize resize_as roll rot90
    scalar_tensor searchsorted select_backward select_copy select_scatter set slice_backward slice_copy slice_scatter
    sort split_copy squeeze_copy stack t_copy take topk transpose_copy tril triu unbind_copy unfold_copy
    unique_consecutive unique_dim unsqueeze_copy view_copy zero zeros zeros_like _efficientzerotensor
    _local_scalar_dense _reshape_alias _reshape_copy _unique2 _unsafe_index _unsafe_masked_index _foreach_copy
    _foreach_zero
    """)
"""Operators without the tag ``pointwise`` whose results are some of their inputs."""

CONVERTING = frozenset({"copy", "_to_copy"})
"""Operators that round each number once if the dtype of the result is narrower."""

CREATING = _names(
    "arange range linspace logspace bartlett_window blackman_window hamming_window hann_window kaiser_window"
)
"""Operators that compute numbers from Python numbers."""

BASIC = frozenset({"add", "sub", "rsub", "mul", "div", "true_divide", "sqrt", "reciprocal", "square", "neg", "abs"})
"""Operators that IEEE 754 rounds correctly, if a factor `alpha` is 1."""

DIVIDING = frozenset({"div", "true_divide"})
"""Operators that compilers may replace by a product with the reciprocal."""

SELECTING = _names("""
    abs absolute ceil clamp clamp_max clamp_min clip conj copysign fill floor fmax fmin frac hardtanh heaviside
    imag masked_fill maximum minimum nan_to_num neg negative nextafter positive real relu round sgn sign threshold
    threshold_backward trunc where _conj_physical conj_physical
    """)
"""Operators with the tag ``pointwise`` that never round. It matters for float64, for which there is no wider dtype."""

WRITING = frozenset({"index_put", "_unsafe_index_put", "_index_put_impl", "put", "scatter"})
"""Operators that write numbers, and accumulate them only if an argument says so."""

CANCELLING = frozenset({"gelu", "gelu_backward", "mish", "mish_backward", "logaddexp", "logaddexp2"})
"""Operators whose formula may subtract nearly equal numbers."""

TF32 = 2.0**-11
"""Relative error of one factor of a product in TF32."""

RANDOM = _names("""
    bernoulli binomial cauchy exponential geometric log_normal multinomial normal poisson rand rand_like randint
    randint_like randn randn_like random randperm rrelu_with_noise uniform _sample_dirichlet _standard_gamma
    """)
"""Operators that draw random numbers, most of them also with the tag ``nondeterministic_seeded``."""

PRODUCTS: dict[str, dict[int, tuple[int, ...]]] = {
    "mm": {0: (-1,)},
    "bmm": {0: (-1,)},
    "mv": {0: (-1,)},
    "dot": {0: (-1,)},
    "vdot": {0: (-1,)},
    "linear": {0: (-1,)},
    "addmm": {1: (-1,)},
    "_addmm_activation": {1: (-1,)},
    "addmv": {1: (-1,)},
    "baddbmm": {1: (-1,)},
    "addbmm": {1: (0, -1)},
    "convolution": {0: (), 1: (1, 2, 3, 4)},
    "_convolution": {0: (), 1: (1, 2, 3, 4)},
    "mkldnn_convolution": {0: (), 1: (1, 2, 3, 4)},
    "cudnn_convolution": {0: (), 1: (1, 2, 3, 4)},
    "convolution_backward": {0: (0, 2, 3, 4), 1: (), 2: (0, 2, 3, 4)},
}
"""Dimensions that a product sums over, by the position of the factor; ``()`` for one whose elements are unrelated."""

CHANNELS = ((0, 2, 3, 4),)
GROUPS = ((1, 2, 3, 4),)
NORMS: dict[str, tuple[tuple[int, ...], ...]] = {
    "native_batch_norm": CHANNELS,
    "cudnn_batch_norm": CHANNELS,
    "miopen_batch_norm": CHANNELS,
    "_native_batch_norm_legit": CHANNELS,
    "_batch_norm_with_update": CHANNELS,
    "native_batch_norm_backward": CHANNELS,
    "cudnn_batch_norm_backward": CHANNELS,
    "miopen_batch_norm_backward": CHANNELS,
    "batch_norm_backward": CHANNELS,
    "native_group_norm": GROUPS,
    "native_group_norm_backward": CHANNELS + GROUPS,
    "native_layer_norm_backward": ((0, 1, 2), (-1,)),
}
"""Groups of dimensions that a normalisation sums over, in tensors of more than one dimension."""

REDUCING = _names("mean nansum norm prod std std_mean sum var var_mean linalg_vector_norm")
"""Operators that sum over the argument `dim`, or over everything without it."""

FEW = _names("""
    avg_pool1d avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward cross linalg_cross
    max_pool2d_with_indices_backward max_pool3d_with_indices_backward
    """)
"""Operators that sum few terms, over no dimension as a whole."""


SPECTRAL = _names("""
    linalg_eig linalg_eigvals linalg_lstsq linalg_svd _linalg_eigh _linalg_eigvals _linalg_svd
    """)
"""Operators on a matrix whose error is relative to the largest of the numbers that belong together."""

SPARSE = _names("_coalesce _sparse_addmm _sparse_log_softmax _sparse_softmax _sparse_sum")
"""Operators that add the numbers of a sparse tensor."""

UNCHECKED = _names("""
    _cudnn_attention_backward _cudnn_attention_forward _scaled_dot_product_cudnn_attention
    _scaled_dot_product_cudnn_attention_backward
    """)
"""Operators that take float64 without an error and read it as float16, so that the result is meaningless.

Snapshot on torch 2.11.0 and an H200; `scaled_dot_product_attention` itself never gives these operators float64.
"""


def name_of(func: Any) -> str:
    """Return an operator's name without namespace, overload, and the underscore of the in-place variant."""
    name = str(operator_schema(func).name).split("::")[-1]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def arithmetic(func: Any, arguments: dict[str, Any]) -> Arithmetic:
    """Classify a call of an operator, with its arguments by name; an unknown operator counts as accumulating."""
    name = name_of(func)
    if never_rounds(func):
        return Arithmetic.NONE
    if name in WRITING and not (arguments.get("accumulate") or arguments.get("reduce")):
        return Arithmetic.NONE
    if name in CONVERTING:
        return Arithmetic.ONCE if _narrows(arguments) else Arithmetic.NONE
    if name in CREATING:
        return Arithmetic.ONCE
    bare = name.replace("_foreach_", "")
    if bare in BASIC:
        return Arithmetic.ONCE if arguments.get("alpha", 1) == 1 else Arithmetic.TERMS
    pointwise = _tagged(func, "pointwise") or bare not in (name, "norm")
    return Arithmetic.TERMS if pointwise else Arithmetic.MANY


@cache
def never_rounds(func: Any) -> bool:
    """Whether no call of an operator rounds, whatever its arguments."""
    name = name_of(func)
    return name in MOVING or name in RANDOM or name in SELECTING or _returns_views(func)


def creates(func: Any) -> bool:
    """Whether an operator computes numbers from Python numbers."""
    return name_of(func) in CREATING


def bias_of(func: Any, arguments: dict[str, Any]) -> Any:
    """Return the bias that an operator on a half type adds to a product, in the shape of the result; None without one.

    Eager rounds the sum once. Torch's own decompositions round the product first, by as much as a unit of the bias.
    """
    import torch

    name = name_of(func)
    bias = arguments.get("self" if name in ADDING else "bias") if name in PRODUCTS else None
    if not isinstance(bias, torch.Tensor) or bias.dtype not in (torch.float16, torch.bfloat16):
        return None
    return bias.view(-1, *[1] * (arguments["weight"].dim() - 2)) if "convolution" in name else bias


ADDING = ("addmm", "_addmm_activation", "addmv", "baddbmm", "addbmm")
"""Operators whose first argument is added to a product."""


def cancels(func: Any) -> bool:
    """Whether an operator may subtract nearly equal numbers, so that its error is relative to its inputs."""
    return name_of(func) in CANCELLING


def interpolates(func: Any) -> bool:
    """Whether an operator computes coordinates in its input, whose rounding errors grow with the size of the input."""
    return name_of(func).lstrip("_").startswith(("upsample_", "grid_sampler_"))


def spectral(func: Any) -> bool:
    """Whether an operator gives each number, such as a singular value, with an error of the size of the largest one."""
    return name_of(func) in SPECTRAL


def adds_sparse(func: Any) -> bool:
    """Whether an operator adds the numbers that a sparse tensor stores."""
    return name_of(func) in SPARSE


def normalises(func: Any) -> bool:
    """Whether an operator subtracts a mean over many terms from each of them."""
    return "norm" in name_of(func) and name_of(func) not in REDUCING


def arguments_written(func: Any, arguments: dict[str, Any]) -> set[str]:
    """Return the names of the arguments that a call of an operator writes to."""
    names = {
        argument.name
        for argument in operator_schema(func).arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    if arguments.get("training") or arguments.get("train"):
        names |= {"running_mean", "running_var"}  # not declared by the schema of batch normalisation
    return names


def tf32_error(func: Any, device: str) -> float:
    """Return the relative error of a factor in a float32 product on a device where TF32 is allowed there, or 0."""
    import torch

    name = name_of(func)
    if device != "cuda" or not (name in PRODUCTS or "conv" in name or "rnn" in name):
        return 0.0
    cudnn = "conv" in name or "rnn" in name
    allowed = torch.backends.cudnn.allow_tf32 if cudnn else torch.get_float32_matmul_precision() != "highest"
    return TF32 if allowed else 0.0


def attention_error(func: Any, dtype: Any) -> float:
    """Return the relative error of the tensors of fused attention on a half type, or 0 for any other operator.

    Some kernels round the scores to the half type, and all of them the probabilities. No argument holds either, so the
    error is put into the tensors that they are computed from or multiplied by.
    """
    import torch

    half = dtype in (torch.float16, torch.bfloat16)
    return torch.finfo(dtype).eps / 2 if half and "attention" in name_of(func) else 0.0


def is_deterministic(func: Any, arguments: dict[str, Any]) -> bool:
    """Whether calling an operator again gives the same numbers and leaves every random generator alone."""
    if name_of(func) in RANDOM:
        return False
    return not _tagged(func, "nondeterministic_seeded") or arguments.get("dropout_p", 1) == 0


def widens(func: Any) -> bool:
    """Whether an operator that is called in a wider dtype computes in it or raises."""
    return name_of(func) not in UNCHECKED


def summed_dims(func: Any, position: int, arguments: dict[str, Any], ndim: int) -> tuple[tuple[int, ...], ...]:
    """Return groups of dimensions over which an operator sums the products of one of its tensors, each in 0…ndim-1.

    Dimensions of one group are summed together. For an operator that is not known, every dimension is a group.
    """
    name = name_of(func)
    if name in FEW or interpolates(func) or (name in NORMS and ndim == 1):
        return ()
    if name in NORMS:
        return tuple(dims for group in NORMS[name] if (dims := _within(group, ndim)))
    if name in PRODUCTS:
        chosen: Any = PRODUCTS[name].get(position, ())
    elif "normalized_shape" in arguments and not name.endswith("_backward"):
        chosen = range(-len(arguments["normalized_shape"]), 0) if position == 0 else ()
    elif name in REDUCING or "dim" in arguments:
        chosen = arguments.get("dim")
        chosen = (chosen,) if isinstance(chosen, int) else chosen or range(ndim)
    else:
        return tuple((dim,) for dim in range(ndim))
    dims = _within(chosen, ndim)
    return (dims,) if dims else ()


def _within(dims: Iterable[Any], ndim: int) -> tuple[int, ...]:
    """Return those of the dimensions that a tensor has."""
    return tuple(sorted({dim % ndim for dim in dims if isinstance(dim, int) and -ndim <= dim < ndim}))


def _tagged(func: Any, name: str) -> bool:
    import torch

    tag = getattr(getattr(torch, "Tag", None), name, None)
    return tag is not None and tag in func.tags


def _narrows(arguments: dict[str, Any]) -> bool:
    """Whether a conversion, by a dtype or by copying into another tensor, loses digits."""
    import torch

    into = arguments["self"].dtype if "src" in arguments else arguments.get("dtype")
    source = arguments.get("src", arguments["self"]).dtype
    rounded = [dtype for dtype in (source, into) if dtype is not None and (dtype.is_floating_point or dtype.is_complex)]
    return len(rounded) == 2 and bool(torch.finfo(source).eps < torch.finfo(into).eps)


def _returns_views(func: Any) -> bool:
    """Whether the results are views of arguments."""
    aliases = [value.alias_info for value in operator_schema(func).returns if value.alias_info is not None]
    return bool(aliases) and not any(alias.is_write for alias in aliases)
