"""The width of printed lines: what the environment variable COLUMNS asks for, or the terminal's."""

from __future__ import annotations

import os
import sys

NARROWEST = 20
"""Smallest width in columns of text that is wrapped, however narrow the terminal is."""

UNLIMITED = 100_000
"""Width in columns at which nothing is wrapped or cut, and the largest that is taken from COLUMNS."""


def asked_columns() -> int | None:
    """Return the width that COLUMNS asks for; None if it is not set, or to no sensible number."""
    text = os.environ.get("COLUMNS", "")
    # Python refuses to read thousands of digits.
    columns = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(UNLIMITED)) else 0
    return columns if NARROWEST <= columns <= UNLIMITED else None


def terminal_columns(fallback: int) -> int:
    """Return the width that COLUMNS asks for, or that of the terminal, or `fallback` where there is none."""
    try:
        columns = os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ is not None else 0
    except (ValueError, OSError):  # closed, or no terminal
        columns = 0
    return asked_columns() or columns or fallback
