"""Says which environments of gigabytes a search installs, how many and where, and asks before it does."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from recapture.base.errors import UsageError
from recapture.base.text import plural, shorten
from recapture.command.output import echo_error
from recapture.images.environments import environments_folder

LONGEST = 400
"""Characters of the list of what may be installed."""


def agree_to_install(absent: Sequence[str], tried: int, *, yes: bool, mixtures: bool = False) -> None:
    """Say which environments are installed, and ask whether they may be, unless `yes` says so.

    `absent` are the names of those that the search may need and that are not there, and `tried` is how many
    environments it tries in all. With `mixtures`, environments with exchanged packages may follow.

    Raises UsageError if the answer is no, and where no terminal can be asked.
    """
    if not absent:
        return
    line = what_is_installed(absent, tried, mixtures=mixtures)
    if yes:
        echo_error(f"recapture: {line}")
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{line}; to install without being asked, give --yes")
    if not click.confirm(f"recapture: {line}. Install?", err=True):
        raise UsageError("nothing was installed")


def what_is_installed(absent: Sequence[str], tried: int, *, mixtures: bool) -> str:
    """Return what a search may install, in one line."""
    number = min(len(absent), tried)
    count = plural(number, "environment") if number == len(absent) else f"up to {number} of {len(absent)} environments"
    where = str(environments_folder()).replace(str(Path.home()), "~")
    more = ", and then one for each exchange of packages that it tries" if mixtures else ""
    names = shorten(", ".join(absent), LONGEST)
    return f"the search installs {count}, 5 to 7 GB each, in {where}: {names}{more}"


def halvings(number: int) -> int:
    """Return how often so many places are halved until none is left: the most that a search between two ends tries."""
    return math.ceil(math.log2(number + 1))
