"""The patterns: what in a syntax tree shows which behaviour.

A pattern is a function that yields places in the tree. It is tied to one or more behaviours, and `lint` in
``suites/behaviours.toml`` says in words what it looks for. Which compilers and releases are affected is not
written here: the records say it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from recapture.tools.lint.source import Captured, Function, SourceText
from recapture.tools.lint.values import CONVERSIONS, EXPANDS, PERHAPS_VIEWS, UNKNOWN, Value, Values, words


class Found(NamedTuple):
    """A behaviour at a place of a file."""

    behaviour: str
    node: ast.expr | ast.stmt


Pattern = Callable[[ast.AST, "Reader"], Iterable[Found]]

PATTERNS: dict[type[ast.AST], list[Pattern]] = defaultdict(list)
"""The patterns by the type of the nodes that they look at."""

BEHAVIOURS_LOOKED_FOR: set[str] = set()
"""The ids of the behaviours that a pattern finds."""

CONDITIONS = (ast.If, ast.While, ast.IfExp, ast.Match, ast.comprehension)
CHANGES_A_LIST = words("append extend insert pop remove clear reverse sort popleft appendleft")
CHANGES_A_DICT = frozenset({"update", "setdefault", "popitem"})
TRANSPOSES = words("t transpose permute T mT swapaxes swapdims movedim flip fliplr flipud")
HOOKS = frozenset(
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ]
)
SEEDS = frozenset({"torch.manual_seed", "torch.random.manual_seed", "torch.set_rng_state"})


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
        self.found: list[Found] = []
        self.assigned: set[str] = set()
        self.changed: set[str] = set()
        self.declared_global: set[str] = set()
        self.generators: set[str] = set()
        self.casts: dict[str, ast.expr] = {}
        arguments = captured.node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self.parameters = {argument.arg for argument in every} - {"self", "cls"}

    def read(self) -> list[Found]:
        """Return what the patterns find in the function."""
        self._ask(self.captured.node)
        self._block(self.captured.node.body)
        return self.found

    def full(self, node: ast.expr) -> str:
        """Return the full dotted name of an expression that begins with an import."""
        return self.source.names.full(node)

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
            self.found += look(node, self)

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
        for name in ("body", "orelse", "finalbody"):
            self._block(getattr(node, name, ()))
        for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._block(handler.body)

    def _bind(self, node: ast.stmt) -> None:
        """Note what the names that a statement assigns hold from here on."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.values.assign(target, self.of(node.value), node.value)
                if isinstance(target, ast.Name):
                    if isinstance(node.value, ast.GeneratorExp):
                        self.generators.add(target.id)
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


# Conditions

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


@pattern("branch-on-tensor-value", "while-on-tensor-value", *OF_A_CONDITION.values(), nodes=CONDITIONS)
def _conditions(node: ast.AST, reader: Reader) -> Iterator[Found]:
    for atom in conditions_of(node):
        value = reader.of(atom)
        if value.kind == "tensor" and not isinstance(node, ast.Match):
            yield Found("while-on-tensor-value" if isinstance(node, ast.While) else "branch-on-tensor-value", atom)
        elif value.kind in OF_A_CONDITION and _matters(value, reader) and not _is_of_nothing(atom, value):
            yield Found(OF_A_CONDITION[value.kind], atom)


def _matters(value: Value, reader: Reader) -> bool:
    """Whether a dtype can be another one: that of a module's input is given by its parameters."""
    return value.kind != "dtype" or reader.captured.owner is None


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


@pattern("loop-over-rows", nodes=(ast.For, ast.comprehension))
def _loops(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, (ast.For, ast.comprehension))
    iterated = node.iter
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "range":
        if any(reader.of(part).kind == "size" for part in iterated.args):
            yield Found("loop-over-rows", iterated)
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


# Numbers that are read from tensors and sizes


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


MAKES_OF_NUMBERS = frozenset({"torch.tensor", "torch.as_tensor", "torch.full", "torch.linspace"})


@pattern("cast-to-dtype-of-argument", nodes=(ast.Return, ast.Call))
def _casts(node: ast.AST, reader: Reader) -> Iterator[Found]:
    """Yield a result that is cast to the dtype of an argument, and a tensor of numbers in that dtype."""
    if reader.captured.owner is not None:
        return
    if isinstance(node, ast.Return) and node.value is not None:
        for part in node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]:
            operands = [part.left, part.right] if isinstance(part, ast.BinOp) else [part]
            casts = (reader.casts.get(one.id) if isinstance(one, ast.Name) else one for one in operands)
            yield from (Found("cast-to-dtype-of-argument", one) for one in casts if one and is_cast(one, reader))
    elif isinstance(node, ast.Call) and reader.full(node.func) in MAKES_OF_NUMBERS:
        for keyword in node.keywords:
            if keyword.arg == "dtype" and _is_dtype_of_argument(keyword.value, reader):
                yield Found("cast-to-dtype-of-argument", node)


def is_cast(node: ast.expr, reader: Reader) -> bool:
    """Whether an expression is ``tensor.to(dtype of an argument)``."""
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Attribute)
        or node.func.attr not in ("to", "type")
    ):
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "dtype")]
    return any(_is_dtype_of_argument(part, reader) for part in given)


def _is_dtype_of_argument(node: ast.expr, reader: Reader) -> bool:
    return reader.of(node) == Value("dtype", argument=True)


