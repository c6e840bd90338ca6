"""Aligns the operators of two sides, and finds the first place where the same inputs give other results.

The sequences may have different lengths: releases decompose and fuse differently. Where some operators of one side
stand for some of the other, they are compared as a group: what it takes from outside, and what its last operator gives.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence

import msgspec

from recapture.tools.drift.facts import Operator


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Operators of the old and the new side, by number, that give other results for the same inputs."""

    old: tuple[int, ...]
    new: tuple[int, ...]


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A pair of aligned operators, and the digits to which their results agree; 16 if the bits are the same.

    `name` is the operator with its submodule.
    """

    old: int
    new: int
    digits: float
    name: str = ""


def aligned(old: Sequence[Operator], new: Sequence[Operator]) -> list[tuple[range, range]]:
    """Return pairs of ranges that stand for each other: single operators where both sides have the same one."""
    keys = [[(call.name, call.module, call.forms, call.backward) for call in side] for side in (old, new)]
    start = 0
    while start < min(map(len, keys)) and keys[0][start] == keys[1][start]:
        start += 1  # most sequences are equal, and comparing long ones takes time
    pairs = [(range(number, number + 1), range(number, number + 1)) for number in range(start)]
    matcher = difflib.SequenceMatcher(None, keys[0][start:], keys[1][start:], autojunk=False)
    for tag, begin, end, other_begin, other_end in matcher.get_opcodes():
        first, second = range(start + begin, start + end), range(start + other_begin, start + other_end)
        if tag == "equal":
            pairs += [
                (range(left, left + 1), range(right, right + 1)) for left, right in zip(first, second, strict=True)
            ]
        else:
            pairs.append((first, second))
    return pairs


def differing_places(old: Sequence[Operator], new: Sequence[Operator]) -> Iterator[Place]:
    """Yield every place whose inputs agree and whose results do not, in the order of the calls.

    A group may take views, whose hashes nothing else has. It then counts if all before it agrees, and what follows
    takes something else.
    """
    known = [{text for call in side for text in (*call.takes, *call.gives)} for side in (old, new)]
    pairs = aligned(old, new)
    agree = True
    for number, (first, second) in enumerate(pairs):
        if not first or not second:
            continue  # an operator of one side alone: what comes of it shows where it is used
        before, after = [old[place] for place in first], [new[place] for place in second]
        if before[-1].gives == after[-1].gives:
            continue
        if len(before) == len(after) == 1 and before[0].name == after[0].name:
            is_place = before[0].takes == after[0].takes
            agree = False
        else:
            is_place = _from_outside(before) <= known[1] and _from_outside(after) <= known[0]
            if agree and not is_place:
                is_place = _differ_next(pairs[number + 1 :], old, new)
            agree = agree and not is_place
        if is_place:
            yield Place(old=tuple(first), new=tuple(second))


def _differ_next(pairs: Sequence[tuple[range, range]], old: Sequence[Operator], new: Sequence[Operator]) -> bool:
    """Whether the next aligned operators take something else; also if nothing follows."""
    if not pairs:
        return True
    first, second = pairs[0]
    return len(first) == len(second) == 1 and old[first[0]].takes != new[second[0]].takes


def _from_outside(calls: Sequence[Operator]) -> set[str]:
    """Return what a group of operators takes that none of them has made."""
    outputs: set[str] = set()
    outside: set[str] = set()
    for call in calls:
        outside |= set(call.takes) - outputs
        outputs |= set(call.gives)
    return outside


def layers(old: Sequence[Operator], new: Sequence[Operator]) -> list[Layer]:
    """Return how well the aligned operators agree, in the order of the calls."""
    return [
        Layer(old=first[0], new=second[0], digits=digits, name=f"{new[second[0]].name} {new[second[0]].module}".strip())
        for first, second in aligned(old, new)
        if len(first) == len(second) == 1 and (digits := _digits(old[first[0]], new[second[0]])) is not None
    ]


def _digits(old: Operator, new: Operator) -> float | None:
    if old.gives == new.gives:
        return 16.0
    distances = [
        max(abs(left - right) for left, right in zip(before, after, strict=True))
        for before, after in zip(old.numbers, new.numbers, strict=False)
        if before and after
    ]
    if not distances:
        return None
    return round(min(15.0, max(0.0, -math.log10(max(distances)))), 2) if max(distances) > 0 else 15.0
