"""Patterns of numbers that are read from tensors, sizes and dtypes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from recapture.tools.lint.reader import Found, Reader, is_cast, is_dtype_of_argument, pattern, targets_of
from recapture.tools.lint.values import UNKNOWN


@pattern("size-in-dict", "sort-tensors-by-value", nodes=(ast.Call,))
def _by_number(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    first = reader.of(node.args[0]) if node.args else UNKNOWN
    if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and first.kind == "size":
        yield Found("size-in-dict", node)
    elif isinstance(node.func, ast.Name) and node.func.id == "sorted" and ".item()" in ast.unparse(node):
        yield Found("sort-tensors-by-value", node)


@pattern("int-of-tensor", "split-by-tensor", "numpy-functions", "sqrt-of-size", "shape-as-tensor", nodes=(ast.Call,))
def _numbers(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    first = reader.of(node.args[0]) if node.args else UNKNOWN
    if isinstance(node.func, ast.Attribute) and reader.of(node.func.value).kind == "tensor":
        names = {"item": "int-of-tensor", "tolist": "split-by-tensor", "numpy": "numpy-functions"}
        if node.func.attr in names:
            yield Found(names[node.func.attr], node)
    elif isinstance(node.func, ast.Name) and node.func.id in ("int", "float") and first.kind == "tensor":
        yield Found("int-of-tensor", node)
    elif (
        (isinstance(node.func, ast.Name) and node.func.id in ("int", "float", "round") and first.kind == "size")
        or (isinstance(node.func, ast.Name) and node.func.id == "len" and first.kind == "tensor")
        or (reader.full(node.func).startswith("math.") and first.kind == "size")
    ):
        yield Found("sqrt-of-size", node)
    elif (
        reader.full(node.func) in ("torch.tensor", "torch.as_tensor") and node.args and _has_size(node.args[0], reader)
    ):
        yield Found("shape-as-tensor", node)


def _has_size(node: ast.expr, reader: Reader) -> bool:
    parts = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    return any(reader.of(part).kind in ("size", "shape") for part in parts)


@pattern("reduce-all-but-the-batch", nodes=(ast.Call,))
def _all_dimensions(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    is_range = isinstance(node.func, ast.Name) and node.func.id == "range"
    if is_range and any(reader.of(part).kind == "rank" for part in node.args):
        yield Found("reduce-all-but-the-batch", node)


@pattern("reduce-all-but-the-batch", nodes=(ast.Assign, ast.Call))
def _counted_dimensions(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield dimensions that are counted from their number, as in `x.ndim - 1`: assigned, or given to an operator."""
    assert isinstance(node, (ast.Assign, ast.Call))
    if isinstance(node, ast.Assign):
        parts = [node.value]
    elif _is_operator(node, reader):
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
    else:
        return
    for part in parts:
        for leaf in _leaves(part):
            if isinstance(leaf, ast.BinOp) and isinstance(leaf.op, (ast.Add, ast.Sub)):
                kinds = {reader.of(side).kind for side in (leaf.left, leaf.right)}
                if "rank" in kinds and kinds <= {"rank", "unknown"}:
                    yield Found("reduce-all-but-the-batch", leaf)


def _is_operator(node: ast.Call, reader: Reader) -> bool:
    """Whether a call is of a function of torch or of a method of a tensor."""
    is_method = isinstance(node.func, ast.Attribute) and reader.of(node.func.value).kind == "tensor"
    return is_method or bool(reader.source.names.torch_function(node.func))


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what an expression may be: items of a list, a comprehension or `tuple(…)`, and both paths of an `if`."""
    parts: list[ast.expr]
    match node:
        case ast.Tuple() | ast.List():
            parts = node.elts
        case ast.IfExp():
            parts = [node.body, node.orelse]
        case ast.GeneratorExp() | ast.ListComp():
            parts = [node.elt]
        case ast.Call(func=ast.Name(id="tuple" | "list" | "sorted"), args=[inner]):
            parts = [inner]
        case _:
            yield node
            return
    for part in parts:
        yield from _leaves(part)


@pattern("index-with-ellipsis", nodes=(ast.Subscript,))
def _from_the_end(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield tensors whose index begins with `...`: a graph without dimensions from the end keeps the example's."""
    assert isinstance(node, ast.Subscript)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    begins = len(parts) > 1 and isinstance(parts[0], ast.Constant) and parts[0].value is Ellipsis
    if begins and reader.of(node.value).kind == "tensor":
        yield Found("index-with-ellipsis", node)


MAKES_BY_SHAPE = frozenset({"zeros", "ones", "full", "empty", "rand", "randn"})
"""Functions of torch, and after `new_` methods, that make a tensor of a shape."""


