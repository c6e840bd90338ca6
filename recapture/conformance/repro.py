"""One cell as a script of its own: the case, its inputs, the compiler, and what eager says beside it."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.paths import module_file
from recapture.declare.case import CASES_ATTRIBUTE, Case
from recapture.declare.collection import execute, find_suites
from recapture.declare.compilers import builtin_compilers, compilers_of
from recapture.declare.source import closure, decorator_arguments, defined_names
from recapture.results.directories import find_results, read_results

if TYPE_CHECKING:
    from recapture.declare.compiler import Compiler
    from recapture.results.records import Record

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
{watch_source}

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

def {parts}(value, depth=0):
    """What a value is made of: text for types and structure; numbers and exceptions as they are, copied."""
    kind = type(value)
    if kind is float or isinstance(value, BaseException):
        return [value]
    plain = kind is torch.Tensor or kind.__module__ == "builtins"
    found = [] if plain else [f"{{kind.__module__}}.{{kind.__qualname__}} "]
    if isinstance(value, torch.Tensor):
        gradient = value.grad if value.is_leaf else None
        after = [] if gradient is None else [" with gradient ", *{parts}(gradient)]
        return [*found, value.detach().clone(), *after]
    if kind.__module__ == "numpy" and hasattr(value, "dtype"):
        return [*found, value.copy()]
    if isinstance(value, (list, tuple)):
        ends, inner = "[]" if isinstance(value, list) else "()", [("", one) for one in value]
    elif isinstance(value, dict):
        ends, inner = "{{}}", [(f"{{key!r}}: ", one) for key, one in value.items()]
    elif hasattr(value, "__dict__") and not callable(value):
        ends, inner = "()", [(f"{{key}}=", one) for key, one in vars(value).items()]
    else:
        return [*found, repr(value).split(" at 0x")[0]]
    if depth == 8:  # it may hold itself
        return [*found, "…"]
    items = [part for label, one in inner for part in [label, *{parts}(one, depth + 1), ", "]]
    return [*found, ends[0], *items[:-1], ends[1]]


def {show}(part):
    if isinstance(part, BaseException):
        return f"raised {{type(part).__name__}}: {{part}}"
    return part if isinstance(part, str) else repr(part)


def {agree}(one, other):
    """Whether two parts are equal: numbers but for rounding, exceptions by their type."""
    if type(one).__name__ != type(other).__name__ or isinstance(one, BaseException):
        return type(one).__name__ == type(other).__name__
    try:
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), equal_nan=True)
    except AssertionError:
        return False
    except Exception:  # text, and tensors without values
        return repr(one) == repr(other)
    return True


def {observe}(call, make{parameters}):
    """Call with fresh arguments made under the fixed seed; return everything seen, by where; an exception too."""
    import contextlib
    import io

    {seed}()
    arguments = {place}(make())
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            result = call(*arguments)
    except BaseException as error:
        result = error
    seen = {{"result": result{printed}}}
    seen |= {{f"arguments[{{index}}]": value for index, value in enumerate(arguments)}}
{with_state}{with_watch}    return {{where: {parts}(value) for where, value in seen.items()}}


def {fresh}():
    """Execute this file as a new module, one that can be imported: it sees nothing of what other executions did."""
    import sys
    import types

    module = sys.modules["the_case"] = types.ModuleType("the_case")
    module.__file__ = __file__
    with open(__file__, "rb") as source:
        exec(compile(source.read(), __file__, "exec"), vars(module))
    return vars(module)


if __name__ == "__main__":
    print("torch", torch.__version__)
    torch.set_printoptions(precision=8)
    names = {fresh}()
    {seed}()
    eager = {reference}
    expected = [{observe}(eager, make{of_eager}) for make in [names[{example!r}], *names[{held_out!r}]]]
    names = {fresh}()
    {seed}()
    target = {target}
    {seed}()
    captured = names[{function!r}](target, {place}(names[{example!r}]()){options})
    different = 0
    for index, make in enumerate([names[{example!r}], *names[{held_out!r}]]):
        print(f"== held_out[{{index - 1}}]" if index else "== example")
        sides = [expected[index], {observe}(captured, make{of_captured})]
        differ = []
        for where in dict.fromkeys([*sides[0], *sides[1]]):
            one, other = (side.get(where, ["absent"]) for side in sides)
            if len(one) != len(other) or not all(map({agree}, one, other)):
                differ.append(where)
            elif where != "result":
                continue
            for side, found in [("eager:    ", one), ("captured: ", other)]:
                text = "".join(map({show}, found))
                print(side if where == "result" else f"{{where}}, {{side}}", text, sep="")
        print(f"DIFFERENT: {{', '.join(differ)}}" if differ else "same")
        different += bool(differ)
    print(f"== eager and captured differ on {{different}} of {{len(expected)}} inputs")
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

_WITH_STATE = """\
    state = [*module.named_buffers(), *module.state_dict(keep_vars=True).items()]
    seen |= {f"state[{name!r}]": value for name, value in state}
