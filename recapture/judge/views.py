"""Mappings through which a name's value is read, replaced and removed, whatever holds the name."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any


class MappingView:
    """The names in a mapping, such as a function's globals."""

    def __init__(self, mapping: Any) -> None:
        self.of = self.mapping = mapping

    def __getitem__(self, key: str) -> Any:
        return self.mapping[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.mapping[key] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.mapping))

    def remove(self, key: Any) -> None:
        """Remove a name, if it is there."""
        self.mapping.pop(key, None)


class CellView:
    """A closure cell, read and written like a mapping."""

    def __init__(self, cell: Any) -> None:
        self.of = self.cell = cell

    def __getitem__(self, key: str) -> Any:
        return self.cell.cell_contents

    def __setitem__(self, key: str, value: Any) -> None:
        self.cell.cell_contents = value

    def remove(self, key: str) -> None:  # noqa: ARG002 - a cell has no names
        """Empty the cell."""
        del self.cell.cell_contents


class ClassView:
    """The attributes of a class, written through `setattr`."""

    def __init__(self, kind: type) -> None:
        self.of = self.kind = kind

    def __getitem__(self, key: str) -> Any:
        return vars(self.kind)[key]

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self.kind, key, value)

    def __iter__(self) -> Iterator[str]:
        return iter(list(vars(self.kind)))

    def remove(self, key: str) -> None:
        """Remove a name, if it is there."""
        if key in vars(self.kind):
            delattr(self.kind, key)


class AttributeView:
    """The attributes of Python itself that a function has."""

    def __init__(self, function: types.FunctionType) -> None:
        self.of = self.function = function

    def __getitem__(self, key: str) -> Any:
        return getattr(self.function, key)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self.function, key, value)


View = MappingView | CellView | ClassView | AttributeView
"""What holds names: a dict, a closure's cell, a class or a function."""


def values_at(owner: Any, key: Any) -> list[Any]:
    """Return a list with the value of a name, or an empty one."""
    try:
        return [owner[key]]
    except (KeyError, ValueError):  # deleted; an empty closure cell
        return []
