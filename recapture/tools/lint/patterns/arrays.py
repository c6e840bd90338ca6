"""Patterns of numpy and scipy."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from recapture.tools.lint.reader import Found, Reader, pattern


@pattern("scipy-functions", "scipy-fft", "numpy-where-argument", nodes=(ast.Call,))
def _arrays(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    name = reader.full(node.func)
    has_array = any(reader.of(part).kind in ("array", "tensor") for part in node.args)
    if name.startswith("scipy.") and has_array:
        yield Found("scipy-fft" if name.startswith("scipy.fft") else "scipy-functions", node)
    elif name.startswith("numpy.") and has_array and any(keyword.arg == "where" for keyword in node.keywords):
        yield Found("numpy-where-argument", node)


REDUCTIONS = frozenset({"sum", "mean", "min", "max", "prod", "std", "var"})


@pattern("numpy-scalar-in-result", nodes=(ast.Return,))
def _scalars(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Return)
    for part in node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]:
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in REDUCTIONS:
            is_of_array = reader.of(part.func.value).kind == "array" and not part.args + part.keywords
            is_function = reader.full(part.func).startswith("numpy.") and len(part.args + part.keywords) == 1
            if is_of_array or (is_function and reader.of(part).kind == "array"):
                yield Found("numpy-scalar-in-result", part)


@pattern("numpy-default-dtypes", nodes=(ast.BinOp, ast.Call))
def _default_dtypes(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield quotients of `numpy.arange`, and sums of arrays along a dimension."""
    if isinstance(node, ast.BinOp):
        sides = [reader.of(side).made_by for side in (node.left, node.right)]
        if isinstance(node.op, ast.Div) and "arange" in sides:
            yield Found("numpy-default-dtypes", node)
        return
    assert isinstance(node, ast.Call)
    is_sum = reader.full(node.func) in ("numpy.cumsum", "numpy.cumprod")
    if is_sum and any(reader.of(part).kind == "array" for part in node.args[:1]):
        yield Found("numpy-default-dtypes", node, sure=False)  # of bytes alone
