"""One cell as a script of its own: the case, its inputs, the compiler, and what eager says beside it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from recapture import room as room_module
from recapture.cases import CASES_ATTRIBUTE, Case
from recapture.collection import execute, find_suites
from recapture.compilers import builtin_compilers, compilers_of
from recapture.errors import UsageError, did_you_mean
from recapture.source import closure, decorator_arguments, defined_names

if TYPE_CHECKING:
    from recapture.compilers.base import Compiler

__all__ = ["script"]

_TEMPLATE = '''\
{docstring}

{future}import torch

# --- the case -------------------------------------------------------------------------------------------------------

{case}

# --- its inputs -----------------------------------------------------------------------------------------------------

{example} = {example_source}

{held_out} = {held_out_source}

# --- the compiler: {describe}

{compiler}
{room}
# --- the comparison -------------------------------------------------------------------------------------------------


def {place}(value):
    if isinstance(value, torch.Tensor) and value.device.type != {device!r}:
        value = value.detach().to({device!r}).requires_grad_(value.requires_grad)
{with_room}    if type(value) in (list, tuple):
        return type(value)({place}(item) for item in value)
    return {{key: {place}(item) for key, item in value.items()}} if type(value) is dict else value


def {seed}():
    import random

    torch.manual_seed(0)
    random.seed(0)
{seed_numpy}

def {observe}(call, make):
    """Call with fresh arguments made under the fixed seed; an exception is a result too."""
    {seed}()
    arguments = {place}(make())
    try:
        return call(*arguments), arguments
    except BaseException as error:
        return f"raised {{type(error).__name__}}: {{error}}", arguments


if __name__ == "__main__":
    import runpy

    print("torch", torch.__version__)
    torch.set_printoptions(precision=8)
    # Each side gets a fresh execution of this file, so that neither sees the other's globals.
    names = runpy.run_path(__file__, run_name="eager")
    {seed}()
    eager = {reference}
    expected = [{observe}(eager, make) for make in [names[{example!r}], *names[{held_out!r}]]]
    names = runpy.run_path(__file__, run_name="captured")
    {seed}()
    target = {target}
    {seed}()
    captured = names[{function!r}](target, {place}(names[{example!r}]()){options})
    for index, make in enumerate([names[{example!r}], *names[{held_out!r}]]):
        label = f"held_out[{{index - 1}}]" if index else "example"
        result, arguments = {observe}(captured, make)
        print(f"== {{label}}\\neager:    {{expected[index][0]}}\\ncaptured: {{result}}")
        if str(arguments) != str(expected[index][1]):
            print(f"arguments after eager:    {{expected[index][1]}}\\narguments after captured: {{arguments}}")
'''

_SEED_NUMPY = """\
    import numpy

    numpy.random.seed(0)
"""

_ROOM = """
# --- zeros behind the inputs: what the compiler makes checks none of them, and may read on past their end

{source}


{rooms} = {{}}
"""

_WITH_ROOM = """\
    if isinstance(value, torch.Tensor):
        return with_room(value, {rooms})
"""

OWN_NAMES = ("example", "held_out", "place", "seed", "observe", "rooms")
"""The script's own names; one that the case has as well gets an underscore."""


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
    return _fill(found, suite.path, compilers[parts[2]], f"{suite.name}::{parts[1]}::{parts[2]}", device)


def _fill(case: Case, path: Path, compiler: Compiler, address: str, device: str) -> str:
    arguments = decorator_arguments(path, case.name)
    if "example" not in arguments:
        raise UsageError(f"{address!r} cannot be printed: the example is not written in the decorator of its case")
    text = closure(path, case.name).text
    options = ""
    if "concrete_args" in inspect.signature(compiler.function).parameters:
        options = f", concrete_args={case.concrete_args!r}"
    future = "from __future__ import annotations\n"
    source = compiler.to_source().replace(future, "")
    target = f"names[{case.name!r}]"
    if case.is_module:
        target += f'().to("{device}")'
    rewritten = case.rewrite_of if compiler.name == "eager" else None
    summary = (case.target.__doc__ or "").strip().split("\n")[0]
    header = (
        f"{address} on {device}: {summary}\n\n"
        "Compares eager with what the compiler makes of it, on the example and on every held-out input.\n"
    )
    taken = defined_names(text) | defined_names(source)
    names = {name: f"{name}_" if name in taken else name for name in OWN_NAMES}
    room = with_room = ""
    if not compiler.checks_inputs:
        helper = closure(Path(room_module.__file__), "with_room").text.replace(future, "").strip()
        room, with_room = _ROOM.format(source=helper, **names), _WITH_ROOM.format(**names)
    return _TEMPLATE.format(
        docstring='"""' + header.replace("\\", "\\\\").replace('"""', "'''") + '"""',
        device=device,
        future=f"{future}\n" if future in text else "",
        case=text.replace(future, "").strip(),
        example_source=_by_itself(arguments["example"]),
        held_out_source=_by_itself(arguments.get("held_out", "[]")),
        describe=compiler.describe(),
        compiler=source.strip(),
        seed_numpy=_SEED_NUMPY if "numpy" in text else "",
        target=target,
        reference=target if rewritten is None else f"names[{rewritten.__name__!r}]",
        function=compiler.function_name,
        options=options,
        room=room,
        with_room=with_room,
        **names,
    )


def _by_itself(source: str) -> str:
    """An expression that goes on over lines as its brackets let it, with brackets of its own where it needs them."""
    try:
        ast.parse(source, mode="eval")
    except SyntaxError:
        return f"({source})"
    return source
