"""Checks whether a candidate's training steps move the parameters as eager's do.

A few steps are tiny compared with the parameters, so that parameters that were never updated are still within any
tolerance of the right values. The distance from float64's step says little, because a step of Adam turns the sign of a
gradient that is only rounding noise into a full step. So this compares the length of the steps between two snapshots,
and their direction with eager's.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    Values = Sequence[tuple[str, Any]]

LONGER = 2.0
"""Largest accepted ratio of the lengths of a candidate's and eager's steps; rounding hardly changes the length."""

AGREE = 0.2
"""Smallest cosine between eager's and float64's steps that is not mostly noise."""

MOST = 0.5
"""Share of a parameter's elements above which, if eager moves them and a candidate moves none, it is wrong."""


def wrong_update(
    eager: tuple[Values, Values], candidate: tuple[Values, Values], exact: tuple[Values, Values] | None
) -> str | None:
    """Return what is wrong with a candidate's steps, or None.

    Each side has its named parameters before and after some steps. Without `exact` (float64's), the candidate's steps
    only must not point away from eager's.
    """
    sides = (eager, candidate, exact or eager)
    products = [[0.0] * 3 for _ in range(3)]  # inner products of all pairs of sides
    for number, (name, _) in enumerate(eager[0]):  # one at a time, because copies in double precision are large
        moves = [_move(before[number][1], after[number][1]) for before, after in sides]
        mine, theirs, _ = moves
        if mine is None or theirs is None:
            continue
        if not theirs.any() and float(mine.count_nonzero()) > MOST * mine.numel():
            return f"parameters {name}: never updated, eager's are"
        for row, one in enumerate(moves):
            for column, other in enumerate(moves):
                if one is not None and other is not None:
                    products[row][column] += float((one.conj() * other).sum().real)
    return _judged(products, with_float64=exact is not None)


def _judged(products: list[list[float]], *, with_float64: bool) -> str | None:
    """Judge the inner products of eager's, the candidate's and the reference's steps."""

    def cosine(one: int, other: int) -> float:
        lengths = sqrt(products[one][one] * products[other][other])
        return products[one][other] / lengths if lengths else 0.0

    mine, theirs = (sqrt(products[side][side]) for side in (0, 1))
    if not mine / LONGER <= theirs <= mine * LONGER:
        return f"parameters: the steps are {theirs / mine if mine else float('inf'):.2g} times as long as eager's"
    if not mine or (with_float64 and cosine(0, 2) < AGREE):
        return None
    least = cosine(0, 2) / 2 if with_float64 else 0.0
    towards = cosine(1, 2)
    if towards < least:
        judge = "float64's" if with_float64 else "eager's"
        return f"parameters: the steps point away from {judge}: cosine {towards:.2g} where {least:.2g} is the least"
    return None


def _move(before: Any, after: Any) -> Any:
    """Return a parameter's change in double precision, 0 where not finite; None for integers."""
    import torch

    if not before.numel() or not (before.is_floating_point() or before.is_complex()):
        return None
    double = torch.complex128 if before.is_complex() else torch.float64
    return (after.to(double) - before.to(double)).nan_to_num(0.0, 0.0, 0.0)
