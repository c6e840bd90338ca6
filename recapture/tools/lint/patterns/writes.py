"""Patterns of writes in place, and of reductions whose result depends on one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from recapture.tools.lint.reader import Found, Reader, pattern, targets_of
from recapture.tools.lint.values import CONVERSIONS, EXPANDS, PERHAPS_VIEWS, words

TRANSPOSES = words("t transpose permute T mT swapaxes swapdims movedim flip fliplr flipud")


@pattern(
    "inplace-on-contiguous",
    "inplace-on-to-dtype",
    "inplace-on-expand",
    "inplace-on-view-of-argument",
    nodes=(ast.Call, ast.AugAssign, ast.Assign),
)
def _writes(node: ast.AST, reader: Reader) -> Iterator[Found]:
    target = _written(node)
    if target is None:
        return
    value = reader.of(target)
    if value.kind != "tensor":
        return
    assert isinstance(node, (ast.expr, ast.stmt))
    if isinstance(target, ast.Name) and value.argument:
        reader.changed.add(target.id)
    if value.made_by in EXPANDS:
        yield Found("inplace-on-expand", node)
    elif value.perhaps and value.view and value.made_by in PERHAPS_VIEWS:
        yield Found("inplace-on-contiguous", node)
    elif value.perhaps and value.view and value.made_by in CONVERSIONS and reader.captured.owner is None:
        yield Found("inplace-on-to-dtype", node)
    elif value.view and not value.argument and not value.perhaps and _returns_a_view(reader):
        yield Found("inplace-on-view-of-argument", node)


def _written(node: ast.AST) -> ast.expr | None:
    """Return the tensor that a node writes into, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        is_write = name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "detach_")
        return node.func.value if is_write else None
    target = targets_of(node)[0] if isinstance(node, (ast.AugAssign, ast.Assign)) else None
    if isinstance(target, ast.Subscript):
        return target.value
    return target if isinstance(node, ast.AugAssign) else None


def _returns_a_view(reader: Reader) -> bool:
    returned = [inner.value for inner in ast.walk(reader.captured.node) if isinstance(inner, ast.Return)]
    parts = [part for value in returned for part in (value.elts if isinstance(value, ast.Tuple) else [value])]
    values = [reader.of(part) for part in parts]
    return any(value.view and not value.argument and not value.perhaps for value in values)


@pattern("assign-tensor-data", nodes=(ast.Assign,))
def _data(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Assign)
    for target in node.targets:
        if isinstance(target, ast.Attribute) and target.attr == "data" and reader.of(target.value).kind == "tensor":
            yield Found("assign-tensor-data", target)


@pattern("argmin-of-transpose", nodes=(ast.Call,))
def _argmin(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    if (
        isinstance(node.func, ast.Attribute)
        and node.func.attr in ("argmin", "argmax")
        and not node.args + node.keywords
    ):
        base: ast.expr | None = node.func.value
    else:
        named = reader.source.names.torch_function(node.func) in ("argmin", "argmax")
        base = node.args[0] if named and len(node.args) == 1 and not node.keywords else None
    value = reader.of(base)
    changed = reader.changed & {inner.id for inner in ast.walk(base) if isinstance(inner, ast.Name)} if base else set()
    if value.kind == "tensor" and value.made_by in TRANSPOSES and (not value.view or changed):
        yield Found("argmin-of-transpose", node)
