"""The ways a command can end early, each with its exit status; the message is one line a user can act on."""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable

INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C."""

TERMINATED = 128 + signal.SIGTERM
"""Exit status after SIGTERM."""

TIME_OVER = 124
"""Exit status at the end of the time of a whole command, that of timeout(1)."""


class RecaptureError(Exception):
    """Base of the errors that end a command with one clear line; `exit_status` is the process's exit status."""

    exit_status = 1


class UsageError(RecaptureError):
    """Bad usage or bad input: exit status 2."""

    exit_status = 2


class EnvironmentUnfitError(RecaptureError):
    """This machine or installation cannot run what was requested: exit status 3."""

    exit_status = 3


class Termination(KeyboardInterrupt):
    """SIGTERM was received: the command ends as after Ctrl-C."""


class TimeOver(KeyboardInterrupt):
    """The time that the user gave a whole command is over: the command ends as after Ctrl-C."""


def status_of(interruption: BaseException) -> int:
    """Return the exit status after an interruption: 143 after SIGTERM, 124 at the end of the time, else 130."""
    if isinstance(interruption, TimeOver):
        return TIME_OVER
    return TERMINATED if isinstance(interruption, Termination) else INTERRUPTED


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the most similar other known name, or an empty string."""
    near = difflib.get_close_matches(name, [other for other in known if other != name], n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
