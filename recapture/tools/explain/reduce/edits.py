"""Edits that make a program smaller: of statements, of expressions, and of definitions and their inputs.

Each function takes a tree and the name of the case, and yields changes; one that does not apply returns False.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from recapture.cases.syntax import DEFINITION, imported_names, is_future, is_import
from recapture.tools.explain.reduce.program import LONGEST, RANDOM, definition_of

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
            if isinstance(body, list) and not all(isinstance(statement, ast.Pass) for statement in body):
                yield index, field, body


def _must_stay(run: list[ast.stmt], name: str) -> bool:
    """Whether a run at the top level has an import or the case itself."""
    return any(is_import(statement) or getattr(statement, "name", None) == name for statement in run)


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
    scope = [inner for statement in body for inner in ast.walk(statement)]
    names = [inner for inner in ast.walk(nodes[0]) if isinstance(inner, ast.Name) and inner.id == variable]
    used = [inner for inner in names if isinstance(inner.ctx, ast.Load)]
    if len(names) != len(used) or not used or any(inner not in scope for inner in used):
        return False
    if len(used) > 1 and sum(1 for _ in ast.walk(value)) > SIMPLE:
        return False
    _Replace({variable: value}).visit(nodes[0])
    return all(len(line) <= LONGEST for statement in body for line in ast.unparse(statement).splitlines())


def _returned(node: ast.FunctionDef) -> ast.expr | None:
    """Return the value of a function that consists of one return and has plain parameters."""
    parameters = node.args
    plain = not (
        parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.defaults or node.decorator_list
    )
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
    names = [parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args)]
    calls = [inner for inner in ast.walk(tree) if isinstance(inner, ast.Call) and _calls(inner, node.name, len(names))]
    used = [inner for inner in ast.walk(tree) if isinstance(inner, ast.Name) and inner.id == node.name]
    if value is None or not calls or len(calls) != len(used):
        return False
    _ReplaceCalls(calls, names, value).visit(tree)
    return True


def _calls(call: ast.Call, name: str, count: int) -> bool:
    plain = not call.keywords and not any(isinstance(argument, ast.Starred) for argument in call.args)
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


class Spot(NamedTuple):
    """Where an expression stands: the number of its parent in `ast.walk`, the field, and the place in it."""

    parent: int
    field: str
    place: int | None

    def set(self, nodes: list[ast.AST], value: Any) -> None:
        """Put another expression there."""
        if self.place is None:
            setattr(nodes[self.parent], self.field, value)
        else:
            getattr(nodes[self.parent], self.field)[self.place] = value

    def get(self, nodes: list[ast.AST]) -> Any:
        """Return the expression."""
        value = getattr(nodes[self.parent], self.field)
        return value if self.place is None else value[self.place]


def parts(tree: ast.Module, name: str) -> Iterator[Edit]:  # noqa: ARG001 - as the other edits
    """Yield replacements of expressions by one of their parts, outer expressions first."""
    for place, node in _expressions(tree):
        for path in _parts(node):
            yield partial(_replace_by_part, place, path)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and len(repr(node.value)) > 6):
            empty = "" if isinstance(node, ast.JoinedStr) or isinstance(node.value, str) else None
            if empty is not None:
                yield partial(_put, place, ast.Constant(empty))


def item_drops(tree: ast.Module, name: str) -> Iterator[Edit]:  # noqa: ARG001 - as the other edits
    """Yield deletions of runs of arguments, keywords, items of containers, and conditions; long runs first."""
    lists: list[tuple[int, str, int]] = []
    for index, node in enumerate(ast.walk(tree)):
        for field in ("keywords", "args", "elts", "keys", "values", "ifs", "decorator_list", "bases", "targets"):
            items = getattr(node, field, None)
            if not isinstance(items, list) or not items or isinstance(node, (ast.JoinedStr, ast.arguments)):
                continue
            if field in ("values", "targets") and not isinstance(node, (ast.BoolOp, ast.Assign)):
                continue
            lists.append((index, field, len(items)))
    size = max((count for *_, count in lists), default=0)
    while size:
        for index, field, count in lists:
            for start in range(0, count, size) if count >= size else ():
                yield partial(_drop, index, field, start, start + size)
        size //= 2


def number_edits(tree: ast.Module, name: str) -> Iterator[Edit]:  # noqa: ARG001 - as the other edits
    """Yield smaller numbers: everywhere where one stands, then in one place; and tensors of ones for random ones."""
    expressions = list(_expressions(tree))
    numbers = {node.value for _, node in expressions if _is_number(node)}  # type: ignore[attr-defined]
    for value in sorted(numbers, key=abs, reverse=True):
        for smaller in _smaller(value):
            yield partial(_put_everywhere, value, smaller)
    for place, node in expressions:
        if _is_number(node):
            for smaller in _smaller(node.value):  # type: ignore[attr-defined]
                yield partial(_put, place, ast.Constant(smaller))
        elif isinstance(node, ast.Attribute) and node.attr in RANDOM:
            yield partial(_rename, place, "ones")


def _expressions(tree: ast.Module) -> Iterator[tuple[Spot, ast.expr]]:
    for index, node in enumerate(ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                yield Spot(index, field, None), value
            elif isinstance(value, list):
                for position, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        yield Spot(index, field, position), item


def _parts(node: ast.expr) -> Iterator[tuple[str, int | None]]:
    """Yield the fields, and the indices in them, of the parts that can stand for an expression."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(node, (ast.Lambda, ast.JoinedStr)):
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield "func.value", None
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.expr) and field not in ("func", "slice", "test"):
            yield field, None
        elif isinstance(value, list):
            for position, item in enumerate(value):
                if isinstance(item, ast.keyword):
                    yield f"{field}.value", position
                elif isinstance(item, ast.expr):
                    yield field, position


