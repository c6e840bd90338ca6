"""Changes of the arguments of a call: walks over nests of containers, and changes of a tensor, each under a name.

A script printed from a generated case contains this module, and needs torch alone. It therefore imports little.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

Change = Callable[[Any], Any]
"""A function from a detached tensor to its changed values; it may return the same tensor."""

Named = Iterator["tuple[str, Change]"]
"""Changes with their names."""

LARGE, TINY = 1e4, 1e-4
"""Factors of the variants ``large`` and ``tiny``."""

BELOW_ZERO, FAR_BEYOND = "integers below zero", "integers far beyond"
"""Names of the variants that show whether integers may have any value."""

MOST_CONSTANTS = 6
"""The most numbers and strings of the target's source that are tried."""

LARGEST_SIZE = 64
"""The largest number of the target's source that is tried as a size."""


# --- walks over arguments -------------------------------------------------------------------------------------------


def changed(args: tuple[Any, ...], change: Change, alone: str = "") -> Any:
    """Return the arguments with every tensor changed, or only the one at the path `alone`.

    A tensor that is given twice is changed once, so that it is still one tensor.
    """
    changes: dict[int, Any] = {}

    def change_one(path: str, tensor: Any) -> Any:
        if alone:
            return _changed_tensor(tensor, change) if alone == path else tensor
        if id(tensor) not in changes:
            changes[id(tensor)] = _changed_tensor(tensor, change)
        return changes[id(tensor)]

    return mapped(args, "args", change_one)


def _changed_tensor(tensor: Any, change: Change) -> Any:
    """Return a tensor with other values, of the same class, with its attributes, that asks for a gradient as before."""
    import torch

    kind = type(tensor)
    detached = tensor.detach()
    plain = detached if kind in (torch.Tensor, torch.nn.Parameter) else detached.as_subclass(torch.Tensor)
    result = change(plain)
    if result is plain:
        return tensor
    grad = tensor.requires_grad and (result.is_floating_point() or result.is_complex())
    if kind.__name__ == "Parameter":
        return kind(result, requires_grad=grad)
    if kind is not torch.Tensor:
        result = result.as_subclass(kind)
        result.__dict__.update(tensor.__dict__)
    return result.requires_grad_(grad)


def mapped(value: Any, path: str, change: Callable[[str, Any], Any]) -> Any:
    """Return a nest with its tensors changed; other objects stay as they are."""
    if _can_change(value):
        return change(path, value)
    parts = _parts(value)
    if parts is None:
        return value
    return _made_again(value, [mapped(item, f"{path}{key}", change) for key, item in parts])


def put(value: Any, path: str, other: Any, at: str = "args") -> Any:
    """Return a nest with another value at a path."""
    if at == path:
        return other
    parts = _parts(value)
    if parts is None or not path.startswith(at):
        return value
    return _made_again(value, [put(item, path, other, f"{at}{key}") for key, item in parts])


