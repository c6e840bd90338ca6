"""One cell as a script of its own: the case, its inputs, the compiler, and what eager says beside it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from recapture.cases import CASES_ATTRIBUTE, Case
from recapture.collection import execute, find_suites
from recapture.compilers import builtin_compilers, compilers_of
from recapture.errors import UsageError, did_you_mean
from recapture.source import closure, decorator_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.compilers.base import Compiler

__all__ = ["script"]

_TEMPLATE = '''\
"""{cell} on {device}: {summary}

Compares eager with what the compiler makes of it, on the example and on every held-out input. Needs torch alone.
"""

{future}import random
import runpy

import torch

# --- the case -------------------------------------------------------------------------------------------------------

{case}

# --- its inputs -----------------------------------------------------------------------------------------------------

example = {example}

held_out = {held_out}

# --- the compiler: {describe}

{compiler}

# --- the comparison -------------------------------------------------------------------------------------------------


def place(value):
    if isinstance(value, torch.Tensor):
        return value.to({device!r})
    if type(value) in (list, tuple):
        return type(value)(place(item) for item in value)
    return {{key: place(item) for key, item in value.items()}} if type(value) is dict else value


def seed():
    torch.manual_seed(0)
    random.seed(0)
{seed_numpy}

def observe(call, make):
    """Call with fresh arguments made under the fixed seed; an exception is a result too."""
    seed()
    arguments = place(make())
    try:
        return call(*arguments), arguments
    except BaseException as error:
        return f"raised {{type(error).__name__}}: {{error}}", arguments


def target(names):
    seed()
    return {target}


if __name__ == "__main__":
    print("torch", torch.__version__)
    # Each side gets a fresh execution of this file, so that neither sees the other's globals.
    names = runpy.run_path(__file__, run_name="eager")
    eager = target(names)
    expected = [observe(eager, make) for make in [names["example"], *names["held_out"]]]
    names = runpy.run_path(__file__, run_name="captured")
    seed()
    captured = names[{function!r}](target(names), place(names["example"]()){options})
    for index, make in enumerate([names["example"], *names["held_out"]]):
        label = f"held_out[{{index - 1}}]" if index else "example"
        result, arguments = observe(captured, make)
        print(f"== {{label}}\\neager:    {{expected[index][0]}}\\ncaptured: {{result}}")
        if str(arguments) != str(expected[index][1]):
            print(f"arguments after eager:    {{expected[index][1]}}\\narguments after captured: {{arguments}}")
'''


def script(address: str, device: str) -> str:
    """Return the source of a stand-alone script for the cell ``suite::case::compiler``.

    Raises UsageError naming the part of the address that does not exist.
    """
    parts = address.split("::")
    if len(parts) != 3:
        raise UsageError(f"{address!r} is not a cell: write suite::case::compiler")
    selection = find_suites((f"{parts[0]}::{parts[1]}",))
    suite = selection.suites[0]
    try:
        module = execute(suite.name, suite.path)
    except BaseException as error:
        raise UsageError(f"suite {suite.name!r} cannot be imported: {type(error).__name__}: {error}") from None
    cases: list[Case] = getattr(module, CASES_ATTRIBUTE, [])
    found = next((one for one in cases if one.name == parts[1]), None)
    if found is None:
        raise UsageError(f"unknown case {parts[1]!r}{did_you_mean(parts[1], [one.name for one in cases])}")
    compilers = builtin_compilers() | compilers_of(module)
    if parts[2] not in compilers:
        raise UsageError(f"unknown compiler {parts[2]!r}{did_you_mean(parts[2], compilers)}")
    return _fill(found, suite.path, compilers[parts[2]], address, device)


def _fill(case: Case, path: Path, compiler: Compiler, address: str, device: str) -> str:
    arguments = decorator_arguments(path, case.name)
    text = closure(path, case.name).text
    options = ""
    if "concrete_args" in inspect.signature(compiler.function).parameters:
        options = f", concrete_args={case.concrete_args!r}"
    future = "from __future__ import annotations\n"
    source = compiler.to_source().replace(future, "")
    uses_numpy = "numpy" in text
    return _TEMPLATE.format(
        cell=address,
        device=device,
        summary=(inspect.getdoc(case.target) or "").split("\n")[0],
        future=f"{future}\n" if future in text else "",
        case=text.replace(future, "").strip(),
        example=arguments["example"],
        held_out=arguments.get("held_out", "[]"),
        describe=compiler.describe(),
        compiler=source.strip(),
        seed_numpy="    np.random.seed(0)\n" if uses_numpy and "import numpy as np" in text else "",
        target=f'names[{case.name!r}]().to("{device}")' if case.is_module else f"names[{case.name!r}]",
        function=compiler.function_name,
        options=options,
    )
