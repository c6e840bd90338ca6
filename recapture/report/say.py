"""Printing lines on a console exactly as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.text import Text

__all__ = ["say", "say_all"]


def say(console: Console, text: str | Text = "", style: str = "") -> None:
    """Print one line: nothing in it is markup, and it is neither wrapped nor cut."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def say_all(console: Console, lines: Iterable[str | Text], style: str = "") -> None:
    """Print several lines as `say` does."""
    for line in lines:
        say(console, line, style)
