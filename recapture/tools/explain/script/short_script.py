"""A short script: the parts of a case without this project, what is looked at after each call, and the script's text.

It compares the one place where a record has its first difference, and needs nothing but torch.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.text import one_line
from recapture.cases.compiler import Compiler, Family
from recapture.cases.syntax import PROJECT, called_part, dotted, is_future
from recapture.records.verdicts import Verdict
from recapture.tools.explain.reduce.edits import without_unused_imports
from recapture.tools.explain.reduce.program import copied, definition_of, options_of, text_of
from recapture.tools.explain.script.header import HOOK, STATUS, docstring

if TYPE_CHECKING:
    from recapture.records.difference import Difference
    from recapture.run.cell import CellResult

_OTHER = re.compile(r"(?:args|result)(?:\[[^\]]*\]|\.\w+)*")
_STATE = "{**dict(target.named_parameters()), **dict(target.named_buffers())}"


class Inspection(NamedTuple):
    """An expression over ``result``, ``args``, ``target``, ``program`` and ``printed``, and what it needs to be true.

    `gradients` needs a backward before, `output` needs what the call prints, and `separate` that the two sides do not
    share globals. `numbers` is whether a float64 reference says something. `plain` values are compared with ``!=``.
    """

    expression: str
    gradients: bool = False
    output: bool = False
    separate: bool = False
    numbers: bool = False
    plain: bool = False


def inspection_of(result: CellResult) -> Inspection | None:
    """Return what to look at; None if a short script cannot see it."""
    if not result.differences or result.error is not None:
        return Inspection("None", gradients=result.phase == "backward", plain=True)  # whether it raises is what counts
    first = next(difference for difference in result.differences if difference.input == result.input)
    if first.input in ("capture", "original"):
        return None
    root = re.split(r"[.\[]", first.where)[0]
    path = _path(first.where, root)
    if path is None:
        return None
    expression = _property(first, path)
    if expression is None:
        return None
    return Inspection(
        expression,
        gradients=root == "gradients",
        output=root == "output",
        separate=root in ("globals", "watched"),
        numbers=first.kind in ("value", "gradient") and first.bits == "value",
        plain=first.kind not in ("value", "gradient", "mutation", "exception"),
    )


def _path(where: str, root: str) -> str | None:
    """Return the expression for a place of a record."""
    if root in ("result", "args"):
        return where
    if root == "output":
        return "printed"
    if root == "globals":
        return where.replace("globals", "vars(program)", 1)
    if root == "state":
        return where.replace("state", _STATE, 1) if where.startswith("state[") else where.replace("state", "target", 1)
    if root == "gradients":
        inner = where.removeprefix("gradients.").removeprefix("gradients")
        path = _path(inner, re.split(r"[.\[]", inner)[0])
        return None if path is None else f"{path}.grad"
    return None


def _property(difference: Difference, path: str) -> str | None:
    """Return the expression for the property that differs."""
    if difference.kind in ("value", "mutation", "gradient", "output", "exception"):
        return path
    if difference.kind == "dtype":
        return f"{path}.dtype"
    if difference.kind == "shape":
        return f"tuple({path}.shape)"
    if difference.kind == "type":
        return f'f"{{type({path}).__module__}}.{{type({path}).__qualname__}}"'
    if difference.kind == "alias":
        partner = difference.eager or difference.other or ""
        if not _OTHER.fullmatch(partner):
            return None
        return f"{path}.untyped_storage().data_ptr() == {partner}.untyped_storage().data_ptr()"
    if difference.kind == "metadata":
        return f"({path}.requires_grad, {path}.stride())"
    return None


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
    options = {keyword.arg: keyword.value for keyword in calls[0].keywords}
    if None in options or "example" not in options or options.keys() - SHOWN - {"backward"}:
        return None
    held_out = options.get("held_out", ast.List([], ast.Load()))
    if not isinstance(held_out, (ast.List, ast.Tuple)):
        return None
    makers = {"example": options["example"]}
    makers |= {f"held_out[{index}]": maker for index, maker in enumerate(held_out.elts)}
    without = _without_project(tree, name, ours)
    futures = [statement for statement in without.body if is_future(statement)]
    others = [statement for statement in without.body if not is_future(statement)]
    count = next(
        (index for index, statement in enumerate(others) if not isinstance(statement, (ast.Import, ast.ImportFrom))), 0
    )
    return CaseParts(
        futures=_text(futures),
        imports=_text(others[:count]),
        body=_text(others[count:]),
        target=name,
        is_module=isinstance(target, ast.ClassDef),
        inputs={label: ast.unparse(maker) for label, maker in makers.items()},
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
                decorators[:] = [decorator for decorator in decorators if dotted(called_part(decorator)) not in ours]
            body = getattr(node, "body", None)
            if isinstance(body, list):
                body[:] = [statement for statement in body if not _imports_project(statement)] or [ast.Pass()]

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
        keywords = [ast.unparse(keyword) for keyword in call.keywords if keyword.arg != "mode"]
        modes = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "mode"]
        more = [f'**({{"mode": {mode}}} if BACKEND == "inductor" else {{}})' for mode in modes]
        options = ", ".join(["fn", *keywords, "backend=BACKEND", *more])
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
            for parameter in (*node.args.args, *node.args.posonlyargs, *node.args.kwonlyargs):
                parameter.annotation = None
            if node.args.vararg:
                node.args.vararg.annotation = None
    tree.body = [statement for statement in tree.body if not is_future(statement)]
    cleaned = copied(ast.fix_missing_locations(tree), without_unused_imports(tree))
    return text_of(cleaned or tree), False


def _torch_compile_call(compiler: Compiler) -> ast.Call | None:
    """Return a compiler's only call of `torch.compile`, if it names no backend and uses nothing but constants."""
    try:
        tree = ast.parse(compiler.to_source())
    except (KeyError, OSError, SyntaxError):  # its source cannot be read
        return None
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.compile"
    ]
    if len(calls) != 1 or len(calls[0].args) != 1:
        return None
    plain = all(
        isinstance(keyword.value, ast.Constant) and keyword.arg not in (None, "backend")
        for keyword in calls[0].keywords
    )
    return calls[0] if plain else None


