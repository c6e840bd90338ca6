"""The options of `upgrade` and `bisect` that say how a command is run, and the command itself, after two dashes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from recapture.base.errors import UsageError
from recapture.base.option_fields import option
from recapture.command.output import echo_error
from recapture.command.project_options import COMMAND
from recapture.images.environments import environments_folder
from recapture.tools.upgrade.command_rounds import CommandRounds
from recapture.tools.upgrade.places import Install, Places, Via, project_requirements

_WORDS = "recapture.words_after_dashes"
"""Key of the context's notes for the words after two dashes."""


TIMEOUT = 600.0
"""Seconds that a test may take, if ``--timeout`` does not say how many."""


class CommandAfterDashes(click.Command):
    """A command of recapture that takes another command after ``--``, which click would not tell from arguments.

    Without one, it is the ``command`` of the project's options.
    """

    takes_command = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what follows the first two dashes aside, and parse the words before them."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[_WORDS] = tuple(args[place + 1 :])
            args = args[:place]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message or _WORDS in ctx.meta:
                raise
            raise click.UsageError(f"{error.message}; a command stands after two dashes: -- COMMAND") from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the pieces of the line of usage, with the command at its end."""
        return [*super().collect_usage_pieces(ctx), "-- COMMAND"]


def words_after_dashes(context: click.Context, *, of_project: bool = True) -> tuple[str, ...]:
    """Return the words after two dashes, without them those of the project's options; none if there are none."""
    command = context.lookup_default(COMMAND) if of_project else None
    chosen: tuple[str, ...] = context.meta.get(_WORDS, tuple(command or ()))
    return chosen


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """How a user's command is run in the environments of releases."""

    requirements: tuple[Path, ...] = option(
        "--with",
        default=(),
        metavar="FILE",
        parse=Path,
        help="A requirements file of what the command needs besides the project; may be given several times.",
    )
    install: Install | None = option(
        "--install",
        default=None,
        help="How the project of this folder is installed. [default: editable, if it has a pyproject.toml or setup.py]",
    )
    extras: tuple[str, ...] = option(
        "--extra", default=(), metavar="NAME", help="An extra of the project to install; may be given several times."
    )
    index: str = option(
        "--index", default="", metavar="URL", help="A package index with a torch that no image has, such as a nightly."
    )
    timeout: float = option(
        "--timeout",
        default=TIMEOUT,
        between=(0.1, None),
        metavar="SECONDS",
        help="A test that takes longer is ended and counts as failing; so is a command of another kind.",
    )
    keep: int | None = option("--keep", default=None, between=(1, None), help="The most environments on disk.")
    state: Path | None = option(
        "--state",
        default=None,
        metavar="FOLDER",
        help="Where finished runs are, from which an interrupted command continues. [default: in the cache folder]",
    )

    @property
    def repeated(self) -> tuple[str, ...]:
        """The words of these options, for a command line of `bisect` that runs the command in the same way."""
        words = [word for path in self.requirements for word in ("--with", str(path))]
        words += ["--install", self.install] if self.install is not None else []
        words += [word for extra in self.extras for word in ("--extra", extra)]
        words += ["--index", self.index] if self.index else []
        return (*words, *(("--timeout", f"{self.timeout:g}") if self.timeout != TIMEOUT else ()))

    def rounds(self, words: tuple[str, ...], root: Path, state: Path, via: Via = "venv") -> CommandRounds:
        """Return what runs the command in environments. Raises UsageError for what is no requirement."""
        if via == "docker" and self.keep is not None:
            raise UsageError("--keep is for --via venv")
        requirements = project_requirements(
            root, state, self.requirements, words, install=self.install, extras=self.extras
        )
        places = Places(requirements=requirements, via=via, keep=self.keep, show=echo_error)
        return CommandRounds(words=words, root=root, state=state, places=places, timeout=self.timeout)

    def folder(self, kind: Literal["upgrade", "bisect"], words: tuple[str, ...], root: Path) -> Path:
        """Return the folder for what was run: the user's, or one of this command and folder alone."""
        if self.state is not None:
            return self.state.absolute()
        text = "\0".join([str(root), *words])
        name = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
        return environments_folder().parent / kind / f"{root.name or 'root'}-{name}"
