"""What objects of own classes, functions, deep values and tensors hold besides what is seen first."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.judge.planting import Nothing, Run, leaves, plain, plants


def _values(value: Any) -> Iterator[Any]:
    """Yield a value and what is in its lists, tuples and dicts."""
    yield value
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _values(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _values(item)


def _change_mark(run: Run, kind: type) -> Any:
    """Change the attribute of the first value of a class that derives from `kind`."""
    result = run.result()
    for value in _values(result):
        own = type(value).__module__.partition(".")[0] not in ("builtins", "numpy", "torch", "collections")
        if own and isinstance(value, kind) and hasattr(value, "mark"):
            value.mark = value.mark + 1
            return result
    raise Nothing


@plants("object-attribute-of-int", "value")
def attribute_of_int(run: Run) -> Any:
    """A number of an own class has another attribute."""
    return _change_mark(run, int)


@plants("object-attribute-of-list", "value", "type")
def attribute_of_list(run: Run) -> Any:
    """A list of an own class has another attribute."""
    return _change_mark(run, list)


@plants("object-attribute-of-dict", "value", "type")
def attribute_of_dict(run: Run) -> Any:
    """A dict of an own class has another attribute."""
    return _change_mark(run, dict)


@plants("object-attribute-of-array", "value", "metadata")
def attribute_of_array(run: Run) -> Any:
    """An array of an own class has another attribute."""
    return _change_mark(run, np.ndarray)


@plants("object-attribute-of-tensor", "value", "metadata")
def attribute_of_tensor(run: Run) -> Any:
    """A tensor of an own class has another attribute."""
    return _change_mark(run, torch.Tensor)


@plants("object-key", "value")
def key(run: Run) -> Any:
    """A key of a dict has another attribute, and the same text."""
    result = run.result()
    if not isinstance(result, dict) or not any(hasattr(item, "mark") for item in result):
        raise Nothing
    next(iter(result)).mark += 1
    return result


def _functions(run: Run) -> tuple[Any, list[Any]]:
    result = run.result()
    kinds = (types.FunctionType, types.MethodType)
    functions = [value for value in _values(result) if isinstance(value, kinds)]
    return result, [function for function in functions if function.__module__ == run.function.__module__]


@plants("object-closure", "value")
def closure(run: Run) -> Any:
    """A function that is returned has another number in its closure."""
    result, functions = _functions(run)
    for function in functions:
        for cell in getattr(function, "__closure__", None) or ():
            if type(cell.cell_contents) is int:
                cell.cell_contents += 1
                return result
    raise Nothing


@plants("object-default", "value")
def default(run: Run) -> Any:
    """A function that is returned has another default."""
    result, functions = _functions(run)
    for function in functions:
        if isinstance(function, types.FunctionType) and function.__defaults__:
            function.__defaults__ = tuple(value + 1 for value in function.__defaults__)
            return result
    raise Nothing


@plants("object-of-a-method", "value")
def of_a_method(run: Run) -> Any:
    """A method that is returned belongs to another object."""
    result, functions = _functions(run)
    for function in functions:
        if isinstance(function, types.MethodType) and hasattr(function.__self__, "mark"):
            function.__self__.mark += 1
            return result
    raise Nothing


@plants("value-in-nested-dicts", "value")
def in_nested_dicts(run: Run) -> Any:
    """A tensor in more than 12 dicts has other elements."""
    result = value = run.result()
    depth = 0
    while isinstance(value, dict) and len(value) == 1:
        depth, inner, value = depth + 1, value, next(iter(value.values()))
    if depth <= 12 or not isinstance(value, torch.Tensor):
        raise Nothing
    inner[next(iter(inner))] = value + 1
    return result


@plants("value-of-the-last-linked-object", "value")
def last_linked(run: Run) -> Any:
    """The last of many objects that hold one another has another attribute."""
    result = run.result()
    value: Any = result[1] if isinstance(result, tuple) and len(result) == 2 else None
    depth = 0
    while isinstance(getattr(value, "next", None), types.SimpleNamespace):
        depth, value = depth + 1, value.next
    if depth <= 12:
        raise Nothing
    value.number -= 1
    return result


@plants("value-of-the-last-tensor", "value")
def last_tensor(run: Run) -> Any:
    """The last of more than a thousand tensors has other elements."""
    result = run.result()
    values = result[0] if isinstance(result, tuple) and result else None
    if not isinstance(values, list) or len(values) <= 1000 or not plain(values[-1]):
        raise Nothing
    values[-1] = values[-1] + 1
    return result


@plants("value-end-of-a-text", "value")
def end_of_a_text(run: Run) -> Any:
    """A long text has another last letter."""
    result = run.result()
    if not isinstance(result, tuple) or not any(isinstance(value, str) and len(value) > 1000 for value in result):
        raise Nothing
    return tuple(value[:-1] + "b" if isinstance(value, str) else value for value in result)


def _property(run: Run, has: Callable[[torch.Tensor], bool], change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Replace the first tensor of a list that has a property."""
    result = run.result()
    if not isinstance(result, list):
        raise Nothing
    for index, value in enumerate(result):
        if isinstance(value, torch.Tensor) and has(value):
            result[index] = change(value)
            return result
    raise Nothing


