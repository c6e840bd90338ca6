"""Decides whether the runs of eager differ by rounding alone.

A kernel that adds in another order in each call, such as cuDNN's for the gradient of a weight, gives other last bits in
each run. So does whatever is computed from them. What differs then shrinks with the precision: by 2^29 from float32 to
float64. What is random, or a time, differs by as much in float64. Runs that happen to agree in float64 say little, and
so does what is done in float32 alone: where float64 shows nothing, only a small deviation is taken for rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from recapture.judge.compare import Rules, compare
from recapture.judge.rounding import Deviation, deviation

if TYPE_CHECKING:
    from recapture.judge.observe import Observation
    from recapture.judge.snapshot import Snapshot

RUNS = 4
"""Number of runs in float64: a random branch may go the same way in two runs by chance."""

SHRINKS = 2.0**10
"""Least ratio of a deviation to that in float64. It is 2^29 for float32, and may be less where float64 grows errors."""

SMALL = 2.0**13
"""Largest deviation that need not be seen in float64, in roundings of the largest number: 2^-11 of it in float32."""

UNSEEN = 2.0**-60
"""Ratio of a deviation in float64 to the largest number below which it is none; one rounding is 2^-53.

Memory that nobody wrote to may hold addresses: numbers of any size in float32, and of 10^-310 in float64.
"""

VALUES = ("value", "gradient", "mutation")
"""Kinds of differences in which numbers can differ."""


def differ_by_rounding_alone(
    first: Sequence[Observation], again: Sequence[Observation], in_float64: Iterable[Sequence[Observation]]
) -> bool:
    """Whether two runs of eager differ, in numbers alone, and much less in float64; each run has all inputs in order.

    Runs in float64 are asked for one by one, as long as they are needed.
    """
    pairs = zip(first, again, strict=False)
    found = [_deviations(one_call, another_call) for one_call, another_call in pairs]
    expected = [deviations for deviations in found if deviations is not None]
    if len(expected) < len(found) or not any(part.largest for call in expected for part in call.values()):
        return False
    runs = iter(in_float64)
    precise = next(runs)
    if any(_ends(one_call) != _ends(another_call) for one_call, another_call in zip(first, precise, strict=True)):
        return False  # what raises in float64 says nothing
    farthest: list[dict[str, float]] = [dict.fromkeys(deviations, 0.0) for deviations in expected]
    for run in runs:
        for deviations, so_far, one_call, another_call in zip(expected, farthest, precise, run, strict=True):
            now = _deviations(one_call, another_call)
            if now is None or not deviations.keys() <= now.keys():
                return False
            for place, part in deviations.items():
                so_far[place] = max(so_far[place], now[place].largest)
                if so_far[place] * SHRINKS > (part.largest or part.level * part.unit):
                    return False
    return all(
        so_far[place] > UNSEEN * part.level or part.largest <= SMALL * part.unit * part.level
        for deviations, so_far in zip(expected, farthest, strict=True)
        for place, part in deviations.items()
    )


def _ends(observation: Observation) -> tuple[str | None, str | None]:
    """Return the exceptions of a call and of its backward."""
    raised, backward = (error.type if error else None for error in (observation.raised, observation.backward))
    return raised, backward


def _deviations(first: Observation, again: Observation) -> dict[str, Deviation] | None:
    """Return the deviation of each number and tensor by its place; None if more than numbers differ."""
    differences = compare(first, again, rules=Rules(show_values=False)).differences
    if _ends(first) != _ends(again):
        return None
    if any(difference.kind not in VALUES or difference.unlike != "value" for difference in differences):
        return None
    deviations: dict[str, Deviation] = {}
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
        yield place, first, again
        return
    others = dict(again.children or ())
    for key, child in first.children:
        if key in others:
            yield from _leaves(place + key, child, others[key])
