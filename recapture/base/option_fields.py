"""Command-line options declared as dataclass fields.

The command line builds its parameters from these fields (`recapture.command.options.takes`), so that an option's name,
type, default and help are written once, beside the code that uses them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from recapture.base.errors import UsageError

GIB = 1 << 30
"""Bytes in a GiB."""

MOST_GIB = float(1 << 20)
"""The most memory that an option accepts, in GiB."""

WEEK = 7 * 24 * 3600.0
"""The longest time that an option accepts, in seconds."""


@dataclass(frozen=True)
class CommandLine:
    """What the command line shows of a field and accepts for it.

    `names` are the option's names (``-k``, ``--jobs``); empty for a positional argument, which takes any number of
    words. `between` is the smallest and the largest number accepted. A number is multiplied by `unit`: with `GIB`, a
    ``2`` becomes 2 GiB in bytes. With `commas`, a text of a repeatable option may hold several values. `parse` turns
    the text (each text of a repeatable option) into the field's value and raises ValueError or UsageError.
    `show_default` is False where the help text states the default.
    """

    names: tuple[str, ...]
    help: str | None
    metavar: str | None
    between: tuple[float | None, float | None]
    unit: int | None
    parse: Callable[[Any], Any] | None
    show_default: bool
    commas: bool = False


def option(
    *names: str,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    help: str | None = None,  # noqa: A002 - named like the field
    metavar: str | None = None,
    between: tuple[float | None, float | None] = (None, None),
    unit: int | None = None,
    parse: Callable[[Any], Any] | None = None,
    show_default: bool = True,
    commas: bool = False,
) -> Any:
    """Return a dataclass field that is a command-line option. The option is required if it has no default."""
    command_line = CommandLine(names, help, metavar, between, unit, parse, show_default, commas)
    defaults = {"default": default, "default_factory": default_factory}
    chosen = {name: value for name, value in defaults.items() if value is not dataclasses.MISSING}
    return dataclasses.field(metadata={CommandLine: command_line}, **chosen)


def argument(metavar: str, *, parse: Callable[[Any], Any] | None = None) -> Any:
    """Return a dataclass field that takes the positional arguments of the command line.

    `parse` receives all of them as a tuple.
    """
    command_line = CommandLine((), None, metavar, (None, None), None, parse, show_default=False)
    return dataclasses.field(metadata={CommandLine: command_line})


def declared(options: type) -> dict[str, CommandLine]:
    """Return the fields of a dataclass that the command line sets, by name, in the order of declaration."""
    return {
        field.name: field.metadata[CommandLine]
        for field in dataclasses.fields(options)
        if CommandLine in field.metadata
    }


def divided(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the values that the texts of a repeatable option hold, which commas divide."""
    return tuple(part.strip() for text in texts for part in text.split(","))


def known_device(name: str) -> str:
    """Return the name of a device; raises UsageError for any but ``cpu`` and ``cuda``."""
    if name not in ("cpu", "cuda"):
        raise UsageError(f"unknown device {name!r}: it is cpu or cuda")
    return name
