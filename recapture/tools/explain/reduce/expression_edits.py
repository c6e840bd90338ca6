"""Edits of expressions: an expression becomes a part of itself, arguments and items go, numbers and sizes shrink."""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from recapture.tools.explain.reduce.program import RANDOM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Edit = Callable[[list[ast.AST]], object]


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
    found = list(_expressions(tree))
    numbers = {node.value for _, node in found if _is_number(node)}  # type: ignore[attr-defined]
    for value in sorted(numbers, key=abs, reverse=True):
        for smaller in _smaller(value):
            yield partial(_put_everywhere, value, smaller)
    for place, node in found:
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
                for position, one in enumerate(value):
                    if isinstance(one, ast.expr):
                        yield Spot(index, field, position), one


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
            for position, one in enumerate(value):
                if isinstance(one, ast.keyword):
                    yield f"{field}.value", position
                elif isinstance(one, ast.expr):
                    yield field, position


def _replace_by_part(place: Spot, path: tuple[str, int | None], nodes: list[ast.AST]) -> bool:
    node = place.get(nodes)
    field, position = path
    first, _, rest = field.partition(".")
    part = getattr(node, first)
    part = part if position is None else part[position]
    part = getattr(part, rest) if rest else part
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
    same = [one for one in nodes if _is_number(one) and one.value == value and type(one.value) is type(value)]  # type: ignore[attr-defined]
    for one in same:
        one.value = smaller  # type: ignore[attr-defined]
    return len(same) > 1  # a single one is another edit


def _drop(index: int, field: str, start: int, end: int, nodes: list[ast.AST]) -> bool:
    node = nodes[index]
    items = getattr(node, field)
    numbers = isinstance(node, ast.List) and all(isinstance(one, (ast.Constant, ast.UnaryOp)) for one in items)
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
        return [one for one in dict.fromkeys((1, 2, value // 2, value - 1)) if 0 < one < value]
    plain = (1.0, float(round(value)) if abs(value) < 1e15 else 1.0)
    return [one for one in dict.fromkeys(plain) if abs(one) < abs(value)]
