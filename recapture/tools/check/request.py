"""What a user asks to check: the target, the example, and which inputs to derive; how the command line says it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from recapture.base.errors import UsageError, did_you_mean

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
    *("complex64", "complex128"),
)
"""Names of the dtypes of an input on the command line."""

DEFAULT_SHAPE = (2, 3, 224, 224)
"""Shape of the input of a model of torchvision if none is given; a small batch, because it is called many times."""

MOST_ELEMENTS = 1 << 32
"""The most elements of an input on the command line."""

MOST_INPUTS = 40
"""The most derived inputs if the user names no other number; each is called with every compiler."""

_SHAPE = re.compile(r"(?P<shape>\d+(x\d+)*)?(:(?P<dtype>\w+))?")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


Argument: TypeAlias = "tuple[tuple[int, ...], str] | str"
"""One argument of the example: the shape and dtype of a random tensor, or a Python value as its source."""


class Pickled(msgspec.Struct, frozen=True):
    """An object of another process, as `recapture.tools.check.loading.unpacked` takes it."""

    text: str
    sources: tuple[tuple[str, str], ...] = ()
    paths: tuple[str, ...] = ()


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A target and its inputs.

    The target is `name` in `place` (a path that ends in ``.py``, a module, or ``torchvision``), or `pickled`. The
    example is `inputs`, or what the function `inputs_from` (a place and a name) returns, or `pickled_example`.
    `held_out` are further inputs of the user, by name. `paths` are folders of modules that the target imports, and
    `folder` is where it finds its files. With `train`, training steps are compared. At most `most_inputs` inputs are
    derived. `nonfinite` and `dtypes`: see `variants`.
    """

    place: str = ""
    name: str = ""
    pickled: Pickled | None = None
    inputs: tuple[Argument, ...] = ()
    inputs_from: tuple[str, str] | None = None
    pickled_example: Pickled | None = None
    held_out: dict[str, Pickled] = {}
    derive: bool = True
    most_inputs: int = MOST_INPUTS
    train: bool = False
    nonfinite: bool = False
    dtypes: tuple[str, ...] = ()
    device: str = "cpu"
    paths: tuple[str, ...] = ()
    folder: str = ""

    @property
    def own_code(self) -> dict[str, Any]:
        """The keyword arguments of `recapture.tools.check.loading.OwnCode`, without those that have their defaults."""
        packed = {"packed": self.pickled, "packed_inputs": self.pickled_example}
        values = {
            "place": self.place,
            "name": self.name,
            **{name: one and msgspec.structs.astuple(one) for name, one in packed.items()},
            "inputs": self.inputs,
            "inputs_from": self.inputs_from,
            "paths": self.paths,
            "folder": self.folder,
            "train": self.train,
        }
        return {name: value for name, value in values.items() if value}

    @property
    def title(self) -> str:
        """The target as a user names it."""
        if self.pickled is not None or not self.place:
            return self.name
        return f"{Path(self.place).name if self.place.endswith('.py') else self.place}:{self.name}"

    @property
    def places(self) -> tuple[str, ...]:
        """The files and modules of the user that are named."""
        places = (self.place, *(() if self.inputs_from is None else self.inputs_from[:1]))
        return tuple(place for place in places if place and place != "torchvision")

    @property
    def steps(self) -> int:
        """The number of training steps that are compared."""
        return 3 if self.train else 0


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
    """Return the place and the name of a function of inputs, ``FILE:FUNCTION``."""
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
    return shape, _known(dtype, "--input")


def derived_dtype(text: str) -> str:
    """Return the name of a dtype for ``--dtype``; raises UsageError for an unknown one."""
    if not _known(text, "--dtype").startswith(("float", "bfloat")):
        raise UsageError(f"--dtype {text!r}: only floating-point tensors are cast")
    return text


def _known(dtype: str, option: str) -> str:
    if dtype not in DTYPES:
        raise UsageError(f"{option}: unknown dtype {dtype!r}{did_you_mean(dtype, DTYPES)}")
    return dtype
