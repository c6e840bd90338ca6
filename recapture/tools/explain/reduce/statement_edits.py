"""Edits of statements: delete runs of them, replace a compound one by its body, put a variable's value in its place."""

from __future__ import annotations

import ast
import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from recapture.cases.syntax import is_import
from recapture.tools.explain.reduce.program import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Edit = Callable[[list[ast.AST]], object]

LISTS = ("body", "orelse", "finalbody")
"""Fields of nodes that are lists of statements."""

SIMPLE = 4
"""Nodes of the largest value that replaces a variable which is used several times."""


def deletions(tree: ast.Module, name: str) -> Iterator[Edit]:
    """Yield deletions of runs of statements, long runs first; imports and the definition `name` stay."""
    lists = list(_lists(tree))
    size = max((len(body) for _, _, body in lists), default=0)
    while size:
        for index, field, body in lists:
            for start in range(0, len(body), size) if len(body) >= size else ():
                run = body[start : start + size]
                if index or not _must_stay(run, name):
                    yield partial(_delete, index, field, start, start + size)
        size //= 2


def hoists(tree: ast.Module, name: str) -> Iterator[Edit]:  # noqa: ARG001 - as the other edits
    """Yield replacements of compound statements by one of their bodies."""
    for index, field, body in _lists(tree):
        for place, node in enumerate(body):
            if isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
                for inner in LISTS:
                    if getattr(node, inner, []):
                        yield partial(_hoist, index, field, place, inner)


def inlinings(tree: ast.Module, name: str) -> Iterator[Edit]:  # noqa: ARG001 - as the other edits
    """Yield replacements of a variable by its value, where it has one value and is used once or the value is short."""
    for index, field, body in _lists(tree):
        for place, node in enumerate(body):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                yield partial(_inline, index, field, place)
            elif index == 0 and isinstance(node, ast.FunctionDef) and _returned(node) is not None:
                yield partial(_inline_function, place)


def _lists(tree: ast.Module) -> Iterator[tuple[int, str, list[Any]]]:
    """Yield every list of statements, with the number of its node in `ast.walk` and the field."""
    for index, node in enumerate(ast.walk(tree)):
        for field in LISTS:
            body = getattr(node, field, None)
            if isinstance(body, list) and not all(isinstance(one, ast.Pass) for one in body):
                yield index, field, body


def _must_stay(run: list[ast.stmt], name: str) -> bool:
    """Whether a run at the top level has an import or the case itself."""
    return any(is_import(one) or getattr(one, "name", None) == name for one in run)


def _delete(index: int, field: str, start: int, end: int, nodes: list[ast.AST]) -> None:
    body = getattr(nodes[index], field)
    del body[start:end]
    if not body and field == "body" and index:
        body.append(ast.Pass())


def _hoist(index: int, field: str, place: int, inner: str, nodes: list[ast.AST]) -> None:
    body = getattr(nodes[index], field)
    body[place : place + 1] = getattr(body[place], inner)


def _inline(index: int, field: str, place: int, nodes: list[ast.AST]) -> bool:
    body = getattr(nodes[index], field)
    node = body.pop(place)
    variable, value = node.targets[0].id, node.value
    if not body:
        return False
    scope = [inner for one in body for inner in ast.walk(one)]
    names = [one for one in ast.walk(nodes[0]) if isinstance(one, ast.Name) and one.id == variable]
    used = [one for one in names if isinstance(one.ctx, ast.Load)]
    if len(names) != len(used) or not used or any(one not in scope for one in used):
        return False
    if len(used) > 1 and sum(1 for _ in ast.walk(value)) > SIMPLE:
        return False
    _Replace({variable: value}).visit(nodes[0])
    return all(len(line) <= LONGEST for one in body for line in ast.unparse(one).splitlines())


def _returned(node: ast.FunctionDef) -> ast.expr | None:
    """Return the value of a function that consists of one return and has plain parameters."""
    given = node.args
    plain = not (given.vararg or given.kwarg or given.kwonlyargs or given.defaults or node.decorator_list)
    only = node.body[0] if len(node.body) == 1 else None
    return only.value if plain and isinstance(only, ast.Return) else None


def _inline_function(place: int, nodes: list[ast.AST]) -> bool:
    tree = nodes[0]
    if not isinstance(tree, ast.Module):
        return False
    node = tree.body.pop(place)
    if not isinstance(node, ast.FunctionDef):
        return False
    value = _returned(node)
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and _calls(one, node.name, len(names))]
    used = [one for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id == node.name]
    if value is None or not calls or len(calls) != len(used):
        return False
    _ReplaceCalls(calls, names, value).visit(tree)
    return True


def _calls(call: ast.Call, name: str, count: int) -> bool:
    plain = not call.keywords and not any(isinstance(one, ast.Starred) for one in call.args)
    return isinstance(call.func, ast.Name) and call.func.id == name and plain and len(call.args) == count


class _Replace(ast.NodeTransformer):
    """Replaces names that are read by expressions."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace one name."""
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy.deepcopy(self.values[node.id])
        return node


class _ReplaceCalls(ast.NodeTransformer):
    """Replaces calls of a function by the value that it returns."""

    def __init__(self, calls: list[ast.Call], names: list[str], value: ast.expr) -> None:
        self.calls = calls
        self.names = names
        self.value = value

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace one call."""
        self.generic_visit(node)
        if node not in self.calls:
            return node
        arguments = dict(zip(self.names, node.args, strict=True))
        replaced: ast.AST = _Replace(arguments).visit(copy.deepcopy(self.value))
        return replaced