def _replace_by_part(place: Spot, path: tuple[str, int | None], nodes: list[ast.AST]) -> bool:
    node = place.get(nodes)
    field, position = path
    first, _, attribute = field.partition(".")
    part = getattr(node, first)
    part = part if position is None else part[position]
    part = getattr(part, attribute) if attribute else part
    if isinstance(part, ast.Starred):
        part = part.value
    if not isinstance(part, ast.expr):
        return False
    owner = nodes[place.parent]
    if isinstance(owner, ast.Tuple) and isinstance(node, (ast.Call, ast.UnaryOp)) and isinstance(part, ast.Constant):
        return False  # an input that is a tensor stays one: the inputs of a case look alike
    place.set(nodes, part)
    return True


def _put(place: Spot, value: ast.expr, nodes: list[ast.AST]) -> None:
    place.set(nodes, value)


def _rename(place: Spot, attribute: str, nodes: list[ast.AST]) -> None:
    place.get(nodes).attr = attribute


def _put_everywhere(value: Any, smaller: Any, nodes: list[ast.AST]) -> bool:
    same = [other for other in nodes if _is_number(other) and other.value == value and type(other.value) is type(value)]  # type: ignore[attr-defined]
    for number in same:
        number.value = smaller  # type: ignore[attr-defined]
    return len(same) > 1  # a single one is another edit


