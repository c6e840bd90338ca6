"""Reads a target's code for what its branches may compare with: numbers, strings, keys, and talk of NaN."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from recapture.base.scrub import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_MINED = 12
"""The most numbers and strings that are taken from the target's source."""

MOST_FUNCTIONS = 200
"""The most functions of the target's file whose code is read."""

LONGEST_STRING = 30
"""Characters of the longest string that is taken from the target's source."""

ABOUT_NONFINITE = frozenset({"isnan", "isinf", "isfinite", "nan_to_num", "isposinf", "isneginf", "nansum", "nanmean"})
"""Functions whose use says that NaN and infinity are expected."""


def codes_of(built: Any) -> tuple[list[Any], list[Any]]:
    """Return the code of a function, or of a module's methods, and of what they define or call in the same files.

    Second are the keys of the dicts of these files that the code names: what it may look up.
    """
    keys: list[Any] = []
    roots = [built] if hasattr(built, "__code__") else []
    for kind in {type(one) for one in built.modules()} if hasattr(built, "modules") else ():
        roots += [] if kind.__module__.startswith("torch") else [kind]
    keys += [name for name, _ in built.named_children()] if hasattr(built, "named_children") else []
    found: dict[int, Any] = {}
    while roots and len(found) < MOST_FUNCTIONS:
        one = roots.pop()
        if inspect.isclass(one):
            roots += [getattr(item, "__func__", item) for item in vars(one).values()]
            continue
        code = one if inspect.iscode(one) else getattr(one, "__code__", None)
        if not inspect.iscode(code) or id(code) in found:
            continue
        found[id(code)] = code
        roots += [item for item in code.co_consts if inspect.iscode(item)]
        around = getattr(one, "__globals__", {})
        called = [around.get(name) for name in code.co_names]
        keys += [key for item in called if type(item) is dict for key in list(item)[:MOST_MINED]]
        roots += [item for item in called if getattr(item, "__module__", None) == around.get("__name__", "")]
    return list(found.values()), keys


def mined(codes: list[Any], keys: list[Any]) -> list[Any]:
    """Return the numbers and short strings in code, and among the keys that it may look up."""
    found: dict[tuple[type, Any], Any] = {}
    for name, constants in [*((code.co_name, code.co_consts) for code in codes), ("", keys)]:
        for one in _flat(constants):
            if type(one) in (int, float) and 1e-6 < abs(one) < 1e6 and one not in (1, -1):
                found.setdefault((type(one), one), one)
            elif type(one) is str and len(one) <= LONGEST_STRING and one.isidentifier() and one != name:
                found.setdefault((str, encodable(one)), encodable(one))
    return sorted(found.values(), key=lambda one: (type(one) is str, str(one)))[:MOST_MINED]


def _flat(constants: Iterable[Any]) -> Iterator[Any]:
    """Yield constants and the items of constant tuples and sets, which hold the keys of a dict and what ``in`` asks."""
    for one in constants:
        if type(one) in (tuple, frozenset):
            yield from _flat(one)
        else:
            yield one


def about_nonfinite(codes: list[Any]) -> bool:
    """Whether code names a function that is about NaN and infinity."""
    return any(ABOUT_NONFINITE & set(one.co_names) for one in codes)
