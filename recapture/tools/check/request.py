"""What a user asks to check: the target, the example, and which inputs to derive; how the command line says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from recapture.base.errors import UsageError
from recapture.base.option_fields import GIB, MOST_GIB, WEEK, option
from recapture.cases.target import (
    DEFAULT_SHAPE,
    Argument,
    ExampleOptions,
    known_dtype,
    parse_inputs_place,
    parse_target,
)
from recapture.machine.hardware import cores
from recapture.run.cell_options import CellOptions

MOST_INPUTS = 40
"""The most derived inputs if the user names no other number; each is called with every compiler."""


class Pickled(msgspec.Struct, frozen=True):
    """An object of another process, as `recapture.cases.own_code.unpacked` takes it.

    `python` is the release of Python whose compiled code it holds; empty if it holds none.
    """

    text: str
    sources: tuple[tuple[str, str], ...] = ()
    paths: tuple[str, ...] = ()
    python: str = ""


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
        """The keyword arguments of `recapture.cases.own_code.OwnCode`, without those that have their defaults."""
        packed = {"packed": self.pickled, "packed_inputs": self.pickled_example}
        values = {
            "place": self.place,
            "name": self.name,
            **{name: pickled and msgspec.structs.astuple(pickled) for name, pickled in packed.items()},
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


def derived_dtype(text: str) -> str:
    """Return the name of a dtype for ``--dtype``; raises UsageError for an unknown one."""
    if not known_dtype(text, "--dtype").startswith(("float", "bfloat")):
        raise UsageError(f"--dtype {text!r}: only floating-point tensors are cast")
    return text


# --- the options of the command line ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class InputOptions(ExampleOptions):
    """The options that say which inputs are given and derived."""

    train: bool = option(
        "--train", default=False, help="Compare gradients, and updated parameters over three steps of plain SGD."
    )
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
        "--compiler",
        default=(),
        metavar="NAME[,NAME]|all",
        commas=True,
        help="Only these compilers, or all that are not optional.",
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