CHOSEN = 'BACKEND = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "inductor")'
FALLBACK = "torch._inductor.config.fallback_random = True  # random numbers as eager draws them"

FRESH = '''\
def fresh():
    """Execute this file again, so that the two sides share no state."""
    module = sys.modules["program"] = types.ModuleType("program")
    module.__file__ = __file__
    with open(__file__) as file:
        exec(compile(file.read(), __file__, "exec"), vars(module))
    return module
'''

COPIED = '''\
def copied(value):
    """Return a copy of a value, because a later call may change it."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    return {key: copied(item) for key, item in value.items()} if type(value) is dict else value
'''

DIFFER = '''\
def differ(eager, other):
    """Whether two values differ by more than rounding; exceptions differ by their type."""
    if isinstance(eager, Exception) or isinstance(other, Exception):
        return type(eager).__qualname__ != type(other).__qualname__
    try:
        torch.testing.assert_close(other, eager, equal_nan=True, check_dtype=False, check_stride=False)
    except AssertionError:
        return True
    except (TypeError, ValueError):  # no tensors and no numbers
        return eager != other
    return False
'''

DIFFER_PLAINLY = '''\
def differ(eager, other):
    """Whether two outcomes differ; exceptions differ by their type."""
    if isinstance(eager, Exception) or isinstance(other, Exception):
        return type(eager).__qualname__ != type(other).__qualname__
    return eager != other
'''

DOUBLE = '''\
def double(value):
    """Return a value with its floating-point tensors in float64."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    return type(value)(map(double, value)) if type(value) in (list, tuple) else value
'''

WATCHED = """\
    if "--watched" not in sys.argv:  # the process dies, or does not end: this one watches it
        try:
            done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--watched"], timeout={seconds})
        except subprocess.TimeoutExpired:
            print("still running after {seconds} s")
            sys.exit(1)
        print("exit status", done.returncode)
        sys.exit(done.returncode if done.returncode in (0, 1, 2) else 1)
"""


SPACE = "\n\n\n"
"""What stands between two definitions of a script."""

SEEDS = ("np.random.seed(0)", "numpy.random.seed(0)", "random.seed(0)")
"""Statements that seed other generators than torch's, each for a case that imports its module."""


class Form(NamedTuple):
    """How a script is written: whether its two sides are separate executions, and what it sets for random numbers."""

    separate: bool
    fallback_random: bool


def short_script(
    title: str,
    parts: CaseParts,
    compiler: Compiler,
    inspection: Inspection,
    verdict: Verdict,
    form: Form,
    seconds: int = 120,
) -> str | None:
    """Return a script that exits with 1 if the fault shows and with 0 if it does not; None if it needs this project.

    Its first argument is the backend of `torch.compile`, where that is the compiler; `seconds` limits a process that
    may not end.
    """
    captured = capture_text(compiler)
    if captured is None:
        return None
    capture, has_backend = captured
    needed = [
        *(["import types"] if form.separate else []),
        *(["import io", "import contextlib"] if inspection.output else []),
        *(["import subprocess"] if verdict.facts.died else []),
        *(["import torch._inductor.config"] if form.fallback_random else []),
    ]
    imports = "".join(f"{line}\n" for line in needed if line not in parts.imports.splitlines())
    torch_too = "" if "import torch" in parts.imports.splitlines() else "import torch\n"
    constants = [
        *([CHOSEN] if has_backend else []),
        *([FALLBACK] if form.fallback_random else []),
    ]
    inputs = "".join(f"    {label!r}: {maker},\n" for label, maker in parts.inputs.items())
    pieces = [
        parts.body.strip("\n"),
        f"INPUTS = {{\n{inputs}}}",
        capture.strip("\n"),
        *([FRESH.strip()] if form.separate else []),
        *([DIFFER_PLAINLY.strip()] if inspection.plain else [COPIED.strip(), DIFFER.strip()]),
        *([DOUBLE.strip()] if inspection.numbers else []),
        _outcome(parts, inspection),
        _main(parts, compiler, inspection, verdict, form),
    ]
    head = docstring([one_line(title), "", STATUS])
    tail = 'if __name__ == "__main__":\n'
    tail += WATCHED.format(seconds=seconds) if verdict.facts.died else ""
    tail += "    sys.exit(main())\n"
    start = f"{parts.futures}{HOOK}\n{imports}{parts.imports}{torch_too}"
    middle = "".join(f"{line}\n" for line in constants)
    return head + start + (f"\n{middle}" if middle else "") + "\n\n" + "\n\n\n".join(pieces) + "\n\n\n" + tail


