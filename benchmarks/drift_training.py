"""Plants faults in the training of one of two sides: ``python -m benchmarks.drift_training``.

A fault counts as placed if `recapture drift --train` names the step and the tensor where it begins. Pairs without any
must never be called changed; in them the new side computes one operator in another order, as another release would.
``--pairs`` is their number. Both sides run in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import torch

from benchmarks.drift import TARGETS, InThisProcess
from recapture.tools.drift import training as loop
from recapture.tools.drift.answer import Drift, DriftReport
from recapture.tools.drift.facts import SideReport, Task, Training
from recapture.tools.drift.side import Side
from recapture.tools.drift.sides import SideOf

STEPS = 9
ADAMW, SGD = Training(steps=STEPS, optimizer="adamw"), Training(steps=STEPS)
CLIPPED = Training(steps=STEPS, clip=0.5)
SHARED = Training(steps=STEPS, accumulate=2)
REORDERED = ("", "tanh: formula", "addmm: float64", "mm: float64")
"""What the new side of a pair without a fault computes in another order."""

Change = Callable[[Any], object]


class Fault(NamedTuple):
    """A planted fault: the step and the beginning of the tensor's name that show it first, and what it changes."""

    step: int
    tensor: str
    training: Training = SGD
    module: Change = lambda _: None
    optimizer: Change = lambda _: None


def gradient(name: str, change: Callable[[Any], Any], step: int = 1, *, alone: bool = False) -> Change:
    """Return what changes the gradient of a parameter, from a step on or in it alone."""

    def plant(module: Any) -> None:
        calls = iter(range(1, 1_000))

        def hook(value: Any) -> Any:
            number = next(calls)
            return change(value) if number == step or (number > step and not alone) else None

        module.get_parameter(name).register_hook(hook)

    return plant


def every_group(**values: Any) -> Change:
    """Return what changes the options of an optimizer."""
    return lambda optimizer: [group.update(values) for group in optimizer.param_groups]


def before_step(step: int, change: Change) -> Change:
    """Return what changes an optimizer just before its step of that number."""

    def plant(optimizer: Any) -> None:
        calls = iter(range(1, 1_000))

        def hook(subject: Any, *_: Any) -> None:  # without a result, which would take the place of the arguments
            if next(calls) == step:
                change(subject)

        optimizer.register_step_pre_hook(hook)

    return plant


def at_call(step: int, change: Change) -> Change:
    """Return what changes a module just before its forward of that number."""

    def plant(module: Any) -> None:
        calls = iter(range(1, 1_000))

        def hook(subject: Any, _: Any) -> None:
            if next(calls) == step:
                change(subject)

        module.register_forward_pre_hook(hook)

    return plant


def _nan_in(value: Any) -> Any:
    changed = value.clone()
    changed.view(-1)[0] = float("nan")
    return changed


def _rates_by_order(optimizer: Any) -> None:
    """Give the parameters the rates that belong to them in the opposite order."""
    (group,) = optimizer.param_groups
    parameters = group["params"]
    others = {key: value for key, value in group.items() if key != "params"}
    optimizer.param_groups[:] = [
        {**others, "params": [parameter], "lr": group["lr"] * (1 + number / 10)}
        for number, parameter in enumerate(reversed(parameters))
    ]


def _swap_states(optimizer: Any) -> None:
    """Give the moments of one weight to its bias's neighbour of the same shape, as a checkpoint in another order."""
    parameters = optimizer.param_groups[0]["params"]
    first, second = [value for value in parameters if value.shape == (16,)][:2]
    optimizer.state[first], optimizer.state[second] = optimizer.state[second], optimizer.state[first]


def _forget(optimizer: Any) -> None:
    for state in optimizer.state.values():
        state["exp_avg"].zero_()


def _skip(optimizer: Any) -> None:
    optimizer.param_groups[0]["params"][0].grad = None


