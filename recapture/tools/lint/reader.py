"""Reads the statements of a function in order, and asks the patterns at each node."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from recapture.tools.lint.source import Captured, SourceText
from recapture.tools.lint.usual_path import unusual_parts
from recapture.tools.lint.values import UNKNOWN, Value, Values


class Found(NamedTuple):
    """A behaviour at a place of a file. What is not `sure` is often right after all, and told only when asked for."""

    behaviour: str
    node: ast.expr | ast.stmt
    sure: bool = True


Pattern = Callable[[ast.AST, "Reader"], Iterable[Found]]

PATTERNS: dict[type[ast.AST], list[Pattern]] = defaultdict(list)
"""The patterns by the type of the nodes that they look at."""

BEHAVIOURS_LOOKED_FOR: set[str] = set()
"""The ids of the behaviours that a pattern finds."""

CONDITIONS = (ast.If, ast.While, ast.IfExp, ast.Match, ast.comprehension)
"""The nodes that choose a path."""


def pattern(*behaviours: str, nodes: tuple[type[ast.AST], ...]) -> Callable[[Pattern], Pattern]:
    """Register a pattern for some behaviours and some types of nodes."""

    def register(function: Pattern) -> Pattern:
        BEHAVIOURS_LOOKED_FOR.update(behaviours)
        for kind in nodes:
            PATTERNS[kind].append(function)
        return function

    return register


class Reader:
    """Reads the statements of one function in order, and asks the patterns at each node."""

    def __init__(self, source: SourceText, captured: Captured) -> None:
        self.source = source
        self.captured = captured
        self.values = Values(source.names, captured.arguments, self._callee)
        self.findings: list[Found] = []
        self.assigned: set[str] = set()
        self.changed: set[str] = set()
        self.declared_global: set[str] = set()
        self.generators: set[str] = set()
        self.defaultdicts: set[str] = set()
        self.casts: dict[str, ast.expr] = {}
        self._unusual = unusual_parts(captured.node)
        self._conditional: set[int] | None = None
        arguments = captured.node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self.parameters = {argument.arg for argument in every} - {"self", "cls"}
        annotated = [(argument.arg, ast.unparse(argument.annotation)) for argument in every if argument.annotation]
        self.sequences = {name for name, text in annotated if re.search(r"\b(?:[Ll]ist|[Tt]uple|Sequence)\b", text)}

    def read(self) -> list[Found]:
        """Return what the patterns find in the function."""
        self._ask(self.captured.node)
        self._block(self.captured.node.body)
        return self.findings

    def full(self, node: ast.expr) -> str:
        """Return the full dotted name of an expression that begins with an import."""
        return self.source.names.full(node)

    def is_decorated(self, node: ast.Call, names: Collection[str]) -> bool:
        """Whether a call is of a function of the file that has a decorator of one of these full names."""
        function = self.source.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        decorators = function.decorator_list if function is not None else []
        return any(self.full(part.func if isinstance(part, ast.Call) else part) in names for part in decorators)

    def of(self, node: ast.AST | None) -> Value:
        """Return what an expression holds at this place."""
        return self.values.of(node)

    def is_parameter(self, node: ast.AST) -> bool:
        """Whether an expression is a parameter that was not assigned anew, and is no tensor."""
        return (
            isinstance(node, ast.Name)
            and node.id in self.parameters
            and node.id not in self.assigned
            and self.of(node).kind != "tensor"
        )

    def is_conditional(self, node: ast.AST) -> bool:
        """Whether a node of the function is inside an `if`, or handles an exception."""
        if self._conditional is None:
            blocks = (
                [*inner.body, *inner.orelse] if isinstance(inner, ast.If) else inner.body
                for inner in ast.walk(self.captured.node)
                if isinstance(inner, (ast.If, ast.ExceptHandler))
            )
            self._conditional = {id(part) for block in blocks for statement in block for part in ast.walk(statement)}
        return id(node) in self._conditional

    def is_global(self, node: ast.AST) -> bool:
        """Whether an expression is a name that the file assigns outside functions, and this function does not."""
        return (
            isinstance(node, ast.Name)
            and node.id in self.source.globals
            and node.id not in self.assigned | self.parameters
        )

    def _callee(self, node: ast.Call) -> Value | None:
        """Return what a function of the same file gives: nothing is known of it."""
        is_own = isinstance(node.func, ast.Name) and node.func.id in self.source.functions
        return UNKNOWN if is_own else None

    def _ask(self, node: ast.AST) -> None:
        for look in PATTERNS.get(type(node), ()):
            for finding in look(node, self):
                is_usual = self.captured.is_usual and id(finding.node) not in self._unusual
                self.findings.append(finding if is_usual else finding._replace(sure=False))

    def _expression(self, node: ast.expr | None) -> None:
        if node is None:
            return
        waiting: list[ast.AST] = [node]
        while waiting:
            inner = waiting.pop(0)
            if isinstance(inner, (ast.Lambda, ast.FunctionDef, ast.ClassDef)):
                continue
            if isinstance(inner, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
                for part in inner.generators:
                    self.values.assign(part.target, self.values.element(part.iter))
            self._ask(inner)
            waiting.extend(ast.iter_child_nodes(inner))

    def _block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            return
        self._ask(node)
        if isinstance(node, ast.Global):
            self.declared_global.update(node.names)
        for name, part in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody", "handlers", "items", "cases"):
                continue
            for inner in part if isinstance(part, list) else [part]:
                if isinstance(inner, ast.expr):
                    self._expression(inner)
        self._bind(node)
        if isinstance(node, ast.If):
            self._branches(node)
            return
        for name in ("body", "orelse", "finalbody"):
            self._block(getattr(node, name, ()))
        for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._block(handler.body)

    def _branches(self, node: ast.If) -> None:
        """Read both branches of an `if`; what one of them casts may be cast after it."""
        before = dict(self.casts)
        self._block(node.body)
        after, self.casts = self.casts, before
        self._block(node.orelse)
        self.casts = after | self.casts

    def _bind(self, node: ast.stmt) -> None:
        """Note what the names that a statement assigns hold from here on."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.values.assign(target, self.of(node.value), node.value)
                if isinstance(target, ast.Name):
                    if isinstance(node.value, ast.GeneratorExp):
                        self.generators.add(target.id)
                    if isinstance(node.value, ast.Call) and self.full(node.value.func) == "collections.defaultdict":
                        self.defaultdicts.add(target.id)
                    if is_cast(node.value, self):
                        self.casts[target.id] = node.value
                    elif target.id not in {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}:
                        self.casts.pop(
                            target.id, None
                        )  # a view of the cast tensor, or a product with it, keeps the dtype
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.values.assign(node.target, self.of(node.value), node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before, by = self.of(node.target), self.of(node.value)
            if before.kind != "tensor":
                self.values.assign(node.target, Value(by.kind) if by.kind != "unknown" else before)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.values.assign(node.target, self.values.element(node.iter))
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self._expression(item.context_expr)
                if item.optional_vars is not None:
                    self.values.assign(item.optional_vars, UNKNOWN)
        for target in targets_of(node):
            self.assigned |= stored_names(target)


def targets_of(node: ast.AST) -> list[ast.expr]:
    """Return what a statement assigns to."""
    if isinstance(node, ast.Assign):
        return list(node.targets)
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
        return [node.target]
    return []


def stored_names(target: ast.expr) -> set[str]:
    """Return the names that a target of an assignment binds."""
    inside = (inner for inner in ast.walk(target) if isinstance(inner, ast.Name))
    return {inner.id for inner in inside if isinstance(inner.ctx, ast.Store)}


def atoms(test: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of a condition that `and`, `or` and `not` join."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from atoms(part)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from atoms(test.operand)
    else:
        yield test


def conditions_of(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what decides which path is taken: parts of a test, what `match` looks at, filters of a comprehension."""
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield from () if only_checks(node) else atoms(node.test)
    elif isinstance(node, ast.Match):
        yield node.subject
    elif isinstance(node, ast.comprehension):
        yield from (atom for test in node.ifs for atom in atoms(test))


def only_checks(node: ast.AST) -> bool:
    """Whether an `if` does nothing but raise or warn: it is a check of the input, and no path of the program."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    return all(
        isinstance(inner, (ast.Raise, ast.Pass, ast.Assert))
        or (isinstance(inner, ast.Expr) and "warn" in ast.unparse(inner.value))
        for inner in node.body
    )


CONVERTS = re.compile(r"dtype|cast|convert", re.IGNORECASE)
"""What the name of a function has that converts a tensor to a dtype."""


def is_cast(node: ast.expr, reader: Reader) -> bool:
    """Whether an expression is cast to the dtype of an argument.

    That is ``tensor.to(dtype)``, ``tensor.type_as(argument)``, or a function such as ``convert_dtype(tensor, dtype)``.
    """
    if not isinstance(node, ast.Call):
        return False
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if method == "type_as":
        return bool(node.args) and reader.of(node.args[0]).argument
    name = method or ast.unparse(node.func)
    dtypes = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "dtype")]
    if method not in ("to", "type"):
        dtypes = dtypes[1:] if CONVERTS.search(name) else []
    return any(is_dtype_of_argument(part, reader) for part in dtypes)


def is_dtype_of_argument(node: ast.expr, reader: Reader) -> bool:
    """Whether an expression is the dtype of an argument."""
    return reader.of(node) == Value("dtype", argument=True)
