"""What is returned holds something else where few look: `cases.returned` has the cases."""

from __future__ import annotations

import array
import io
import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.judge.planting import Nothing, Run, plants


def _mark(value: Any) -> None:
    value.mark += 1


def _hidden(value: Any) -> None:
    value.change()


def _frozen(value: Any) -> None:
    object.__setattr__(value, "hidden", value.hidden + 1)


def _scale(value: Any) -> None:
    value.scale += 1


def _keyword(value: Any) -> None:
    value.__kwdefaults__["mark"] += 1


CHANGED: dict[str, tuple[str, Callable[[Any], None]]] = {
    "plain-object": ("plain_object", _mark),
    "slot": ("slotted_object", _mark),
    "renamed-slot": ("slotted_object", _hidden),
    "slot-and-dict": ("slots_and_dict", _mark),
    "frozen-field": ("frozen_dataclass", _frozen),
    "named-tuple": ("named_tuple", _mark),
    "own-list": ("own_list", _mark),
    "own-text": ("own_text", _mark),
    "own-set": ("own_set", _mark),
    "own-dict-that-holds-itself": ("own_deque", _mark),
    "exception": ("exception", _mark),
    "date": ("date", _mark),
    "iterator": ("iterator", _mark),
    "member": ("member", _mark),
    "module-attribute": ("module", _scale),
    "module-mode": ("module", lambda value: value.eval()),
    "module-hook": ("module", lambda value: value.register_forward_hook(lambda *_: None)),
    "partial-attribute": ("partial_function", _mark),
    "function-attribute": ("function_with_attribute", _mark),
    "function-keyword": ("function_with_attribute", _keyword),
    "in-a-proxy": ("namespace", lambda value: _mark(value["inner"])),
    "array-of-c": ("array_of_c", lambda value: value.__setitem__(1, 9.0)),
    "storage": ("storage", lambda value: value.__setitem__(1, 9)),
    "array-read-only": ("numpy_array", lambda value: value.setflags(write=False)),
    "array-fill-value": ("numpy_masked", lambda value: setattr(value, "fill_value", 8.0)),
    "array-mask": ("numpy_masked", lambda value: value.__setitem__(0, np.ma.masked)),
    "distribution": ("distribution", lambda value: value.scale.add_(1)),
}
"""The case and what changes the second item of its result, by the name of the difference."""


def _replace_swapped(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return value.astype(value.dtype.newbyteorder())


REPLACED: dict[str, tuple[str, Callable[[Any], Any], tuple[str, ...], str]] = {
    "another-function": ("function_of_torch", lambda _: [torch.cos], ("value", "type"), "silent"),
    "another-own-function": ("method_of_a_class", lambda _: [_returning], ("value", "type"), "silent"),
    "another-operator": ("function_of_torch", lambda _: [torch.Tensor.sin], ("value", "type"), "silent"),
    "generator-return": ("generator", lambda value: _returning(value, 3), ("value", "type"), "silent"),
    "generator-nothing-returned": ("generator", lambda value: _returning(value, None), ("value", "type"), "silent"),
    "slice-start": ("sliced", lambda value: slice(value.start + 1, value.stop), ("value",), "silent"),
    "slice-end": ("sliced", lambda value: slice(value.start, 8), ("value",), "silent"),
    "array-of-more-bytes": ("numpy_array", lambda value: value.astype(np.float32), ("dtype",), "silent"),
    "array-byte-order": ("numpy_array", _replace_swapped, ("dtype",), "silent"),
    "array-memory-order": ("numpy_array", np.asfortranarray, ("metadata",), "stride"),
    "array-reversed-memory": ("numpy_array", lambda value: value[::-1].copy()[::-1], ("metadata",), "stride"),
    "records-field": (
        "numpy_records",
        lambda value: value.astype([("a", "i4"), ("c", "f4")]),
        ("dtype", "type"),
        "silent",
    ),
    "records-value": ("numpy_records", np.flip, ("value",), "silent"),
}
"""The case, what replaces the second item of its result, and the kinds and the level of the difference, by name."""


def _returning(value: Any, result: Any) -> Any:
    def numbers() -> Any:
        yield from value
        return result

    return numbers()


def _second(run: Run, case: str) -> tuple[Any, Any]:
    """Return the two items of the result of a case; raises Nothing for another one."""
    if run.function.__name__ != case or not run.function.__module__.endswith("returned"):
        raise Nothing
    result = run.result()
    return result[0], result[1]


def _changing(case: str, change: Callable[[Any], None]) -> Callable[[Run], Any]:
    def changes(run: Run) -> Any:
        first, second = _second(run, case)
        change(second)
        return first, second

    changes.__doc__ = f"What `{case}` returns has another part."
    return changes


def _replacing(case: str, replace: Callable[[Any], Any]) -> Callable[[Run], Any]:
    def replaces(run: Run) -> Any:
        first, second = _second(run, case)
        return first, replace(second)

    replaces.__doc__ = f"`{case}` returns something else."
    return replaces


for _name, (_case, _change) in CHANGED.items():
    plants(f"returned-{_name}", "value", "type", "metadata")(_changing(_case, _change))
for _name, (_case, _replace, _kinds, _level) in REPLACED.items():
    plants(f"returned-{_name}", *_kinds, level=_level)(_replacing(_case, _replace))


def _third(run: Run, index: int, change: Callable[[Any], Any]) -> Any:
    if run.function.__name__ != "bytes_and_numbers":
        raise Nothing
    result = list(run.result())
    result[index] = change(result[index])
    return tuple(result)


@plants("returned-place-in-a-stream", "value")
def place_in_a_stream(run: Run) -> Any:
    """A stream stands at another place."""
    return _third(run, 1, lambda stream: io.BytesIO(stream.getvalue()))


@plants("returned-packed-numbers", "value")
def packed_numbers(run: Run) -> Any:
    """Packed numbers have another value."""
    return _third(run, 2, lambda numbers: array.array("i", [*numbers[:-1], 9]))


@plants("returned-queue", "value", "type")
def queued(run: Run) -> Any:
    """A queue holds another number of items."""

    def with_one_more(waiting: queue.Queue[int]) -> queue.Queue[int]:
        waiting.put(2)
        return waiting

    return _third(run, 3, with_one_more)


@plants("returned-copy-of-a-view", "metadata", level="note")
def copy_of_a_view(run: Run) -> Any:
    """A row that is a view of a large result in eager is a copy."""
    if run.function.__name__ != "view_of_a_large_tensor":
        raise Nothing
    return run.result().clone()


@plants("returned-view-of-more", "metadata", level="note")
def view_of_more(run: Run) -> Any:
    """A small result is a view of a large one."""
    if run.function.__name__ != "small_result":
        raise Nothing
    return (run.args[0] * 2)[0]


@plants("returned-view-of-much-padding", "metadata", level="note")
def view_of_padding(run: Run) -> Any:
    """A small result is the end of a large buffer."""
    if run.function.__name__ != "small_result":
        raise Nothing
    return torch.cat([torch.zeros(1000), run.result()])[1000:]


@plants("returned-zeros-without-memory", "metadata")
def without_memory(run: Run) -> Any:
    """Zeros have no memory, so that writing to them raises."""
    if run.function.__name__ != "zeros_with_memory":
        raise Nothing
    return torch._efficientzerotensor(3), run.result()[1]  # noqa: SLF001
