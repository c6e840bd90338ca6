"""The text of a short script: the case, the compiler, and a comparison of the one place where they differ."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.text import one_line
from recapture.records.verdicts import Verdict
from recapture.tools.explain.script.case_parts import CaseParts, capture_text, draws_random_numbers

if TYPE_CHECKING:
    from recapture.cases.compiler import Compiler
    from recapture.tools.explain.script.observation import Looked

"""Verdicts of processes that did not end by themselves: the script watches another process."""

CHOSEN = 'BACKEND = next((one for one in sys.argv[1:] if not one.startswith("-")), "inductor")'
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

KEPT = '''\
def kept(value):
    """Return a copy of a value, because a later call may change it."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(map(kept, value))
    return {key: kept(one) for key, one in value.items()} if type(value) is dict else value
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
    if "--here" not in sys.argv:  # the process dies, or does not end: another one watches it
        try:
            done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--here"], timeout={seconds})
        except subprocess.TimeoutExpired:
            print("still running after {seconds} s")
            sys.exit(1)
        print("exit status", done.returncode)
        sys.exit(0 if done.returncode == 0 else 1)
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
    title: str, parts: CaseParts, compiler: Compiler, looked: Looked, verdict: Verdict, form: Form, seconds: int = 120
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
        "import sys",
        *(["import types"] if form.separate else []),
        *(["import io", "import contextlib"] if looked.output else []),
        *(["import subprocess"] if verdict.facts.died else []),
        *(["import torch._inductor.config"] if form.fallback_random else []),
    ]
    imports = "".join(f"{line}\n" for line in needed if line not in parts.imports.splitlines())
    torch_too = "" if "import torch" in parts.imports.splitlines() else "import torch\n"
    constants = [
        *([CHOSEN] if has_backend else []),
        *([FALLBACK] if form.fallback_random else []),
    ]
    inputs = "".join(f"    {label!r}: {made},\n" for label, made in parts.inputs.items())
    pieces = [
        parts.body.strip("\n"),
        f"INPUTS = {{\n{inputs}}}",
        capture.strip("\n"),
        *([FRESH.strip()] if form.separate else []),
        *([DIFFER_PLAINLY.strip()] if looked.plain else [KEPT.strip(), DIFFER.strip()]),
        *([DOUBLE.strip()] if looked.numbers else []),
        _outcome(parts, looked),
        _main(parts, compiler, looked, form),
    ]
    head = f'"""{_in_docstring(title)}\n\nExits with 1 if the fault shows, and with 0 if it does not.\n"""\n\n'
    tail = 'if __name__ == "__main__":\n'
    tail += WATCHED.format(seconds=seconds) if verdict.facts.died else ""
    tail += "    sys.exit(main())\n"
    start = f"{parts.futures}{imports}{parts.imports}{torch_too}"
    middle = "".join(f"{line}\n" for line in constants)
    return head + start + (f"\n{middle}" if middle else "") + "\n\n" + "\n\n\n".join(pieces) + "\n\n\n" + tail


def _outcome(parts: CaseParts, looked: Looked) -> str:
    """Return the function that makes one call."""
    call = "result = function(*args)"
    lines = [
        f"def outcome({', '.join([*_more(looked), 'function', 'make'])}):",
        '    """Return what one call gives, or its exception."""',
        "    torch.manual_seed(0)",
        *(f"    {line}" for line in SEEDS if line.split(".")[0] in _imported(parts)),
        "    args = make()",
        "    try:",
    ]
    if looked.output:
        lines += ["        with contextlib.redirect_stdout(io.StringIO()) as file:", f"            {call}"]
        lines += ["        printed = file.getvalue()"]
    else:
        lines += [f"        {call}"]
    if looked.gradients:
        lines += ["        torch.sum(result).backward()"]
    value = looked.expression if looked.plain else f"kept({looked.expression})"
    lines += [f"        return {value}", "    except Exception as error:", "        return error"]
    return "\n".join(lines)


def _imported(parts: CaseParts) -> set[str]:
    """Return the modules that a case imports, by the names that it gives them."""
    nodes = ast.walk(ast.parse(parts.imports))
    return {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}


def _more(looked: Looked) -> list[str]:
    """Return what a call is looked at through, besides its result and arguments."""
    return [name for name in ("program", "target") if re.search(rf"\b{name}\b", looked.expression)]


def _main(parts: CaseParts, compiler: Compiler, looked: Looked, form: Form) -> str:
    """Return the function that compares the two sides."""
    where = "program." if form.separate else ""
    made = f"{where}{parts.target}" + ("()" if parts.is_module else "")
    fresh = ["    program = fresh()"] if form.separate else []
    inputs = f"{where}INPUTS"
    own = "captured" if not compiler.shares_state or compiler.name.startswith("jit.script") else "target"

    def call(function: str, make: str, target: str) -> str:
        return f"outcome({', '.join([*(target if one == 'target' else one for one in _more(looked)), function, make])})"

    lines = [
        "def main():",
        *fresh,
        "    torch.manual_seed(0)",
        f"    target = {made}",
        f"    eager = {{name: {call('target', 'make', 'target')} for name, make in {inputs}.items()}}",
    ]
    if looked.numbers:
        wide = call("wide", "lambda make=make: double(make())", "wide")
        lines += [
            f"    wide = {'target.double()' if parts.is_module else 'target'}",
            f"    exact = {{name: {wide} for name, make in {inputs}.items()}}",
        ]
    arguments = f'target, {inputs}["example"]()'
    if compiler.sees_held_out:
        arguments += f', tuple(make() for name, make in {inputs}.items() if name != "example")'
    again = [*fresh, "    torch.manual_seed(0)", f"    target = {made}"] if form.separate or parts.is_module else []
    lines += [
        *again,
        "    torch.manual_seed(1)",
        "    try:",
        f"        captured = capture({arguments})",
        "    except Exception as error:",
        '        print(f"the capture raised {type(error).__qualname__}: {error}")',
        "        return 1",
        "    status = 0",
        f"    for name, make in {inputs}.items():",
        f"        other = {call('captured', 'make', own)}",
        "        if differ(eager[name], other):",
        "            status = 1",
        '            print(f"{name}: eager {eager[name]!r}")',
        f'            print(f"{{name}}: {_braces(compiler.name)} {{other!r}}")',
        *(['            print(f"{name}: eager in float64 {exact[name]!r}")'] if looked.numbers else []),
        "    return status",
    ]
    return "\n".join(lines)


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}").replace("\\", "\\\\").replace('"', '\\"')


def _in_docstring(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace('"""', "'''")


def without_compiler(text: str) -> str:
    """Return a short script whose capture gives the original: it must not show the fault."""
    start = text.index("def capture(")
    return f"{text[:start]}def capture(fn, *_):\n    return fn\n{text[text.index(SPACE, start) :]}"


def needs_fallback(parts: CaseParts, compiler: Compiler) -> bool:
    """Whether random numbers of Inductor may be what differs."""
    return draws_random_numbers(parts) and compiler.generates_code
