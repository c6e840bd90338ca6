"""Compares the training steps of two sides: the first step and tensor that differ, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from recapture.tools.drift.facts import Step, Verdict

MOST_TIMES = 20.0
"""How many times the spread of noisy runs a difference may be before rounding no longer explains it: a few runs show
a part of the spread alone."""

LEAST = 1e-6
"""Difference of the numbers of a digest that always counts as rounding: those of float32 are rounded themselves."""


class StepDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step, counted from 1, and the first tensor in it that differ.

    If any step differs by more than rounding explains, `beyond` is true, and this is the first such step. `first_bits`
    is the first step with any other bits. `old` and `new` are the losses.
    """

    step: int
    name: str
    beyond: bool
    first_bits: int = 1
    old: str = ""
    new: str = ""


def first_step_that_differs(old: Sequence[Step], new: Sequence[Step]) -> StepDifference | None:
    """Return the first difference beyond rounding; without any, the first one of bits; None if all bits agree."""
    first_bits: StepDifference | None = None
    for number, (before, after) in enumerate(zip(old, new, strict=False), 1):
        for name in dict.fromkeys([*before.tensors, *after.tensors]):
            if before.tensors.get(name, ("",))[0] == after.tensors.get(name, ("",))[0]:
                continue
            beyond = beyond_spread(before, after, name)
            difference = StepDifference(
                step=number,
                name=name,
                beyond=beyond,
                first_bits=first_bits.step if first_bits is not None else number,
                old=before.loss,
                new=after.loss,
            )
            if beyond:
                return difference
            first_bits = first_bits or difference
    if len(old) != len(new):
        step = min(len(old), len(new)) + 1
        bits = first_bits.step if first_bits is not None else step
        return StepDifference(step=step, name="the step, which one side does not reach", beyond=True, first_bits=bits)
    return first_bits


def training_verdict(difference: StepDifference | None) -> Verdict:
    """Return how two trainings compare."""
    if difference is None:
        return "same bits"
    return "changed" if difference.beyond else "rounding"


def beyond_spread(old: Step, new: Step, name: str) -> bool:
    """Whether a tensor of a training step differs by more than rounding explains."""
    before, after = old.tensors.get(name), new.tensors.get(name)
    if before is None or after is None:
        return True
    if before[0] == after[0]:
        return False
    if not before[1] or not after[1]:
        return True
    return distance(before[1], after[1]) > max(LEAST, MOST_TIMES * new.spread.get(name, 0.0))


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the largest difference of the numbers of two digests; 1 where there is nothing to compare."""
    if len(first) != len(second):
        return 1.0
    return max((abs(left - right) for left, right in zip(first, second, strict=True)), default=0.0)
