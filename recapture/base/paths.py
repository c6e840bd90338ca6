"""Where the project's own files lie: in a checkout, or inside the installed package."""

from __future__ import annotations

from pathlib import Path

__all__ = ["CHECKOUT", "PACKAGE", "data_folder", "module_file"]

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package ``recapture``."""

callers_directory: str | None = None
"""What `recapture.pool.bootstrap` has put at the end of the path; nothing there is installed."""

CHECKOUT = PACKAGE.parent
"""The folder of the checkout, where the package is used from one."""


def data_folder(name: str, *, marker: str | None = None) -> Path:
    """Return a folder of the project: ``suites``, ``suites/speedups`` or ``docker``.

    It is the checkout's where that has it (and in it the file `marker`: beside an installed package, ``docker`` is the
    Docker SDK), otherwise the copy inside the wheel. It need not exist.
    """
    checkout = CHECKOUT / name
    found = checkout.is_dir() if marker is None else (checkout / marker).is_file()
    return checkout if found else PACKAGE / "data" / name


def module_file(*parts: str) -> Path:
    """Return a file of the package by its path inside it, such as ``("results", "schema", "conformance-1.json")``."""
    return PACKAGE.joinpath(*parts)
