"""What a shell completes besides options: suites, cases, cells, compilers and images.

Click's own completion asks for it: ``eval "$(_RECAPTURE_COMPLETE=bash_source recapture)"``. Nothing here imports torch
or runs a suite, because an answer has to come while somebody waits with a finger on the key.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OPTIONS = {
    "--compiler": "compilers",
    "--suite": "suites",
    "--image": "images",
    "--good": "images",
    "--bad": "images",
    "--device": "devices",
}
"""What is completed after an option."""

ARGUMENTS = {
    ("run", "selection"): "cells",
    ("matrix", "selection"): "cells",
    ("plan", "selection"): "cells",
    ("list", "what"): "cases",
    ("repro", "cell"): "cells",
    ("bisect", "cell"): "cells",
    ("stage", "cell"): "cells",
    ("reduce", "cell"): "cells",
    ("history", "cell"): "cells",
    ("report", "directories"): "results",
    ("diff", "places"): "results",
    ("build", "name"): "images",
    ("run", "name"): "images",
    ("lock", "names"): "images",
    ("clean", "names"): "images",
}
"""What is completed for an argument, by its command and name."""


class Completed(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A type of parameter that converts as another one does, and completes names."""

    def __init__(self, inner: click.ParamType, kind: str) -> None:  # type: ignore[type-arg,unused-ignore]
        self.inner = inner
        self.kind = kind
        self.name = inner.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert as the inner type does."""
        return self.inner.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with what is typed; where there is none, what the inner type completes."""
        try:
            names = sorted(set(_SOURCES[self.kind](incomplete)))
        except Exception:  # a broken file must not fill the prompt with a traceback
            names = []
        items = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return items or self.inner.shell_complete(ctx, param, incomplete)


def add_completion(command: click.Command) -> None:
    """Let the parameters of a command complete names."""
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            kind = ARGUMENTS.get((command.name or "", parameter.name or ""))
        else:
            kind = next((OPTIONS[option] for option in parameter.opts if option in OPTIONS), None)
        if kind is not None and not isinstance(parameter.type, (Completed, click.Choice)):
            parameter.type = Completed(parameter.type, kind)


def _suite_files() -> dict[str, Path]:
    from recapture.cases.collection import shipped_groups, shipped_suites

    suites = [*shipped_suites(), *(suite for group in shipped_groups().values() for suite in group)]
    return {suite.name: suite.path for suite in suites}


def _cases(suite: str) -> Iterable[str]:
    """Return the names of the cases of a suite, from its text: what has a decorator named ``case``."""
    path = _suite_files().get(suite)
    if path is None:
        return
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and any(map(_is_case, node.decorator_list)):
            yield node.name


def _is_case(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] == "case"


def _suites(_incomplete: str) -> Iterable[str]:
    return _suite_files()


def _compilers(_incomplete: str) -> Iterable[str]:
    from recapture.cases.compilers import builtin_compilers

    return builtin_compilers()


def _cases_of(incomplete: str) -> Iterable[str]:
    suite, colons, _ = incomplete.partition("::")
    return (f"{suite}::{case}" for case in _cases(suite)) if colons else _suites("")


def _cells(incomplete: str) -> Iterable[str]:
    case, colons, _ = incomplete.rpartition("::")
    return (f"{case}::{name}" for name in _compilers("")) if colons and "::" in case else _cases_of(incomplete)


def _images(incomplete: str) -> Iterable[str]:
    """Return the names of images, also after the commas of a list."""
    from recapture.machine.pins import load_images

    before = incomplete.rpartition(",")[0]
    return (f"{before},{name}" if before else name for name in load_images())


def _results(_incomplete: str) -> Iterable[str]:
    return (str(path.parent) for path in Path("results").glob("*/*/conformance.jsonl"))


_SOURCES: dict[str, Callable[[str], Iterable[str]]] = {
    "suites": _suites,
    "cases": _cases_of,
    "cells": _cells,
    "compilers": _compilers,
    "images": _images,
    "devices": lambda _: ("cpu", "cuda"),
    "results": _results,
}
"""The functions that return names, by kind; they are given what is typed so far."""
