"""Printing what a command returns: nothing that a terminal would obey is among it."""

from __future__ import annotations

import sys

import click

from recapture.base.escape import json_text
from recapture.base.text import printable, shorten

__all__ = ["echo", "echo_error", "echo_json", "echo_source"]

LONGEST_ERROR = 4000
"""Characters of the longest error that is printed: it may quote a file."""


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text as it is, but for control characters, on standard output or, with `err`, on standard error."""
    click.echo(printable(text, keep="\n\t"), err=err, nl=nl)


def echo_error(text: str) -> None:
    """Print one line on standard error, after the program's name."""
    click.echo(f"recapture: {shorten(text, LONGEST_ERROR)}", err=True)


def echo_json(text: str) -> None:
    """Print a JSON document; control characters in its texts become escapes, so that it means the same."""
    click.echo(json_text(text), nl=False)


def echo_source(text: str) -> None:
    """Print a program: on a terminal as `echo` does, into a file or a pipe to the byte, for it is to be run."""
    if sys.stdout.isatty():
        echo(text, nl=False)
    else:
        click.echo(text.encode(errors="backslashreplace"), nl=False)  # UTF-8, as Python reads it
