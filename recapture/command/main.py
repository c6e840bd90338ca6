"""The command line's entry point. Every command is in its own module, which is imported when it is used."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from recapture.base.by_name import load
from recapture.base.errors import (
    INTERRUPTED,
    TERMINATED,
    TIME_OVER,
    EnvironmentUnfitError,
    RecaptureError,
    Termination,
    TimeOver,
    UsageError,
    did_you_mean,
    status_of,
)
from recapture.base.version import __version__
from recapture.command.command_table import commands
from recapture.command.output import OutputError, echo_error, name_output_errors
from recapture.command.project_options import project_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator

RESUMED = ("run", "bench")
"""Names of the commands that keep finished work when they are interrupted."""

ENDINGS = {INTERRUPTED: "interrupted", TERMINATED: "terminated", TIME_OVER: "the time of --minutes is over"}
"""How a command was ended from outside, by its exit status."""

_NO_PATH = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP)
"""Error numbers for an argument that cannot be a path."""

_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # before 8.2 click prints the help itself


class _ReaderGoneError(Exception):
    """The reader of a pipe closed it, as `| head` does. Not an OSError, which click would turn into exit status 1."""


def dressed(path: str, command: click.Command) -> None:
    """Give a command, and those below it, the examples of its help, completion, and a guard of the user's files."""
    from recapture.command.completion import add_completion
    from recapture.command.examples import epilog
    from recapture.command.options import guard_outputs

    command.epilog = epilog(path)
    add_completion(command)
    guard_outputs(command)
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            dressed(f"{path} {name}", below)


class _Lazy(click.Group):
    """A group that imports a command when it is called, and none to list them, so that `--help` and errors are fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = commands()
        if cmd_name not in known:
            return None
        command: click.Command = load(known[cmd_name].place)
        dressed(cmd_name, command)
        ctx.default_map = {cmd_name: project_defaults(cmd_name, command)}
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in commands().items():
            groups.setdefault(command.group, []).append((name, command.summary))
        width = max(map(len, commands()))
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in rows])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = commands()
        if args and args[0] not in known and not args[0].startswith("-"):
            raise click.UsageError(f"no such command {args[0]!r}{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGoneError from None


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="recapture")
def cli() -> None:
    """Compare every way of capturing PyTorch graphs with eager, on inputs the compiler has not seen."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a --fail-on change was found, 2 bad input, 3 unfit environment.

    The status is also 3 if output cannot be written, 124 at the end of `--minutes`, 130 after Ctrl-C, and 143 after
    SIGTERM.
    """
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that the encoding lacks become question marks
            stream.reconfigure(errors="replace")
    try:
        if sys.stdout is None:  # closed: the next opened file would get its number
            raise EnvironmentUnfitError("standard output is closed")
        name_output_errors()
        _check(words)
        with _closing_on_sigterm():
            returned: Any = cli.main(args=arguments, prog_name="recapture", standalone_mode=False)
            sys.stdout.flush()
    except RecaptureError as error:
        if isinstance(error, OutputError):
            _give_up_output()
        _report(str(error))
        return error.exit_status
    except _NO_ARGUMENTS as error:
        error.show()
        return 2
    except click.ClickException as error:
        _report(error.format_message())
        return 2
    except (click.Abort, KeyboardInterrupt) as error:
        status = status_of(error.__cause__ if isinstance(error.__cause__, (Termination, TimeOver)) else error)
        remark = "; finished work is kept, continue with --resume" if words and words[0] in RESUMED else ""
        _report(f"{ENDINGS[status]}{remark}")
        return status
    except (_ReaderGoneError, BrokenPipeError):
        _give_up_output()
        return 0
    except RecursionError:
        _report("folders or data are nested more deeply than can be read")
        return 2
    except OSError as error:  # disk full, or no permission
        return _system_error(error)
    return returned if isinstance(returned, int) else 0


def _check(arguments: list[str]) -> None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {argument!r} is not UTF-8") from None
        if "\0" in argument:
            raise UsageError(f"the argument {argument!r} has a NUL character")


def _report(text: str) -> None:
    """Print an error message as one line; if standard error cannot be written, only the exit status remains."""
    with contextlib.suppress(OSError):
        echo_error(text)


def _system_error(error: OSError) -> int:
    """Report an operating-system error; return the exit status."""
    named = f"{error.filename}: " if error.filename else ""
    _report(f"{named}{error.strerror or error}")
    return 2 if error.errno in _NO_PATH else EnvironmentUnfitError.exit_status


def _give_up_output() -> None:
    """Discard buffered output: Python would write it at exit, fail again, and change the exit status."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError):  # AttributeError: a closed stream is None
            with contextlib.suppress(OSError, AttributeError, ValueError):
                os.dup2(null, stream.fileno())
    os.close(null)


@contextlib.contextmanager
def _closing_on_sigterm() -> Iterator[None]:
    """Make SIGTERM, which container engines and batch systems send, interrupt the command like Ctrl-C."""
    try:
        before = signal.getsignal(signal.SIGTERM)
        if before is not signal.SIG_DFL:  # the caller ignores or handles it
            yield
            return
        signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(*_signal: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise Termination
