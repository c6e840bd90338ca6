"""What an expression holds, as far as its source tells: a tensor, a size, a number read from a tensor, a dtype."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from recapture.cases.syntax import dotted

Kind = Literal[
    "tensor",  # a tensor
    "tensors",  # a list or tuple of tensors
    "shape",  # all sizes of a tensor
    "size",  # a Python number that comes from a size
    "rank",  # a number of dimensions
    "value",  # a Python number or bool that was read from a tensor
    "array",  # a numpy array made of a tensor
    "dtype",  # a dtype of a tensor, or a truth about it
    "layout",  # a truth about the strides of a tensor
    "grad",  # a truth about whether a tensor requires a gradient
    "unknown",
]


class Value(NamedTuple):
    """What an expression holds.

    `argument` says that it is an argument of the function itself, `view` that it is memory of an argument, and
    `perhaps` that it is so for some layouts or dtypes only. `made_by` is the method that decides it.
    """

    kind: Kind
    argument: bool = False
    view: bool = False
    perhaps: bool = False
    made_by: str = ""


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


UNKNOWN = Value("unknown")
TENSOR = Value("tensor")

VIEWS = words(
    "view t transpose permute squeeze unsqueeze narrow select diagonal unfold movedim swapaxes swapdims "
    "detach view_as unflatten as_strided T mT H real imag"
)
"""Methods and attributes of a tensor that give a view of it."""

EXPANDS = frozenset({"expand", "expand_as", "broadcast_to"})
"""Methods whose views have elements that share memory."""

PERHAPS_VIEWS = frozenset({"contiguous", "reshape", "flatten", "reshape_as", "ravel"})
"""Methods that give the tensor itself, a view, or a copy, by its layout."""

CONVERSIONS = words("to float double half bfloat16 int long bool type type_as cpu")
"""Methods that give the tensor itself or a copy, by its dtype or device."""

LISTS = words("chunk split unbind tensor_split topk sort max min unique split_with_sizes")
"""Methods that give several tensors, of which `max` and `min` do so only with a dimension."""

SIZES = frozenset({"numel", "nelement"})
RANKS = frozenset({"dim", "ndimension"})
READS = frozenset({"item", "tolist"})
"""Methods that read numbers from a tensor."""

DTYPE_TRUTHS = frozenset({"is_floating_point", "is_complex", "is_signed"})

TENSOR_ATTRIBUTES = words("shape dtype device requires_grad is_cuda ndim layout grad_fn data grad T mT")
TENSOR_METHODS = (
    VIEWS
    | EXPANDS
    | PERHAPS_VIEWS
    | SIZES
    | RANKS
    | DTYPE_TRUTHS
    | words(
        "size new_zeros new_ones new_full new_empty clone masked_fill clamp softmax sum mean is_contiguous "
        "matmul mm bmm item sigmoid tanh relu exp log sqrt pow abs cumsum argmax argmin gather scatter "
        "scatter_ add_ mul_ sub_ div_ zero_ fill_ copy_ requires_grad_ backward repeat repeat_interleave "
        "chunk unbind to_dense nonzero float half double bfloat16 type_as"
    )
) - {"T", "H", "real", "imag", "select", "view"}
"""Names that only a tensor has, or nearly so: an argument on which one is used is taken for a tensor."""

NO_TENSOR = words(
    "finfo iinfo Size device dtype no_grad enable_grad inference_mode "
    "Generator manual_seed load "
    "save compile broadcast_shapes promote_types result_type autocast "
    "device_count typename"
)
"""Functions of torch whose result is no tensor."""

SUBMODULES = words(
    "cuda jit fx compiler distributed utils backends autograd export onnx hub multiprocessing profiler "
    "library version overrides _dynamo _C serialization optim quantization ao nested random"
)
"""Modules of torch whose functions are not taken for operators."""


class Names(NamedTuple):
    """What the names of a file stand for: full dotted names of its imports."""

    imports: Mapping[str, str]

    def full(self, node: ast.expr) -> str:
        """Return the full dotted name of an expression, such as ``torch.nn.functional.relu``; empty for others."""
        name = dotted(node)
        if name is None:
            return ""
        first, _, rest = name.partition(".")
        base = self.imports.get(first)
        if base is None:
            return ""
        return f"{base}.{rest}" if rest else base

    def torch_function(self, node: ast.expr) -> str:
        """Return the short name of a function of torch or of its functional modules; empty for others."""
        name = self.full(node)
        for prefix in ("torch.nn.functional.", "torch.special.", "torch.linalg.", "torch.fft."):
            if name.startswith(prefix):
                return name.removeprefix(prefix)
        if name.startswith("torch."):
            short = name.removeprefix("torch.")
            if short.partition(".")[0] not in SUBMODULES and "." not in short and short[:1].islower():
                return short
        return ""


Callee = Callable[[ast.Call], "Value | None"]
"""Returns what a call of a function of the same file gives; None if the function is another's."""


