"""Printing what a command returns: nothing that a terminal would obey is among it."""

from __future__ import annotations

import click

from recapture.base.escape import json_text
from recapture.base.text import printable

__all__ = ["echo", "echo_document", "echo_json"]

LONGEST = 4000
"""Characters of the longest line that is printed for people."""


def echo(text: str, *, err: bool = False) -> None:
    """Print one line for people; line breaks in it are shown as spaces."""
    line = " ".join(text.splitlines()) if len(text.splitlines()) > 1 else text
    click.echo(printable(line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"), err=err)


def echo_document(text: str) -> None:
    """Print a document of several lines (Markdown, a script) as it is, but for control characters."""
    click.echo(printable(text, keep="\n\t"), nl=False)


def echo_json(text: str) -> None:
    """Print a JSON document; control characters in its texts become escapes, so that it means the same."""
    click.echo(json_text(text), nl=False)
