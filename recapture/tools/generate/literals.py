"""Values as Python source, so that a generated program needs torch alone."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MOST_ELEMENTS = 400
"""Elements of a tensor that are written out; larger tensors are drawn from the same range under a seed."""

SHORTEST_DIGITS = 6
"""Digits from which the shortest text of a number is searched."""

NAMED = {"inf": "inf", "-inf": "-inf", "nan": "nan"}
"""Numbers that the generated file imports from `math`."""


class UnwritableError(Exception):
    """A value has no text: a function, a sparse tensor, an object of a class that is not torch's."""


def source_of(value: Any, tensor: Callable[[Any], str]) -> str:  # long: one line for each type
    """Return the source of a value; `tensor` gives that of each tensor in it. Raises UnwritableError."""
    import torch

    if isinstance(value, torch.Tensor):
        return tensor(value)
    if value is None or value is Ellipsis or isinstance(value, (bool, str, int)):
        return "..." if value is Ellipsis else repr(value)
    if isinstance(value, float):
        return number_text(value, torch.float64)
    if isinstance(value, complex):
        return number_text(value, torch.complex128)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value)
    if isinstance(value, torch.device):
        return repr(str(value))
    if isinstance(value, slice):
        return f"slice({', '.join(source_of(part, tensor) for part in (value.start, value.stop, value.step))})"
    if type(value) is list:
        return f"[{', '.join(source_of(part, tensor) for part in value)}]"
    if type(value) in (tuple, torch.Size):
        parts = [source_of(part, tensor) for part in value]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if type(value) is dict:
        parts = [f"{source_of(key, tensor)}: {source_of(part, tensor)}" for key, part in value.items()]
        return "{" + ", ".join(parts) + "}"
    raise UnwritableError(f"a {type(value).__name__}")


def tensor_source(tensor: Any, seed: int) -> str:
    """Return the source of an expression that makes a tensor with its strides; `seed` is for large ones.

    Raises UnwritableError for a tensor without such an expression: a sparse, quantized or nested one, or a subclass.
    """
    import torch

    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    if not plain or tensor.is_quantized or tensor.is_nested or tensor.device.type not in ("cpu", "cuda"):
        raise UnwritableError(f"a tensor of layout {tensor.layout}" if type(tensor) is torch.Tensor else "a subclass")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.numel() == 0:
        return f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})"
    if tensor.is_contiguous():
        return _elements(tensor, seed)
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    memory = torch.as_strided(tensor, (span,), (1,))
    return f"{_elements(memory, seed)}.as_strided({tuple(tensor.shape)}, {tuple(tensor.stride())})"


def _elements(tensor: Any, seed: int) -> str:
    if tensor.numel() <= MOST_ELEMENTS:
        return f"torch.tensor({_nested(tensor.tolist(), tensor.dtype)}, dtype={tensor.dtype})"
    return _drawn(tensor, seed)


def _nested(value: Any, dtype: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_nested(part, dtype) for part in value)}]"
    return number_text(value, dtype)


def _drawn(tensor: Any, seed: int) -> str:
    """Return the source of a random tensor with the shape, dtype and range of another one."""
    import torch

    shape, dtype = tuple(tensor.shape), tensor.dtype
    source = f"torch.Generator().manual_seed({seed})"
    if dtype is torch.bool:
        return f"(torch.rand({shape}, generator={source}) < 0.5)"
    if dtype.is_complex:
        return f"torch.randn({shape}, generator={source}, dtype={dtype})"
    low, high = tensor.min().item(), tensor.max().item()
    if not dtype.is_floating_point:
        return f"torch.randint({low}, {high + 1}, {shape}, generator={source}, dtype={dtype})"
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise UnwritableError("a large tensor with infinite elements")
    width, start = number_text(high - low, torch.float32), number_text(low, torch.float32)
    return f"(torch.rand({shape}, generator={source}) * {width} + {start}).to({dtype})"


def number_text(value: Any, dtype: Any) -> str:
    """Return the shortest text of a number that has its value in a dtype."""
    import torch

    if isinstance(value, complex):
        part = torch.float64 if dtype is torch.complex128 else torch.float32
        return f"complex({number_text(value.real, part)}, {number_text(value.imag, part)})"
    if not isinstance(value, float):
        return repr(value)
    if repr(value) in NAMED:
        return NAMED[repr(value)]
    if dtype is torch.float64:
        return repr(value)
    for digits in range(SHORTEST_DIGITS, 10):
        text = repr(float(f"{value:.{digits}g}"))
        if struct.pack("f", float(text)) == struct.pack("f", value):
            return text
    return repr(value)
