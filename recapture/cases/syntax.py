"""Queries on Python syntax trees: the names that a statement uses, defines and imports."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROJECT = "recapture"
DECORATORS = frozenset({"case", "case_for_each", "compiler"})
"""Names of this project's decorators, which are removed from the source of a definition."""

DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OPERATOR = re.compile(r"([A-Za-z_]\w*)::\w")
"""Pattern of a string that names an operator for `torch.library`: ``namespace::name``."""


def aliases(body: list[ast.stmt], imported: frozenset[str]) -> set[str]:
    """Return names assigned directly from an import, such as ``config`` in ``config = torch._dynamo.config``."""
    names: set[str] = set()
    outside = (statement for statement in body if not isinstance(statement, DEFINITION))
    for node in (inner for statement in outside for inner in ast.walk(statement)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None) if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if value is not None and (dotted(value) or "").split(".")[0] in imported | names:
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def names_of_decorators(body: list[ast.stmt]) -> Iterator[str]:
    """Yield a file's names for this project's decorators: ``case``, ``c``, ``recapture.case``, ``rc.case``."""
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PROJECT:
                    yield from (f"{alias.asname or alias.name}.{decorator}" for decorator in DECORATORS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PROJECT:
            for alias in node.names:
                if alias.name == "*":
                    yield from DECORATORS
                elif alias.name in DECORATORS:
                    yield alias.asname or alias.name
                else:  # a module of this project
                    yield from (f"{alias.asname or alias.name}.{decorator}" for decorator in DECORATORS)


def users_of(names: frozenset[str], body: list[ast.stmt]) -> frozenset[str]:
    """Return the top-level names whose definition or value uses one of some names, directly or indirectly.

    A decorator uses its names for the file, not for the definition.
    """
    users: set[str] = set()
    while True:
        before = len(users)
        for node in body:
            inside = set() if isinstance(node, (ast.Import, ast.ImportFrom)) else set(ast.walk(node))
            for inner in tuple(inside):
                for decorator in getattr(inner, "decorator_list", []):
                    inside.difference_update(ast.walk(decorator))
            if (names | users) & {*map(dotted, inside), *names_used(inside)}:
                users |= names_defined(node)
        if len(users) == before:
            return frozenset(users)


def is_future(node: ast.stmt) -> bool:
    """Whether a statement is a ``from __future__`` import."""
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def without_project(node: ast.stmt) -> ast.stmt | None:
    """Return the statement without its ``import recapture``; None if nothing is left."""
    if not isinstance(node, ast.Import) or all(alias.name.split(".")[0] != PROJECT for alias in node.names):
        return node
    others = [alias for alias in node.names if alias.name.split(".")[0] != PROJECT]
    return ast.copy_location(ast.Import(names=others), node) if others else None


def is_import(node: ast.stmt) -> bool:
    """Whether a statement is an import."""
    return isinstance(node, (ast.Import, ast.ImportFrom))


def is_call(node: ast.stmt) -> bool:
    """Whether a statement is a call whose result is not used."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def imported_names(node: ast.AST) -> set[str]:
    """Return the names that an import binds; none for other nodes."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return set()


def names_defined(node: ast.AST) -> set[str]:
    """Return the names that a top-level statement defines, including inside an if or a try."""
    if isinstance(node, DEFINITION):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return imported_names(node)
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    return {name for child in ast.iter_child_nodes(node) for name in names_defined(child)}


def called_part(decorator: ast.expr) -> ast.expr:
    """Return the function of a decorator with arguments, ``case`` of ``case(example=…)``, or the decorator itself."""
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def dotted(node: ast.AST) -> str | None:
    """Return ``a.b.c`` for names and attributes; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return owner and f"{owner}.{node.attr}"
    return None


def names_used(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names used; ``torch.ops.ns``, ``"ns::name"`` and ``Library("ns")`` give ``ops::ns``."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and (dotted(node.value) or "").split(".")[-1] == "ops":
            names.add(f"ops::{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            operator = _OPERATOR.match(node.value)
            names |= {f"ops::{operator[1]}"} if operator else set()
        elif isinstance(node, ast.Call) and (dotted(node.func) or "").split(".")[-1] == "Library":
            names |= {
                f"ops::{argument.value}"
                for argument in node.args[:1]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            }
    return names


def merged_text(values: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield the parts of an f-string, with adjacent text joined, because Python releases split it differently."""
    text: list[str] = []
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            text.append(value.value)
            continue
        yield from _text(text)
        text = []
        yield value
    yield from _text(text)


def _text(pieces: list[str]) -> Iterator[ast.expr]:
    joined = "".join(pieces)
    if joined:  # 3.12 leaves empty pieces behind
        yield ast.Constant(joined)
