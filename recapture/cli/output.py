"""Prints a command's output without control characters."""

from __future__ import annotations

import sys

import click

from recapture.base.escape import json_text
from recapture.base.text import printable, shorten

__all__ = ["echo", "echo_error", "echo_json", "echo_source"]

LONGEST_ERROR = 4000
"""Characters of the longest printed error, which may quote a file."""


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text without control characters, to standard output or, with `err`, to standard error."""
    click.echo(printable(text, keep="\n\t"), err=err, nl=nl)


def echo_error(text: str) -> None:
    """Print one line to standard error, with the program's name as prefix."""
    click.echo(f"recapture: {shorten(text, LONGEST_ERROR)}", err=True)


def echo_json(text: str) -> None:
    """Print a JSON document with control characters as equivalent escapes."""
    click.echo(json_text(text), nl=False)


def echo_source(text: str) -> None:
    """Print a program: as `echo` on a terminal, but unchanged to a file or a pipe, so that it can be run."""
    if sys.stdout.isatty():
        echo(text, nl=False)
    else:
        click.echo(text.encode(errors="backslashreplace"), nl=False)  # UTF-8, as Python reads it
