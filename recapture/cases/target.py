"""A target and its inputs as the command line names them: ``my_model.py:Net``, and ``8x3x224x224`` or ``=True``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.option_fields import option

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
    *("complex64", "complex128"),
)
"""Names of the dtypes of an input on the command line."""

DEFAULT_SHAPE = (2, 3, 224, 224)
"""Shape of the input of a model of torchvision if none is given; a small batch, because it is called many times."""

MOST_ELEMENTS = 1 << 32
"""The most elements of an input on the command line."""

_SHAPE = re.compile(r"(?P<shape>\d+(x\d+)*)?(:(?P<dtype>\w+))?")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


Argument: TypeAlias = "tuple[tuple[int, ...], str] | str"
"""One argument of the example: the shape and dtype of a random tensor, or a Python value as its source."""


def parse_target(text: str) -> tuple[str, str]:
    """Return the place and the name of a target; raises UsageError, in one line, for anything else."""
    place, colon, name = text.rpartition(":")
    if place.endswith(".ipynb"):
        raise UsageError(
            f"{place} is a notebook: call recapture.check({name}, example) in it, or save its code as a .py file"
        )
    if not colon or not place or not _NAME.fullmatch(name):
        raise UsageError(
            f"a target is written as my_model.py:Net, package.module:factory or torchvision:resnet18, not {text!r}"
        )
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise UsageError(f"no such file: {place}")
        return str(path.resolve()), name
    if not _NAME.fullmatch(place):
        raise UsageError(f"{place!r} is neither a Python file nor the name of a module")
    return place, name


def parse_inputs_place(text: str) -> tuple[str, str]:
    """Return the place and the name of a function of inputs, ``FILE:FUNCTION``; raises UsageError for other text."""
    try:
        return parse_target(text)
    except UsageError as error:
        if ":" not in text:
            raise UsageError(f"--inputs {text!r}: it is written as FILE:FUNCTION") from None
        raise UsageError(f"--inputs: {error}") from None


def parse_input(text: str) -> Argument:
    """Parse one ``--input``: ``8x3x224x224``, ``8x128:int64``, ``:float32`` (a number), or ``=VALUE``.

    Raises UsageError for anything else.
    """
    if text.startswith("="):
        try:
            ast.literal_eval(text[1:])
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise UsageError(f"--input {text!r}: after = comes a Python value such as 3, True or 'mean'") from None
        return text[1:]
    match = _SHAPE.fullmatch(text)
    if match is None or not text:
        raise UsageError(f"--input {text!r}: an input is written as 8x3x224x224, 8x128:int64 or =VALUE")
    dtype = match["dtype"] or "float32"
    shape = tuple(int(part) for part in (match["shape"] or "").split("x") if part)
    elements = 1
    for size in shape:
        elements *= size
    if elements > MOST_ELEMENTS:
        raise UsageError(f"--input {text!r}: {elements} elements are too many")
    return shape, known_dtype(dtype, "--input")


def known_dtype(dtype: str, option_name: str) -> str:
    """Return the name of a dtype; raises UsageError, naming the option, for an unknown one."""
    if dtype not in DTYPES:
        raise UsageError(f"{option_name}: unknown dtype {dtype!r}{did_you_mean(dtype, DTYPES)}")
    return dtype


def refuse_unknown_name(place: str, name: str) -> None:
    """Raise UsageError if a target's file cannot be read, or visibly defines no such name.

    This takes no time: importing torch, which would come to the same end, takes seconds.
    """
    if not place.endswith(".py"):
        return
    path = Path(place)
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path.name} cannot be imported: {type(error).__name__}: {error}") from None
    except (OSError, RecursionError, MemoryError):
        return
    # Every name that the file mentions counts, so that nothing is refused that could be defined at run time.
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
    first = name.partition(".")[0]
    if first not in names and not names & {"*", "__getattr__", "exec", "globals", "vars", "setattr"}:
        defined = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        raise UsageError(f"{path.name} has no {first!r}{did_you_mean(first, defined)}")


@dataclass(frozen=True, kw_only=True)
class ExampleOptions:
    """The options that say what a target is called with."""

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