class Values:
    """What the names of one function hold while its statements are read in order."""

    def __init__(self, names: Names, arguments: Mapping[str, Value], callee: Callee) -> None:
        self.names = names
        self.held: dict[str, Value] = dict(arguments)
        self._callee = callee
        self._readers: dict[type[ast.AST], Callable[[Any], Value]] = {
            ast.Name: self._name,
            ast.NamedExpr: self._namedexpr,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.BinOp: self._binop,
            ast.UnaryOp: self._unaryop,
            ast.BoolOp: self._boolop,
            ast.Compare: self._compare,
            ast.IfExp: self._ifexp,
            ast.Tuple: self._tuple,
            ast.List: self._tuple,
            ast.ListComp: self._listcomp,
            ast.GeneratorExp: self._listcomp,
            ast.Call: self._call,
        }

    def of(self, node: ast.AST | None) -> Value:
        """Return what an expression holds."""
        if node is None:
            return UNKNOWN
        read = self._readers.get(type(node))
        return read(node) if read is not None else UNKNOWN

    def assign(self, target: ast.expr, value: Value, source: ast.expr | None = None) -> None:
        """Note what a target of an assignment holds from here on."""
        if isinstance(target, ast.Name):
            self.held[target.id] = value
        elif isinstance(target, ast.Starred):
            self.assign(target.value, UNKNOWN)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = source.elts if isinstance(source, (ast.Tuple, ast.List)) else []
            for place, part in enumerate(target.elts):
                if len(parts) == len(target.elts):
                    self.assign(part, self.of(parts[place]), parts[place])
                elif value.kind == "shape":
                    self.assign(part, Value("size"))
                elif value.kind in ("tensors", "tensor"):
                    self.assign(part, Value("tensor", view=value.view))
                else:
                    self.assign(part, UNKNOWN)

    # One method for each kind of expression that says something.

    def _name(self, node: ast.Name) -> Value:
        return self.held.get(node.id, UNKNOWN)

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.of(node.value)
        self.assign(node.target, value)
        return value

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self.of(node.value)
        if base.kind != "tensor":
            return UNKNOWN
        if node.attr == "shape":
            return Value("shape")
        if node.attr == "ndim":
            return Value("rank")
        if node.attr == "dtype":
            return Value("dtype", argument=base.argument)
        if node.attr == "requires_grad":
            return Value("grad", argument=base.argument)
        if node.attr in VIEWS or node.attr == "data":
            return Value("tensor", view=base.view, made_by=node.attr)
        return UNKNOWN

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.of(node.value)
        if base.kind == "shape":
            return Value("shape") if isinstance(node.slice, ast.Slice) else Value("size")
        if base.kind == "tensor":
            by_values = any(self.of(part).kind in ("tensor", "tensors") for part in _indices(node.slice))
            return Value("tensor", view=base.view and not by_values)
        if base.kind == "tensors":
            return (
                Value("tensors", view=base.view)
                if isinstance(node.slice, ast.Slice)
                else Value("tensor", view=base.view)
            )
        return Value(base.kind) if base.kind in ("value", "array") else UNKNOWN

    def _binop(self, node: ast.BinOp) -> Value:
        return self._joined([node.left, node.right])

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.of(node.operand)
        return Value(value.kind, argument=value.argument) if isinstance(node.op, ast.Not) else Value(value.kind)

    def _boolop(self, node: ast.BoolOp) -> Value:
        return self._joined(node.values)

    def _compare(self, node: ast.Compare) -> Value:
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):  # among dtypes or numbers; a tensor in a list is rare
            left = self.of(node.left)
            return left if left.kind in ("dtype", "rank", "size") else UNKNOWN
        if any(isinstance(operator, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for operator in node.ops):
            return UNKNOWN
        return self._joined([node.left, *node.comparators])

    def _ifexp(self, node: ast.IfExp) -> Value:
        return self._joined([node.body, node.orelse])

    def _tuple(self, node: ast.Tuple | ast.List) -> Value:
        kinds = {self.of(part).kind for part in node.elts}
        return Value("tensors") if kinds == {"tensor"} else UNKNOWN

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> Value:
        for part in node.generators:
            self.assign(part.target, self.element(part.iter))
        return Value("tensors") if self.of(node.elt).kind == "tensor" else UNKNOWN

    def element(self, node: ast.expr) -> Value:
        """Return what one item of an iterable holds."""
        value = self.of(node)
        if value.kind in ("tensor", "tensors"):
            return Value("tensor", view=value.view)
        return Value("size") if value.kind == "shape" else UNKNOWN

    def _joined(self, nodes: Sequence[ast.expr]) -> Value:
        kinds = [self.of(node).kind for node in nodes]
        order: tuple[Kind, ...] = ("tensor", "array", "value", "size", "rank", "dtype", "layout", "grad")
        return Value(next((kind for kind in order if kind in kinds), "unknown"))

    def _call(self, node: ast.Call) -> Value:
        arguments = [self.of(part) for part in [*node.args, *(keyword.value for keyword in node.keywords)]]
        own = self._callee(node)
        if own is not None:
            return own
        function = self.names.torch_function(node.func)
        if function:
            return self._torch_call(function, arguments)
        name = self.names.full(node.func)
        if name.startswith(("numpy.", "scipy.")):
            if name == "numpy.arange":
                return Value("array", made_by="arange")
            return Value("array") if any(value.kind in ("tensor", "array") for value in arguments) else UNKNOWN
        if name.startswith("math."):
            return self._of_number(arguments)
        if isinstance(node.func, ast.Name) and node.func.id not in self.held:
            return self._builtin(node.func.id, node, arguments)
        if isinstance(node.func, ast.Attribute):
            base = self.of(node.func.value)
            if base.kind in ("tensor", "array"):
                return self._method(node.func.attr, base, node)
            if _is_self(node.func.value) and any(value.kind == "tensor" for value in arguments):
                return TENSOR  # a submodule
        if any(_is_submodule(part) for part in ast.walk(node.func)) and any(v.kind == "tensor" for v in arguments):
            return TENSOR
        return UNKNOWN

    def _torch_call(self, function: str, arguments: Sequence[Value]) -> Value:
        first = arguments[0] if arguments else UNKNOWN
        if function in DTYPE_TRUTHS:
            return Value("dtype", argument=first.argument)
        if function in ("equal", "allclose"):
            return Value("value")
        if function == "numel":
            return Value("size")
        if function in NO_TENSOR or function.startswith(("is_", "are_", "get_", "set_")):
            return UNKNOWN
        if function in VIEWS or function in EXPANDS:
            return Value("tensor", view=first.view, made_by=function)
        if function in ("chunk", "split", "unbind", "tensor_split"):
            return Value("tensors", view=first.view)
        if function in PERHAPS_VIEWS:
            return Value("tensor", view=first.view, perhaps=True, made_by=function)
        return TENSOR

    def _of_number(self, arguments: Sequence[Value]) -> Value:
        kinds = {value.kind for value in arguments}
        if kinds & {"tensor", "value", "array"}:
            return Value("value")
        return Value("size") if kinds & {"size", "shape", "rank"} else UNKNOWN

    def _builtin(self, name: str, node: ast.Call, arguments: Sequence[Value]) -> Value:
        first = arguments[0] if arguments else UNKNOWN
        if name in ("int", "float", "bool"):
            return self._of_number(arguments[:1])
        if name == "len":
            if first.kind == "shape":
                return Value("rank")
            return Value("size") if first.kind == "tensor" else UNKNOWN
        if name in ("max", "min", "round", "abs"):
            return self._joined([*node.args])
        if name == "sum":
            return TENSOR if first.kind in ("tensor", "tensors") else UNKNOWN
        if name in ("list", "tuple", "reversed", "sorted") and first.kind in ("tensors", "shape"):
            return first
        return UNKNOWN

    def _method(self, name: str, base: Value, node: ast.Call) -> Value:
        if base.kind == "array":
            return Value("array")
        if name == "size":
            return Value("size") if node.args or node.keywords else Value("shape")
        plain: dict[str, Value] = {
            **dict.fromkeys(SIZES, Value("size")),
            **dict.fromkeys(RANKS, Value("rank")),
            **dict.fromkeys(READS, Value("value")),
            **dict.fromkeys(DTYPE_TRUTHS, Value("dtype", argument=base.argument)),
            "is_contiguous": Value("layout", argument=base.argument),
            "numpy": Value("array"),
            "stride": Value("layout", argument=base.argument),
            "equal": Value("value"),
        }
        if name in plain:
            return plain[name]
        if name in VIEWS:
            return Value("tensor", view=base.view, perhaps=base.perhaps, made_by=name)
        if name in EXPANDS:
            return Value("tensor", view=base.view, made_by=name)
        if name in PERHAPS_VIEWS or name in CONVERSIONS:
            return Value("tensor", view=base.view, perhaps=True, made_by=name)
        if name in LISTS and not (name in ("max", "min") and not (node.args or node.keywords)):
            return Value("tensors", view=base.view and name in ("chunk", "split", "unbind", "tensor_split"))
        if name.endswith("_") and not name.endswith("__"):
            return base
        return UNKNOWN if name in ("backward", "register_hook", "get_device", "type", "data_ptr") else TENSOR


def _indices(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_submodule(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and _is_self(node.value)