FAULTS = {
    "bias gradient times 1.001": Fault(
        1, "gradient of second.bias", module=gradient("second.bias", lambda g: g * 1.001)
    ),
    "weight gradient times 0.999": Fault(
        1, "gradient of norm.weight", module=gradient("norm.weight", lambda g: g * 0.999)
    ),
    "gradient times 1.001 from step 3": Fault(
        3, "gradient of last.bias", module=gradient("last.bias", lambda g: g * 1.001, 3)
    ),
    "gradient dropped": Fault(1, "gradient of second.bias", module=gradient("second.bias", torch.zeros_like)),
    "sign at step 4": Fault(
        4, "gradient of second.weight", module=gradient("second.weight", lambda g: -g, 4, alone=True)
    ),
    "NaN at step 7": Fault(7, "gradient of first.weight", module=gradient("first.weight", _nan_in, 7)),
    "infinite at step 5": Fault(5, "gradient of last.weight", module=gradient("last.weight", lambda g: g / 0, 5)),
    "gradient in bfloat16": Fault(
        1, "gradient of last.weight", module=gradient("last.weight", lambda g: g.bfloat16().float())
    ),
    "gradient clamped": Fault(
        1, "gradient of second.weight", module=gradient("second.weight", lambda g: g.clamp(-1e-3, 1e-3))
    ),
    "gradient transposed": Fault(1, "gradient of second.weight", module=gradient("second.weight", lambda g: g.t())),
    "gradient with an offset": Fault(1, "gradient of norm.bias", module=gradient("norm.bias", lambda g: g + 1e-4)),
    "forward hook dropped": Fault(1, "loss", module=lambda module: module.forward_hook.remove()),
    "backward hook dropped": Fault(1, "gradient of first.", module=lambda module: module.backward_hook.remove()),
    "forward hook dropped at step 6": Fault(6, "loss", module=at_call(6, lambda module: module.forward_hook.remove())),
    "parameter frozen": Fault(1, "gradient of norm.bias", module=lambda module: module.norm.bias.requires_grad_(False)),
    "stale buffer": Fault(1, "buffer norm.running_", module=lambda module: setattr(module.norm, "momentum", 0.0)),
    "stale buffer from step 5": Fault(
        5,
        "buffer norm.running_",
        module=at_call(5, lambda module: setattr(module.norm, "track_running_stats", False)),
    ),
    "momentum of a batch norm": Fault(
        1, "buffer norm.running_", module=lambda module: setattr(module.norm, "momentum", 0.11)
    ),
    "epsilon of a batch norm": Fault(1, "loss", module=lambda module: setattr(module.norm, "eps", 1e-2)),
    "evaluation mode from step 4": Fault(4, "buffer norm.", module=at_call(4, lambda module: module.norm.eval())),
    "epsilon of AdamW": Fault(1, "parameter ", ADAMW, optimizer=every_group(eps=1e-4)),
    "moments of AdamW": Fault(1, "optimizer state exp_avg_sq", ADAMW, optimizer=every_group(betas=(0.9, 0.99))),
    "weight decay of AdamW": Fault(1, "parameter ", ADAMW, optimizer=every_group(weight_decay=0.5)),
    "momentum of SGD": Fault(2, "optimizer state momentum_buffer", optimizer=every_group(momentum=0.89)),
    "Nesterov": Fault(1, "parameter ", optimizer=every_group(nesterov=True)),
    "dampening": Fault(2, "optimizer state momentum_buffer", optimizer=every_group(dampening=0.1)),
    "rates in another order": Fault(1, "parameter ", optimizer=_rates_by_order),
    "rate from step 4": Fault(4, "parameter ", optimizer=before_step(4, every_group(lr=0.0101))),
    "states in another order at step 3": Fault(3, "optimizer state ", ADAMW, optimizer=before_step(3, _swap_states)),
    "state forgotten at step 6": Fault(6, "optimizer state exp_avg", ADAMW, optimizer=before_step(6, _forget)),
    "parameter skipped at step 5": Fault(5, "", ADAMW, optimizer=before_step(5, _skip)),
    "maximised": Fault(1, "optimizer state ", ADAMW, optimizer=every_group(maximize=True)),
    "gradient before a clip": Fault(
        1, "gradient of last.bias", CLIPPED, module=gradient("last.bias", lambda g: g * 1.01)
    ),
    "share of a batch counted twice": Fault(
        1, "gradient of last.bias", SHARED, module=gradient("last.bias", lambda g: g * 2, 2)
    ),
}
"""The planted faults by name."""


