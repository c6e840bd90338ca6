"""Prints a command's output without control characters."""

from __future__ import annotations

import io
import re
import sys
import textwrap
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from recapture.base.columns import asked_columns, terminal_columns
from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.escape import indented_json, json_text
from recapture.base.text import printable, shorten

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recapture.records.directories import Results


class OutputError(EnvironmentUnfitError):
    """Standard output cannot be written, because a disk is full or broken."""


class _NamedOutput(io.FileIO):
    """Standard output below its buffer, where every text passes, whichever library prints it."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as error:
            raise OutputError(f"cannot write to standard output: {error.strerror}") from None


def name_output_errors() -> None:
    """Make a failure to write to standard output raise OutputError; an OSError would not say which file it concerns."""
    stream = sys.stdout
    if stream is not sys.__stdout__ or not isinstance(stream, io.TextIOWrapper):  # a caller captures it
        return
    stream.flush()
    file = _NamedOutput(stream.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        file if stream.write_through else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


LONGEST_ERROR = 4000
"""Characters of the longest printed error, which may quote a file."""

WORD_ENDS = 100
"""Characters of each end of a very long word of an error that are printed."""

NAME_ENDS = 30
"""Characters of each end of a very long name of an error that are printed: of a word that is no path."""

_LONG_NAME = re.compile(rf"(?<!\S)[^\s/]{{{4 * NAME_ENDS},}}(?!\S)")
_LONG_WORD = re.compile(rf"\S{{{4 * WORD_ENDS},}}")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text without control characters, to standard output or, with `err`, to standard error."""
    click.echo(printable(text, keep="\n\t"), err=err, nl=nl)


def write_file(path: Path, text: str) -> None:
    """Write text to a file that the user named; raises UsageError, in one line, if that cannot be done."""
    from recapture.base.files import write_output

    try:
        write_output(path, printable(text).encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def write_beside(path: Path, text: str) -> None:
    """Write a report beside the results that it is about, at once; raises UsageError, in one line, if that fails."""
    from recapture.base.files import write_atomically

    try:
        write_atomically(path, printable(text).encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def echo_line(line: str, *, err: bool = False, hang: int = 2) -> None:
    """Print a line as `echo` does. On a terminal, and where COLUMNS asks for a width, it is wrapped between words.

    Further lines are indented by `hang` more.
    """
    if asked_columns() or (sys.stderr if err else sys.stdout).isatty():
        indent = " " * (len(line) - len(line.lstrip(" ")) + hang)
        width = terminal_columns(80)
        layout = textwrap.TextWrapper(width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        line = layout.fill(line)
    echo(line, err=err)


def echo_error(text: str) -> None:
    """Print one line to standard error, with the program's name as prefix.

    The middle of a word that fills several lines is left out: what the message says of it comes after it.
    """
    from recapture.base.scrub import without_secrets

    text = _LONG_NAME.sub(lambda name: f"{name[0][:NAME_ENDS]}…{name[0][-NAME_ENDS:]}", text)
    text = _LONG_WORD.sub(lambda word: f"{word[0][:WORD_ENDS]}…{word[0][-WORD_ENDS:]}", text)
    echo_line(f"recapture: {shorten(without_secrets(text), LONGEST_ERROR)}", err=True)


def warn_if_misfiled(results: Results) -> None:
    """Print a warning if the environment beside records belongs to another image."""
    if misfiled := results.misfiled:
        echo_error(f"warning: {results.directory}: {misfiled}")


def echo_json(text: str) -> None:
    """Print a JSON document with control characters as equivalent escapes."""
    click.echo(json_text(text), nl=False)


def print_json(value: Any) -> None:
    """Print plain data and msgspec's structures as an indented JSON document."""
    echo_json(indented_json(value))


def echo_source(text: str) -> None:
    """Print a program: as `echo` on a terminal, but unchanged to a file or a pipe, so that it can be run."""
    if sys.stdout.isatty():
        echo(text, nl=False)
    else:
        click.echo(text.encode(errors="backslashreplace"), nl=False)  # UTF-8, as Python reads it


def standard_streams() -> dict[str, Callable[[bytes], None]]:
    """Return functions that pass on what another process writes to its standard output and standard error."""

    def writer(stream: BinaryIO) -> Callable[[bytes], None]:
        def write(chunk: bytes) -> None:
            stream.write(chunk)
            stream.flush()

        return write

    return {"stdout": writer(sys.stdout.buffer), "stderr": writer(sys.stderr.buffer)}
