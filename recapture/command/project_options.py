"""Options that a project repeats: ``[tool.recapture.COMMAND]`` in the pyproject.toml of the current folder."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.text import in_a_row, shorten
from recapture.command.command_table import commands

COMMAND = "command"
"""The key with the command that `upgrade` and `bisect` run if none follows two dashes."""

_LONGEST = 80
"""Characters shown of a value that does not fit."""


def project_defaults(name: str, command: click.Command) -> dict[str, Any]:
    """Return the values of a command's parameters that the project sets, by the parameter's name.

    A key is the name of a long option without its dashes, or of an argument. Raises UsageError, with the file and the
    key, for a key that the command does not have, and for a value of another type than it takes.
    """
    path = Path("pyproject.toml")
    # Most projects have no such table; their file need not even be valid.
    if not path.is_file() or not re.search(rb"^[^#\n]*\brecapture\b", _content(path), re.MULTILINE):
        return {}
    from recapture.base.toml_file import load_toml

    content: Any = load_toml(path, "the options of the project", dict)
    for part in ("tool", "recapture"):
        content = content.get(part, {}) if isinstance(content, dict) else content
    tables = _table(content, f"{path}: tool.recapture")
    for other in tables:
        if other not in commands():
            raise UsageError(
                f"{path}: tool.recapture.{other}: recapture has no command {other!r}{did_you_mean(other, commands())}"
            )
    parameters = dict(_keys(command))
    defaults: dict[str, Any] = {}
    for key, value in _table(tables.get(name, {}), f"{path}: tool.recapture.{name}").items():
        place = f"{path}: tool.recapture.{name}.{key}"
        if key == COMMAND and getattr(command, "takes_command", False):
            defaults[COMMAND] = _words(value, place)
        elif key in parameters:
            defaults[str(parameters[key].name)] = _value(parameters[key], value, place)
        else:
            raise UsageError(f"{place}: recapture {name} has no option {key!r}{did_you_mean(key, parameters)}")
    return defaults


def _keys(command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            yield str(parameter.name), parameter
        for option in parameter.opts:
            if match := re.fullmatch(r"--([\w-]+)", option):
                yield match[1], parameter


def _value(parameter: click.Parameter, value: object, place: str) -> Any:
    """Return a value as it would be typed; raises UsageError for one of another type, or out of range."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        if not isinstance(value, bool):
            raise _unfit(place, value, "true or false")
        return value
    kind, noun = _taken(parameter.type)
    several = (isinstance(parameter, click.Option) and parameter.multiple) or parameter.nargs == -1
    # A single text may be a list, too, where commas would divide what is typed.
    listed = several or parameter.type is click.STRING
    parts = value if listed and isinstance(value, list) else [value]
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, kind):
            raise _unfit(place, value, f"{noun} or a list of these" if listed else noun)
        try:
            if kind is not str or isinstance(parameter.type, click.Choice):
                parameter.type.convert(str(part), parameter, None)
        except click.BadParameter:
            raise _unfit(place, value, f"{noun} or a list of these" if listed else noun) from None
    # click converts the text, as if it was typed.
    return list(map(str, parts)) if several else ",".join(map(str, parts))


def _taken(kind: click.ParamType[Any]) -> tuple[type | tuple[type, ...], str]:
    """Return which values of TOML a type of click takes, and what they are called."""
    if isinstance(kind, click.Choice):
        return str, in_a_row([_shown(choice) for choice in kind.choices], "or")
    if isinstance(kind, click.types.IntParamType):
        return int, f"a whole number{_range(kind)}"
    if isinstance(kind, click.types.FloatParamType):
        return (int, float), f"a number{_range(kind)}"
    return str, "text"


def _range(kind: click.ParamType[Any]) -> str:
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    if least is None or most is None:
        return f" of at least {least:g}" if least is not None else f" of at most {most:g}" if most is not None else ""
    return f" from {least:g} to {most:g}"


def _words(command: object, place: str) -> list[str]:
    """Return the words of a command, which is one text as in a shell, or a list of texts."""
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        return command
    if not isinstance(command, str):
        raise _unfit(place, command, "text or a list of texts")
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{place}: {_shown(command)} cannot be split into words: {error}") from None


def _table(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unfit(place, value, "a table")
    return value


def _unfit(place: str, value: object, expected: str) -> UsageError:
    return UsageError(f"{place}: found {_shown(value)}, expected {expected}")


def _shown(value: object) -> str:
    """Return a value of a TOML file in one line, nearly as it is written there."""
    return (
        "a table" if isinstance(value, dict) else shorten(json.dumps(value, ensure_ascii=False, default=str), _LONGEST)
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
