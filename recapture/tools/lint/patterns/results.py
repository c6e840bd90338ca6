"""Patterns of what a function returns and yields."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from recapture.tools.lint.reader import Found, Reader, pattern


@pattern(
    "torch-size-in-result",
    "shape-ints-in-result",
    "dtype-in-result",
    "plus-zero-returns-argument",
    nodes=(ast.Return,),
)
def _results(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Return)
    if node.value is None or not reader.captured.is_entry:
        return
    for part in node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]:
        kind = reader.of(part).kind
        if kind == "shape":
            yield Found("torch-size-in-result", part)
        elif kind == "size":
            yield Found("shape-ints-in-result", part)
        elif kind == "dtype" and isinstance(part, ast.Attribute):
            yield Found("dtype-in-result", part)
        elif _changes_nothing(part, reader):
            yield Found("plus-zero-returns-argument", part)


def _changes_nothing(node: ast.expr, reader: Reader) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.right, ast.Constant):
        return False
    neutral = {ast.Add: 0, ast.Sub: 0, ast.Mult: 1, ast.Div: 1}.get(type(node.op))
    return neutral is not None and node.right.value == neutral and reader.of(node.left).argument


@pattern("generator-in-result", nodes=(ast.Return,))
def _generators(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Return)
    parts = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]
    if reader.captured.is_entry:
        for part in parts:
            is_named = isinstance(part, ast.Name) and part.id in reader.generators
            if isinstance(part, ast.GeneratorExp) or (is_named and isinstance(part, ast.expr)):
                yield Found("generator-in-result", part)


@pattern("yield-from", nodes=(ast.Assign, ast.Call))
def _yielded(node: ast.AST, _reader: Reader) -> Iterator[Found]:
    yield from (Found("yield-from", part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.YieldFrom))


@pattern("unpack-generator", nodes=(ast.Assign,))
def _unpacking(node: ast.AST, _reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Assign)
    target = node.targets[0]
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    if isinstance(node.value, ast.GeneratorExp) and any(isinstance(part, ast.Starred) for part in parts):
        yield Found("unpack-generator", node)


@pattern("defaultdict", nodes=(ast.Return,))
def _defaults(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Return)
    if isinstance(node.value, ast.Name) and node.value.id in reader.defaultdicts:
        yield Found("defaultdict", node.value)