def tensors_in(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return the tensors in a nest that can be changed, with their paths."""
    tensors: list[tuple[str, Any]] = []

    def note(where: str, tensor: Any) -> Any:
        tensors.append((where, tensor))
        return tensor

    mapped(value, path, note)
    return tensors


def unchangeable_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in a nest that no change is made of, such as sparse ones, with their paths."""
    import torch

    if isinstance(value, torch.Tensor) and not _can_change(value):
        yield path, value
    for key, item in _parts(value) or ():
        yield from unchangeable_in(item, f"{path}{key}")


def plain_values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the scalars, slices, ranges, members of enums, dtypes, functions and Nones in a nest, with their paths."""
    kinds = (int, float, complex, str, slice, range, type(None))  # flags are integers; numpy's are floats
    named = isinstance(value, (enum.Enum, types.FunctionType, types.BuiltinFunctionType))
    if isinstance(value, kinds) or named or type(value).__name__ == "dtype":
        yield path, value
    for key, item in _parts(value) or ():
        yield from plain_values(item, f"{path}{key}")


def containers_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the lists, dicts, tuples and sets in a nest, with their paths; not the nest itself."""
    for key, item in _parts(value) or ():
        if type(item) in (list, dict, tuple, set, frozenset):
            yield f"{path}{key}", item
        yield from containers_in(item, f"{path}{key}")


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return the items of a container with their places; None for anything else."""
    if type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return [(f"[{key}]", item) for key, item in enumerate(value)]
    if type(value) is dict:
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if _is_plain_dataclass(value):
        return [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def _made_again(value: Any, items: list[Any]) -> Any:
    """Return a container of the same type with other items."""
    if type(value) is dict:
        return dict(zip(value, items, strict=True))
    if _is_plain_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(value, **dict(zip(names, items, strict=True)))
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _is_plain_dataclass(value: Any) -> bool:
    """Whether an object is a dataclass that its fields make again: not one that is a container, as of transformers."""
    if not dataclasses.is_dataclass(value) or isinstance(value, (type, dict, list, tuple)):
        return False
    return all(field.init for field in dataclasses.fields(value))


def _can_change(value: Any) -> bool:
    """Whether a value is a dense tensor, and of a class that leaves operators to torch."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized or value.is_nested:
        return False
    answers = getattr(type(value), "__torch_dispatch__", None)
    return getattr(answers, "__func__", answers) is getattr(
        torch.Tensor.__torch_dispatch__, "__func__", torch.Tensor.__torch_dispatch__
    )


# --- sizes and ranks ------------------------------------------------------------------------------------------------


def batches(tensors: Sequence[tuple[str, Any]], numbers: Sequence[float]) -> Named:
    """Yield changes of the first dimension: one, one more, and sizes around numbers of the target's source."""
    batch = next((tensor.shape[0] for _, tensor in tensors if tensor.dim()), 0)
    mined = [int(number) + more for number in numbers[:MOST_CONSTANTS] if number == int(number) for more in (0, 1)]
    for size in dict.fromkeys(mined or [1, batch + 1]):
        if batch and size != batch and 1 <= size <= max(LARGEST_SIZE, batch + 1):
            yield f"batch={size}", partial(_resized, [0], [batch], size)


def at_sizes(tensors: Sequence[tuple[str, Any]], compared: Sequence[tuple[int, int]]) -> Named:
    """Yield sizes on both sides of those at which comparisons in the target's source change, by dimension."""
    for dimension, number in compared:
        tensor = next((tensor for _, tensor in tensors if -tensor.dim() <= dimension < tensor.dim()), None)
        before = 0 if tensor is None else tensor.shape[dimension]
        for size in (number, number + 1):
            if tensor is not None and before and size != before and 1 <= size <= max(LARGEST_SIZE, before + 1):
                place = dimension % tensor.dim()
                name = f"dimension {place}={size}" if place else f"batch={size}"
                yield name, partial(_resized, [place], [before], size)


def sizes(tensors: Sequence[tuple[str, Any]]) -> Named:
    """Yield other sizes of the later dimensions, and of all dimensions that have the size of the first.

    A dimension is also doubled and halved, alone and with its neighbour: code may need a multiple of a patch or of the
    number of heads, and lengths may be limited by the length of the example.
    """
    first = next((tensor for _, tensor in tensors if tensor.dim()), None)
    if first is None or not first.numel():
        return
    shape, last = list(first.shape), first.dim() - 1
    if last > 0:
        yield f"last dimension={shape[-1] + 1}", partial(_resized, [last], shape[-1:], shape[-1] + 1)
    if last > 1:
        yield (
            f"last dimensions={2 * shape[-2]}x{2 * shape[-1]}",
            partial(_multiplied, [last - 1, last], shape[-2:], 2),
        )
    if any(list(tensor.shape).count(shape[0]) > 1 for _, tensor in tensors) or len(tensors) > 1:
        yield f"every size {shape[0]} is {shape[0] + 1}", partial(_resized, None, shape[:1], shape[0] + 1)
    if last > 0:
        yield "last dimension=1", partial(_resized, [last], shape[-1:], 1)
        if shape[-1] > 3:
            yield f"last dimension={shape[-1] // 2}", partial(_resized, [last], shape[-1:], shape[-1] // 2)
    if last == 3:
        yield "other height", partial(_resized, [2], shape[2:3], shape[2] + 1)
    for dim in range(last, -1, -1):
        yield f"dimension {dim}={2 * shape[dim]}", partial(_multiplied, [dim], [shape[dim]], 2)
    if last > 1:
        yield (
            f"last dimensions={3 * shape[-2]}x{3 * shape[-1]}",
            partial(_multiplied, [last - 1, last], shape[-2:], 3),
        )


def ranks(tensors: Sequence[tuple[str, Any]]) -> Named:
    """Yield an empty first dimension, another dimension in front, and one dimension fewer."""
    deepest = max((tensor.dim() for _, tensor in tensors), default=0)
    yield "another dimension", lambda tensor: tensor.unsqueeze(0).repeat(2, *[1] * tensor.dim())
    if deepest:
        yield "batch=0", lambda tensor: tensor[:0] if tensor.dim() else tensor
        yield "first row alone", lambda tensor: tensor[0] if tensor.dim() and tensor.shape[0] else tensor
    if deepest > 1:
        yield "transposed", lambda tensor: tensor.transpose(-1, -2).contiguous() if tensor.dim() > 1 else tensor


def _resized(dims: Sequence[int] | None, before: Sequence[int], after: int, tensor: Any) -> Any:
    """Return a tensor with another size in some dimensions, or in all, where they have a size; values are repeated."""
    import torch

    for dim in range(tensor.dim()) if dims is None else dims:
        if dim < tensor.dim() and tensor.shape[dim] == before[0]:
            tensor = tensor.index_select(dim, torch.arange(after, device=tensor.device) % before[0])
    return tensor


def _multiplied(dims: Sequence[int], before: Sequence[int], factor: int, tensor: Any) -> Any:
    """Return a tensor that is several times as large in some dimensions, if it has their sizes; values are repeated."""
    if [tensor.shape[dim] for dim in dims if dim < tensor.dim()] != list(before):
        return tensor
    for dim in dims:
        tensor = tensor.repeat_interleave(factor, dim)
    return tensor


# --- values ---------------------------------------------------------------------------------------------------------


def values(careful: bool) -> Named:
    """Yield other values of the same shape; with `careful`, integers keep to those of the example."""
    yield "negated", partial(_negated, careful)
    yield "zeros", lambda tensor: tensor & False if _is_bool(tensor) else tensor * 0
    yield "reversed", lambda tensor: tensor.flip(tuple(range(tensor.dim())))
    yield "large", partial(_large, careful)
    yield "tiny", partial(_scaled, TINY)
    yield "ones", partial(filled, 1, careful)


def mixed_values(careful: bool) -> Named:
    """Yield values in which single elements differ: the first one's sign, and a pair of equal ones."""
    yield "first value negated", partial(_first_negated, careful)
    yield "first value repeated", lambda tensor: _with(tensor, -1, tensor.reshape(-1)[0]) if tensor.numel() else tensor


def at_constants(numbers: Sequence[float], careful: bool) -> Named:
    """Yield values beyond, at and below numbers of the target's source, and other values whose sum is so."""
    for number in numbers[:MOST_CONSTANTS]:
        beyond, below = number + abs(number) + 1, number - abs(number) / 2 - 0.5
        yield f"values beyond {number:g}", partial(filled, beyond, careful)
        yield f"values of {number:g}", partial(filled, number, careful)
        yield f"values below {number:g}", partial(filled, below, careful)


def _negated(careful: bool, tensor: Any) -> Any:
    if _is_bool(tensor):
        return ~tensor
    signed = tensor.is_floating_point() or tensor.is_complex() or (not careful and tensor.dtype.is_signed)
    return -tensor if signed else tensor


def _large(careful: bool, tensor: Any) -> Any:
    """Return numbers that are larger by a factor; integers up to the limit of their dtype."""
    import torch

    if tensor.is_floating_point() or tensor.is_complex() or _is_bool(tensor) or careful:
        return _scaled(LARGE, tensor)
    most = min(torch.iinfo(tensor.dtype).max, 1 << 31)
    return (tensor.to(torch.float64) * 100 + 100).clamp(max=most - 1).to(tensor.dtype)


def _scaled(factor: float, tensor: Any) -> Any:
    return tensor * factor if tensor.is_floating_point() or tensor.is_complex() else tensor


def shifted(step: int, tensor: Any) -> Any:
    """Return other values of the same kind, for a further training step."""
    return tensor.roll(step) * (1 + step / 8) if tensor.is_floating_point() else tensor.roll(step)


def filled(value: float, careful: bool, tensor: Any) -> Any:
    """Return a tensor of one value; integers, if that may be done, of the nearest one that their dtype has."""
    import torch

    if tensor.is_floating_point():
        return tensor * 0 + value
    if careful or tensor.is_complex():
        return tensor
    if _is_bool(tensor):
        return tensor | bool(value)
    limits = torch.iinfo(tensor.dtype)
    return torch.full_like(tensor, int(max(limits.min, min(limits.max, value))))


def with_first(value: float, tensor: Any) -> Any:
    """Return a floating-point tensor with another first value."""
    return _with(tensor, 0, value) if tensor.is_floating_point() and tensor.numel() else tensor


def integers(probes: bool) -> Named:
    """Yield integers among those of the example: token ids, lengths and indices of other values may be refused.

    With `probes`, negative ones and large ones come first, which show whether they are.
    """
    if probes:
        yield BELOW_ZERO, lambda tensor: -tensor - 1 if _is_integer(tensor) and tensor.dtype.is_signed else tensor
        yield FAR_BEYOND, lambda tensor: _large(False, tensor) if _is_integer(tensor) else tensor
    yield "integers rolled", lambda tensor: tensor.roll(1) if _is_integer(tensor) else tensor
    yield "integers all lowest", partial(_extreme, "amin")
    yield "integers all highest", partial(_extreme, "amax")


def _extreme(which: str, tensor: Any) -> Any:
    if not _is_integer(tensor) or not tensor.numel():
        return tensor
    return tensor * 0 + getattr(tensor, which)()


def _is_integer(tensor: Any) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or _is_bool(tensor))


def _first_negated(careful: bool, tensor: Any) -> Any:
    signed = tensor.is_floating_point() or tensor.is_complex() or (not careful and tensor.dtype.is_signed)
    if not tensor.numel() or not signed:
        return tensor
    first = tensor.reshape(-1)[0]
    return _with(tensor, 0, -first if bool(first) else first - 1)


def _with(tensor: Any, place: int, value: Any) -> Any:
    copy = tensor.contiguous().clone()
    copy.view(-1)[place] = value
    return copy


def _is_bool(tensor: Any) -> bool:
    return str(tensor.dtype) == "torch.bool"


# --- dtypes, layouts, autograd --------------------------------------------------------------------------------------


def dtype_changes() -> Named:
    """Yield the other common dtype of each kind: double precision, integers as floats, and floats as integers."""
    yield "dtype=float64", partial(cast, "float64")
    yield "integers as floats", _as_floats
    yield "floats as integers", lambda tensor: tensor.round().long() if tensor.is_floating_point() else tensor


def _as_floats(tensor: Any) -> Any:
    import torch

    if tensor.is_floating_point() or tensor.is_complex():
        return tensor
    return tensor.to(torch.float32) + (0 if _is_bool(tensor) else 0.5)


def cast(name: str, tensor: Any) -> Any:
    """Return a floating-point tensor in another dtype."""
    import torch

    return tensor.to(getattr(torch, name)) if tensor.is_floating_point() else tensor


def layouts() -> Named:
    """Yield the same values in other memory: strided, overlapping, and inside a larger tensor."""
    yield "non-contiguous", _non_contiguous
    yield "channels-last", _channels_last
    yield "part of a larger tensor", _inside
    yield "expanded", lambda tensor: tensor[:1].expand(tensor.shape) if tensor.dim() and tensor.shape[0] > 1 else tensor


def _non_contiguous(tensor: Any) -> Any:
    if tensor.dim() > 1:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    return tensor.repeat_interleave(2)[::2] if tensor.dim() == 1 else tensor


def _channels_last(tensor: Any) -> Any:
    import torch

    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _inside(tensor: Any) -> Any:
    import torch

    return torch.cat([tensor, tensor])[tensor.shape[0] :] if tensor.dim() else torch.stack([tensor, tensor])[1]


def flipped(_path: str, tensor: Any) -> Any:
    """Return a tensor that requires grad if the given one does not, and the other way round."""
    differentiable = tensor.is_floating_point() or tensor.is_complex()
    return tensor.detach().requires_grad_(not tensor.requires_grad) if differentiable and tensor.is_leaf else tensor


# --- two tensors that share memory ----------------------------------------------------------------------------------


def sharing(tensors: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    """Yield how neighbours among the arguments can share memory: the tensors to put, by path.

    One tensor may be given twice, and two may be overlapping parts of one.
    """
    for (path, first), (second_path, second) in pairwise(tensors):
        if first.dtype != second.dtype or first.device != second.device:
            continue
        if first.shape == second.shape:
            yield f"{second_path} is {path}", {second_path: _same(first)}
        if first.numel() > 1 and second.numel() > 1:
            parts = _overlapping(first, second)
            yield f"{second_path} overlaps {path}", {path: partial(parts, 0), second_path: partial(parts, 1)}


def _same(tensor: Any) -> Callable[[], Any]:
    return lambda: tensor


def _overlapping(first: Any, second: Any) -> Callable[[int], Any]:
    """Return a function of 0 or 1 that returns one of two views of a storage, the second from the first's middle on."""
    import torch

    parts: list[Any] = []

    def part(number: int) -> Any:
        if not parts:
            base = torch.cat([first.detach().reshape(-1), second.detach().reshape(-1)])
            middle = first.numel() // 2
            parts.append(base[: first.numel()].view(first.shape))
            parts.append(base[middle : middle + second.numel()].view(second.shape))
        return parts[number].requires_grad_((first, second)[number].requires_grad)

    return part
