"""Derives held-out inputs from one example: other sizes, values, layouts and Python values, each under a name.

A generated case contains the source of this module, so that a script printed from it needs torch alone. It therefore
imports nothing from this project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

__all__ = ["derive", "variants"]

Change = Callable[[Any], Any]
"""A function from a detached tensor to its changed values; it may return the same tensor."""

Made = Callable[[], "tuple[Any, ...]"]
"""A function that makes the arguments of one variant."""

LARGE, TINY = 1e4, 1e-4
"""Factors of the variants ``large`` and ``tiny``."""

MOST_ALONE = 4
"""The most tensors that are also changed one at a time."""

MOST_CONSTANTS = 6
"""The most numbers and strings of the target's source that are tried."""

LARGEST_SIZE = 64
"""The largest number of the target's source that is tried as a size."""


def derive(name: str, args: tuple[Any, ...], **facts: Any) -> tuple[Any, ...]:
    """Return the arguments of one variant; see `variants` for the facts. Raises KeyError for an unknown name."""
    return variants(args, **facts)[name]()


def variants(
    args: tuple[Any, ...],
    *,
    constants: Sequence[Any] = (),
    nonfinite: bool = False,
    dtypes: Sequence[str] = (),
    careful: bool = False,
    steps: int = 0,
) -> dict[str, Made]:
    """Return functions that make the derived arguments, by name, the most telling first.

    `constants` are numbers and strings of the target's source, which its branches may compare with. With `nonfinite`
    there are variants with NaN and infinity; `dtypes` names other dtypes of floating-point tensors. With `careful`,
    integer tensors only get values that the example has, because a wrong index stops a GPU. With `steps`, there are
    that many training steps in all, with other values, and other batch sizes.
    """
    found: dict[str, Made] = {}
    tensors = list(_tensors(args, "args"))
    numbers = [one for one in constants if isinstance(one, (int, float)) and not isinstance(one, bool)]
    for step in range(2, steps + 1):
        found[f"step {step}"] = partial(_changed, args, partial(_shifted, step))
    if steps:
        return found | _all_changed(args, [*_batches(tensors, ())][:2])
    found |= _all_changed(args, [*_batches(tensors, ()), *_values(careful)])
    found |= dict(_scalars(args, constants))
    if 1 < len(tensors) <= MOST_ALONE:
        for path, one in tensors:
            changes = [*_values(careful)][:2] + [*_batches([(path, one)], ())][:2]
            found |= {f"{path} {name}": partial(_changed, args, change, path) for name, change in changes}
    found |= dict(_containers(args))
    found |= _all_changed(args, [*_sizes(tensors), *_layouts(), *_batches(tensors, numbers)])
    found["requires_grad flipped"] = partial(_mapped, args, "args", _flipped)
    for number in numbers[:MOST_CONSTANTS]:
        found[f"values beyond {number:g}"] = partial(_changed, args, partial(_filled, number + abs(number) + 1))
    if nonfinite:
        for value in ("nan", "inf", "-inf"):
            found[value] = partial(_changed, args, partial(_with_first, float(value)))
    for name in dtypes:
        found[f"dtype={name}"] = partial(_changed, args, partial(_cast, name))
    return found


def _all_changed(args: tuple[Any, ...], changes: Sequence[tuple[str, Change]]) -> dict[str, Made]:
    return {name: partial(_changed, args, change) for name, change in changes}


# --- changes of sizes -----------------------------------------------------------------------------------------------


def _batches(tensors: Sequence[tuple[str, Any]], numbers: Sequence[float]) -> Iterator[tuple[str, Change]]:
    """Yield changes of the first dimension: one, one more, and sizes around numbers of the target's source."""
    batch = next((one.shape[0] for _, one in tensors if one.dim()), 0)
    mined = [int(one) + more for one in numbers[:MOST_CONSTANTS] if one == int(one) for more in (0, 1)]
    for size in dict.fromkeys(mined or [1, batch + 1]):
        if batch and size != batch and 1 <= size <= max(LARGEST_SIZE, batch + 1):
            yield f"batch={size}", partial(_resized, "first", batch, size)


