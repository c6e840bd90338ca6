"""Options that a project repeats: ``[tool.recapture.COMMAND]`` in the pyproject.toml of the current folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from recapture.base.errors import UsageError, did_you_mean
from recapture.command.command_table import commands

COMMAND = "command"
"""The key with the command that `upgrade` and `bisect` run if none follows two dashes."""


def project_defaults(name: str, command: click.Command) -> dict[str, Any]:
    """Return the values of a command's parameters that the project sets, by the parameter's name.

    A key is the name of a long option without its dashes, or of an argument. Raises UsageError, naming the key, for one
    that the command does not have, and for a value that is neither text, a number, a flag nor a list of these.
    """
    path = Path("pyproject.toml")
    # Most projects have no such table; their file need not even be valid.
    if not path.is_file() or b"[tool.recapture" not in _content(path):
        return {}
    from recapture.base.toml_file import load_toml

    table = load_toml(path, "the options of the project", lambda content: content["tool"]["recapture"])
    if isinstance(table, dict):
        for other in table:
            if other not in commands():
                raise UsageError(f"{path}: recapture has no command {other!r}{did_you_mean(other, commands())}")
    rows = table.get(name, {}) if isinstance(table, dict) else {}
    if not isinstance(rows, dict):
        raise UsageError(f"{path}: [tool.recapture.{name}] is not a table")
    parameters = dict(_keys(command))
    defaults: dict[str, Any] = {}
    for key, value in rows.items():
        if key not in parameters and not (key == COMMAND and getattr(command, "takes_command", False)):
            raise UsageError(f"{path}: recapture {name} has no option {key!r}{did_you_mean(key, parameters)}")
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(part, str | int | float | bool) for part in values):
            raise UsageError(
                f"{path}: tool.recapture.{name}.{key} is neither text, a number, a flag nor a list of these"
            )
        parameter = parameters.get(key)
        if parameter is None:
            defaults[COMMAND] = _words(value, f"{path}: tool.recapture.{name}.{COMMAND}")
        elif parameter.multiple or parameter.nargs == -1:
            defaults[str(parameter.name)] = list(map(str, values))
        else:
            # As text, as it would be typed: click converts it, and tells what does not fit.
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            defaults[str(parameter.name)] = value if isinstance(value, bool) else text
    return defaults


def _keys(command: click.Command) -> Iterator[tuple[str, Any]]:
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            yield str(parameter.name), parameter
        for option in parameter.opts:
            if match := re.fullmatch(r"--([\w-]+)", option):
                yield match[1], parameter


def _words(command: object, place: str) -> list[str]:
    """Return the words of a command, which is one text as in a shell, or a list of texts."""
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        return command
    if not isinstance(command, str):
        raise UsageError(f"{place} is neither text nor a list of texts")
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{place}: {command!r} cannot be split into words: {error}") from None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
