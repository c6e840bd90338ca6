"""A file to lint: its imports, the functions that can run while a graph is captured, and its noqa comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recapture.base.errors import UsageError
from recapture.cases.syntax import dotted
from recapture.tools.lint.usual_path import usual_calls
from recapture.tools.lint.values import TENSOR_ATTRIBUTES, TENSOR_METHODS, Names, Value, words

Function = ast.FunctionDef | ast.AsyncFunctionDef

MOST_BYTES = 4 << 20
"""Bytes of the longest file that is read."""

ARGUMENT = Value("tensor", argument=True, view=True)
"""What an argument holds that is a tensor."""

COMPILING = words(
    "torch.compile torch.jit.trace torch.jit.script torch.jit.trace_module torch.export.export "
    "torch.fx.symbolic_trace torch.onnx.export torch._dynamo.optimize recapture.case recapture.check"
)
"""Functions that capture what they are given, by call or as a decorator."""

MAKES_TENSORS = words("tensor as_tensor zeros ones full arange empty linspace eye rand randn randint")
"""Functions of torch whose first argument is no tensor."""

OF_CONTAINERS = words(
    "append extend insert items keys values get pop popleft update lower upper startswith endswith format "
    "join move_to_end reverse _replace send"
)
"""Methods of lists, dicts, texts and their like that no tensor has."""

_NOQA = re.compile(r"#\s*noqa(?::\s*(?P<codes>[\w-]+(?:[,\s]+[\w-]+)*))?", re.IGNORECASE)

_NOT_TENSORS = re.compile(
    r"\b(?:int|float|bool|str|bytes|dict|Dict|Callable|Path|dtype|device|Size|Module|type|Any|Literal)\b"
)
"""Annotations of arguments that are no tensors; an optional tensor, or a list of tensors, names Tensor as well."""


@dataclass(frozen=True)
class Captured:
    """A function that can run while a graph is captured.

    `owner` is the class of a method. `arguments` says what its arguments hold, by name. `is_entry` says that a user
    gives it to a compiler: a `forward`, or a function that nothing in the file calls. `is_usual` is False for a
    private function that the file calls only where optional arguments are given.
    """

    node: Function
    owner: ast.ClassDef | None
    arguments: dict[str, Value]
    is_entry: bool
    is_usual: bool = True

    @property
    def needs_numbers(self) -> bool:
        """Whether a user has to give it something that is annotated as no tensor, such as a number or text."""
        arguments = [*self.node.args.posonlyargs, *self.node.args.args]
        required = arguments[: len(arguments) - len(self.node.args.defaults)]
        annotations = [ast.unparse(argument.annotation) for argument in required if argument.annotation is not None]
        return self.is_entry and any("Tensor" not in text and _NOT_TENSORS.search(text) for text in annotations)


@dataclass
class SourceText:
    """One file: its tree, what its imports stand for, its functions and classes by name, and its suppressions.

    `globals` has what the file assigns to names outside functions. `changes` has the places inside functions that
    change a global object: by its name and an attribute, or its name and an empty text for its items.
    """

    path: Path
    tree: ast.Module
    names: Names
    noqa: dict[int, frozenset[str]]
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    globals: dict[str, ast.expr | None] = field(default_factory=dict)
    changes: dict[tuple[str, str], list[ast.AST]] = field(default_factory=dict)

    def suppressed(self, behaviour: str, lines: Sequence[int]) -> bool:
        """Whether a comment on one of some lines turns a warning off."""
        return any({"", "recapture", behaviour} & self.noqa.get(line, frozenset()) for line in lines)

    def is_module(self, node: ast.ClassDef) -> bool:
        """Whether a class is an ``nn.Module``, as far as the file tells: one with a `forward` that is no Function."""
        return bool(node.bases) and not self.is_function(node) and _method(node, "forward") is not None

    def is_function(self, node: ast.ClassDef) -> bool:
        """Whether a class is a ``torch.autograd.Function``."""
        return any(
            self.names.full(base) in ("torch.autograd.Function", "torch.autograd.function.Function")
            for base in node.bases
        )

    def captured(self) -> Iterator[Captured]:
        """Yield the functions that can run while a graph is captured, each once; none of a file without torch."""
        if not any(name.partition(".")[0] == "torch" for name in self.names.imports.values()):
            return
        calls = _called_by_captured(self)
        compiled = _given_to_a_compiler(self)
        usual = _usual_callees(self)
        for node in self.functions.values():
            arguments = tensor_arguments(node, self.names)
            if arguments or node.name in calls or node.name in compiled:
                for place, name in enumerate(_argument_names(node)):
                    is_given = node.name in compiled and not _used_otherwise(node, name)
                    if (is_given or place in calls.get(node.name, ())) and _may_be_tensor(node, name):
                        arguments.setdefault(name, ARGUMENT)
                if node.name in calls:
                    arguments |= dtype_arguments(node)
                is_usual = not node.name.startswith("_") or node.name not in calls or node.name in usual
                yield Captured(node, None, arguments, node.name in compiled or node.name not in calls, is_usual)
        for owner in self.classes.values():
            if self.is_module(owner):
                for method in _reached_methods(owner):
                    yield Captured(method, owner, tensor_arguments(method, self.names), method.name == "forward")


def read_source(path: Path) -> SourceText:
    """Parse a file. Raises UsageError, in one line, for one that cannot be read or is no Python."""
    try:
        content = path.read_bytes()
        if len(content) > MOST_BYTES:
            raise UsageError(f"{path}: longer than {MOST_BYTES >> 20} MiB")
        tree = ast.parse(content, str(path))
        noqa = _suppressions(content)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        raise UsageError(f"{path} is not Python: {type(error).__name__}: {str(error).splitlines()[0]}") from None
    source = SourceText(path, tree, Names(_imports(tree)), noqa)
    for node in tree.body:
        for inner in [node, *(ast.walk(node) if isinstance(node, (ast.If, ast.Try)) else ())]:
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                source.functions.setdefault(inner.name, inner)
            elif isinstance(inner, ast.ClassDef):
                source.classes.setdefault(inner.name, inner)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            source.globals.update({target.id: node.value for target in targets if isinstance(target, ast.Name)})
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for inner in ast.walk(function):
                for changed in _changed(inner):
                    if changed[0] in source.globals:
                        source.changes.setdefault(changed, []).append(inner)
    return source


def _changed(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the name of an object that a node changes, with the attribute; empty for an item."""
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        if isinstance(node.value, ast.Name):
            yield node.value.id, node.attr if isinstance(node, ast.Attribute) else ""
    elif isinstance(node, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update" | "setdefault")):
                yield name, ""
            case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id=name), ast.Constant(value=str(attribute)), _]):
                yield name, attribute


