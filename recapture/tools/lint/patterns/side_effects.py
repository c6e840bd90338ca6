"""Patterns of effects beside the result: containers, globals, random numbers, exceptions."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from recapture.tools.lint.reader import Found, Reader, pattern, stored_names, targets_of
from recapture.tools.lint.source import Captured, Function
from recapture.tools.lint.values import words

CHANGES_A_LIST = words("append extend insert pop remove clear reverse sort popleft appendleft")
CHANGES_A_DICT = frozenset({"update", "setdefault", "popitem"})
DRAWS = words("random randint uniform choice randrange")
READS_A_STATE = frozenset({"torch.get_rng_state", "torch.random.get_rng_state"})
PARTS_OF_A_FUNCTION = frozenset({"__defaults__", "__kwdefaults__", "__code__"})
SEEDS = frozenset({"torch.manual_seed", "torch.random.manual_seed", "torch.set_rng_state"})


@pattern(
    "append-to-list-argument",
    "change-dict-argument",
    "mutable-default",
    "global-list",
    "move-to-end",
    nodes=(ast.Call,),
)
def _changed_containers(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    if not isinstance(node.func, ast.Attribute):
        return
    name, owner = node.func.attr, node.func.value
    if name == "move_to_end":
        yield Found("move-to-end", node)
    elif name in CHANGES_A_LIST and reader.is_global(owner):
        yield Found("global-list", node)
    elif reader.is_parameter(owner) and isinstance(owner, ast.Name):
        if owner.id in _mutable_defaults(reader.captured.node):
            yield Found("mutable-default", node)
        elif name in CHANGES_A_DICT or (name == "pop" and _is_text(node.args)):
            yield Found("change-dict-argument", node)
        elif name in CHANGES_A_LIST:
            yield Found("append-to-list-argument", node)


def _is_text(arguments: list[ast.expr]) -> bool:
    return bool(arguments) and isinstance(arguments[0], ast.Constant) and isinstance(arguments[0].value, str)


def _mutable_defaults(node: Function) -> set[str]:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    defaults = dict(zip(reversed(names), reversed(node.args.defaults)))  # noqa: B905 - Python 3.10
    return {name for name, value in defaults.items() if isinstance(value, (ast.List, ast.Dict, ast.Set))}


@pattern(
    "change-dict-argument",
    "global-counter",
    "global-rebound",
    "global-by-name",
    "function-attribute",
    "replaced-default",
    nodes=(ast.Assign, ast.AugAssign),
)
def _changed_names(node: ast.AST, reader: Reader) -> Iterator[Found]:
    for target in targets_of(node):
        owner = target.value if isinstance(target, (ast.Subscript, ast.Attribute)) else None
        if stored_names(target) & reader.declared_global:
            yield Found("global-rebound", target)
        elif isinstance(owner, ast.Call) and ast.unparse(owner) == "globals()":
            yield Found("global-by-name", target)
        elif isinstance(target, ast.Attribute) and target.attr in PARTS_OF_A_FUNCTION:
            yield Found("replaced-default", target)
        elif owner is not None and isinstance(target, ast.Subscript) and reader.is_parameter(owner):
            if _is_text([target.slice]):
                yield Found("change-dict-argument", target)
        elif owner is not None and reader.is_global(owner) and isinstance(node, ast.AugAssign):
            yield Found("global-counter", target)
        elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == _own_name(reader.captured):
            yield Found("function-attribute", target)


@pattern("global-generator", nodes=(ast.Call,))
def _taken_from_a_global(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    if ast.unparse(node.func) == "next" and len(node.args) == 1 and reader.is_global(node.args[0]):
        yield Found("global-generator", node)


def _own_name(captured: Captured) -> str:
    return captured.node.name if captured.owner is None else ""


@pattern("manual-seed-inside", "numpy-random", "python-random", nodes=(ast.Call,))
def _random(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    name = reader.full(node.func)
    if name in SEEDS:
        yield Found("manual-seed-inside", node, sure=not _calls(reader, READS_A_STATE))
    elif name.startswith("numpy.random.") and name.rpartition(".")[2] not in ("default_rng", "RandomState", "seed"):
        yield Found("numpy-random", node)
    elif name.startswith("random.") and name.partition(".")[2] in DRAWS:
        yield Found("python-random", node, sure=not _calls(reader, {"random.seed"}))


def _calls(reader: Reader, names: Collection[str]) -> bool:
    """Whether the function calls one of some functions: what restores a state, or seeds, draws the same each time."""
    calls = (inner for inner in ast.walk(reader.captured.node) if isinstance(inner, ast.Call))
    return any(reader.full(call.func) in names for call in calls)


@pattern("catch-missing-key", "catch-zero-division", nodes=(ast.Try,))
def _caught(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Try)
    for handler in node.handlers:
        caught = ast.unparse(handler.type) if handler.type is not None else ""
        inside = [inner for statement in node.body for inner in ast.walk(statement)]
        if "ZeroDivisionError" in caught:
            yield Found("catch-zero-division", node)
        elif "KeyError" in caught and any(
            isinstance(inner, ast.Subscript) and reader.is_parameter(inner.value) for inner in inside
        ):
            yield Found("catch-missing-key", node)
