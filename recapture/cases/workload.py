"""Workloads: whole models whose speed is measured, declared in files like cases, with the speedups claimed for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from recapture.cases.claim import ClaimSyntaxError, SpeedClaim

if TYPE_CHECKING:
    from recapture.cases.case import Inputs

WORKLOADS_ATTRIBUTE = "__recapture_workloads__"
"""Name of the list in a file's namespace that `@workload` appends to."""

DTYPES = ("fp32", "fp32-strict", "tf32", "bf16", "amp")
"""Kinds of arithmetic: torch's defaults (matrix products in float32, cuDNN may use TF32), no TF32, TF32 everywhere,
everything in bfloat16, bfloat16 autocast."""

Factory = TypeVar("Factory", bound=Callable[[], Any])


class WorkloadError(Exception):
    """A workload's declaration is invalid; the message names the workload."""


@dataclass(frozen=True)
class Workload:
    """A workload declared with `@workload`; see `workload` for the fields."""

    name: str
    build: Callable[[], Any]
    inputs: Inputs
    targets: Inputs | None = None
    loss: Callable[..., Any] | None = None
    optimizer: Callable[..., Any] | None = None
    no_grad: bool = True
    dtype: str = "fp32"
    whole_step: bool = False
    claims: Mapping[str, tuple[SpeedClaim, ...]] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu", "cuda")
    requires: tuple[str, ...] = ()
    summary: str = ""

    @property
    def trains(self) -> bool:
        """Whether one iteration is a training step: forward, loss, backward, optimizer."""
        return self.loss is not None


# Longer than 60 lines because its docstring is the reference for authors of workloads.
def workload(
    *,
    inputs: Inputs,
    name: str | None = None,
    targets: Inputs | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: Callable[..., Any] | None = None,
    no_grad: bool = True,
    dtype: Literal["fp32", "fp32-strict", "tf32", "bf16", "amp"] = "fp32",
    whole_step: bool = False,
    claims: Mapping[str, Sequence[tuple[str, str, str]]] | None = None,
    devices: Sequence[str] = ("cpu", "cuda"),
    requires: Sequence[str] = (),
) -> Callable[[Factory], Factory]:
    """Declare the decorated factory as the one that builds a workload's model.

    The factory is called without arguments under a fixed seed. `inputs` makes the tuple of the model's arguments, on
    the CPU; it is called several times under different seeds, and the results are used in rotation. Without `loss`, an
    iteration is a call of the model in eval mode, under ``torch.no_grad()`` unless `no_grad` is False. With `loss`, it
    is a training step: ``loss(model(*inputs), *targets)``, backward, and one step of ``optimizer(parameters)``. With
    `whole_step`, compilers built on Dynamo compile the whole step. Do not use dropout or other random numbers: they
    make results incomparable.

    `dtype` is eager's arithmetic unless the command line overrides it (see DTYPES). `claims` maps a compiler to
    ``(id, expected, published)`` triples; `recapture.cases.claim` has the grammar. `devices` are the devices it is
    meant for, `requires` the modules it needs. The decorated factory is returned unchanged. Raises WorkloadError, which
    names the workload, for an invalid declaration.
    """

    def register(factory: Factory) -> Factory:
        called = name or getattr(factory, "__name__", None)
        if called is None:
            raise WorkloadError(f"a workload has no name: {factory!r} is not a function"[:300])

        def refuse(why: str) -> WorkloadError:
            return WorkloadError(f"workload {called!r}: {why}"[:300])

        for label, function in (("inputs", inputs), ("targets", targets), ("loss", loss), ("optimizer", optimizer)):
            if function is not None and not callable(function):
                raise refuse(f"{label} is not a callable but {function!r}")
        if (loss is None) != (optimizer is None):
            raise refuse("a training step needs both loss and optimizer")
        if targets is not None and loss is None:
            raise refuse("targets are given, and no loss that takes them")
        if dtype not in DTYPES:
            raise refuse(f"dtype is not one of {', '.join(DTYPES)} but {dtype!r}")
        for label, names in (("devices", devices), ("requires", requires)):
            if isinstance(names, str):  # a string would pass as a list of letters
                raise refuse(f"{label} is not a list of names but {names!r}")
        declared = vars(sys.modules[factory.__module__]).setdefault(WORKLOADS_ATTRIBUTE, [])
        if any(other.name == called for other in declared):
            raise WorkloadError(f"two workloads are named {called!r}")
        declared.append(
            Workload(
                name=called,
                build=factory,
                inputs=inputs,
                targets=targets,
                loss=loss,
                optimizer=optimizer,
                no_grad=no_grad,
                dtype=dtype,
                whole_step=whole_step,
                claims={how: _claims(refuse, how, rows) for how, rows in (claims or {}).items()},
                devices=tuple(devices),
                requires=tuple(requires),
                summary=(factory.__doc__ or "").strip().split("\n")[0],
            )
        )
        return factory

    return register


def _claims(refuse: Callable[[str], WorkloadError], how: str, rows: object) -> tuple[SpeedClaim, ...]:
    if not isinstance(rows, (list, tuple)):
        raise refuse(f"the claims of {how!r} are not a list of (id, expected, published) but {rows!r}")
    parsed = []
    for row in rows:
        if not (isinstance(row, tuple) and len(row) == 3 and all(isinstance(part, str) for part in row)):
            raise refuse(f"a claim of {how!r} is not (id, expected, published) but {row!r}")
        try:
            parsed.append(SpeedClaim(*row))
        except ClaimSyntaxError as error:
            raise refuse(str(error)) from None
    return tuple(parsed)