def _sizes(tensors: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Change]]:
    """Yield changes of the last dimension, and of all dimensions that have the size of the first."""
    first = next((one for _, one in tensors if one.dim()), None)
    if first is None or not first.numel():
        return
    batch, last = first.shape[0], first.shape[-1]
    if any(list(one.shape).count(batch) > 1 for _, one in tensors) or len(tensors) > 1:
        yield f"every size {batch} is {batch + 1}", partial(_resized, "every", batch, batch + 1)
    if first.dim() > 1:
        yield f"last dimension={last + 1}", partial(_resized, "last", last, last + 1)
    if first.dim() == 4:
        yield "other height", partial(_resized, "height", first.shape[2], first.shape[2] + 1)


def _resized(which: str, before: int, after: int, one: Any) -> Any:
    """Return a tensor whose dimensions of one size have another one; values are repeated."""
    import torch

    dims = {"first": [0], "last": [one.dim() - 1], "height": [2], "every": [*range(one.dim())]}[which]
    for dim in dims:
        if one.dim() > dim >= 0 and one.shape[dim] == before:
            one = one.index_select(dim, torch.arange(after, device=one.device) % before)
    return one


# --- changes of values ----------------------------------------------------------------------------------------------


def _values(careful: bool) -> Iterator[tuple[str, Change]]:
    yield "negated", partial(_negated, careful)
    yield "zeros", lambda one: one & False if _is_bool(one) else one * 0
    yield "reversed", lambda one: one.flip(tuple(range(one.dim())))
    yield "large", partial(_scaled, LARGE)
    yield "tiny", partial(_scaled, TINY)
    yield "ones", partial(_filled, 1)


def _negated(careful: bool, one: Any) -> Any:
    if _is_bool(one):
        return ~one
    signed = one.is_floating_point() or one.is_complex() or (not careful and one.dtype.is_signed)
    return -one if signed else one


def _scaled(factor: float, one: Any) -> Any:
    return one * factor if one.is_floating_point() or one.is_complex() else one


def _shifted(step: int, one: Any) -> Any:
    """Return other values of the same kind, for a further training step."""
    return one.roll(step) * (1 + step / 8) if one.is_floating_point() else one.roll(step)


def _filled(value: float, one: Any) -> Any:
    return one * 0 + value if one.is_floating_point() else one


def _with_first(value: float, one: Any) -> Any:
    if not one.is_floating_point() or not one.numel():
        return one
    one = one.clone()
    one.view(-1)[0] = value
    return one


def _cast(name: str, one: Any) -> Any:
    import torch

    return one.to(getattr(torch, name)) if one.is_floating_point() else one


def _is_bool(one: Any) -> bool:
    return str(one.dtype) == "torch.bool"


# --- changes of layout and autograd ---------------------------------------------------------------------------------


def _layouts() -> Iterator[tuple[str, Change]]:
    yield "non-contiguous", _non_contiguous
    yield "channels-last", _channels_last


def _non_contiguous(one: Any) -> Any:
    if one.dim() > 1:
        return one.transpose(0, -1).contiguous().transpose(0, -1)
    return one.repeat_interleave(2)[::2] if one.dim() == 1 else one


def _channels_last(one: Any) -> Any:
    import torch

    return one.contiguous(memory_format=torch.channels_last) if one.dim() == 4 else one


def _flipped(_path: str, one: Any) -> Any:
    differentiable = one.is_floating_point() or one.is_complex()
    return one.detach().requires_grad_(not one.requires_grad) if differentiable and one.is_leaf else one


# --- changes of Python values ---------------------------------------------------------------------------------------


