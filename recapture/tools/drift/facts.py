"""What a side is asked to do, and what it says it did; both travel as JSON between two Pythons."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from recapture.cases.compilers import EAGER

Verdict = Literal["same bits", "rounding", "changed", "refuses", "form"]

VERDICTS: dict[Verdict, str] = {
    "refuses": "one side raises an exception, or another one",
    "form": "another dtype, shape, stride, type or structure",
    "changed": "other numbers, beyond what rounding explains",
    "rounding": "other bits, within what rounding explains",
    "same bits": "the same bits",
}
"""How two sides can compare, worst first, with the meaning."""

SAME_BITS: Verdict = "same bits"

WITHOUT_NUMBERS: tuple[Verdict, ...] = ("same bits", "form", "refuses")
"""Where there are no deviations whose size could be rounding."""

BEYOND_ROUNDING: tuple[Verdict, ...] = ("changed", "form", "refuses")
"""Verdicts that rounding does not explain."""

REFUSES: Verdict = "refuses"
"""The verdict of a part that one side does not give, because it raises an exception."""

REQUEST = "request.json"
REPORT = "side.json"
ERRORS = "errors.txt"
"""Name of the file with what the process of a side wrote to its standard error."""

GIVEN = "given.pt"
"""Name of the file with the weights, buffers and inputs of a side, which the other side takes over as bytes."""

OBSERVED = "observed.pt"
"""Name of the file with the results, gradients and buffers of a side."""

OPERATORS = "operators.json"
KEPT = "kept.pt"
"""Name of the file with what went into one operator of a side and came out of it."""


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """How a side trains: the number of `steps`, and the rest of a training loop.

    `optimizer` is ``sgd``, ``adamw`` or the place and name of a function of the module that returns an optimizer, or
    one and a scheduler. `loss` is a function of the result and the inputs. `autocast` is a dtype, `clip` the largest
    norm of all gradients, `accumulate` the number of shares of the batch whose gradients are added. The operators of
    step `watched` are recorded.
    """

    steps: int
    optimizer: str | tuple[str, str] = "sgd"
    rate: float = 0.01
    loss: tuple[str, str] | None = None
    autocast: str = ""
    clip: float | None = None
    accumulate: int = 1
    watched: int = 0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a process does for one side.

    `own_code` are the arguments of `recapture.cases.own_code.OwnCode`. `folder` receives the files. `other` is the
    folder of the first side: weights and inputs come from there, and what is observed is compared with what is there.
    `record` notes every operator. `keep` is the number of one operator whose tensors are written, and compared with
    those in `other` if it has them; with `substitute`, its results become those of the other side, and the call goes
    on. Without `training`, a call and its backward are observed. A training runs in `ranks` processes, with `parallel`
    (``ddp`` or ``fsdp``). `without` names libraries that are switched off (`recapture.tools.drift.side.SWITCHES`).
    """

    own_code: dict[str, Any]
    folder: str
    other: str | None = None
    device: str = "cpu"
    compiler: str = EAGER
    record: bool = True
    keep: int | None = None
    substitute: bool = False
    without: tuple[str, ...] = ()
    training: Training | None = None
    ranks: int = 1
    parallel: str = "ddp"


class Raised(msgspec.Struct, frozen=True):
    """An exception of a side, and the step of a training, counted from 1, in which it was raised."""

    type: str
    message: str
    step: int | None = None


class Operator(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of an operator, in the order of the calls.

    `module` is the path of the submodule that calls it, and `line` the source line outside of torch, as ``file:line``.
    `takes` and `gives` are hashes of the tensors before and after. `forms` are the dtypes and shapes of the results,
    `numbers` those of `recapture.judge.digest` for a sample of each.
    """

    name: str
    module: str = ""
    line: str = ""
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    numbers: tuple[tuple[float, ...], ...] = ()
    backward: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One result, gradient or buffer on both sides.

    `digits` are the decimal digits that agree, relative to the size of the whole tensor; None if the tensors cannot be
    compared. `elements` are those that differ, of all. `old` and `new` say what differs, where it is no number.
    """

    name: str
    verdict: Verdict
    digits: float | None = None
    elements: tuple[int, int] | None = None
    old: str = ""
    new: str = ""


class OperatorDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What one operator gives on two sides for the same inputs.

    `old` and `new` are the values where they are farthest apart, `at` the place. `errors` are the largest distances
    from the result in float64, relative to its largest element, of the old and the new side. `rounding` says whether
    rounding explains the difference.
    """

    rounding: bool
    digits: float | None
    elements: tuple[int, int]
    old: str = ""
    new: str = ""
    at: tuple[int, ...] = ()
    errors: tuple[float, float] | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One training step: digests of what it computed, by name, each a hash and numbers.

    `spread` is how far these numbers move when noise of rounding size is put into each operator.
    """

    loss: str
    tensors: dict[str, tuple[str, tuple[float, ...]]]
    spread: dict[str, float] = {}


class SideReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a process says of its side.

    `problem` is why there is nothing else: one line for the user. `packages` are those that were imported. `initial`
    and `streams` are hashes of the initial weights and of random numbers under a fixed seed, by name. `stable` is False
    if two calls of this side differ beyond rounding, `repeats` if they have other bits at all. `digests` are hashes of
    what it gave; `parts` compare that with the other side. `spread` says to how many digits results agree when noise of
    rounding size is put into each operator. `operator` is the comparison of the operator that was kept.
    """

    problem: str = ""
    torch: str = ""
    packages: dict[str, str] = {}
    settings: dict[str, str] = {}
    raised: Raised | None = None
    gradients: bool = True
    stable: bool = True
    repeats: bool = True
    initial: dict[str, str] = {}
    streams: dict[str, str] = {}
    digests: dict[str, str] = {}
    parts: tuple[Part, ...] = ()
    spread: float | None = None
    operator: OperatorDifference | None = None
    steps: tuple[Step, ...] = ()
    version: Literal[3] = 3


def worst(verdicts: tuple[Verdict, ...]) -> Verdict:
    """Return the worst of some verdicts; without any, the bits are the same."""
    order = list(VERDICTS)
    return min(verdicts, key=order.index, default="same bits")
