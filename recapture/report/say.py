"""Prints lines and tables on a console without interpreting markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.report.tables import terminal_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.text import Text

    from recapture.report.tables import Table


def say(console: Console, text: str | Text = "", style: str = "") -> None:
    """Print one line, without markup, wrapping or cutting."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def say_all(console: Console, lines: Iterable[str | Text], style: str = "") -> None:
    """Print several lines as `say` does."""
    for line in lines:
        say(console, line, style)


def say_table(console: Console, table: Table) -> None:
    """Print a table; if the terminal is too narrow, split its columns into blocks that fit."""
    for number, block in enumerate(table.split(console.width) if console.is_terminal else [table]):
        if number:
            say(console)
        say_all(console, terminal_lines(block))
