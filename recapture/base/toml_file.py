"""Reads TOML files, and says in one line why one cannot be read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from recapture.base.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["load_toml", "read_toml"]

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML file's content, with the standard library's reader or, on Python 3.10, tomli."""
    return dict(tomllib.loads(path.read_text(encoding="utf-8")))


def load_toml(path: Path, noun: str, made: Callable[[dict[str, Any]], T]) -> T:
    """Return what `made` makes of a TOML file; `noun` names its content: "cannot read the known issues".

    Raises UsageError, in one line, for an unreadable file, for a mistake in its TOML, and where `made` raises
    ValueError, as msgspec does.
    """
    try:
        return made(read_toml(path))
    except OSError as error:
        raise UsageError(f"cannot read {noun}: {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
