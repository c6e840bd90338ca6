"""Whether a candidate's training steps move the parameters as eager's do.

Beside the parameters themselves a few steps are tiny: a step that does nothing leaves them within any tolerance of
where they should be. And how far a step is from float64's says little, for one of Adam turns the sign of a gradient
that is all rounding into a whole step. So what is compared is how long the steps between two snapshots are, and whether
they point the way eager's do.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    Values = Sequence[tuple[str, Any]]

__all__ = ["wrong_update"]

LONGER = 2.0
"""Largest ratio of the lengths of a candidate's and eager's steps: rounding hardly changes how long a step is."""

AGREE = 0.2
"""Smallest cosine of eager's steps and float64's that point the same way; below it they are mostly noise."""

MOST = 0.5
"""Share of a parameter's elements that eager must move for a candidate that moves none of them to be wrong."""


def wrong_update(
    eager: tuple[Values, Values], candidate: tuple[Values, Values], exact: tuple[Values, Values] | None
) -> str | None:
    """Say what is wrong with a candidate's steps; None: nothing.

    Each side is its named parameters before and after some steps. Without `exact` (float64's) the candidate's may only
    not point away from eager's.
    """
    sides = (eager, candidate, exact or eager)
    products = [[0.0] * 3 for _ in range(3)]  # of each side's steps with each side's
    for number, (name, _) in enumerate(eager[0]):  # one at a time: copies in double precision are large
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
    """By how much a parameter moved, in double precision; what is not finite counts as unmoved; None of integers."""
    import torch

    if not before.numel() or not (before.is_floating_point() or before.is_complex()):
        return None
    double = torch.complex128 if before.is_complex() else torch.float64
    return (after.to(double) - before.to(double)).nan_to_num(0.0, 0.0, 0.0)
