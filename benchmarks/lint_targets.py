"""Makes the modules that a list of targets names: ``m17`` is that of line 17 of the list whose letter is m.

The patterns were written with `tuned`. Each held-out list was drawn at random and measured before anyone wrote a
pattern for it; what its misses showed may have changed the patterns since, so that only the newest says how lint does
on other code.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class TargetList(NamedTuple):
    """A file of targets, and the first letter of the names of what it makes."""

    letter: str
    file: Path


LISTS = {
    "tuned": TargetList("m", Path(__file__).with_name("lint_targets.txt")),
    "held-out-1": TargetList("h", Path(__file__).with_name("lint_held_out_1.txt")),
    "held-out-2": TargetList("s", Path(__file__).with_name("lint_held_out_2.txt")),
}
"""The lists, by the names that ``python -m benchmarks.lint --list`` takes."""


@cache
def lines_of(file: Path) -> list[str]:
    """Return the lines of a list of targets."""
    return file.read_text("utf-8").splitlines()


def target_at(listed: TargetList, line: int) -> Any:
    """Return the module or function that a line of a list names, counted from one."""
    place, _, expression = lines_of(listed.file)[line - 1].split(" ")[0].partition(":")
    return eval(expression, vars(importlib.import_module(place)))  # noqa: S307 - an expression of our own file


def __getattr__(name: str) -> Callable[[], Any]:
    """Return a function without arguments that makes a module."""
    lists = {listed.letter: listed for listed in LISTS.values()}
    if name[:1] not in lists or not name[1:].isdigit():
        raise AttributeError(name)

    def make() -> Any:
        return target_at(lists[name[0]], int(name[1:]))

    make.__name__ = name
    return make
