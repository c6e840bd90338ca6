"""Makes the modules that a list of targets names: ``m17`` is that of line 17 of the first list, ``h17`` of the second.

``lint_targets.txt`` is the first: the patterns were written with it. ``lint_held_out.txt`` is the second, which was
measured once the patterns were finished.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

TUNED_ON = Path(__file__).with_name("lint_targets.txt")
HELD_OUT = Path(__file__).with_name("lint_held_out.txt")

LETTERS = {TUNED_ON: "m", HELD_OUT: "h"}
"""The first letter of the names of what each list makes."""


@cache
def lines_of(file: Path) -> list[str]:
    """Return the lines of a list of targets."""
    return file.read_text("utf-8").splitlines()


def target_at(line: int, file: Path = TUNED_ON) -> Any:
    """Return the module or function that a line names, counted from one."""
    place, _, expression = lines_of(file)[line - 1].split(" ")[0].partition(":")
    return eval(expression, vars(importlib.import_module(place)))  # noqa: S307 - an expression of our own file


def __getattr__(name: str) -> Callable[[], Any]:
    """Return a function without arguments that makes a module."""
    files = {letter: file for file, letter in LETTERS.items()}
    if name[:1] not in files or not name[1:].isdigit():
        raise AttributeError(name)

    def make() -> Any:
        return target_at(int(name[1:]), files[name[0]])

    make.__name__ = name
    return make