def _outcome(parts: CaseParts, inspection: Inspection) -> str:
    """Return the function that makes one call."""
    call = "result = function(*args)"
    lines = [
        f"def outcome({', '.join([*_more(inspection), 'function', 'make'])}):",
        '    """Return what one call gives, or its exception."""',
        "    torch.manual_seed(0)",
        *(f"    {line}" for line in SEEDS if line.split(".")[0] in _imported(parts)),
        "    args = make()",
        "    try:",
    ]
    if inspection.output:
        lines += ["        with contextlib.redirect_stdout(io.StringIO()) as file:", f"            {call}"]
        lines += ["        printed = file.getvalue()"]
    else:
        lines += [f"        {call}"]
    if inspection.gradients:
        lines += ["        torch.sum(result).backward()"]
    value = inspection.expression if inspection.plain else f"copied({inspection.expression})"
    lines += [f"        return {value}", "    except Exception as error:", "        return error"]
    return "\n".join(lines)


def _imported(parts: CaseParts) -> set[str]:
    """Return the modules that a case imports, by the names that it gives them."""
    nodes = ast.walk(ast.parse(parts.imports))
    return {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def _more(inspection: Inspection) -> list[str]:
    """Return what a call is inspection at through, besides its result and arguments."""
    return [name for name in ("program", "target") if re.search(rf"\b{name}\b", inspection.expression)]


def _main(parts: CaseParts, compiler: Compiler, inspection: Inspection, verdict: Verdict, form: Form) -> str:
    """Return the function that compares the two sides."""
    where = "program." if form.separate else ""
    make_target = f"{where}{parts.target}" + ("()" if parts.is_module else "")
    fresh = ["    program = fresh()"] if form.separate else []
    inputs = f"{where}INPUTS"
    own = "captured" if not compiler.shares_state or compiler.family == Family.SCRIPT else "target"

    def call(function: str, make: str, target: str) -> str:
        more = [target if name == "target" else name for name in _more(inspection)]
        return f"outcome({', '.join([*more, function, make])})"

    lines = [
        "def main():",
        *fresh,
        "    torch.manual_seed(0)",
        f"    target = {make_target}",
        f"    eager = {{name: {call('target', 'make', 'target')} for name, make in {inputs}.items()}}",
    ]
    if inspection.numbers:
        wide = call("wide", "lambda make=make: double(make())", "wide")
        lines += [
            f"    wide = {'target.double()' if parts.is_module else 'target'}",
            f"    exact = {{name: {wide} for name, make in {inputs}.items()}}",
        ]
    arguments = f'target, {inputs}["example"]()'
    if compiler.sees_held_out:
        arguments += f', tuple(make() for name, make in {inputs}.items() if name != "example")'
    again = (
        [*fresh, "    torch.manual_seed(0)", f"    target = {make_target}"] if form.separate or parts.is_module else []
    )
    lines += [
        *again,
        "    torch.manual_seed(1)",
        "    try:",
        f"        captured = capture({arguments})",
        "    except Exception as error:",
        '        print(f"the capture raised {type(error).__qualname__}: {error}")',
        f"        return {1 if verdict is Verdict.ERROR else 2}",
        "    status = 0",
        f"    for name, make in {inputs}.items():",
        f"        other = {call('captured', 'make', own)}",
        "        if differ(eager[name], other):",
        "            status = 1",
        '            print(f"{name}: eager {eager[name]!r}")',
        f'            print(f"{{name}}: {_braces(compiler.name)} {{other!r}}")',
        *(['            print(f"{name}: eager in float64 {exact[name]!r}")'] if inspection.numbers else []),
        "    return status",
    ]
    return "\n".join(lines)


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}").replace("\\", "\\\\").replace('"', '\\"')


def without_compiler(text: str) -> str:
    """Return a short script whose capture gives the original: it must not show the fault."""
    start = text.index("def capture(")
    return f"{text[:start]}def capture(fn, *_):\n    return fn\n{text[text.index(SPACE, start) :]}"


def needs_fallback(parts: CaseParts, compiler: Compiler) -> bool:
    """Whether random numbers of Inductor may be what differs."""
    return draws_random_numbers(parts) and compiler.generates_code
