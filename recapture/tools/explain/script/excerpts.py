"""Source of this project's functions with their dependencies, for scripts that run without the project."""

from __future__ import annotations

import ast
from functools import cache, lru_cache
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from recapture.base.paths import module_file
from recapture.cases.source import SourceFile, parse_file
from recapture.cases.syntax import PROJECT

if TYPE_CHECKING:
    from collections.abc import Mapping


@lru_cache
def excerpts(*names: tuple[str, str]) -> Mapping[str, str]:
    """Return the source of definitions and of all that they use from the project, by module, imported modules first.

    Each of `names` is a module and a name in it. Raises graphlib.CycleError for circular imports.
    """
    wanted: dict[str, set[str]] = {}
    for module, name in names:
        wanted.setdefault(module, set()).add(name)
    imports: dict[str, list[str]] = {}
    queue = list(wanted)
    while queue:
        here = queue.pop()
        imports[here] = []
        for node in _parsed(here).needs(*wanted[here]):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PROJECT:
                where, others = str(node.module), {alias.name for alias in node.names}
                imports[here].append(where)
                if not others <= wanted.setdefault(where, set()):
                    wanted[where] |= others
                    queue.append(where)
    order = TopologicalSorter(imports).static_order()
    return {here: _parsed(here).text(_parsed(here).needs(*wanted[here])) for here in order}


@cache
def project_imports(text: str) -> tuple[tuple[str, str], ...]:
    """Return what some source imports from the project's modules, as pairs of a module and a name in it."""
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom))
    ours = [node for node in found if (node.module or "").split(".")[0] == PROJECT]
    return tuple((str(node.module), alias.name) for node in ours for alias in node.names)


def _parsed(module: str) -> SourceFile:
    return parse_file(module_file(*module.split(".")[1:]).with_suffix(".py"))
