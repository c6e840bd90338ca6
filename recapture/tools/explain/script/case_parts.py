"""The parts of a case that a short script needs: its definitions, its inputs, and how a compiler is called."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from recapture.cases.syntax import PROJECT, called_part, dotted, is_future
from recapture.tools.explain.reduce.definition_edits import without_unused_imports
from recapture.tools.explain.reduce.program import copied, definition_of, options_of, text_of

if TYPE_CHECKING:
    from recapture.cases.compiler import Compiler

SHOWN = frozenset({"example", "held_out", "claims", "compilers", "since", "requires", "codegen_on", "names", "strict"})
"""Options of a case that a short script either shows or does not need."""

RANDOM = re.compile(r"\b(?:rand\w*|dropout\w*|bernoulli_?|multinomial|normal_?|uniform_?|Dropout\w*|exponential_?)\(")
"""Pattern of calls that draw random numbers."""


class CaseParts(NamedTuple):
    """A case without this project: the future imports, the imports, the other statements, and the inputs' sources."""

    futures: str
    imports: str
    body: str
    target: str
    is_module: bool
    inputs: dict[str, str]
    backward: bool


def case_parts(tree: ast.Module, name: str, ours: frozenset[str]) -> CaseParts | None:
    """Return the parts of a case; None if a short script cannot show it.

    That is so if its inputs are not written in its decorator, or if an option changes what is compared.
    """
    target = definition_of(tree, name)
    calls = [] if target is None else options_of(target, ours)
    if target is None or len(calls) != 1 or calls[0].args:
        return None
    options = {one.arg: one.value for one in calls[0].keywords}
    if None in options or "example" not in options or options.keys() - SHOWN - {"backward"}:
        return None
    held_out = options.get("held_out", ast.List([], ast.Load()))
    if not isinstance(held_out, (ast.List, ast.Tuple)):
        return None
    makers = {"example": options["example"]}
    makers |= {f"held_out[{index}]": one for index, one in enumerate(held_out.elts)}
    without = _without_project(tree, name, ours)
    futures = [one for one in without.body if is_future(one)]
    others = [one for one in without.body if not is_future(one)]
    count = next((index for index, one in enumerate(others) if not isinstance(one, (ast.Import, ast.ImportFrom))), 0)
    return CaseParts(
        futures=_text(futures),
        imports=_text(others[:count]),
        body=_text(others[count:]),
        target=name,
        is_module=isinstance(target, ast.ClassDef),
        inputs={label: ast.unparse(one) for label, one in makers.items()},
        backward=ast.unparse(options["backward"]) != "False" if "backward" in options else True,
    )


def _text(statements: list[ast.stmt]) -> str:
    return text_of(ast.Module(statements, []))


def _without_project(tree: ast.Module, name: str, ours: frozenset[str]) -> ast.Module:
    """Return a tree without this project's imports and decorators."""

    def strip(nodes: list[ast.AST]) -> None:
        for node in nodes:
            decorators = getattr(node, "decorator_list", None)
            if decorators:
                decorators[:] = [one for one in decorators if dotted(called_part(one)) not in ours]
            body = getattr(node, "body", None)
            if isinstance(body, list):
                body[:] = [one for one in body if not _imports_project(one)] or [ast.Pass()]

    stripped = copied(tree, strip)
    if stripped is None:
        raise AssertionError(f"the decorators of {name} cannot be removed")
    return stripped


def _imports_project(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] == PROJECT
    return isinstance(node, ast.Import) and all(alias.name.split(".")[0] == PROJECT for alias in node.names)


def draws_random_numbers(parts: CaseParts) -> bool:
    """Whether a case draws random numbers, apart from those of its inputs."""
    return RANDOM.search(parts.body) is not None


def capture_text(compiler: Compiler) -> tuple[str, bool] | None:
    """Return the source of ``capture(fn, example)``, and whether it takes the name of a backend from ``BACKEND``.

    None if the compiler uses this project's modules.
    """
    call = _torch_compile_call(compiler)
    if call is not None:
        kept = [ast.unparse(one) for one in call.keywords if one.arg != "mode"]
        modes = [ast.unparse(one.value) for one in call.keywords if one.arg == "mode"]
        more = [f'**({{"mode": {mode}}} if BACKEND == "inductor" else {{}})' for mode in modes]
        options = ", ".join(["fn", *kept, "backend=BACKEND", *more])
        return f"def capture(fn, example):\n    return torch.compile({options})\n", True
    tree = ast.parse(compiler.to_source())
    if any(_imports_project(node) for node in ast.walk(tree)):
        return None
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef) and node.name == compiler.function_name:
            node.name = "capture"
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for one in (*node.args.args, *node.args.posonlyargs, *node.args.kwonlyargs):
                one.annotation = None
            if node.args.vararg:
                node.args.vararg.annotation = None
    tree.body = [one for one in tree.body if not is_future(one)]
    cleaned = copied(ast.fix_missing_locations(tree), without_unused_imports(tree))
    return text_of(cleaned or tree), False


def _torch_compile_call(compiler: Compiler) -> ast.Call | None:
    """Return a compiler's only call of `torch.compile`, if it names no backend and uses nothing but constants."""
    try:
        tree = ast.parse(compiler.to_source())
    except (KeyError, OSError, SyntaxError):  # its source cannot be read
        return None
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and ast.unparse(one.func) == "torch.compile"]
    if len(calls) != 1 or len(calls[0].args) != 1:
        return None
    plain = all(isinstance(one.value, ast.Constant) and one.arg not in (None, "backend") for one in calls[0].keywords)
    return calls[0] if plain else None
