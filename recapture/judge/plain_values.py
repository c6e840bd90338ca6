"""Reads the parts of any Python value, without trusting its code, in a form that is the same in every process."""

from __future__ import annotations

import itertools
import re
import types
from typing import TYPE_CHECKING, Any

from recapture.base.exceptions import qualified
from recapture.torch_api.compat import is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_OBJECTS = 1_000
"""Number of objects with attributes described in one value, and of items read from one iterator."""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}|\bid=\d{6,}")


class Unreadable:
    """Stands in for a value that raised an exception when it was read."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def value_or_error(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or an Unreadable with its exception; out-of-memory errors propagate."""
    try:
        return call()
    except BaseException as error:  # the case's own code
        if is_out_of_memory(error):
            raise
        return Unreadable(error)


def has_address(text: str) -> bool:
    """Whether a text contains what looks like an address, which differs between processes."""
    return bool(_ADDRESS.search(text))


def plain(value: Any) -> Any:
    """Return a scalar as the builtin type it derives from, so that comparing it later runs no code of the case."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.__getitem__(value, slice(None))
    kind: Any = next(one for one in (int, float, complex) if isinstance(value, one))
    return kind.__pos__(value)


def entry(index: int, key: Any, item: Any) -> list[tuple[str, Any]]:
    """Return a mapping's item under the repr of its key, if that is the same in every process."""
    text = _readable(key)
    if text is not None:
        return [(f"[{text}]", item)]
    return [(f"[key {index}]", key), (f"[item {index}]", item)]


def yielded(value: Iterator[Any]) -> list[tuple[str, Any]]:
    """Return what an iterator yields, up to MAX_OBJECTS items, and what it raises. This consumes the iterator."""
    found: list[tuple[str, Any]] = []
    try:
        for index, item in enumerate(itertools.islice(value, MAX_OBJECTS)):
            found.append((f"[{index}]", item))
    except BaseException as error:  # the case's own code
        if is_out_of_memory(error):
            raise
        found.append((".raised", Unreadable(error)))
    return found


def has_attributes_of_its_own(value: Any) -> bool:
    """Whether a callable is an object of a case's own class, not a function or a part of torch."""
    kind = type(value)
    return (
        not isinstance(value, (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType))
        and isinstance(kind.__dict__.get("__module__"), str)
        and kind.__module__.partition(".")[0] not in ("torch", "functorch", "functools", "builtins", "numpy", "scipy")
    )


def members(value: Any) -> list[tuple[str, Any]]:
    """Return the members of a set in an order that is the same in every process."""
    texts = [(_readable(item), item) for item in value]
    if any(text is None for text, _ in texts):  # the order differs between processes: compare only the types
        return [(f"[{i}]", kind) for i, kind in enumerate(sorted(qualified(type(item)) for item in value))]
    return [(f"[{i}]", item) for i, (_, item) in enumerate(sorted(texts, key=lambda pair: str(pair[0])))]


def attribute(value: Any, name: str) -> list[Any]:
    """Return a list with the attribute; an empty list if there is none."""
    try:
        return [getattr(value, name)]
    except AttributeError:
        return []
    except BaseException as error:  # a property defined by the case
        if is_out_of_memory(error):
            raise
        return [Unreadable(error)]


def _readable(value: Any) -> str | None:
    try:
        text = repr(value)
    except Exception:  # the case's own code
        return None
    return text if len(text) <= 200 and not has_address(text) else None
