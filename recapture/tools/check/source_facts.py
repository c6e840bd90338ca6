"""Reads what a target's code says about its inputs, and names what it imports.

Branches may compare with the numbers, strings and keys in the code, and functions such as ``isnan`` speak of NaN. What
importing the target imports, a server can import before it forks.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recapture.base.scrub import encodable
from recapture.cases.own_code import attribute_of

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

INSTALLED = "site-packages"
"""The folder of installed packages."""

MOST_MINED = 12
"""The most numbers and strings that are taken from the target's source."""

MOST_FUNCTIONS = 200
"""The most functions of the target's file whose code is read."""

MOST_VISITED = 20_000
"""The most objects that are looked at for code."""

LONGEST_STRING = 30
"""Characters of the longest string that is taken from the target's source."""

ABOUT_NONFINITE = frozenset({"isnan", "isinf", "isfinite", "nan_to_num", "isposinf", "isneginf", "nansum", "nanmean"})
"""Functions whose use says that NaN and infinity are expected."""


def codes_of(built: Any) -> tuple[list[Any], list[Any]]:
    """Return the code of a function, or of a module's methods, and of what they define or call in the same files.

    Second are the keys of the dicts of these files that the code names: what it may look up.
    """
    keys: list[Any] = []
    roots = [built] if attribute_of(built, "__code__") is not None else []
    for kind in {type(module) for module in built.modules()} if attribute_of(built, "modules") is not None else ():
        roots += [] if kind.__module__.startswith("torch") else [kind]
    keys += [name for name, _ in built.named_children()] if attribute_of(built, "named_children") is not None else []
    codes: list[Any] = []
    visited: dict[int, Any] = {}  # with the objects themselves, so that no other one gets the id of one that is gone
    while roots and len(codes) < MOST_FUNCTIONS and len(visited) < MOST_VISITED:
        root = roots.pop()
        if id(root) in visited:  # a class is an attribute of itself, and classes refer to each other
            continue
        visited[id(root)] = root
        if inspect.isclass(root):
            roots += [attribute_of(item, "__func__", item) for item in vars(root).values()]
            continue
        code = root if inspect.iscode(root) else attribute_of(root, "__code__")
        if not inspect.iscode(code) or (id(code) in visited and code is not root):
            continue
        visited[id(code)] = code
        codes.append(code)
        roots += [item for item in code.co_consts if inspect.iscode(item)]
        around = attribute_of(root, "__globals__", {})
        called = [around.get(name) for name in code.co_names]
        keys += [key for item in called if type(item) is dict for key in list(item)[:MOST_MINED]]
        roots += [item for item in called if attribute_of(item, "__module__") == around.get("__name__", "")]
    return codes, keys


def mined(codes: list[Any], keys: list[Any], solved: Iterable[int] = ()) -> list[Any]:
    """Return the numbers and short strings in code, and among the keys that it may look up; `solved` ones first."""
    values: dict[tuple[type, Any], Any] = {}
    for name, constants in [*((code.co_name, code.co_consts) for code in codes), ("", keys)]:
        for value in _flat(constants):
            if type(value) in (int, float) and 1e-6 < abs(value) < 1e6 and value not in (1, -1):
                values.setdefault((type(value), value), value)
            elif type(value) is str and len(value) <= LONGEST_STRING and value.isidentifier() and value != name:
                values.setdefault((str, encodable(value)), encodable(value))
    others = sorted(values.values(), key=lambda value: (type(value) is str, str(value)))
    return [*solved, *(value for value in others if value not in solved)][:MOST_MINED]


def _flat(constants: Iterable[Any]) -> Iterator[Any]:
    """Yield constants and the items of constant tuples and sets, which hold the keys of a dict and what ``in`` asks."""
    for value in constants:
        if type(value) in (tuple, frozenset):
            yield from _flat(value)
        else:
            yield value


def about_nonfinite(codes: list[Any]) -> bool:
    """Whether code names a function that is about NaN and infinity."""
    return any(ABOUT_NONFINITE & set(code.co_names) for code in codes)


class ImportsOfTarget:
    """Watches imports while it is entered; `modules` are the installed ones that the user's code asks for.

    What they import themselves is left out, because it comes with them: a large package has more than a thousand
    modules, and its user names two of them.
    """

    def __init__(self) -> None:
        self._asked: list[str] = []
        self._outside: Any = None

    def __enter__(self) -> Self:
        self._outside = _caller()
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.meta_path.remove(self)
        self._outside = None

    def find_spec(self, name: str, *_: object) -> None:
        """Note a module that is about to be imported; the finders that follow find it."""
        frame = _caller()
        while frame is not None and frame is not self._outside:
            code = frame.f_code
            if code.co_name == "<module>" and INSTALLED in code.co_filename:
                return
            frame = frame.f_back
        self._asked.append(name)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules in the order in which they were imported."""
        return tuple(dict.fromkeys(name for name in self._asked if _is_installed(name)))


def _caller() -> Any:
    """Return the frame that called the function that asks."""
    frame: Any = inspect.currentframe()
    return frame.f_back.f_back


def _is_installed(name: str) -> bool:
    """Whether a module was imported from an installed package, which is neither torch nor this project."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or INSTALLED not in Path(file).parts or name.partition(".")[0] in ("torch", "recapture"):
        return False
    return all(part.isidentifier() for part in name.split("."))
