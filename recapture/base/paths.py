"""Locations of the project's own files, in a checkout or inside the installed package."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package ``recapture``."""

callers_directory: str | None = None
"""The folder that `recapture.pool.bootstrap` appended to ``sys.path``; packages in it do not count as installed."""

CHECKOUT = PACKAGE.parent
"""The folder of the checkout, if the package runs from a checkout."""


def data_folder(name: str, *, marker: str | None = None) -> Path:
    """Return a folder of the project: ``suites``, ``suites/speedups`` or ``docker``.

    This is the checkout's folder if it exists and contains the file `marker`, otherwise the copy inside the wheel. The
    marker matters beside an installed package, where ``docker`` is the Docker SDK. The folder need not exist.
    """
    checkout = CHECKOUT / name
    is_checkout = checkout.is_dir() if marker is None else (checkout / marker).is_file()
    return checkout if is_checkout else PACKAGE / "data" / name


def module_file(*parts: str) -> Path:
    """Return a file of the package by its path inside it, such as ``("results", "schema", "conformance-1.json")``."""
    return PACKAGE.joinpath(*parts)


@contextlib.contextmanager
def without_callers_directory() -> Iterator[None]:
    """Import nothing from the caller's directory inside the context.

    Libraries look for optional packages when they are imported: a ``dill.py`` there is a user's, and not dill.
    """
    place = None
    if callers_directory is not None and callers_directory in sys.path:
        place = len(sys.path) - 1 - sys.path[::-1].index(callers_directory)
        del sys.path[place]
    try:
        yield
    finally:
        if place is not None and callers_directory is not None:
            sys.path.append(callers_directory)