@contextlib.contextmanager
def faulty(name: str) -> Iterator[None]:
    """Plant a fault in the modules and optimizers of this process."""
    if not name:
        yield
        return
    fault = FAULTS[name]
    make_module, make_optimizer = Side.module, loop.optimizer_of

    def module(side: Side) -> Any:
        built = make_module(side)
        fault.module(built)
        return built

    def optimizer(*args: Any) -> Any:
        built, scheduler = make_optimizer(*args)
        fault.optimizer(built)
        return built, scheduler

    with mock.patch.object(Side, "module", module), mock.patch.object(loop, "optimizer_of", optimizer):
        yield


class TrainsHere(InThisProcess):
    """Runs the tasks of sides in this process; the name of a side is that of its fault, or of its changed operator."""

    def run(self, side: SideOf, task: Task) -> SideReport:
        """Carry out a task."""
        with faulty(side.name if side.name in FAULTS else ""):
            return super().run(side, task)


def trained(
    name: str = "", *, operator: str = "", target: str = "Trained", training: Training | None = None
) -> DriftReport:
    """Compare a training with itself, with a fault or another order of one operator on the new side."""
    inputs: dict[str, Any] = {"Trained": (((8, 12), "float32"),), "Attention": (((4, 12, 32), "float32"),)}
    own_code = {"place": str(TARGETS), "name": target, "inputs": inputs[target], "folder": str(TARGETS.parent)}
    how = training or (FAULTS[name].training if name else SGD)
    root = Path(tempfile.mkdtemp(prefix="drift-"))
    try:
        old, new = SideOf(name="plain"), SideOf(name=name or operator or "plain")
        drift = Drift(target=target, own_code=own_code, old=old, new=new, training=how)
        return drift.compare(TrainsHere(root))  # type: ignore[arg-type]
    finally:
        shutil.rmtree(root)


def is_placed(name: str, report: DriftReport) -> bool:
    """Whether a report names the step and the tensor of a fault."""
    fault, difference = FAULTS[name], report.training
    return (
        difference is not None
        and difference.beyond
        and difference.step == fault.step
        and difference.name.startswith(fault.tensor)
    )


def main() -> None:
    """Run the planted faults and the pairs without one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300)
    options = parser.parse_args()
    began = time.process_time()
    placed = 0
    for name in FAULTS:
        report = trained(name)
        right = is_placed(name, report)
        placed += right
        difference = report.training
        where = "nothing" if difference is None else f"step {difference.step}, {difference.name}, {report.verdict}"
        print(f"{'ok ' if right else 'BAD'} {name}: {where}")
    print(f"{placed} of {len(FAULTS)} faults placed at their step and tensor")
    blamed = other_bits = 0
    for pair in range(options.pairs):
        operator = REORDERED[pair % len(REORDERED)]
        how = (SGD, ADAMW, CLIPPED, SHARED)[pair // len(REORDERED) % 4]
        rate = 0.0005 * (1 + pair % 25)
        report = trained(operator=operator, training=msgspec.structs.replace(how, steps=4, rate=rate))
        blamed += report.verdict == "changed"
        other_bits += report.verdict == "rounding"
    print(f"{blamed} of {options.pairs} pairs without a fault called changed; {other_bits} have other bits")
    print(f"{time.process_time() - began:.0f} CPU seconds")


if __name__ == "__main__":
    main()
