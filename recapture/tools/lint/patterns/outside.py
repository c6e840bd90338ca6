"""Patterns of what lies outside the arguments: output, the environment, caches, settings and objects of the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from recapture.tools.lint.reader import Found, Reader, conditions_of, pattern, targets_of

LOGGING = frozenset({"debug", "info", "warning", "error", "critical", "exception", "log"})
"""Methods of a logger that write a message."""

WARNS = frozenset({"warnings.warn", "warnings.warn_explicit"})
READS_THE_ENVIRONMENT = frozenset({"os.environ.get", "os.getenv"})
CACHES = frozenset({"functools.cache", "functools.lru_cache"})
ASKS_WHETHER_COMPILING = frozenset(
    [
        "torch.compiler.is_compiling",
        "torch.compiler.is_dynamo_compiling",
        "torch._dynamo.is_compiling",
        "torch._utils.is_compiling",
    ]
)


@pattern("print-in-forward", "warnings-in-forward", "logging-in-forward", nodes=(ast.Call,))
def _output(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield what writes text; in a branch it is most often about a rare input."""
    assert isinstance(node, ast.Call)
    is_sure = not reader.is_conditional(node)
    if isinstance(node.func, ast.Name) and node.func.id == "print":
        yield Found("print-in-forward", node, is_sure)
    elif reader.full(node.func) in WARNS:
        yield Found("warnings-in-forward", node, is_sure)
    elif isinstance(node.func, ast.Attribute) and node.func.attr in LOGGING and _is_logger(node.func.value, reader):
        yield Found("logging-in-forward", node, is_sure)


def _is_logger(node: ast.expr, reader: Reader) -> bool:
    value = node if isinstance(node, ast.Call) else reader.source.globals.get(ast.unparse(node))
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).endswith(("getLogger", "get_logger"))
    return reader.full(node) == "logging"


@pattern("environment-variable", "set-environment-variable", nodes=(ast.Call, ast.Subscript))
def _environment(node: ast.AST, reader: Reader) -> Iterator[Found]:
    if isinstance(node, ast.Call) and reader.full(node.func) in READS_THE_ENVIRONMENT:
        yield Found("environment-variable", node)
    elif isinstance(node, ast.Subscript) and reader.full(node.value) == "os.environ":
        is_read = isinstance(node.ctx, ast.Load)
        yield Found("environment-variable" if is_read else "set-environment-variable", node)


@pattern("functools-cache", nodes=(ast.Call,))
def _caches(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield calls of cached functions: most of them give the same result when they are computed again."""
    assert isinstance(node, ast.Call)
    if reader.is_decorated(node, CACHES):
        yield Found("functools-cache", node, sure=False)


@pattern("is-compiling", nodes=(ast.If, ast.IfExp, ast.While))
def _compiling(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield what asks whether it is compiled: most often for two ways to the same result."""
    for atom in conditions_of(node):
        if isinstance(atom, ast.Call) and reader.full(atom.func) in ASKS_WHETHER_COMPILING:
            yield Found("is-compiling", atom, sure=False)


@pattern("global-setting", nodes=(ast.Subscript,))
def _settings(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Subscript)
    has_text_key = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    if has_text_key and isinstance(node.ctx, ast.Load) and _is_changed_elsewhere(node.value, reader):
        yield Found("global-setting", node)


@pattern("replaced-function", "global-tensor", nodes=(ast.Call, ast.BinOp))
def _replaced(node: ast.AST, reader: Reader) -> Iterator[Found]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if _is_changed_elsewhere(node.func.value, reader, node.func.attr):
            yield Found("replaced-function", node)
    elif isinstance(node, ast.BinOp):
        operands = (node.left, node.right)
        if any(reader.of(operand).kind == "tensor" for operand in operands):
            for operand in map(_without_methods, operands):
                if isinstance(operand, ast.Attribute) and _is_changed_elsewhere(operand.value, reader, operand.attr):
                    yield Found("global-tensor", operand)


def _without_methods(node: ast.expr) -> ast.expr:
    """Return what a chain of methods, such as ``.to(device)``, begins with."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node


def _is_changed_elsewhere(node: ast.expr, reader: Reader, attribute: str = "") -> bool:
    """Whether another function of the file changes a global object, or one attribute of it."""
    if not isinstance(node, ast.Name) or not reader.is_global(node):
        return False
    own = {id(inner) for statement in reader.captured.node.body for inner in ast.walk(statement)}
    return any(id(place) not in own for place in reader.source.changes.get((node.id, attribute), ()))


@pattern("saved-tensors-hooks", nodes=(ast.With,))
def _saved(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.With)
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and reader.full(call.func) == "torch.autograd.graph.saved_tensors_hooks":
            yield Found("saved-tensors-hooks", call)


@pattern("property-setter", nodes=(ast.Assign, ast.AugAssign, ast.Call))
def _setters(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield assignments to a property of a class of the file, and calls of a class whose `__init__` has one."""
    names = _properties_with_a_setter(reader)
    if not names:
        return
    if isinstance(node, ast.Call):
        owner = reader.source.classes.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if owner is not None and any(_assigned(inner) & names for inner in _nodes_of_init(owner)):
            yield Found("property-setter", node)
    elif isinstance(node, ast.stmt) and _assigned(node) & names:
        yield Found("property-setter", node)


def _nodes_of_init(owner: ast.ClassDef) -> Iterator[ast.AST]:
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            yield from ast.walk(method)


def _assigned(node: ast.AST) -> set[str]:
    return {target.attr for target in targets_of(node) if isinstance(target, ast.Attribute)}


def _properties_with_a_setter(reader: Reader) -> set[str]:
    decorators = (
        ast.unparse(part)
        for owner in reader.source.classes.values()
        for method in owner.body
        if isinstance(method, ast.FunctionDef)
        for part in method.decorator_list
    )
    return {name.removesuffix(".setter") for name in decorators if name.endswith(".setter")}