@pattern("finfo-min-mask", nodes=(ast.Call,))
def _finfo(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    asks = reader.full(node.func) in ("torch.finfo", "torch.iinfo") and node.args
    if asks and reader.captured.owner is None and reader.of(node.args[0]).kind == "dtype":
        yield Found("finfo-min-mask", node)


# Results


@pattern("torch-size-in-result", "shape-ints-in-result", "plus-zero-returns-argument", nodes=(ast.Return,))
def _results(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Return)
    if node.value is None or not reader.captured.is_entry:
        return
    for part in node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]:
        kind = reader.of(part).kind
        if kind == "shape":
            yield Found("torch-size-in-result", part)
        elif kind == "size":
            yield Found("shape-ints-in-result", part)
        elif _changes_nothing(part, reader):
            yield Found("plus-zero-returns-argument", part)


def _changes_nothing(node: ast.expr, reader: Reader) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.right, ast.Constant):
        return False
    neutral = {ast.Add: 0, ast.Sub: 0, ast.Mult: 1, ast.Div: 1}.get(type(node.op))
    return neutral is not None and node.right.value == neutral and reader.of(node.left).argument


@pattern("generator-in-result", nodes=(ast.Return,))
def _generators(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Return)
    parts = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]
    if reader.captured.is_entry:
        for part in parts:
            is_named = isinstance(part, ast.Name) and part.id in reader.generators
            if isinstance(part, ast.GeneratorExp) or (is_named and isinstance(part, ast.expr)):
                yield Found("generator-in-result", part)


@pattern("yield-from", nodes=(ast.Assign, ast.Call))
def _yielded(node: ast.AST, _reader: Reader) -> Iterator[Found]:
    yield from (Found("yield-from", part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.YieldFrom))


@pattern("unpack-generator", nodes=(ast.Assign,))
def _unpacking(node: ast.AST, _reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Assign)
    target = node.targets[0]
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    if isinstance(node.value, ast.GeneratorExp) and any(isinstance(part, ast.Starred) for part in parts):
        yield Found("unpack-generator", node)


# Writes in place


@pattern(
    "inplace-on-contiguous",
    "inplace-on-to-dtype",
    "inplace-on-expand",
    "inplace-on-view-of-argument",
    nodes=(ast.Call, ast.AugAssign, ast.Assign),
)
def _writes(node: ast.AST, reader: Reader) -> Iterator[Found]:
    written = _written(node)
    if written is None:
        return
    value = reader.of(written)
    if value.kind != "tensor":
        return
    assert isinstance(node, (ast.expr, ast.stmt))
    if isinstance(written, ast.Name) and value.argument:
        reader.changed.add(written.id)
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


# Side effects


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
    "change-dict-argument", "global-counter", "global-rebound", "function-attribute", nodes=(ast.Assign, ast.AugAssign)
)
def _changed_names(node: ast.AST, reader: Reader) -> Iterator[Found]:
    for target in targets_of(node):
        owner = target.value if isinstance(target, (ast.Subscript, ast.Attribute)) else None
        if stored_names(target) & reader.declared_global:
            yield Found("global-rebound", target)
        elif owner is not None and isinstance(target, ast.Subscript) and reader.is_parameter(owner):
            if _is_text([target.slice]):
                yield Found("change-dict-argument", target)
        elif owner is not None and reader.is_global(owner) and isinstance(node, ast.AugAssign):
            yield Found("global-counter", target)
        elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == _own_name(reader.captured):
            yield Found("function-attribute", target)


def _own_name(captured: Captured) -> str:
    return captured.node.name if captured.owner is None else ""


@pattern("manual-seed-inside", "numpy-random", "python-random", nodes=(ast.Call,))
def _random(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    name = reader.full(node.func)
    if name in SEEDS:
        yield Found("manual-seed-inside", node)
    elif name.startswith("numpy.random.") and name.rpartition(".")[2] not in ("default_rng", "RandomState", "seed"):
        yield Found("numpy-random", node)
    elif name.startswith("random.") and name.partition(".")[2] in (
        "random",
        "randint",
        "uniform",
        "choice",
        "randrange",
    ):
        yield Found("python-random", node)


# Modules


@pattern(
    "counter-on-module",
    "buffer-rebound",
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
                if behaviour:
                    yield Found(behaviour, target)


def _of_attribute(name: str, statement: ast.AST, function: ast.AST, buffers: dict[str, bool]) -> str:
    """Return the behaviour of an attribute that is assigned; empty for a buffer that is changed in place."""
    if isinstance(statement, ast.AugAssign):
        if name in buffers:
            return ""
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


# Gradients


@pattern(
    "custom-autograd-function",
    "set-materialize-grads",
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
            keeps_none = "set_materialize_grads(False)" in text
            yield Found("set-materialize-grads" if keeps_none else "custom-autograd-function", node)


@pattern("no-grad-inside", nodes=(ast.With,))
def _no_grad(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.With)
    for item in node.items:
        if isinstance(item.context_expr, ast.Call) and reader.full(item.context_expr.func) in (
            "torch.no_grad",
            "torch.enable_grad",
        ):
            yield Found("no-grad-inside", item.context_expr)


# numpy, scipy and exceptions


@pattern("scipy-functions", "scipy-fft", "numpy-where-argument", nodes=(ast.Call,))
def _arrays(node: ast.AST, reader: Reader) -> Iterator[Found]:
    assert isinstance(node, ast.Call)
    name = reader.full(node.func)
    has_array = any(reader.of(part).kind in ("array", "tensor") for part in node.args)
    if name.startswith("scipy.") and has_array:
        yield Found("scipy-fft" if name.startswith("scipy.fft") else "scipy-functions", node)
    elif name.startswith("numpy.") and has_array and any(keyword.arg == "where" for keyword in node.keywords):
        yield Found("numpy-where-argument", node)


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
