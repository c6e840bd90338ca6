"""Patterns of conditions and loops: what decides which path is taken."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from recapture.tools.lint.reader import CONDITIONS, Found, Reader, atoms, conditions_of, pattern
from recapture.tools.lint.values import Value

OF_A_CONDITION = {
    "size": "branch-on-size",
    "shape": "branch-on-size",
    "rank": "branch-on-rank",
    "dtype": "branch-on-dtype",
    "layout": "branch-on-contiguity",
    "grad": "branch-on-requires-grad",
    "value": "item-in-condition",
    "array": "item-in-condition",
}


RARE_DTYPES = re.compile(
    r"\b(?:half|float16|bfloat16|u?int8|u?int16|u?int32|bool|is_complex|complex\d*|cfloat|float8\w*)\b"
)
COMMON_DTYPES = re.compile(r"\b(?:float32|float64|float|double|int64|long|is_floating_point)\b")
"""Names of dtypes in a condition."""

OF_ONE_KIND = (("float32", "float64"),)
"""Common dtypes that a list of dtypes names together."""


@pattern("branch-on-tensor-value", "while-on-tensor-value", *OF_A_CONDITION.values(), nodes=CONDITIONS)
def _conditions(node: ast.AST, reader: Reader) -> Iterator[Found]:
    for atom in conditions_of(node):
        value = reader.of(atom)
        if value.kind == "tensor" and not isinstance(node, ast.Match):
            yield Found("while-on-tensor-value" if isinstance(node, ast.While) else "branch-on-tensor-value", atom)
        elif value.kind in OF_A_CONDITION and _matters(value, reader) and not _is_of_nothing(atom, value):
            is_refusal = value.kind == "dtype" and _refuses(node)
            yield Found(OF_A_CONDITION[value.kind], atom, sure=_is_common(atom, value) and not is_refusal)


def _matters(value: Value, reader: Reader) -> bool:
    """Whether a dtype can be another one: that of a module's input is given by its parameters."""
    return value.kind != "dtype" or reader.captured.owner is None


def _refuses(node: ast.AST) -> bool:
    """Whether a path of an `if` refuses some dtypes: then few are left for which it computes something else."""
    return isinstance(node, ast.If) and any(
        isinstance(inner, ast.Raise) for statement in (*node.body, *node.orelse) for inner in ast.walk(statement)
    )


def _is_common(atom: ast.expr, value: Value) -> bool:
    """Whether both paths of a condition are common, so that a caller is likely to take the other.

    Integers beside floats, and double precision, are common inputs; a path for half precision or bytes is there for
    few. A size that is compared with a number of the code divides inputs; compared with a setting, the paths are most
    often two ways to the same result.
    """
    if value.kind == "dtype":
        text = ast.unparse(atom)
        if any({*names} <= {*COMMON_DTYPES.findall(text)} for names in OF_ONE_KIND) and "is_floating" not in text:
            return False  # another path for other kinds of numbers than the common ones
        return not RARE_DTYPES.search(text) or COMMON_DTYPES.search(text) is not None
    if value.kind == "size":
        return isinstance(atom, ast.Compare) and any(isinstance(part, ast.Constant) for part in atom.comparators)
    return True


def _is_of_nothing(atom: ast.expr, value: Value) -> bool:
    """Whether a size or rank is compared with 0 or 1: a path for nothing, or for one alone, seldom differs."""
    numbers = [part.value for part in getattr(atom, "comparators", ()) if isinstance(part, ast.Constant)]
    return value.kind in ("size", "rank") and any(number in (0, 1) for number in numbers)


@pattern("python-and-of-tensors", nodes=(ast.Return, ast.Assign, ast.BinOp, ast.Call))
def _joined_tensors(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield `and` and `or` whose value is used, and not only its truth."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.BoolOp) and reader.of(part.values[0]).kind == "tensor":
            yield Found("python-and-of-tensors", part)


MOST_OF_A_RANGE = 3
"""The number of arguments of `range` with a step."""


@pattern("loop-over-rows", nodes=(ast.For, ast.comprehension))
def _loops(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, (ast.For, ast.comprehension))
    iterated = node.iter
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "range":
        if any(reader.of(part).kind == "size" for part in iterated.args):
            # Steps of several rows are a way to save memory: one step is enough for most inputs.
            yield Found("loop-over-rows", iterated, sure=len(iterated.args) < MOST_OF_A_RANGE)
    elif (
        isinstance(iterated, ast.Call)
        and isinstance(iterated.func, ast.Name)
        and iterated.func.id in ("enumerate", "zip")
    ):
        if any(reader.of(part).kind == "tensor" for part in iterated.args):
            yield Found("loop-over-rows", iterated)
    elif reader.of(iterated).kind == "tensor":
        yield Found("loop-over-rows", iterated)


@pattern("torch-equal-in-condition", nodes=CONDITIONS)
def _equal(node: ast.AST, reader: Reader) -> Iterator[Found]:
    for atom in conditions_of(node):
        if isinstance(atom, ast.Call) and reader.full(atom.func) in ("torch.equal", "torch.allclose"):
            yield Found("torch-equal-in-condition", atom)


@pattern("is-between-tensors", nodes=(ast.Compare,))
def _identity(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Compare)
    if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        left, right = reader.of(node.left), reader.of(node.comparators[0])
        if left.argument and right.argument and ast.unparse(node.left) != ast.unparse(node.comparators[0]):
            yield Found("is-between-tensors", node)


@pattern("optional-argument", "isinstance-of-argument", nodes=(ast.If, ast.IfExp))
def _forms(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield paths for an absent argument or another type: wrong for a caller who later gives the other one."""
    for atom in conditions_of(node):
        match atom:
            case ast.Compare(
                left=ast.Name() as tested, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]
            ):
                if reader.is_parameter(tested) or reader.of(tested).argument:
                    yield Found("optional-argument", atom, sure=False)
            case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name() as tested, _]):
                if reader.of(tested).argument:
                    yield Found("isinstance-of-argument", atom, sure=False)


@pattern("assert-on-tensor-value", nodes=(ast.Assert,))
def _asserts(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Assert)
    if any(reader.of(atom).kind in ("tensor", "value") for atom in atoms(node.test)):
        yield Found("assert-on-tensor-value", node)


@pattern("dict-order", "itertools-groupby", nodes=(ast.For, ast.comprehension))
def _orders(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, (ast.For, ast.comprehension))
    iterated = node.iter
    if not isinstance(iterated, ast.Call):
        return
    if reader.full(iterated.func) == "itertools.groupby":
        yield Found("itertools-groupby", iterated)
    elif isinstance(iterated.func, ast.Name) and iterated.func.id == "enumerate" and iterated.args:
        match iterated.args[0]:
            case ast.Call(func=ast.Attribute(value=ast.Name() as owner, attr="items" | "values" | "keys")):
                if reader.is_parameter(owner):
                    yield Found("dict-order", iterated)
