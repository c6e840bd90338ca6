"""Reads TOML files, and says in one line why one cannot be read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from recapture.base.errors import UsageError
from recapture.base.files import read_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]


T = TypeVar("T")

MOST_BYTES = 4 << 20
"""Bytes of the largest TOML file that is read: the largest table of the project takes 50 KB."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML file's content, with the standard library's reader or, on Python 3.10, tomli.

    A link is followed: installers may make one of any file. Raises UsageError for what is no regular file or cannot be
    read, and ValueError for a mistake in its TOML.
    """
    data = read_regular(Path(os.path.realpath(path)), most=MOST_BYTES)
    try:
        return dict(tomllib.loads(data.decode("utf-8")))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def load_toml(path: Path, noun: str, build: Callable[[dict[str, Any]], T]) -> T:
    """Return what `build` makes of a TOML file; `noun` names its content: "cannot read the known issues".

    Raises UsageError, in one line, for an unreadable file, for a mistake in its TOML, and where `build` raises
    ValueError, as msgspec does.
    """
    try:
        return build(read_toml(path))
    except UsageError as error:
        raise UsageError(str(error).replace("cannot read", f"cannot read {noun}:", 1)) from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
