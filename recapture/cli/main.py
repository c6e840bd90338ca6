"""The command line: parse, call, exit status. Every command lives in a module of its own, imported when it is used."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from recapture import __version__
from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError, did_you_mean
from recapture.cli.output import echo_error

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]

COMMANDS = {
    "list": "recapture.cli.list:list_command",
    "run": "recapture.cli.run:run_command",
    "repro": "recapture.cli.repro:repro_command",
    "bench": "recapture.cli.bench:bench_command",
    "report": "recapture.cli.report:report",
    "diff": "recapture.cli.diff:diff",
    "history": "recapture.cli.history:history",
    "doctor": "recapture.cli.doctor:doctor",
    "images": "recapture.cli.images:images",
}


RESUMED = ("run", "bench")
"""The commands that keep what is done when they are interrupted."""

INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C."""

TERMINATED = 128 + signal.SIGTERM
"""Exit status after SIGTERM."""

_NO_PATH = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP)
"""Errors of the system about an argument that cannot be a path."""

_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # before 8.2 click prints the help itself


class _ReaderGoneError(Exception):
    """The reader of a pipe went away, as `| head` does. Not an OSError: click would make exit status 1 of that."""


class _Termination(KeyboardInterrupt):
    """SIGTERM came: the command closes as after Ctrl-C."""


class _Lazy(click.Group):
    """A group that imports a command when it is asked for, so that `--help` and errors are instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no such command {args[0]!r}{did_you_mean(args[0], COMMANDS)}")
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
    """Run the command line and exit: 0 done, 1 what --fail-on names was found, 2 bad input, 3 unfit environment.

    Output that cannot be written is status 3 too; after Ctrl-C it is 130, after SIGTERM 143.
    """
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding lacks is shown as a question mark
            stream.reconfigure(errors="replace")
    try:
        if sys.stdout is None:  # closed: the next file that is opened would take its number
            raise EnvironmentUnfitError("standard output is closed")
        _check(words)
        with _closing_on_sigterm():
            status: Any = cli.main(args=arguments, prog_name="recapture", standalone_mode=False)
            sys.stdout.flush()
    except RecaptureError as error:
        _report(str(error))
        return error.exit_status
    except _NO_ARGUMENTS as error:
        error.show()
        return 2
    except click.ClickException as error:
        _report(error.format_message())
        return 2
    except (click.Abort, KeyboardInterrupt) as error:
        terminated = isinstance(error, _Termination) or isinstance(error.__cause__, _Termination)
        kept = "; what is done is kept, and --resume goes on" if words and words[0] in RESUMED else ""
        _report(f"{'terminated' if terminated else 'interrupted'}{kept}")
        return TERMINATED if terminated else INTERRUPTED
    except (_ReaderGoneError, BrokenPipeError):
        _give_up_output()
        return 0
    except OSError as error:  # no room, no right to read or write
        return _system_error(error)
    return status if isinstance(status, int) else 0


def _check(arguments: list[str]) -> None:
    for one in arguments:
        try:
            one.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {one!r} is no UTF-8") from None
        if "\0" in one:
            raise UsageError(f"the argument {one!r} has a NUL character")


def _report(text: str) -> None:
    """Print an error message as one line; where standard error cannot be written to, the exit status has to do."""
    with contextlib.suppress(OSError):
        echo_error(text)


def _system_error(error: OSError) -> int:
    """Report an error of the system; return the exit status."""
    named = f"{error.filename}: " if error.filename else ""
    try:
        sys.stdout.flush()
    except OSError:  # it was about the output
        named = "cannot write to standard output: "
        _give_up_output()
    _report(f"{named}{error.strerror or error}")
    return 2 if error.errno in _NO_PATH else EnvironmentUnfitError.exit_status


def _give_up_output() -> None:
    """Drop what is still to be written: Python writes it at exit, and would fail again with a status of its own."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError):  # AttributeError: it is None, as it was closed
            with contextlib.suppress(OSError, AttributeError, ValueError):
                os.dup2(null, stream.fileno())
    os.close(null)


@contextlib.contextmanager
def _closing_on_sigterm() -> Iterator[None]:
    """Make SIGTERM interrupt the command, as Ctrl-C does: engines, containers and batch systems send it."""
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the closing
    raise _Termination
