"""The options of `recapture check` and `recapture migrate` that say what is checked and how."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.option_fields import GIB, MOST_GIB, WEEK, option
from recapture.machine.hardware import cores
from recapture.run.cell_options import CellOptions
from recapture.tools.check.request import (
    DEFAULT_SHAPE,
    MOST_INPUTS,
    Argument,
    CheckRequest,
    derived_dtype,
    parse_input,
    parse_inputs_place,
    parse_target,
)


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """The options that say which inputs are given and derived."""

    inputs: tuple[Argument, ...] = option(
        "--input",
        default=(),
        metavar="SHAPE[:DTYPE]|=VALUE",
        parse=parse_input,
        help="An input, as 8x3x224x224, 8x128:int64 or =True; may be given several times.",
    )
    inputs_from: str | None = option(
        "--inputs",
        default=None,
        metavar="FILE:FUNCTION",
        help="A function that returns the inputs: a tuple, or a dict of names.",
    )
    train: bool = option("--train", default=False, help="Compare gradients and updated parameters over three steps.")
    nonfinite: bool = option("--nonfinite", default=False, help="Also derive inputs with NaN and infinity.")
    dtypes: tuple[str, ...] = option(
        "--dtype", default=(), metavar="NAME", parse=derived_dtype, help="Also derive inputs of this dtype."
    )
    most_inputs: int = option(
        "--most-inputs", default=MOST_INPUTS, between=(0, None), help="The most inputs that are derived."
    )


@dataclass(frozen=True, kw_only=True)
class CheckOptions(CellOptions, InputOptions):
    """The options that say what is checked and how; `timeout` is in seconds and `memory` in bytes, per compiler."""

    compilers: tuple[str, ...] = option(
        "--compiler", default=(), metavar="NAME|all", help="Only this compiler; may be given several times."
    )
    jobs: int = option(
        "--jobs", default_factory=cores, between=(1, None), help="Compilers at a time. [default: the number of cores]"
    )
    timeout: float = option(
        "--timeout", default=600.0, between=(0.1, WEEK), help="Seconds per compiler, and for examining the target."
    )
    memory: int = option("--memory", default=16 * GIB, unit=GIB, between=(0.1, MOST_GIB), help="GiB per compiler.")


def request_of(target: str, options: CheckOptions) -> CheckRequest:
    """Return what the command line asks to check. Raises UsageError, in one line, for bad input."""
    place, name = parse_target(target)
    if options.inputs and options.inputs_from is not None:
        raise UsageError("--input and --inputs both give the inputs: use one of them")
    inputs = options.inputs
    if not inputs and options.inputs_from is None and place == "torchvision":
        inputs = ((DEFAULT_SHAPE, "float32"),)
    return CheckRequest(
        place=place,
        name=name,
        inputs=inputs,
        inputs_from=None if options.inputs_from is None else parse_inputs_place(options.inputs_from),
        train=options.train,
        nonfinite=options.nonfinite,
        dtypes=options.dtypes,
        most_inputs=options.most_inputs,
        device=options.device,
        folder=str(Path.cwd()),
    )


def refuse_unknown_name(request: CheckRequest) -> None:
    """Raise UsageError if a target's file cannot be read, or visibly defines no such name.

    This takes no time: importing torch, which would come to the same end, takes seconds.
    """
    if not request.place.endswith(".py"):
        return
    path = Path(request.place)
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path.name} cannot be imported: {type(error).__name__}: {error}") from None
    except (OSError, RecursionError, MemoryError):
        return
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)  # it may be set by its name
    first = request.name.partition(".")[0]
    if first not in names and not names & {"*", "__getattr__", "exec", "globals", "vars", "setattr"}:
        defined = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        raise UsageError(f"{path.name} has no {first!r}{did_you_mean(first, defined)}")
