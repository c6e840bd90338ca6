"""Compilers that change nothing that matters: whatever the judge finds in their cells is a false blame."""

from __future__ import annotations

import dataclasses
import types
from collections import OrderedDict, defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.judge.planting import container_like, parts
from recapture.cases.compiler import compiler

aten = torch.ops.aten

BLOCK = 7
"""Number of terms in a block of a sum; odd, so that blocks do not match the lanes of a processor."""


@compiler("equal:eager")
def another_name(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Eager under another name."""
    return fn


@compiler("equal:wrapped")
def wrapped(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Eager inside another function."""

    def call(*args: Any) -> Any:
        return fn(*args)

    return call


@compiler("equal:recompiled")
def recompiled(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """A new function object from the same code; for a module, its forward as a new method."""
    if isinstance(fn, torch.nn.Module):
        forward = type(fn).forward
        if not isinstance(forward, types.FunctionType):
            return fn
        again = types.MethodType(_again(forward), fn)

        def call(*args: Any) -> Any:
            before = fn.__dict__.get("forward")
            fn.__dict__["forward"] = again  # Module.__call__ runs it, with the hooks
            try:
                return fn(*args)
            finally:
                del fn.__dict__["forward"]
                if before is not None:
                    fn.__dict__["forward"] = before

        return call
    return _again(fn) if isinstance(fn, types.FunctionType) else fn


def _again(function: types.FunctionType) -> types.FunctionType:
    again = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    again.__kwdefaults__ = function.__kwdefaults__
    again.__dict__ = function.__dict__
    return again


@compiler("equal:fresh-containers")
def fresh_containers(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """The result in new containers of the same types, with the same items."""
    return lambda *args: _fresh(fn(*args), {id(container) for container in _containers(args)})


def _containers(value: Any) -> list[Any]:
    items = parts(value)
    return [] if items is None else [value, *(inner for _, item in items for inner in _containers(item))]


def _fresh(value: Any, owned: set[int]) -> Any:
    """Return a value in new containers; those that belong to the arguments stay, because their identity is seen."""
    items = parts(value)
    if items is None or id(value) in owned or dataclasses.is_dataclass(value):
        return value
    new = [(key, _fresh(item, owned)) for key, item in items]
    if isinstance(value, (list, tuple)):
        return container_like(value, [item for _, item in new])
    if isinstance(value, defaultdict):
        return defaultdict(value.default_factory, new)
    return type(value)(new)


@compiler("equal:reordered-dicts")
def reordered_dicts(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Dicts with equal items in another order, which is a note at most."""
    return lambda *args: _reordered(fn(*args), {id(container) for container in _containers(args)})


def _reordered(value: Any, owned: set[int]) -> Any:
    items = parts(value)
    if items is None or id(value) in owned or dataclasses.is_dataclass(value):
        return value
    if type(value) is dict:
        return {key: _reordered(item, owned) for key, item in reversed(items)}
    if isinstance(value, (OrderedDict, defaultdict)) or hasattr(value, "_fields"):
        return value
    return container_like(value, [_reordered(item, owned) for _, item in items])


class _Otherwise(TorchDispatchMode):  # type: ignore[misc]
    """Computes some operations in another way, below autograd, so that gradients follow."""

    def __init__(self, ways: dict[Any, Any]) -> None:
        super().__init__()
        self.ways = ways

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        way = self.ways.get(func)
        first = args[0] if args else None
        if way is None or kwargs or not isinstance(first, torch.Tensor) or not _summable(first):
            return func(*args, **(kwargs or {}))
        return way(func, *args)


def _summable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.layout == torch.strided and type(tensor) is torch.Tensor


def _running(fn: Any, ways: dict[Any, Any]) -> Any:
    def call(*args: Any) -> Any:
        with _Otherwise(ways):
            return fn(*args)

    return call


def _flipped(func: Any, tensor: torch.Tensor, *args: Any) -> Any:
    """Reduce the elements from the last to the first."""
    return func(tensor.flip(tuple(range(tensor.dim()))) if not args else tensor.flip(_dims(tensor, args[0])), *args)


def _dims(tensor: torch.Tensor, dims: Any) -> tuple[int, ...]:
    if dims is None or dims == []:
        return tuple(range(tensor.dim()))
    return tuple(dims) if isinstance(dims, (list, tuple)) else (int(dims),)


def _flipped_product(func: Any, left: torch.Tensor, right: torch.Tensor) -> Any:
    """Multiply matrices with the terms of each sum in reverse."""
    return func(left.flip(-1), right.flip(-2))


def _flipped_addmm(func: Any, bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> Any:
    return func(bias, left.flip(-1), right.flip(-2))


@compiler("equal:reversed-sums")
def reversed_sums(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Sums, means, variances, norms and matrix products that add from the last term to the first."""
    ways: dict[Any, Any] = dict.fromkeys(
        (aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.var.correction), _flipped
    )
    ways |= {aten.mm.default: _flipped_product, aten.bmm.default: _flipped_product}
    ways |= {aten.addmm.default: _flipped_addmm, aten.linalg_vector_norm.default: _flipped_norm}
    return _running(fn, ways)


def _flipped_norm(func: Any, tensor: torch.Tensor, *args: Any) -> Any:
    return func(tensor.flip(tuple(range(tensor.dim()))), *args) if len(args) < 2 else func(tensor, *args)


def _blocked_sum(func: Any, tensor: torch.Tensor, *args: Any) -> Any:
    """Add blocks of terms first, then the sums of the blocks."""
    if args and (args[0] is None or len(_dims(tensor, args[0])) != 1):
        return func(tensor, *args)
    dim = _dims(tensor, args[0])[0] if args else 0
    flat = tensor if args else tensor.reshape(-1)
    keep = bool(args[1]) if len(args) > 1 else False
    if flat.dim() == 0 or flat.dtype in (torch.float16, torch.bfloat16):  # eager rounds half precision only once
        return func(tensor, *args)
    total = torch.stack([block.sum(dim) for block in flat.split(BLOCK, dim)]).sum(0) if flat.shape[dim] else None
    if total is None:
        return func(tensor, *args)
    return total.unsqueeze(dim) if keep else total


def _blocked_product(func: Any, left: torch.Tensor, right: torch.Tensor) -> Any:
    """Add the products of two halves."""
    half = left.shape[-1] // 2
    if half == 0 or left.dtype in (torch.float16, torch.bfloat16):
        return func(left, right)
    return func(left[..., :half], right[..., :half, :]) + func(left[..., half:], right[..., half:, :])


def _blocked_addmm(func: Any, bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> Any:
    if left.dtype in (torch.float16, torch.bfloat16):
        return func(bias, left, right)
    return _blocked_product(aten.mm.default, left, right) + bias


def _pairwise_mean(func: Any, tensor: torch.Tensor, *args: Any) -> Any:
    """Divide a sum of blocks by the number of terms."""
    if args or tensor.dtype in (torch.float16, torch.bfloat16) or not tensor.numel():
        return func(tensor, *args)
    return _blocked_sum(aten.sum.default, tensor) / tensor.numel()


def _softmax(func: Any, tensor: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    if half_to_float or tensor.dtype in (torch.float16, torch.bfloat16) or tensor.dim() == 0:
        return func(tensor, dim, half_to_float)
    powers = (tensor - tensor.amax(dim, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


@compiler("equal:blocked-sums")
def blocked_sums(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Sums, means, softmax and matrix products that add blocks of terms first."""
    ways: dict[Any, Any] = dict.fromkeys((aten.sum.default, aten.sum.dim_IntList), _blocked_sum)
    ways |= {aten.mm.default: _blocked_product, aten.bmm.default: _blocked_product, aten.addmm.default: _blocked_addmm}
    ways |= {aten.mean.default: _pairwise_mean, aten._softmax.default: _softmax}  # noqa: SLF001
    return _running(fn, ways)


def _widened(func: Any, *args: Any) -> Any:
    """Compute one operation in float64 and round the result once."""
    dtype = args[0].dtype
    if any(isinstance(argument, complex) for argument in args):  # the result has another dtype
        return func(*args)

    def widen(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    if any(
        isinstance(argument, torch.Tensor) and argument.is_floating_point() and argument.dtype != dtype
        for argument in args
    ):
        return func(*args)
    result = func(*(widen(argument) for argument in args))
    return result.to(dtype)


ROUNDED_ONCE = (
    "add.Tensor sub.Tensor mul.Tensor div.Tensor exp.default log.default sin.default cos.default tanh.default "
    "sigmoid.default sqrt.default rsqrt.default pow.Tensor_Scalar expm1.default log1p.default gelu.default "
    "sum.default sum.dim_IntList mean.default mean.dim var.correction mm.default bmm.default addmm.default "
    "cumsum.default linalg_vector_norm.default"
)
"""Operations of ATen whose float64 result is rounded, by name and overload."""


@compiler("equal:rounded-once")
def rounded_once(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Every operation computed in float64 and rounded once."""
    named = [name.split(".") for name in ROUNDED_ONCE.split()]
    return _running(fn, {getattr(getattr(aten, name), overload): _widened for name, overload in named})


def _by_reciprocal(func: Any, dividend: torch.Tensor, divisor: Any) -> Any:
    """Multiply with the reciprocal of a divisor, where that is a normal number."""
    if not isinstance(divisor, torch.Tensor) or divisor.dtype != dividend.dtype or not _summable(divisor):
        return func(dividend, divisor)
    wide = torch.float32 if dividend.dtype in (torch.float16, torch.bfloat16) else dividend.dtype
    sizes = divisor.to(torch.float64).abs()
    if not bool(((sizes > 1e-30) & (sizes < 1e30)).all()):
        return func(dividend, divisor)
    return (dividend.to(wide) * divisor.to(wide).reciprocal()).to(dividend.dtype)


@compiler("equal:reciprocals")
def reciprocals(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Quotients by the reciprocal of the divisor."""
    return _running(fn, {aten.div.Tensor: _by_reciprocal})


def _folded(func: Any, tensor: torch.Tensor, weight: Any, bias: Any, *more: Any) -> Any:
    """Normalise by one factor and one addend for each channel."""
    mean, variance, *_, epsilon = more
    results = func(tensor, weight, bias, *more)
    if len(more) != 4 or tensor.dtype not in (torch.float32, torch.float64):
        return results
    factor = (variance + epsilon).rsqrt() * (1 if weight is None else weight)
    addend = (0 if bias is None else bias) - mean * factor
    shape = (1, -1, *[1] * (tensor.dim() - 2))
    return (tensor * factor.view(shape) + addend.view(shape), *results[1:])


@compiler("equal:folded-norms")
def folded_norms(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Batch normalisation at inference, folded into a factor and an addend."""
    return _running(fn, {aten._native_batch_norm_legit_no_training.default: _folded})  # noqa: SLF001


@compiler("equal:unfused-attention")
def unfused_attention(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Attention as two products and a softmax."""

    def call(*args: Any) -> Any:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return fn(*args)

    return call


@compiler("equal:unrolled-recurrences")
def unrolled_recurrences(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Recurrent layers step by step, and convolutions, without the fused kernels of oneDNN."""

    def call(*args: Any) -> Any:
        with torch.backends.mkldnn.flags(enabled=False):
            return fn(*args)

    return call


def _dense(func: Any, *args: Any) -> Any:
    """Compute with dense tensors in place of sparse ones."""
    return func(*(arg.to_dense() if isinstance(arg, torch.Tensor) and _is_sparse(arg) else arg for arg in args))


def _is_sparse(tensor: torch.Tensor) -> bool:
    return tensor.layout in (torch.sparse_coo, torch.sparse_csr)


def _dense_product(func: Any, bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *more: Any) -> Any:  # noqa: ARG001
    return _dense(aten.addmm.default, bias, left, right)


def _dense_sum(func: Any, tensor: torch.Tensor, dims: Any) -> Any:
    total = tensor.to_dense().flip(tuple(range(tensor.dim()))).sum(dims)
    total = total.flip(tuple(range(total.dim())))
    return total.to_sparse() if total.dim() else func(tensor, dims)


def _by_hand(func: Any, tensor: torch.Tensor) -> Any:
    """Turn the integers of a quantized tensor into numbers."""
    if tensor.qscheme() != torch.per_tensor_affine:
        return func(tensor)
    return (tensor.int_repr().float() - tensor.q_zero_point()) * tensor.q_scale()


class _Stored(TorchDispatchMode):  # type: ignore[misc]
    """Computes operations on sparse and quantized tensors in another way."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ways = {
            aten.mm.default: _dense,
            aten.addmm.default: _dense,
            aten._sparse_addmm.default: _dense_product,  # noqa: SLF001
            aten._sparse_sum.dim: _dense_sum,  # noqa: SLF001
            aten.dequantize.self: _by_hand,
        }
        stored = [arg for arg in args if isinstance(arg, torch.Tensor) and (_is_sparse(arg) or arg.is_quantized)]
        way = ways.get(func) if stored and not kwargs else None
        return func(*args, **(kwargs or {})) if way is None else way(func, *args)


@compiler("equal:dense-and-dequantized")
def dense_and_dequantized(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Sums and products of sparse tensors with dense ones, and quantized numbers from their integers."""

    def call(*args: Any) -> Any:
        with _Stored():
            return fn(*args)

    return call


@compiler("equal:two-threads")
def two_threads(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Eager on another number of threads."""

    def call(*args: Any) -> Any:
        before = torch.get_num_threads()
        torch.set_num_threads(2 if before == 1 else 1)
        try:
            return fn(*args)
        finally:
            torch.set_num_threads(before)

    return call


def _bias_apart(func: Any, bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> Any:
    """Round the product to the half type, and then the sum."""
    return (
        aten.mm.default(left, right) + bias
        if bias.dtype in (torch.float16, torch.bfloat16)
        else func(bias, left, right)
    )


@compiler("equal:biases-apart")
def biases_apart(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Biases in half types added after the product is rounded."""
    return _running(fn, {aten.addmm.default: _bias_apart})
