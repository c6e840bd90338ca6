"""Edits of definitions: parameters go with their arguments, modules become functions, annotations are left out."""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING

from recapture.cases.syntax import DEFINITION, imported_names, is_future, is_import
from recapture.tools.explain.reduce.program import definition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Edit = Callable[[list[ast.AST]], object]

INPUTS = ("example", "held_out")
"""Options of a case that make its inputs."""


def input_edits(tree: ast.Module, name: str) -> Iterator[Edit]:
    """Yield deletions of options of the case, and of one of its parameters with the arguments in all inputs."""
    target = definition_of(tree, name)
    if target is None:
        return
    for call in (one for one in target.decorator_list if isinstance(one, ast.Call)):
        for keyword in call.keywords:
            if keyword.arg != "example":
                yield partial(_without_option, name, keyword.arg)
    forward = _called(target)
    for position in reversed(range(len(_parameters(forward, target)))):
        yield partial(_without_input, name, position)


def definition_edits(tree: ast.Module, name: str) -> Iterator[Edit]:
    """Yield simpler definitions."""
    target = definition_of(tree, name)
    if isinstance(target, ast.ClassDef):
        yield partial(_as_function, name)
    for index, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.FunctionDef) and node is not target:
            for position in reversed(range(len(node.args.args))):
                yield partial(_without_parameter, index, position)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _annotated(node):
            yield partial(_without_annotations, index)
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and (node.args.defaults or node.args.kw_defaults):
            yield partial(_without_default, index)
        if isinstance(node, ast.ClassDef) and node is not target:
            yield partial(_without_keywords, index)


def without_unused_imports(tree: ast.Module) -> Edit:
    """Return the edit that removes what is imported and not used."""
    del tree

    def clean(nodes: list[ast.AST]) -> None:
        top = nodes[0]
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        for holder in nodes:
            for field in ("body", "orelse"):
                body = getattr(holder, field, None)
                if isinstance(body, list):
                    kept = [one for one in body if not is_import(one) or is_future(one) or _keep_used(one, used)]
                    body[:] = kept or ([] if holder is top or field == "orelse" else [ast.Pass()])

    return clean


def _keep_used(node: ast.stmt, used: set[str]) -> bool:
    """Leave the used names in an import; False if there are none."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        kept = [one for one in node.names if one.name == "*" or (one.asname or one.name).split(".")[0] in used]
        node.names = kept or node.names
        return bool(kept)
    return not imported_names(node)


def _called(target: ast.FunctionDef | ast.ClassDef) -> ast.FunctionDef | None:
    """Return the function itself, or the method `forward` of a class."""
    if isinstance(target, ast.FunctionDef):
        return target
    methods = [one for one in target.body if isinstance(one, ast.FunctionDef) and one.name == "forward"]
    return methods[-1] if methods else None


def _parameters(function: ast.FunctionDef | None, target: ast.AST) -> list[ast.arg]:
    found = [] if function is None else function.args.args
    return found[1:] if isinstance(target, ast.ClassDef) else found


def _target(nodes: list[ast.AST], name: str) -> ast.FunctionDef | ast.ClassDef | None:
    top = nodes[0]
    return definition_of(top, name) if isinstance(top, ast.Module) else None


def _without_option(name: str, option: str | None, nodes: list[ast.AST]) -> None:
    target = _target(nodes, name)
    for call in (one for one in getattr(target, "decorator_list", []) if isinstance(one, ast.Call)):
        call.keywords = [one for one in call.keywords if one.arg != option]


def _without_input(name: str, position: int, nodes: list[ast.AST]) -> bool:
    """Remove a parameter of the case, and the argument at its position in every input that is written as a tuple."""
    target = _target(nodes, name)
    if target is None or (forward := _called(target)) is None:
        return False
    one = _parameters(forward, target)[position]
    _remove_argument(forward.args, forward.args.args.index(one))
    for call in (one for one in target.decorator_list if isinstance(one, ast.Call)):
        for keyword in (one for one in call.keywords if one.arg in INPUTS):
            for inner in ast.walk(keyword.value):
                made = inner.body if isinstance(inner, ast.Lambda) else None
                if isinstance(made, ast.Tuple) and len(made.elts) > position:
                    del made.elts[position]
    return True


def _remove_argument(arguments: ast.arguments, index: int) -> None:
    """Remove a parameter with its default."""
    from_end = len(arguments.args) - index
    if from_end <= len(arguments.defaults):
        del arguments.defaults[len(arguments.defaults) - from_end]
    del arguments.args[index]


def _without_parameter(index: int, position: int, nodes: list[ast.AST]) -> bool:
    """Remove a parameter of a helper, and the argument at its position in every call by this name."""
    node = nodes[index]
    if not isinstance(node, ast.FunctionDef):
        return False
    one = node.args.args[position]
    is_method = bool(node.args.args) and node.args.args[0].arg in ("self", "cls")
    if is_method and position == 0:
        return False
    _remove_argument(node.args, position)
    for call in (other for other in nodes if isinstance(other, ast.Call)):
        called = getattr(call.func, "id", getattr(call.func, "attr", None))
        if called == node.name or (is_method and node.name == "__init__"):
            place = position - is_method
            if len(call.args) > place:
                del call.args[place]
            call.keywords = [other for other in call.keywords if other.arg != one.arg]
    return True


def _annotated(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = node.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    return node.returns is not None or any(one.annotation is not None for one in every)


def _without_annotations(index: int, nodes: list[ast.AST]) -> None:
    node = nodes[index]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        node.returns = None
        for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            one.annotation = None


def _without_default(index: int, nodes: list[ast.AST]) -> bool:
    node = nodes[index]
    if not isinstance(node, (ast.FunctionDef, ast.Lambda)) or not node.args.defaults:
        return False
    node.args.defaults.pop(0)
    return True


def _without_keywords(index: int, nodes: list[ast.AST]) -> bool:
    node = nodes[index]
    if not isinstance(node, ast.ClassDef) or not node.keywords:
        return False
    node.keywords = []
    return True


def _as_function(name: str, nodes: list[ast.AST]) -> bool:
    """Replace a module whose `forward` does not use the module by a function."""
    target = _target(nodes, name)
    top = nodes[0]
    if not isinstance(target, ast.ClassDef) or not isinstance(top, ast.Module):
        return False
    forward = _called(target)
    if forward is None or not forward.args.args:
        return False
    owner = forward.args.args[0].arg
    if any(isinstance(one, ast.Name) and one.id == owner for part in forward.body for one in ast.walk(part)):
        return False
    _remove_argument(forward.args, 0)
    forward.name, forward.decorator_list = name, target.decorator_list
    top.body[top.body.index(target)] = forward
    return not any(isinstance(one, DEFINITION) and one is target for one in top.body)
