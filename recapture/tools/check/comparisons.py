"""Reads with which sizes and numbers a target compares in its source, also behind arithmetic: ``len(xs) - 1 > 5``."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from typing import Any, NamedTuple

MOST_COMPARED = 6
"""The most sizes, and the most numbers, that are taken from the comparisons of a target."""

LARGEST = 10**6
"""The largest number that is taken from a comparison."""

FLIPPED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
"""The comparisons that are read, and what each is with its sides exchanged."""


class Compared(NamedTuple):
    """Integers at which comparisons change: one is true for the integer and false for the next one, or the reverse.

    `sizes` are pairs of a dimension and such an integer; the length of a list counts as dimension 0. `numbers` are for
    variables of which no dimension is known.
    """

    sizes: tuple[tuple[int, int], ...] = ()
    numbers: tuple[int, ...] = ()


def compared(codes: list[Any]) -> Compared:
    """Return what code compares with constants. Code whose source cannot be read compares nothing."""
    sizes: dict[tuple[int, int], None] = {}
    numbers: dict[int, None] = {}
    for nodes in _statements(codes):
        dimensions = _dimensions_by_name(nodes)
        for expression, bound in _bounds(nodes):
            solved = boundary(expression, bound)
            if solved is None or abs(solved[1]) > LARGEST:
                continue
            variable, number = solved
            known = dimensions.get(ast.unparse(variable)) or _dimension(variable)
            sizes.update(dict.fromkeys((dimension, number) for dimension in known))
            if not known and variable is not expression:  # a plain number is among the code's constants
                numbers[number] = None
    return Compared(tuple(sizes)[:MOST_COMPARED], tuple(numbers)[:MOST_COMPARED])


def boundary(expression: ast.expr, bound: int) -> tuple[ast.expr, int] | None:
    """Solve ``expression <= bound`` for the only variable of an expression of +, -, *, //, % and integers.

    Returns the variable and an integer: the inequality holds for the integer and not for the next one, or the reverse.
    None where there is no such integer, or the expression has another form. ``%`` has many such integers; this is the
    smallest above 0, because a size is seldom 0.
    """
    if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub):
        return boundary(expression.operand, -bound - 1)
    if not isinstance(expression, ast.BinOp):
        return None if isinstance(expression, (ast.Constant, ast.UnaryOp)) else (expression, bound)
    operator, left, right = type(expression.op), _integer(expression.left), _integer(expression.right)
    if left is not None and right is None:
        if operator is ast.Sub:
            return boundary(expression.right, left - bound - 1)
        right, inner = left, expression.right
        if operator not in (ast.Add, ast.Mult):
            return None
    else:
        inner = expression.left
    if right is None or (right == 0 and operator not in (ast.Add, ast.Sub)):
        return None
    solved: int | None = None
    if operator is ast.Add:
        solved = bound - right
    elif operator is ast.Sub:
        solved = bound + right
    elif operator is ast.Mult:
        solved = bound // right if right > 0 else -(bound // -right) - 1
    elif operator is ast.FloorDiv:
        solved = right * (bound + 1) - (right > 0)
    elif operator is ast.Mod and 0 <= bound < right:
        solved = bound or right
    return None if solved is None else boundary(inner, solved)


def _bounds(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, int]]:
    """Yield the expressions that are compared with an integer, each with the bound of an inequality ``<=``."""
    for node in nodes:
        if not isinstance(node, ast.Compare):
            continue
        operands = [node.left, *node.comparators]
        for first, comparison, second in zip(operands, node.ops, operands[1:], strict=False):
            operator: type[ast.cmpop] | None = type(comparison)
            expression, value = first, _integer(second)
            if value is None:
                expression, value, operator = second, _integer(first), FLIPPED.get(type(comparison))
            if value is not None and operator in FLIPPED:
                yield expression, value - (operator in (ast.Lt, ast.GtE))


def _statements(codes: list[Any]) -> Iterator[list[ast.AST]]:
    """Yield the nodes of each file that are on the lines of code."""
    lines: dict[str, set[int]] = {}
    for code in codes:
        lines.setdefault(code.co_filename, set()).update(line for *_, line in code.co_lines() if line)
    for file, numbers in lines.items():
        try:
            tree = ast.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        yield [node for node in ast.walk(tree) if getattr(node, "lineno", None) in numbers]


def _dimensions_by_name(nodes: list[ast.AST]) -> dict[str, list[int]]:
    """Return the dimensions of tensors that are assigned to a name: ``n = len(xs)``, ``n, _, h, w = x.shape``."""
    dimensions: dict[str, list[int]] = {}
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name):
            dimensions.setdefault(target.id, []).extend(_dimension(node.value))
        elif isinstance(target, ast.Tuple) and _is_shape(node.value):
            for number, item in enumerate(target.elts):
                if isinstance(item, ast.Name):
                    dimensions.setdefault(item.id, []).append(number)
    return dimensions


def _dimension(node: ast.expr) -> list[int]:
    """Return the dimension that an expression is the size of, as a list; empty for what is no size."""
    number: int | None = None
    if isinstance(node, ast.Subscript) and _is_shape(node.value):
        number = _integer(node.slice)
    elif isinstance(node, ast.Call) and len(node.args) == 1:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "size":
            number = _integer(node.args[0])
        elif isinstance(node.func, ast.Name) and node.func.id == "len":
            number = 0
    return [] if number is None else [number]


def _is_shape(node: ast.expr) -> bool:
    """Whether an expression is ``x.shape`` or ``x.size()``."""
    if isinstance(node, ast.Call) and not node.args:
        return isinstance(node.func, ast.Attribute) and node.func.attr == "size"
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _integer(node: ast.expr) -> int | None:
    """Return the integer that an expression is written as, also a negative one."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _integer(node.operand)
        return None if number is None else -number
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
