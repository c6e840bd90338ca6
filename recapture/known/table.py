"""Reads the files of what people found out (``suites/*.toml``): one loader for all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from recapture.base.paths import data_folder
from recapture.base.toml_file import load_toml

Content = TypeVar("Content")

UNDOCUMENTED = "not documented"
"""The source of what no thread, change or document was found for."""


def check_source(name: str, source: str) -> None:
    """Raise ValueError, naming the entry, for a source that is neither an address nor `UNDOCUMENTED`."""
    if source != UNDOCUMENTED and not source.startswith("https://"):
        raise ValueError(f"{name}: the source is neither an address nor {UNDOCUMENTED!r}")


class Table(Generic[Content]):
    """One file, with the structs of its entries by their key in the file.

    Entries whose struct has an `id` are tables named by it (``[issues.12345]``); others are a list
    (``[[transitions]]``). `build` makes the content of the file from the lists of entries, one for each key, and
    raises ValueError for entries that cannot be true. `noun` names the content in messages.
    """

    def __init__(self, file: str, noun: str, build: Callable[..., Content], **kinds: type[msgspec.Struct]) -> None:
        self.file = file
        self.noun = noun
        self._build = build
        self._kinds = kinds
        fields = [(key, dict[str, dict[str, Any]] if _has_id(kind) else list[Any]) for key, kind in kinds.items()]
        self._keys = msgspec.defstruct(file, fields, forbid_unknown_fields=True)

    @functools.cached_property
    def shipped(self) -> Content:
        """The content of the file that ships with recapture."""
        return self.load(data_folder("suites") / self.file)

    def load(self, path: Path) -> Content:
        """Read a file. Raises UsageError, in one line, if it cannot be read, has an unknown key, or cannot be true."""
        return load_toml(path, self.noun, self._content)

    def _content(self, document: dict[str, Any]) -> Content:
        entries: dict[str, list[Any]] = {}
        for key, value in msgspec.structs.asdict(msgspec.convert(document, self._keys)).items():
            kind = self._kinds[key]
            named = [{**table, "id": name} for name, table in value.items()] if _has_id(kind) else value
            entries[key] = [msgspec.convert(entry, kind) for entry in named]
        return self._build(*entries.values())


def _has_id(kind: type[msgspec.Struct]) -> bool:
    return "id" in kind.__struct_fields__
