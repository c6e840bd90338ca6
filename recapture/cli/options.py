"""Options and their checks that several commands share."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recapture.base.errors import EnvironmentUnfitError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["MOST_GIB", "WEEK", "Range", "check_device", "console", "cores", "how_to_print", "require_torch"]

WEEK = 7 * 24 * 3600.0
"""The longest time that an option takes, in seconds."""

MOST_GIB = float(1 << 20)
"""The most memory that an option takes."""


class Range(click.FloatRange):
    """Numbers between two others; click's own range lets NaN pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that a word of the command line says."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def check_device(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value not in ("cpu", "cuda"):
        raise UsageError(f"unknown device {value!r}: it is cpu or cuda")
    return value


def cores() -> int:
    return len(os.sched_getaffinity(0))


def require_torch() -> None:
    """Raise EnvironmentUnfitError where torch is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise EnvironmentUnfitError(f"torch is not installed for {Path(sys.executable).name}; see the README")


def console() -> Console:
    """Return the console of standard output, which colours no words by itself."""
    from recapture.report.console import SafeConsole

    return SafeConsole(highlight=False)


how_to_print = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="How to print it.",
)
"""The option ``--format`` of the commands that print facts."""
