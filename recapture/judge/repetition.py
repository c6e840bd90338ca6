"""Decides whether the runs of eager differ by rounding alone.

A kernel that adds in another order in each call, such as cuDNN's for the gradient of a weight, gives other last bits in
each run. So does whatever is computed from them. What differs then shrinks with the precision: by 2^29 from float32 to
float64. What is random, or a time, differs by as much in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from recapture.judge.compare import Rules, compare
from recapture.judge.rounding import deviation

if TYPE_CHECKING:
    from recapture.judge.observe import Observation
    from recapture.judge.snapshot import Snapshot

RUNS = 4
"""Number of runs in float64: a random branch may go the same way in two runs by chance."""

SHRINKS = 2.0**10
"""Least ratio of a deviation to that in float64. It is 2^29 for float32, and may be less where float64 grows errors."""

VALUES = ("value", "gradient", "mutation")
"""Kinds of differences in which numbers can differ."""


def differ_by_rounding_alone(
    first: Sequence[Observation], again: Sequence[Observation], in_float64: Sequence[Sequence[Observation]]
) -> bool:
    """Whether two runs of eager differ in numbers alone, and much less in float64; each run has all inputs in order."""
    for number, (one_call, another_call) in enumerate(zip(first, again, strict=False)):
        deviations = _deviations(one_call, another_call)
        if deviations is None:
            return False
        for run in in_float64[1:]:
            precise = _deviations(in_float64[0][number], run[number])
            if precise is None or any(
                precise.get(place, 0.0) * SHRINKS > largest for place, largest in deviations.items() if largest
            ):
                return False
    return True


def _deviations(first: Observation, again: Observation) -> dict[str, float] | None:
    """Return the largest deviation of each number and tensor by its place; None if more than numbers differ."""
    differences = compare(first, again, rules=Rules(show_values=False)).differences
    if any(difference.kind not in VALUES or difference.unlike != "value" for difference in differences):
        return None
    deviations: dict[str, float] = {}
    for name in ("result", "args", "state", "watched", "gradients", "overwritten"):
        one_part, another_part = getattr(first, name), getattr(again, name)
        if one_part is None or another_part is None:
            continue
        for place, one_leaf, another_leaf in _leaves(name, one_part, another_part):
            apart = deviation(one_leaf, another_leaf)
            if apart is None:
                return None
            deviations[place] = apart
    return deviations


def _leaves(place: str, first: Snapshot, again: Snapshot) -> Iterator[tuple[str, Snapshot, Snapshot]]:
    """Yield the numbers and tensors of two described values of one structure, in pairs."""
    if first.tensor is not None or not first.children:
        if first is not again:
            yield place, first, again
        return
    others = dict(again.children or ())
    for key, child in first.children:
        if key in others:
            yield from _leaves(place + key, child, others[key])