def _scalars(args: tuple[Any, ...], constants: Sequence[Any]) -> Iterator[tuple[str, Made]]:
    """Yield other numbers, flags and strings among the arguments.

    Parameters that the example leaves out stay out: a captured program takes as many arguments as its example has.
    """
    for path, value in _plain(args, "args"):
        for other in _others(value, constants):
            yield f"{path}={other!r}", partial(_put, args, path, other)


def _others(value: Any, constants: Sequence[Any]) -> list[Any]:
    """Return other values of a scalar's type; numbers and strings of the target's source are among them."""
    candidates: list[Any] = []
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        mined = [one for one in constants if type(one) is int][:MOST_CONSTANTS]
        candidates = [value + 1, 0, -value, *mined, *(one + 1 for one in mined)]
    elif isinstance(value, float):
        candidates = [-value, 0.0, 2 * value + 1]
    elif isinstance(value, str):
        candidates = [one for one in constants if isinstance(one, str)][:MOST_CONSTANTS]
    return [one for one in dict.fromkeys(candidates) if one != value]


def _containers(args: tuple[Any, ...]) -> Iterator[tuple[str, Made]]:
    """Yield lists that are one item longer or shorter, and dicts in another order."""
    for number, value in enumerate(args):
        path = f"args[{number}]"
        if type(value) is list and value:
            yield f"{path} with {len(value) + 1} items", partial(_put, args, path, [*value, value[-1]])
            yield f"{path} with {len(value) - 1} items", partial(_put, args, path, value[:-1])
        elif type(value) is dict and len(value) > 1:
            yield f"{path} in another order", partial(_put, args, path, dict(reversed(list(value.items()))))


# --- walking over arguments -----------------------------------------------------------------------------------------


def _changed(args: tuple[Any, ...], change: Change, alone: str = "") -> Any:
    """Return the arguments with every tensor changed, or only the one at the path `alone`."""

    def one(path: str, tensor: Any) -> Any:
        if alone not in ("", path):
            return tensor
        detached = tensor.detach()
        changed = change(detached)
        if changed is detached:
            return tensor
        grad = tensor.requires_grad and (changed.is_floating_point() or changed.is_complex())
        if type(tensor).__name__ == "Parameter":
            return type(tensor)(changed, requires_grad=grad)
        return changed.requires_grad_(grad)

    return _mapped(args, "args", one)


def _mapped(value: Any, path: str, change: Callable[[str, Any], Any]) -> Any:
    """Return a nest of tuples, lists and dicts with its plain tensors changed; other objects stay as they are."""
    if _is_plain_tensor(value):
        return change(path, value)
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, f"{path}[{key}]", change) for key, item in enumerate(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, f"{path}[{key}]", change) for key, item in enumerate(value)))
    if type(value) is dict:
        return {key: _mapped(item, f"{path}[{key!r}]", change) for key, item in value.items()}
    return value


def _put(value: Any, path: str, other: Any, at: str = "args") -> Any:
    """Return a nest of tuples, lists and dicts with another value at a path."""
    if at == path:
        return other
    if type(value) in (list, tuple):
        return type(value)(_put(item, path, other, f"{at}[{key}]") for key, item in enumerate(value))
    if type(value) is dict:
        return {key: _put(item, path, other, f"{at}[{key!r}]") for key, item in value.items()}
    return value


def _tensors(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []

    def note(where: str, one: Any) -> Any:
        found.append((where, one))
        return one

    _mapped(value, path, note)
    yield from found


def _plain(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the Python numbers, flags and strings in a nest, with their paths."""
    if type(value) in (bool, int, float, str):
        yield path, value
    elif type(value) in (list, tuple):
        for key, item in enumerate(value):
            yield from _plain(item, f"{path}[{key}]")
    elif type(value) is dict:
        for key, item in value.items():
            yield from _plain(item, f"{path}[{key!r}]")


def _is_plain_tensor(value: Any) -> bool:
    import torch

    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    return plain and value.layout == torch.strided and not value.is_quantized and not value.is_nested
