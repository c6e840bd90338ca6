"""Makes the modules that ``lint_targets.txt`` names: ``m17`` is the module of its line 17."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

LINES = Path(__file__).with_name("lint_targets.txt").read_text("utf-8").splitlines()


def made(line: int) -> Any:
    """Return the module or function that a line names, counted from one."""
    place, _, expression = LINES[line - 1].split(" ")[0].partition(":")
    return eval(expression, vars(importlib.import_module(place)))  # noqa: S307 - an expression of our own file


def __getattr__(name: str) -> Callable[[], Any]:
    """Return a function without arguments that makes a module."""
    if not name.removeprefix("m").isdigit():
        raise AttributeError(name)

    def make() -> Any:
        return made(int(name.removeprefix("m")))

    make.__name__ = name
    return make