@plants("metadata-names", "metadata")
def names(run: Run) -> Any:
    """The dimensions of a tensor have no names."""
    return _property(run, lambda tensor: tensor.has_names(), lambda tensor: tensor.rename(None))


@plants("metadata-blocks", "metadata")
def blocks(run: Run) -> Any:
    """A sparse tensor has blocks of another size."""
    return _property(
        run,
        lambda tensor: tensor.layout == torch.sparse_bsr,
        lambda tensor: tensor.to_dense().to_sparse_bsr((1, 1)),
    )


@plants("metadata-sparse-dimensions", "metadata")
def sparse_dimensions(run: Run) -> Any:
    """A sparse tensor has another number of sparse dimensions."""
    return _property(
        run, lambda tensor: tensor.layout == torch.sparse_coo, lambda tensor: tensor.to_dense().to_sparse(1)
    )


def _per_channel(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_quantized and tensor.qscheme() == torch.per_channel_affine)


@plants("metadata-quantization-axis", "metadata")
def axis(run: Run) -> Any:
    """A tensor is quantized along another axis."""

    def along_the_other(tensor: torch.Tensor) -> torch.Tensor:
        scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        return torch._make_per_channel_quantized_tensor(tensor.int_repr(), scales, zeros, 1)  # noqa: SLF001

    return _property(run, _per_channel, along_the_other)


@plants("metadata-inner-lengths", "value", "shape", "type")
def inner_lengths(run: Run) -> Any:
    """A nested tensor has inner tensors of other lengths, with the same elements."""

    def shifted(tensor: torch.Tensor) -> torch.Tensor:
        every = torch.cat(list(tensor.unbind()))
        return torch.nested.nested_tensor([every[:3], every[3:]], layout=torch.jagged)

    return _property(run, lambda tensor: tensor.is_nested, shifted)


@plants("gradient-of-an-inner-tensor", "gradient", "metadata")
def of_an_inner_tensor(run: Run) -> Any:
    """The `.grad` of a tensor that is no leaf has other elements."""
    result = run.result()
    for value in leaves(result):
        if isinstance(value, torch.Tensor) and not value.is_leaf and value.retains_grad and value.grad is not None:
            value.grad.add_(1)
            return result
    raise Nothing


def _later(run: Run, change: Callable[[Any], bool]) -> Any:
    """Call, and change what the call before returned; `change` returns whether there was something to change."""
    result, earlier = run.result(), run.memory.get("result")
    run.memory["result"] = result
    if earlier is None or earlier is result or not change(earlier):
        raise Nothing
    return result


def _change_kept(run: Run, change: Callable[[list[Any]], Any]) -> Any:
    """Change the list of a tensor, a dict and an object that the call before returned."""

    def change_own(earlier: Any) -> bool:
        own = type(earlier) is list and len(earlier) == 3 and isinstance(earlier[1], dict)
        if own:
            change(earlier)
        return own

    return _later(run, change_own)


@plants("earlier-list", "mutation")
def earlier_list(run: Run) -> Any:
    """A later call empties a list that an earlier one returned."""
    return _change_kept(run, lambda earlier: earlier.clear())


@plants("earlier-dict", "mutation")
def earlier_dict(run: Run) -> Any:
    """A later call adds to a dict that an earlier one returned."""
    return _change_kept(run, lambda earlier: earlier[1].update(planted=1))


@plants("earlier-object", "mutation")
def earlier_object(run: Run) -> Any:
    """A later call changes an attribute of an object that an earlier one returned."""
    return _change_kept(run, lambda earlier: vars(earlier[2]).update(calls=2))


@plants("earlier-item", "mutation")
def earlier_item(run: Run) -> Any:
    """A later call puts another tensor into a list that an earlier one returned."""
    return _change_kept(run, lambda earlier: earlier.insert(0, earlier.pop(0) + 1))


@plants("earlier-requires-grad", "mutation")
def earlier_requires_grad(run: Run) -> Any:
    """A later call makes an earlier result require a gradient."""

    def change(earlier: Any) -> bool:
        if not plain(earlier) or not earlier.is_floating_point() or earlier.requires_grad or earlier.is_inference():
            return False
        if any(earlier is argument for argument in (*run.args, *run.memory.values())):
            return False
        earlier.requires_grad_()
        return True

    return _later(run, change)
