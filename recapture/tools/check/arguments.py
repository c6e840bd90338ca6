"""The options of `recapture check` and `recapture migrate` that say what is checked and how."""

from __future__ import annotations

from dataclasses import dataclass

from recapture.base.errors import UsageError
from recapture.base.option_fields import GIB, MOST_GIB, WEEK, known_device, option
from recapture.machine.hardware import cores
from recapture.tools.check.request import (
    DEFAULT_SHAPE,
    CheckRequest,
    Given,
    derived_dtype,
    parse_input,
    parse_inputs_place,
    parse_target,
)


@dataclass(frozen=True, kw_only=True)
class CheckArguments:
    """The options that say what is checked and how."""

    given: tuple[Given, ...] = option(
        "--input",
        default=(),
        metavar="SHAPE[:DTYPE]|=VALUE",
        parse=parse_input,
        help="An input, as 8x3x224x224, 8x128:int64 or =True; may be given several times.",
    )
    inputs: str | None = option(
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
    compilers: tuple[str, ...] = option(
        "--compiler", default=(), metavar="NAME|all", help="Only this compiler; may be given several times."
    )
    device: str = option("--device", default="cpu", metavar="cpu|cuda", parse=known_device, help="Device to run on.")
    jobs: int = option(
        "--jobs", default_factory=cores, between=(1, None), help="Compilers at a time. [default: the number of cores]"
    )
    timeout: float = option("--timeout", default=600.0, between=(0.1, WEEK), help="Seconds per compiler.")
    memory: int = option("--memory", default=16 * GIB, unit=GIB, between=(0.1, MOST_GIB), help="GiB per compiler.")


def request_of(target: str, options: CheckArguments) -> CheckRequest:
    """Return what the command line asks to check. Raises UsageError, in one line, for bad input."""
    place, name = parse_target(target)
    if options.given and options.inputs is not None:
        raise UsageError("--input and --inputs both give the inputs: use one of them")
    given = options.given
    if not given and options.inputs is None and place == "torchvision":
        given = (Given(DEFAULT_SHAPE),)
    return CheckRequest(
        place=place,
        name=name,
        given=given,
        inputs=None if options.inputs is None else parse_inputs_place(options.inputs),
        train=options.train,
        nonfinite=options.nonfinite,
        dtypes=options.dtypes,
        device=options.device,
    )
