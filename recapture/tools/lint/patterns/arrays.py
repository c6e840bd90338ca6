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