@pattern("shape-without-the-last", nodes=(ast.Call,))
def _makes_by_shape(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield calls that make a tensor in the shape of another without its last dimensions."""
    assert isinstance(node, ast.Call)
    name = reader.source.names.torch_function(node.func)
    is_method = isinstance(node.func, ast.Attribute) and reader.of(node.func.value).kind == "tensor"
    if is_method:
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr.removeprefix("new_") if node.func.attr.startswith("new_") else ""
    if name not in MAKES_BY_SHAPE:
        return
    for argument in node.args:
        part = argument.value if isinstance(argument, ast.Starred) else argument
        if isinstance(part, ast.Subscript) and reader.of(part.value).kind == "shape" and _ends_before_the_end(part):
            yield Found("shape-without-the-last", node)


def _ends_before_the_end(node: ast.Subscript) -> bool:
    """Whether a slice leaves out the last items, however many there are, as `[:-1]` does."""
    upper = node.slice.upper if isinstance(node.slice, ast.Slice) else None
    return isinstance(upper, ast.UnaryOp) and isinstance(upper.op, ast.USub)


SINGLE_NUMBERS = frozenset({"torch.tensor", "torch.as_tensor"})
MAKES_OF_NUMBERS = frozenset({"torch.tensor", "torch.as_tensor", "torch.full", "torch.linspace"})


@pattern("cast-to-dtype-of-argument", nodes=(ast.Return, ast.Call))
def _casts(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield a result that is cast to the dtype of an argument, and a tensor of numbers in that dtype."""
    owner = reader.captured.owner
    if owner is not None and not _computes_in_float(reader.captured.node) and may_have_parameters(owner):
        return
    if isinstance(node, ast.Return) and node.value is not None:
        for part in node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]:
            operands = [part.left, part.right] if isinstance(part, ast.BinOp) else [part]
            casts = (reader.casts.get(operand.id) if isinstance(operand, ast.Name) else operand for operand in operands)
            yield from (Found("cast-to-dtype-of-argument", cast) for cast in casts if cast and is_cast(cast, reader))
    elif isinstance(node, ast.Call) and reader.full(node.func) in MAKES_OF_NUMBERS:
        for keyword in node.keywords:
            if keyword.arg == "dtype" and is_dtype_of_argument(keyword.value, reader):
                # One number alone does not decide the dtype of a result: the other operand does.
                is_single = reader.full(node.func) in SINGLE_NUMBERS and not _is_sequence(node.args[:1], reader)
                yield Found("cast-to-dtype-of-argument", node, sure=not is_single)


WITHOUT_PARAMETERS = frozenset(
    {"Buffer", "Dropout", "Identity", "dict", "float", "int", "len", "list", "max", "min", "tuple"}
)
"""Last names of what makes a value that holds no parameter."""


def may_have_parameters(owner: ast.ClassDef) -> bool:
    """Whether a module may have parameters, of its own, of a base or of a submodule: they decide its input's dtype."""
    if any(ast.unparse(base).rpartition(".")[2] != "Module" for base in owner.bases):
        return True
    known = {inner.name for inner in ast.walk(owner) if isinstance(inner, ast.FunctionDef)}
    for inner in ast.walk(owner):
        attributes = {target.attr for target in targets_of(inner) if isinstance(target, ast.Attribute)}
        value = getattr(inner, "value", None)
        if attributes and isinstance(value, ast.Call):
            name = ast.unparse(value.func)
            is_number = name.startswith(("math.", "torch.", "self.")) and not name.startswith("torch.nn.")
            if not is_number and name.rpartition(".")[2] not in WITHOUT_PARAMETERS:
                return True
            known |= attributes
    calls = (ast.unparse(inner.func) for inner in ast.walk(owner) if isinstance(inner, ast.Call))
    called = {name.removeprefix("self.") for name in calls if name.startswith("self.") and name.count(".") == 1}
    return bool(called - known - {"register_buffer"})


def _computes_in_float(node: ast.AST) -> bool:
    """Whether a method converts to float32 by itself: then its input need not have the dtype of its parameters."""
    conversions = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    names = (function.attr for function in conversions if isinstance(function, ast.Attribute))
    return "float" in names or "torch.float32" in ast.unparse(node)


def _is_sequence(nodes: Sequence[ast.expr], reader: Reader) -> bool:
    """Whether an expression holds several numbers: it is a list, or an argument that is annotated as one."""
    is_list = any(isinstance(node, (ast.List, ast.Tuple, ast.ListComp)) for node in nodes)
    return is_list or any(isinstance(node, ast.Name) and node.id in reader.sequences for node in nodes)


@pattern("finfo-min-mask", nodes=(ast.Call,))
def _finfo(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    asks = reader.full(node.func) in ("torch.finfo", "torch.iinfo") and node.args
    if asks and reader.captured.owner is None and reader.of(node.args[0]).kind == "dtype":
        yield Found("finfo-min-mask", node)


@pattern("result-type", "pad-to-multiple", nodes=(ast.Call,))
def _calls_of_torch(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    name = reader.full(node.func)
    if name == "torch.result_type":
        yield Found("result-type", node)
    elif name in ("torch.nn.functional.pad", "torch.pad"):
        remainders = (inner for part in node.args[1:] for inner in ast.walk(part) if isinstance(inner, ast.BinOp))
        if any(isinstance(inner.op, ast.Mod) and reader.of(inner.left).kind == "size" for inner in remainders):
            yield Found("pad-to-multiple", node)
