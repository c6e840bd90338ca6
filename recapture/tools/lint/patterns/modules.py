"""Patterns of the state of a module, of hooks and of gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from recapture.tools.lint.reader import Found, Reader, pattern, targets_of

HOOKS = frozenset(
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ]
)


@pattern(
    "counter-on-module",
    "buffer-rebound",
    "buffer-changed-inplace",
    "attribute-set-in-forward",
    "cached-table",
    nodes=(ast.FunctionDef,),
)
def _attributes(node: ast.AST, reader: Reader) -> Iterator[Found]:
    owner = reader.captured.owner
    if owner is None or not isinstance(node, ast.FunctionDef):
        return
    buffers = _buffers(owner)
    for inner in ast.walk(node):
        for target in targets_of(inner):
            if (
                not isinstance(target, ast.Attribute)
                or not isinstance(target.value, ast.Name)
                or target.value.id != "self"
            ):
                continue
            if _read_before(node, target, inner):
                behaviour = _of_attribute(target.attr, inner, node, buffers)
                yield Found(behaviour, target)


def _of_attribute(name: str, statement: ast.AST, function: ast.AST, buffers: dict[str, bool]) -> str:
    """Return the behaviour of an attribute that is assigned."""
    if isinstance(statement, ast.AugAssign):
        if name in buffers:
            return "buffer-changed-inplace"
        return "counter-on-module" if isinstance(statement.value, ast.Constant) else "attribute-set-in-forward"
    if buffers.get(name):
        return "buffer-rebound"
    tests = [inner.test for inner in ast.walk(function) if isinstance(inner, ast.If)]
    is_table = any(f"self.{name} is None" in ast.unparse(test) for test in tests)
    return "cached-table" if is_table else "attribute-set-in-forward"


def _buffers(owner: ast.ClassDef) -> dict[str, bool]:
    """Return the buffers of a class, and whether each holds a tensor from the start."""
    buffers = {}
    for inner in ast.walk(owner):
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "self.register_buffer" and len(inner.args) > 1:
            name, value = inner.args[:2]
            is_none = isinstance(value, ast.Constant) and value.value is None
            buffers[ast.unparse(name).strip("'")] = not is_none
    return buffers


def _read_before(function: ast.FunctionDef, target: ast.Attribute, statement: ast.AST) -> bool:
    """Whether an attribute is read before the function assigns it: what no call reads from the last one is no state."""
    if isinstance(statement, ast.AugAssign):
        return True
    reads = [
        inner
        for inner in ast.walk(function)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Load)
        and inner.attr == target.attr
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "self"
    ]
    return any(inner.lineno <= target.lineno for inner in reads)


@pattern(
    "eval-inside-forward",
    "freeze-by-argument",
    "hook-added-later",
    "tensor-hook",
    "backward-inside",
    nodes=(ast.Call,),
)
def _methods(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    if not isinstance(node.func, ast.Attribute):
        return
    name, owner = node.func.attr, node.func.value
    text = ast.unparse(owner)
    is_of_self = text == "self" or text.startswith("self.")
    if reader.captured.owner is not None and is_of_self:
        if name in ("eval", "train") and text == "self":
            yield Found("eval-inside-forward", node)
        elif name == "requires_grad_":
            yield Found("freeze-by-argument", node)
        elif name in HOOKS:
            yield Found("hook-added-later", node)
    elif reader.of(owner).kind == "tensor":
        if name == "register_hook":
            yield Found("tensor-hook", node)
        elif name == "backward":
            yield Found("backward-inside", node)


@pattern(
    "custom-autograd-function",
    "set-materialize-grads",
    "mark-non-differentiable",
    "autograd-grad-inside",
    "functions-near-zero",
    nodes=(ast.Call,),
)
def _gradients(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    name = reader.full(node.func)
    if name == "torch.autograd.grad" and not any(keyword.arg == "create_graph" for keyword in node.keywords):
        yield Found("autograd-grad-inside", node)
    elif name in ("torch.expm1", "torch.special.expm1"):
        yield Found("functions-near-zero", node)
    elif isinstance(node.func, ast.Attribute) and node.func.attr == "apply" and isinstance(node.func.value, ast.Name):
        owner = reader.source.classes.get(node.func.value.id)
        if owner is not None and reader.source.is_function(owner):
            text = ast.unparse(owner)
            if "set_materialize_grads(False)" in text:
                yield Found("set-materialize-grads", node)
            elif "mark_non_differentiable(" in text:
                yield Found("mark-non-differentiable", node)
            else:
                # Most are written to save memory: what a compiler makes of their forward has the same gradient.
                yield Found("custom-autograd-function", node, sure=_replaces_the_gradient(owner))


ROUNDS = frozenset({"round", "round_", "floor", "floor_", "ceil", "ceil_", "trunc", "trunc_", "sign", "sign_"})
"""Functions whose derivative is zero, so that a backward beside one is there to give another gradient."""


def _replaces_the_gradient(owner: ast.ClassDef) -> bool:
    """Whether the backward of a Function visibly gives another gradient than that of its forward."""
    methods = {method.name: method for method in owner.body if isinstance(method, ast.FunctionDef)}
    forward, backward = methods.get("forward"), methods.get("backward")
    if forward is None or backward is None:
        return False
    calls = (inner.func for inner in ast.walk(forward) if isinstance(inner, ast.Call))
    names = {function.attr for function in calls if isinstance(function, ast.Attribute)}
    if names & ROUNDS:
        return True
    returned = [inner.value for inner in ast.walk(backward) if isinstance(inner, ast.Return) and inner.value]
    scales = any(isinstance(inner, (ast.BinOp, ast.UnaryOp)) for value in returned for inner in ast.walk(value))
    computes = any(isinstance(inner, ast.BinOp) for inner in ast.walk(forward)) or not names <= {"clone", "view_as"}
    return scales and not computes


NO_GRAD = frozenset({"torch.no_grad", "torch.enable_grad"})


@pattern("no-grad-inside", nodes=(ast.Call,))
def _calls_no_grad(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield calls of functions of the file that are decorated with `no_grad`."""
    assert isinstance(node, ast.Call)
    if reader.is_decorated(node, NO_GRAD):
        yield Found("no-grad-inside", node)


@pattern("no-grad-inside", nodes=(ast.With,))
def _no_grad(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.With)
    for item in node.items:
        if isinstance(item.context_expr, ast.Call) and reader.full(item.context_expr.func) in NO_GRAD:
            yield Found("no-grad-inside", item.context_expr)
