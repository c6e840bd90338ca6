"""Which code runs if a caller leaves the optional arguments out, as far as the source of a function tells.

A warning about other code is less sure: most callers never get there.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recapture.cases.syntax import dotted

OFF_BY_DEFAULT = frozenset(
    [
        "torch.jit.is_scripting",
        "torch.is_autocast_enabled",
        "torch.are_deterministic_algorithms_enabled",
        "torch.is_inference_mode_enabled",
        "torch.overrides.has_torch_function",
        "has_torch_function",
        "has_torch_function_unary",
        "has_torch_function_variadic",
    ]
)
"""Functions that return False unless somebody changes a setting of torch, or passes another class of tensor."""

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}

_OPTIONAL = re.compile(r"\bOptional\[|\bNone\b")

_UNKNOWN = object()


def unusual_parts(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    """Return the `id` of each node of a function that a call with the defaults of its arguments does not reach.

    The conditions that the defaults decide are among them: their tensors decide nothing.
    """
    return _Paths(function).unusual


def usual_calls(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the plain names that a function calls in what a call with the defaults reaches."""
    unusual = unusual_parts(function)
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and id(node) not in unusual)
    return {node.func.id for node in calls if isinstance(node.func, ast.Name)}


class _Paths:
    """The paths through one function."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.unusual: set[int] = set()
        self._defaults = _defaults(function)
        self._assigned: dict[str, int] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._assigned[node.id] = min(node.lineno, self._assigned.get(node.id, node.lineno))
        self._block(function.body)

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for place, statement in enumerate(body):
            self._expressions(statement)
            taken = self._decide(statement.test) if isinstance(statement, ast.If) else None
            if isinstance(statement, ast.If) and taken is not None:
                self._mark([statement.test, *(statement.orelse if taken else statement.body)])
                if taken and isinstance(statement.body[-1], (ast.Return, ast.Raise)):
                    self._mark(body[place + 1 :])
                    return
            for name in ("body", "orelse", "finalbody"):
                self._block(getattr(statement, name, ()))
            for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                self._block(handler.body)

    def _expressions(self, statement: ast.stmt) -> None:
        """Mark the sides of conditional expressions that are not taken."""
        for node in _own_nodes(statement):
            taken = self._decide(node.test) if isinstance(node, ast.IfExp) else None
            if isinstance(node, ast.IfExp) and taken is not None:
                self._mark([node.test, node.orelse if taken else node.body])

    def _mark(self, nodes: Sequence[ast.AST]) -> None:
        self.unusual.update(id(inner) for node in nodes for inner in ast.walk(node))

    def _decide(self, test: ast.expr) -> bool | None:
        """Return what a condition is with the defaults; None where they do not decide it."""
        if isinstance(test, ast.BoolOp):
            parts = [self._decide(part) for part in test.values]
            decisive = isinstance(test.op, ast.Or)
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._decide(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Call):
            return False if dotted(test.func) in OFF_BY_DEFAULT else None
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compare(test)
        value = self._constant(test)
        return None if value is _UNKNOWN else bool(value)

    def _compare(self, test: ast.Compare) -> bool | None:
        compare = _COMPARISONS.get(type(test.ops[0]))
        left, right = self._constant(test.left), self._constant(test.comparators[0])
        if compare is None or left is _UNKNOWN or right is _UNKNOWN:
            return None
        try:
            return compare(left, right)
        except TypeError:  # None < 3
            return None

    def _constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if not isinstance(node, ast.Name) or self._assigned.get(node.id, node.lineno) < node.lineno:
            return _UNKNOWN
        return self._defaults.get(node.id, _UNKNOWN)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement without those of the statements inside it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.stmt)]


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Mapping[str, Any]:
    """Return the defaults that are constants by argument; None for an argument that may be None."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    values: dict[str, Any] = {}
    for argument in (*arguments, *function.args.kwonlyargs):
        if argument.annotation is not None and _OPTIONAL.search(ast.unparse(argument.annotation)):
            values[argument.arg] = None
    pairs = [*zip(reversed(arguments), reversed(function.args.defaults))]  # noqa: B905 - the last have defaults
    pairs += [pair for pair in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if pair[1]]  # type: ignore[misc]
    for argument, default in pairs:
        if isinstance(default, ast.Constant):
            values[argument.arg] = default.value
        else:
            values.pop(argument.arg, None)
    return values