def tensor_arguments(node: Function, names: Names) -> dict[str, Value]:
    """Return the arguments that are tensors: annotated so, or used as only a tensor is."""
    used = _used_as_tensors(node, names)
    arguments = {}
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        text = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        if re.search(r"\bTensor\b", text) and not re.search(r"\b[Dd]ict\b|Mapping", text):
            arguments[argument.arg] = (
                Value("tensors") if re.search(r"\b[Ll]ist\b|\b[Tt]uple\b|Sequence", text) else ARGUMENT
            )
        elif argument.arg in used and not _NOT_TENSORS.search(text):
            arguments[argument.arg] = ARGUMENT
    return arguments


def dtype_arguments(node: Function) -> dict[str, Value]:
    """Return the arguments of a function that are dtypes: of a helper, that of a tensor."""
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    annotated = {argument.arg: ast.unparse(argument.annotation) for argument in arguments if argument.annotation}
    return {name: Value("dtype", argument=True) for name, text in annotated.items() if text in ("torch.dtype", "dtype")}


def _argument_names(node: Function) -> list[str]:
    return [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]


def _may_be_tensor(node: Function, name: str) -> bool:
    """Whether the annotation and the default of an argument allow a tensor."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    annotation = next((argument.annotation for argument in arguments if argument.arg == name), None)
    if annotation is not None:
        return "Tensor" in ast.unparse(annotation)
    defaults = dict(zip(reversed([argument.arg for argument in arguments]), reversed(node.args.defaults)))  # noqa: B905
    return name not in defaults


def _used_as_tensors(node: Function, names: Names) -> set[str]:
    """Return the names that are used as only tensors are, or that torch or a submodule is called with."""
    used = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
            if inner.attr in TENSOR_ATTRIBUTES | TENSOR_METHODS:
                used.add(inner.value.id)
        elif isinstance(inner, ast.Call):
            function = names.torch_function(inner.func)
            if (function and function not in MAKES_TENSORS) or re.fullmatch(r"self\.\w+", dotted(inner.func) or ""):
                used.update(part.id for part in inner.args[:1] if isinstance(part, ast.Name))
    return used


def _called_by_captured(source: SourceText) -> dict[str, set[int]]:
    """Return the functions that other functions of the file call, with the places of arguments that are tensors."""
    calls: dict[str, set[int]] = {}
    callers: list[Function] = [*source.functions.values()]
    for owner in source.classes.values():
        if source.is_module(owner):
            callers += _reached_methods(owner)
    for caller in callers:
        tensors = set(tensor_arguments(caller, source.names))
        for inner in ast.walk(caller):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in source.functions:
                places = calls.setdefault(inner.func.id, set())
                places.update(
                    place for place, part in enumerate(inner.args) if isinstance(part, ast.Name) and part.id in tensors
                )
    return calls


def _usual_callees(source: SourceText) -> set[str]:
    """Return the functions that others of the file call in what a call with the defaults of its arguments reaches."""
    methods = (
        method
        for owner in source.classes.values()
        for method in owner.body
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return {name for caller in (*source.functions.values(), *methods) for name in usual_calls(caller)}


def _given_to_a_compiler(source: SourceText) -> set[str]:
    """Return the functions that the file itself gives to a compiler, by a call or a decorator."""
    names: set[str] = set()
    for inner in ast.walk(source.tree):
        if isinstance(inner, ast.Call) and source.names.full(inner.func) in COMPILING:
            names.update(part.id for part in inner.args[:1] if isinstance(part, ast.Name))
    for node in source.functions.values():
        decorators = (part.func if isinstance(part, ast.Call) else part for part in node.decorator_list)
        if any(source.names.full(part) in COMPILING for part in decorators):
            names.add(node.name)
    return names


def _used_otherwise(node: Function, name: str) -> bool:
    """Whether an argument is used as no tensor is: called, or as a list, a dict or text."""
    for inner in ast.walk(node):
        owner = inner.func if isinstance(inner, ast.Call) else getattr(inner, "value", None)
        if not isinstance(owner, ast.Name) or owner.id != name:
            continue
        if isinstance(inner, ast.Call) or (isinstance(inner, ast.Attribute) and inner.attr in OF_CONTAINERS):
            return True
        key = inner.slice if isinstance(inner, ast.Subscript) else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return True
    return False


def _method(owner: ast.ClassDef, name: str) -> Function | None:
    for node in owner.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return node
    return None


def _reached_methods(owner: ast.ClassDef) -> list[Function]:
    """Return `forward` and the methods that it calls on `self`, directly or through others."""
    reached: dict[str, Function] = {}
    waiting = ["forward"]
    while waiting:
        name = waiting.pop(0)
        method = _method(owner, name)
        if method is None or name in reached:
            continue
        reached[name] = method
        called = (dotted(inner.func) or "" for inner in ast.walk(method) if isinstance(inner, ast.Call))
        waiting += [name.removeprefix("self.") for name in called if name.startswith("self.")]
    return [*reached.values()]


def _imports(tree: ast.Module) -> dict[str, str]:
    """Return what the names that a file imports stand for; imports inside functions and `try` count too."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _suppressions(content: bytes) -> dict[int, frozenset[str]]:
    """Return the codes of noqa comments by line; the empty code stands for all."""
    if b"noqa" not in content.lower():
        return {}
    lines = {}
    for token in tokenize.tokenize(io.BytesIO(content).readline):
        match = _NOQA.search(token.string) if token.type == tokenize.COMMENT else None
        if match:
            codes = re.split(r"[,\s]+", match["codes"] or "")
            lines[token.start[0]] = frozenset(code.lower() for code in codes)
    return lines