"""

_WITH_WATCH = """\
    seen["watched"] = watch()
"""

OWN_NAMES = ("example", "held_out", "watch", "place", "seed", "parts", "show", "agree", "observe", "fresh", "rooms")
"""The script's own names; one that the case has as well gets an underscore."""


def script(address: str, device: str, results: Path = Path("results")) -> str:
    """Return the source of a stand-alone script for the cell ``suite::case::compiler``.

    It says what the directories below `results` have recorded of the cell with this torch. Raises UsageError naming the
    part of the address that does not exist.
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
    try:
        compilers = builtin_compilers() | compilers_of(module)
        case_hash = closure(suite.path, found.name).hash
    except ValueError as error:  # two compilers of one name
        raise UsageError(f"{suite.path.name}: {error}") from None
    except KeyError:
        raise UsageError(f"case {found.name!r} is not defined at the top level of {suite.path.name}") from None
    if parts[2] not in compilers:
        raise UsageError(f"unknown compiler {parts[2]!r}{did_you_mean(parts[2], compilers)}")
    cell = f"{suite.name}::{parts[1]}::{parts[2]}"
    recorded = _recorded(cell, case_hash, device, results)
    return _fill(found, suite.path, compilers[parts[2]], cell, device, recorded)


def _recorded(cell: str, case_hash: str, device: str, results: Path) -> list[str]:
    """A line for each record of this very case with this release of torch: its verdict, and its first difference."""
    import torch

    lines: list[str] = []
    for directory in find_results(results) if results.is_dir() else []:
        try:
            found = read_results(directory)
        except UsageError:  # to print a cell takes no results
            continue
        if found.environment is None or found.environment.torch.version != str(torch.__version__):
            continue
        lines += [
            f"Recorded with {found.image} on {found.capability}: {_outcome(one)}\n"
            for one in found.records
            if (one.cell, one.case_hash, one.device) == (cell, case_hash, device)
        ]
    return lines


def _outcome(record: Record) -> str:
    if record.differences:
        first = record.differences[0]
        return f"{record.verdict}; {first.input}, {first.where} ({first.kind}): {first.detail}"
    if record.error is not None:
        where = f"{record.phase} of {record.input}" if record.input else record.phase
        return f"{record.verdict} in {where}: {record.error.type}: {record.error.message.splitlines()[0]}"
    return f"{record.verdict}; {record.reason}" if record.reason else str(record.verdict)


def _fill(case: Case, path: Path, compiler: Compiler, address: str, device: str, recorded: list[str]) -> str:
    arguments = decorator_arguments(path, case.name)
    if "example" not in arguments:
        raise UsageError(f"{address!r} cannot be printed: the example is not written in the decorator of its case")
    if vars(sys.modules[compiler.function.__module__]).get(compiler.function_name) is not compiler.function:
        raise UsageError(
            f"compiler {compiler.name!r} cannot be printed: {compiler.function_name} at the top level of its file is "
            "another function, or none"
        )
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
    ) + "".join(["\n", *recorded] if recorded else [])
    both = sorted(defined_names(text, imports=False) & defined_names(source, imports=False))
    if both and not path.samefile(compiler.function.__code__.co_filename):  # of one file they are the same
        raise UsageError(f"{address!r} cannot be printed: its case and its compiler both define {both[0]!r}")
    taken = defined_names(text) | defined_names(source)
    names = {name: f"{name}_" if name in taken else name for name in OWN_NAMES}
    room = with_room = ""
    if not compiler.checks_inputs:
        helper = closure(module_file("conformance", "padding.py"), "with_room").text.replace(future, "").strip()
        room, with_room = _ROOM.format(source=helper, **names), _WITH_ROOM.format(**names)
    has_state = case.is_module and compiler.shares_state
    watched = f", names[{names['watch']!r}]" if "watch" in arguments else ""
    return _TEMPLATE.format(
        docstring='"""' + header.replace("\\", "\\\\").replace('"""', "'''") + '"""',
        device=device,
        future=f"{future}\n" if future in text else "",
        case=text.replace(future, "").strip(),
        example_source=_by_itself(arguments["example"]),
        held_out_source=_by_itself(arguments.get("held_out", "[]")),
        describe=compiler.describe(),
        compiler=source.strip(),
        printed=', "printed": printed.getvalue()' if case.compare_output else "",
        seed_numpy=_SEED_NUMPY if "numpy" in text else "",
        target=target,
        reference=target if rewritten is None else f"names[{rewritten.__name__!r}]",
        function=compiler.function_name,
        options=options,
        watch_source=f"\n{names['watch']} = ({arguments['watch']})\n" if watched else "",
        parameters=(", module" if has_state else "") + (", watch" if watched else ""),
        of_eager=(", eager" if has_state else "") + watched,
        of_captured=(", target" if has_state else "") + watched,
        with_state=_WITH_STATE if has_state else "",
        with_watch=_WITH_WATCH if watched else "",
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
