"""The command line: parse, call, exit status. Every command lives in a module of its own, imported when it is used."""

from __future__ import annotations

import errno
import importlib
import io
import sys
from typing import Any

import click

from recapture import __version__
from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError, did_you_mean
from recapture.cli.output import echo_error

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

_NO_PATH = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP)
"""What the system says of an argument that can be no path."""

_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # before 8.2 click prints the help itself


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


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="recapture")
def cli() -> None:
    """Compare every way of capturing PyTorch graphs with eager, on inputs the compiler has not seen."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 what --fail-on names was found, 2 bad input, 3 unfit environment."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding lacks is shown as a question mark
            stream.reconfigure(errors="replace")
    try:
        _check(sys.argv[1:] if arguments is None else arguments)
        status: Any = cli.main(args=arguments, prog_name="recapture", standalone_mode=False)
    except RecaptureError as error:
        echo_error(str(error))
        return error.exit_status
    except _NO_ARGUMENTS as error:
        error.show()
        return 2
    except click.ClickException as error:
        echo_error(error.format_message())
        return 2
    except (click.Abort, KeyboardInterrupt):
        words = sys.argv[1:] if arguments is None else arguments
        kept = "; what is done is kept, and --resume goes on" if words and words[0] in RESUMED else ""
        echo_error(f"interrupted{kept}")
        return 130
    except BrokenPipeError:  # the reader of a pipe went away, as `| head` does
        sys.stderr.close()
        return 0
    except OSError as error:  # no room, no right to read or write
        named = f"{error.filename}: " if error.filename else ""
        echo_error(f"{named}{error.strerror or error}")
        return 2 if error.errno in _NO_PATH else EnvironmentUnfitError.exit_status
    return status if isinstance(status, int) else 0


def _check(arguments: list[str]) -> None:
    for one in arguments:
        try:
            one.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {one!r} is no UTF-8") from None
        if "\0" in one:
            raise UsageError(f"the argument {one!r} has a NUL character")
