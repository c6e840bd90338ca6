"""The ``-k`` expression: words to find in a case's address, combined with and, or, not and parentheses."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:(?P<punctuation>[()])|(?P<word>[^\s()]+))")


def matcher(expression: str) -> Callable[[str], bool]:
    """Return a predicate for addresses such as ``control_flow::f1``; raises UsageError for an invalid expression."""
    words: list[str] = []
    python: list[str] = []
    for token in _TOKEN.finditer(expression.strip()):
        text = token["punctuation"] or token["word"]
        if token["punctuation"] or text in ("and", "or", "not"):
            python.append(text)
        else:
            python.append(f"_{len(words)}")
            words.append(text.lower())

    def holds(node: ast.expr, address: str) -> bool:
        if isinstance(node, ast.BoolOp):
            results = [holds(value, address) for value in node.values]  # all, as the first call validates
            return all(results) if isinstance(node.op, ast.And) else any(results)
        if isinstance(node, ast.UnaryOp):
            return not holds(node.operand, address)
        if isinstance(node, ast.Name):
            return words[int(node.id[1:])] in address
        raise SyntaxError

    try:
        tree = ast.parse(" ".join(python), mode="eval").body
        holds(tree, "")  # validate (two adjacent words, for example, parse as a call)
    except (SyntaxError, RecursionError, MemoryError):  # the last two from deep nesting
        raise UsageError(f"-k {expression!r} is not an expression of words, and, or, not and parentheses") from None
    return lambda address: holds(tree, address.lower())