def _drop(index: int, field: str, start: int, end: int, nodes: list[ast.AST]) -> bool:
    node = nodes[index]
    items = getattr(node, field)
    numbers = isinstance(node, ast.List) and all(isinstance(item, (ast.Constant, ast.UnaryOp)) for item in items)
    del items[start:end]
    if numbers and not items:  # an empty tensor is no simpler to read
        return False
    if isinstance(node, ast.Dict):
        del node.values[start:end]
    if isinstance(node, (ast.BoolOp, ast.Assign)):
        return bool(items)
    return True


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _smaller(value: float) -> list[float]:
    """Return simpler numbers; a size of zero is not simpler to read."""
    if isinstance(value, int):
        return [smaller for smaller in dict.fromkeys((1, 2, value // 2, value - 1)) if 0 < smaller < value]
    plain = (1.0, float(round(value)) if abs(value) < 1e15 else 1.0)
    return [smaller for smaller in dict.fromkeys(plain) if abs(smaller) < abs(value)]


INPUTS = ("example", "held_out")
"""Options of a case that make its inputs."""


def input_edits(tree: ast.Module, name: str) -> Iterator[Edit]:
    """Yield deletions of options of the case, and of one of its parameters with the arguments in all inputs."""
    target = definition_of(tree, name)
    if target is None:
        return
    for call in (decorator for decorator in target.decorator_list if isinstance(decorator, ast.Call)):
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
                    statements = [
                        statement
                        for statement in body
                        if not is_import(statement) or is_future(statement) or _keep_used(statement, used)
                    ]
                    body[:] = statements or ([] if holder is top or field == "orelse" else [ast.Pass()])

    return clean


def _keep_used(node: ast.stmt, used: set[str]) -> bool:
    """Leave the used names in an import; False if there are none."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        aliases = [
            alias for alias in node.names if alias.name == "*" or (alias.asname or alias.name).split(".")[0] in used
        ]
        node.names = aliases or node.names
        return bool(aliases)
    return not imported_names(node)


def _called(target: ast.FunctionDef | ast.ClassDef) -> ast.FunctionDef | None:
    """Return the function itself, or the method `forward` of a class."""
    if isinstance(target, ast.FunctionDef):
        return target
    methods = [
        statement for statement in target.body if isinstance(statement, ast.FunctionDef) and statement.name == "forward"
    ]
    return methods[-1] if methods else None


def _parameters(function: ast.FunctionDef | None, target: ast.AST) -> list[ast.arg]:
    parameters = [] if function is None else function.args.args
    return parameters[1:] if isinstance(target, ast.ClassDef) else parameters


def _target(nodes: list[ast.AST], name: str) -> ast.FunctionDef | ast.ClassDef | None:
    top = nodes[0]
    return definition_of(top, name) if isinstance(top, ast.Module) else None


def _without_option(name: str, option: str | None, nodes: list[ast.AST]) -> None:
    target = _target(nodes, name)
    for call in (decorator for decorator in getattr(target, "decorator_list", []) if isinstance(decorator, ast.Call)):
        call.keywords = [keyword for keyword in call.keywords if keyword.arg != option]


def _without_input(name: str, position: int, nodes: list[ast.AST]) -> bool:
    """Remove a parameter of the case, and the argument at its position in every input that is written as a tuple."""
    target = _target(nodes, name)
    if target is None or (forward := _called(target)) is None:
        return False
    parameter = _parameters(forward, target)[position]
    _remove_argument(forward.args, forward.args.args.index(parameter))
    for call in (decorator for decorator in target.decorator_list if isinstance(decorator, ast.Call)):
        for keyword in (argument for argument in call.keywords if argument.arg in INPUTS):
            for inner in ast.walk(keyword.value):
                returned = inner.body if isinstance(inner, ast.Lambda) else None
                if isinstance(returned, ast.Tuple) and len(returned.elts) > position:
                    del returned.elts[position]
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
    parameter = node.args.args[position]
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
            call.keywords = [other for other in call.keywords if other.arg != parameter.arg]
    return True


def _annotated(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    parameters = node.args
    every = (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
    return node.returns is not None or any(parameter.annotation is not None for parameter in every)


def _without_annotations(index: int, nodes: list[ast.AST]) -> None:
    node = nodes[index]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        node.returns = None
        for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            parameter.annotation = None


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
    if any(isinstance(inner, ast.Name) and inner.id == owner for part in forward.body for inner in ast.walk(part)):
        return False
    _remove_argument(forward.args, 0)
    forward.name, forward.decorator_list = name, target.decorator_list
    top.body[top.body.index(target)] = forward
    return not any(isinstance(statement, DEFINITION) and statement is target for statement in top.body)
