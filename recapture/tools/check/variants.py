"""Derives held-out inputs from one example: other sizes, values, layouts and Python values, each under a name.

A script printed from a generated case contains this module, and needs torch alone. It therefore imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, zip_longest
from typing import Any

from recapture.tools.check.input_changes import (
    LARGEST_SIZE,
    MOST_CONSTANTS,
    Change,
    at_constants,
    at_sizes,
    batches,
    cast,
    changed,
    containers_in,
    dtype_changes,
    flipped,
    integers,
    layouts,
    mapped,
    mixed_values,
    plain_values,
    put,
    ranks,
    sharing,
    shifted,
    sizes,
    tensors_in,
    values,
    with_first,
)

Factory = Callable[[], "tuple[Any, ...]"]
"""A function that makes the arguments of one variant."""

MOST_ALONE = 4
"""The most tensors that are also changed one at a time."""

MOST_PAIRS = 3
"""The most pairs of numbers that are changed together."""

BIG = 1 << 40
"""An integer that does not fit into 32 bits."""


def derive(name: str, args: tuple[Any, ...], **facts: Any) -> tuple[Any, ...]:
    """Return the arguments of one variant; see `variants` for the facts. Raises KeyError for an unknown name."""
    return variants(args, **facts)[name]()


def variants(
    args: tuple[Any, ...],
    *,
    constants: Sequence[Any] = (),
    compared: Sequence[tuple[int, int]] = (),
    nonfinite: bool = False,
    dtypes: Sequence[str] = (),
    careful: bool = False,
    probes: bool = True,
    steps: int = 0,
) -> dict[str, Factory]:
    """Return functions that make the derived arguments, by name, the most telling first.

    `constants` are numbers and strings of the target's source, which its branches may compare with. `compared` are
    dimensions, each with a size at which a comparison in the source changes. With `nonfinite` there are variants with
    NaN and infinity; `dtypes` names other dtypes of floating-point tensors. With `careful`, integer tensors only get
    values that the example has, but for the two `probes`; on a GPU there are none of these either, because a wrong
    index stops it. With `steps`, there are that many training steps in all, with other values, other batch sizes, and
    tensors that share memory.
    """
    tensors = tensors_in(args, "args")
    numbers = [value for value in constants if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if steps:
        later = {f"step {step}": partial(changed, args, partial(shifted, step)) for step in range(2, steps + 1)}
        return later | dict(_all_changed(args, [*batches(tensors, ())][:2])) | dict(_sharing(args, tensors))
    requested: list[tuple[str, Change]] = []
    requested += [(value, partial(with_first, float(value))) for value in (("nan", "inf", "-inf") if nonfinite else ())]
    requested += [(f"dtype={name}", partial(cast, name)) for name in dtypes]
    first = [*batches(tensors, ()), *values(careful)]
    groups = [
        _all_changed(args, requested),
        _all_changed(args, at_sizes(tensors, compared)),
        _all_changed(args, first[3:]),
        _all_changed(args, integers(probes)) if any(_is_integer(tensor) for _, tensor in tensors) else (),
        _scalars(args, constants),
        _pairs_of_numbers(args),
        _alone(args, tensors, careful),
        _containers(args, [size + more for dimension, size in compared if dimension == 0 for more in (0, 1)]),
        _all_changed(args, sizes(tensors)),
        _sharing(args, tensors),
        _all_changed(args, ranks(tensors)),
        _all_changed(args, [*mixed_values(careful), *dtype_changes()]),
        _all_changed(args, [*at_constants(numbers, careful), *batches(tensors, numbers)]),
        _places(args, tensors),
        _all_changed(args, layouts()),
    ]
    # The first of each kind comes before the second of any, because the number of inputs is limited.
    head = dict(_all_changed(args, first[:3]))
    return head | {name: make for row in zip_longest(*groups) for name, make in filter(None, row)}


def _is_integer(tensor: Any) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or str(tensor.dtype) == "torch.bool")


def _all_changed(args: tuple[Any, ...], changes: Iterable[tuple[str, Change]]) -> Iterator[tuple[str, Factory]]:
    if tensors_in(args, "args"):
        yield from ((name, partial(changed, args, change)) for name, change in changes)


def _alone(args: tuple[Any, ...], tensors: Sequence[tuple[str, Any]], careful: bool) -> Iterator[tuple[str, Factory]]:
    """Yield changes of one of several tensors."""
    if not 1 < len(tensors) <= MOST_ALONE:
        return
    rows = []
    for path, tensor in tensors:
        alone = [(path, tensor)]
        changes = [*[*values(careful)][:2], *dtype_changes(), *[*batches(alone, ())][:2], *[*ranks(alone)][:3]]
        rows.append([(f"{path} {name}", partial(changed, args, change, path)) for name, change in changes])
    for row in zip_longest(*rows):
        yield from filter(None, row)


def _sharing(args: tuple[Any, ...], tensors: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Factory]]:
    """Yield the arguments with tensors that share memory."""

    def make(parts: dict[str, Callable[[], Any]]) -> tuple[Any, ...]:
        shared = args
        for path, part in parts.items():
            shared = put(shared, path, part())
        return shared

    for name, parts in sharing(tensors):
        yield name, partial(make, parts)


def _places(args: tuple[Any, ...], tensors: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Factory]]:
    """Yield the arguments with tensors that require grad or not, and with tensors left out."""
    yield "requires_grad flipped", partial(mapped, args, "args", flipped)
    for number in range(len(args)):
        path = f"args[{number}]"
        if any(path == place for place, _ in tensors):
            yield f"{path}=None", partial(put, args, path, None)


# --- Python values and containers -----------------------------------------------------------------------------------


def _scalars(args: tuple[Any, ...], constants: Sequence[Any]) -> Iterator[tuple[str, Factory]]:
    """Yield other numbers, flags and strings among the arguments, the first of each before the second of any.

    Parameters that the example leaves out stay out: a captured program takes as many arguments as its example has.
    """
    tensors = [tensor for _, tensor in tensors_in(args, "args")]
    rows = []
    for path, value in plain_values(args, "args"):
        others = {repr(other): other for other in _others(value, constants)} or _functions(value)
        row = [(f"{path}={text}", partial(put, args, path, other)) for text, other in others.items()]
        if value is None and tensors:
            row += [(f"{path} a tensor", partial(put, args, path, tensors[0].detach().clone()))]
        elif not isinstance(value, str):
            row += [(f"{path}=None", partial(put, args, path, None))]
        rows.append(row)
    for alternatives in zip_longest(*rows):
        yield from filter(None, alternatives)


def _pairs_of_numbers(args: tuple[Any, ...]) -> Iterator[tuple[str, Factory]]:
    """Yield two numbers that are changed together: a negative one with a fraction, or with a number of another sign.

    Python gives a complex number for a root of a negative one, and takes the sign of a remainder from the divisor.
    """
    numbers = [(path, value) for path, value in plain_values(args, "args") if type(value) in (int, float)]
    for (path, first), (second_path, second) in list(combinations(numbers, 2))[:MOST_PAIRS]:
        for one_value, other_value in ((-8, 0.5), (-7, 3), (7, -3)):
            pair = _of_kind(first, one_value), _of_kind(second, other_value)
            if None not in pair:
                yield (
                    f"{path}={pair[0]!r}, {second_path}={pair[1]!r}",
                    partial(_put_both, args, {path: pair[0], second_path: pair[1]}),
                )


def _of_kind(like: Any, value: float) -> int | float | None:
    """Return a number as the type of another one; None for a fraction as an integer."""
    if isinstance(like, float):
        return float(value)
    return int(value) if value == int(value) else None


def _put_both(args: tuple[Any, ...], numbers: dict[str, Any]) -> tuple[Any, ...]:
    for path, number in numbers.items():
        args = put(args, path, number)
    return args


def _functions(value: Any) -> dict[str, Any]:
    """Return other functions of one tensor for a function."""
    import torch

    return {"torch.neg": torch.neg, "torch.abs": torch.abs} if callable(value) else {}


def _others(value: Any, constants: Sequence[Any]) -> list[Any]:
    """Return other values of a scalar's kind; numbers and strings of the target's source are among them."""
    import enum

    import torch

    candidates: list[Any] = []
    if isinstance(value, enum.Enum):
        candidates = list(type(value))
    elif isinstance(value, bool):
        candidates = [not value]
    elif isinstance(value, int):
        mined = [number for number in constants if type(number) is int][:MOST_CONSTANTS]
        candidates = [value + 1, 0, -value, *mined, *(number + 1 for number in mined), float(value), value + 0.5, BIG]
    elif isinstance(value, float):
        limits = [float(number) for number in constants if type(number) in (int, float)][:MOST_CONSTANTS]
        near = [number for limit in limits for number in (limit, limit + 1, limit - 1)]
        whole = [int(value)] if value == value // 1 else []
        candidates = [-value, 2 * value + 1, 0.0, *near, value // 1 + 0.5, *whole]
    elif isinstance(value, complex):
        candidates = [value.conjugate(), -value]
    elif isinstance(value, str):
        candidates = [*[text for text in constants if isinstance(text, str)][:MOST_CONSTANTS], value.upper(), ""]
    elif value is None:
        return [True, 2]
    elif isinstance(value, slice):
        candidates = [slice(None), slice(1, None), slice(0, 1), slice(None, None, 2)]
    elif isinstance(value, range):
        candidates = [range(len(value) + 1), range(max(len(value) - 1, 0)), value[::-1]]
    elif isinstance(value, torch.dtype):
        candidates = [torch.float64, torch.float32, torch.int64]
    # By their texts: 2 and 2.0 are equal, and so are 0.0 and -0.0.
    return list({repr(other): other for other in candidates if repr(other) != repr(value)}.values())


def _containers(args: tuple[Any, ...], lengths: Sequence[int]) -> Iterator[tuple[str, Factory]]:
    """Yield containers that are longer, shorter, empty, reversed, or of another type, and dicts with other keys.

    `lengths` are those with which the target's source compares.
    """
    containers = list(containers_in(args, "args"))
    lists = [(path, value) for path, value in containers if type(value) in (list, tuple) and value]
    if len(lists) > 1:
        yield "every list longer", partial(_longer, args, [path for path, _ in lists])
    for path, value in containers:
        for name, other in [*_of_lengths(value, lengths), *_other_containers(value)]:
            yield f"{path} {name}", partial(put, args, path, other)


def _of_lengths(value: Any, lengths: Sequence[int]) -> Iterator[tuple[str, Any]]:
    """Yield a list or tuple with these numbers of items; its last item is repeated."""
    for length in lengths:
        if type(value) in (list, tuple) and value and 0 <= length <= LARGEST_SIZE and length != len(value):
            yield f"with {length} items", (value + value[-1:] * (length - len(value)))[:length]


def _other_containers(value: Any) -> Iterator[tuple[str, Any]]:
    if type(value) in (list, tuple):
        yield f"with {len(value) + 1} items", value + value[-1:]
        yield f"with {len(value) - 1} items", value[:-1]
        yield "reversed", value[::-1]
        yield "empty", value[:0]
        yield ("as a tuple", tuple(value)) if type(value) is list else ("as a list", list(value))
    elif type(value) is not dict:
        numbers = [item for item in value if type(item) in (int, float)]
        yield "with one more", type(value)([*value, max(numbers) + 1]) if numbers else value
        yield "with one fewer", type(value)(list(value)[1:])
    elif value:
        key = next(iter(value))
        yield f"without {key!r}", {name: item for name, item in value.items() if name != key}
        yield "in another order", dict(reversed(list(value.items())))
        if isinstance(key, str):
            yield "with another key", {**value, "another": value[key]}


def _longer(args: tuple[Any, ...], paths: Sequence[str]) -> Any:
    """Return the arguments with the last item of every list and tuple repeated, the inner ones first."""
    for path in sorted(paths, key=len, reverse=True):
        value = dict(containers_in(args, "args"))[path]
        args = put(args, path, value + value[-1:])
    return args
