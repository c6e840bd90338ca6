"""Command-line options built from declared fields, and checks that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import sys
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.option_fields import declared, divided, known_device
from recapture.cases.name_filter import matcher
from recapture.records.kinds import KINDS
from recapture.records.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from recapture.base.option_fields import CommandLine


class Range(click.FloatRange):
    """A range of numbers; unlike click's own range, it refuses NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return a word of the command line as a number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class PathParameter(click.Path):
    """A path; unlike click's own type, it refuses an empty one, which `Path` would take as the current directory."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(path_type=Path, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a word of the command line as a `Path`."""
        if value == "":
            self.fail("an empty path is not a file or folder", param, ctx)
        return super().convert(value, param, ctx)


def output_file(path: Path) -> Path:
    """Return the path of a file that the command will write.

    Raises UsageError for one that cannot be written: before the work, which may take hours, and not after it.
    """
    from recapture.base.files import why_not_writable

    if why := why_not_writable(path):
        raise UsageError(f"cannot write {path}: {why}")
    return path


class OutputFile(PathParameter):
    """A path that `output_file` accepts; `replaces` is the parameter whose file may be written anew.

    No file of records is written over, and a program only by another `program`.
    """

    def __init__(self, *, replaces: str = "", program: bool = False) -> None:
        super().__init__()
        self.replaces = replaces
        self.program = program

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a word of the command line as a `Path`."""
        path = output_file(super().convert(value, param, ctx))
        lost = {".jsonl": "a file of records"} | ({} if self.program else {".py": "a program"})
        if path.suffix in lost and path.exists():
            raise UsageError(f"{param.opts[0] if param else 'the output'} {path} would replace {lost[path.suffix]}")
        return path


def guard_outputs(command: click.Command) -> None:
    """Let a command refuse an output file that another of its words names too, before it starts.

    It would replace the user's code with a page about it, or a page with another.
    """
    outputs = [(parameter, parameter.type) for parameter in command.params if isinstance(parameter.type, OutputFile)]
    body = command.callback
    if not outputs or body is None:
        return

    @functools.wraps(body)
    def call(*arguments: Any, **values: Any) -> Any:
        for output, output_type in outputs:
            path = values[output.name]
            if path is None or (path.exists() and not path.is_file()):  # a device takes the words of several
                continue
            names = values if path.exists() else [other.name for other, _ in outputs]
            read = [values[name] for name in names if name not in {output.name, output_type.replaces}]
            after_dashes = list(click.get_current_context().meta.values()) if path.exists() else []
            if _names_file(read + after_dashes, path):
                raise UsageError(f"{output.opts[0]} {path} would replace a file that the command names elsewhere")
        return body(*arguments, **values)

    command.callback = call


def _names_file(value: Any, path: Path) -> bool:
    """Whether a value of the command line is this file, or begins with it: FILE:NAME, FILE::CASE or MODULE:NAME."""
    if isinstance(value, (tuple, list)):
        return any(_names_file(part, path) for part in value)
    if not isinstance(value, (str, Path)):
        return False
    before = str(value).rpartition(":")[0]
    module = before.replace(".", "/")  # where Python looks for it first: a target may be in the current folder
    texts = {str(value), str(value).partition("::")[0], before, module and f"{module}.py", f"{module}/__init__.py"}
    return os.path.realpath(path) in {os.path.realpath(text) for text in texts if text}


def takes(**groups: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add to a command the options that dataclasses declare (`recapture.base.option_fields`).

    The command is called with one instance of each dataclass under the keyword given here. Other options that decorate
    the command are passed by click as usual.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(**values: Any) -> Any:
            built = {keyword: _instance(options, values) for keyword, options in groups.items()}
            return command(**built, **values)

        decorated: Callable[..., Any] = call
        for options in reversed(list(groups.values())):
            for parameter in reversed(_parameters(options)):
                decorated = parameter(decorated)
        return decorated

    return decorate


def _instance(options: type[Any], values: dict[str, Any]) -> Any:
    """Remove a dataclass's fields from click's parsed values and return an instance."""
    fields = {}
    for name, command_line in declared(options).items():
        value = values.pop(name)
        if command_line.commas:
            value = divided(value)
        if value is not None and command_line.unit is not None:
            value = int(value * command_line.unit)
        if value is not None and command_line.parse is not None:
            value = _parsed(command_line, value)
        fields[name] = value
    for field in dataclasses.fields(options):
        if fields.get(field.name, field) is None and field.default_factory is not dataclasses.MISSING:
            del fields[field.name]  # computed if the user omits it
    return options(**fields)


def _parsed(command_line: CommandLine, value: Any) -> Any:
    try:
        if command_line.names and isinstance(value, tuple):
            return tuple(map(command_line.parse, value))  # type: ignore[arg-type]
        return command_line.parse(value)  # type: ignore[misc]
    except ValueError as error:
        raise UsageError(str(error)) from None


def _parameters(options: type[Any]) -> list[Callable[[Any], Any]]:
    """Return a click decorator for each declared field, in order of declaration."""
    hints = typing.get_type_hints(options)
    fields = {field.name: field for field in dataclasses.fields(options)}
    parameters: list[Callable[[Any], Any]] = []
    for name, command_line in declared(options).items():
        if not command_line.names:
            parameters.append(click.argument(name, nargs=-1, metavar=command_line.metavar))
            continue
        settings: dict[str, Any] = {
            "help": command_line.help,
            "metavar": command_line.metavar,
            **_kind(hints[name], command_line),
        }
        if isinstance(settings.get("type"), (click.IntRange, click.FloatRange)):
            settings["metavar"] = command_line.metavar or "N"  # click's own names are INTEGER RANGE and FLOAT RANGE
        default = fields[name].default
        if default not in (dataclasses.MISSING, None, ()) and default is not False:
            settings["default"] = default / command_line.unit if command_line.unit else default
            settings["show_default"] = command_line.show_default and default != ""
        elif default is dataclasses.MISSING and fields[name].default_factory is dataclasses.MISSING:
            settings["required"] = True
        parameters.append(click.option(*command_line.names, name, **settings))
    return parameters


def _kind(hint: Any, command_line: CommandLine) -> dict[str, Any]:
    """Return click's arguments for a field of this type: flag, number, choice, path, text, or a repeated one."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:  # `int | None`: an optional value
        (hint,) = (member for member in typing.get_args(hint) if member is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        return {"multiple": True}
    if hint is bool:
        return {"is_flag": True}
    least, most = command_line.between
    if hint is float or command_line.unit is not None:
        return {"type": Range(least, most)}
    if hint is int:
        return {"type": click.IntRange(None if least is None else int(least), None if most is None else int(most))}
    if typing.get_origin(hint) is Literal:
        return {"type": click.Choice(list(typing.get_args(hint)))}
    return {"type": PathParameter()} if hint is Path else {}


def check_device(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Check the value of an option ``--device``; a click callback."""
    return known_device(value)


def require_torch() -> None:
    """Raise EnvironmentUnfitError if torch is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise EnvironmentUnfitError(
            f"torch is not installed for {sys.executable}: install it there, or use --across or --image, "
            "which need none there"
        )


def console() -> Console:
    """Return the console for standard output, without automatic highlighting."""
    from recapture.report.terminal_writer import SafeConsole

    return SafeConsole(highlight=False)


_AS_JSON = "recapture.as_json"
"""Key of the context's notes for ``--json`` where ``--format`` says the same."""


def _note_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[_AS_JSON] = value


def _form(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    return "json" if context.meta.get(_AS_JSON) else value


def how_to_print(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options ``--format`` and ``--json`` to a command that prints results; they arrive as `form`."""
    short = click.option(
        "--json",
        is_flag=True,
        # Read before --format, in whatever order the two are typed.
        is_eager=True,
        expose_value=False,
        callback=_note_json,
        help="The same as --format json.",
    )
    long = click.option(
        "--format",
        "form",
        type=click.Choice(["text", "markdown", "json"]),
        default="text",
        show_default=True,
        callback=_form,
        help="Output format.",
    )
    return long(short(command))


json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
"""The option ``--json``."""


def kind_option(text: str) -> Callable[[Any], Any]:
    """Return the option ``--kind`` of commands that show some of the cells; `text` says which."""
    return click.option(
        "--kind",
        "kinds",
        type=click.Choice([*KINDS, *map(str, Verdict)]),
        metavar="KIND",
        multiple=True,
        help=f"{text}: {', '.join(KINDS)}; or with this verdict: {', '.join(Verdict)}. May be given several times.",
    )


def _matching(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Callable[[str], bool] | None:
    return None if value is None else matcher(value)


keyword_option = click.option(
    "-k",
    "matches",
    metavar="EXPR",
    callback=_matching,
    help="Only cases whose suite::name matches: words, and, or, not.",
)
"""The option ``-k`` of commands that show recorded cells; the command receives a predicate for addresses."""

suite_option = click.option(
    "--suite", "suites", metavar="SUITE", multiple=True, help="Only cases of this suite; may be given several times."
)
"""The option ``--suite`` of commands that show cases or recorded cells."""
