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
"""How many times as long, or as short, as eager's a candidate's steps may be: rounding turns steps, it hardly changes
their length."""

AGREE = 0.2
"""The cosine from which eager's steps and float64's are held to point the same way; below it they are mostly noise."""

MOST = 0.5
"""The share of a parameter's elements that eager must have moved before one that never moved is called wrong."""


def wrong_update(
    eager: tuple[Values, Values], candidate: tuple[Values, Values], exact: tuple[Values, Values] | None
) -> str | None:
    """Say what is wrong with a candidate's steps; None: nothing.

    Each side is its named parameters before and after some steps. Without `exact` (float64's) the candidate's may only
    not point away from eager's.
    """
    mine, other = _moves(*eager), _moves(*candidate)
    for (name, one), (_, two) in zip(mine, other, strict=True):
        if not two.any() and float(one.count_nonzero()) > MOST * one.numel():
            return f"parameters {name}: never updated, eager's are"
    length, theirs = _norm(mine), _norm(other)
    if not length / LONGER <= theirs <= length * LONGER:
        return f"parameters: the steps are {theirs / length if length else float('inf'):.2g} times as long as eager's"
    if not length:
        return None
    if exact is None:
        towards, least = _cosine(mine, other), 0.0
    else:
        double = _moves(*exact)
        usual = _cosine(mine, double)
        if usual < AGREE:
            return None
        towards, least = _cosine(other, double), usual / 2
    if towards < least:
        judge = "eager's" if exact is None else "float64's"
        return f"parameters: the steps point away from {judge}: cosine {towards:.2g} where {least:.2g} is the least"
    return None


def _moves(before: Values, after: Values) -> list[tuple[str, Any]]:
    """By how much each floating-point parameter moved, in double precision; what is not finite counts as unmoved."""
    import torch

    def double(values: Any) -> Any:
        return values.to(torch.complex128 if values.is_complex() else torch.float64)

    return [
        (name, (double(there) - double(here)).nan_to_num(0.0, 0.0, 0.0))
        for (name, here), (_, there) in zip(before, after, strict=True)
        if here.numel() and (here.is_floating_point() or here.is_complex())
    ]


def _norm(moves: Sequence[tuple[str, Any]]) -> float:
    return sqrt(sum(float(one.norm()) ** 2 for _, one in moves))


def _cosine(one: Sequence[tuple[str, Any]], other: Sequence[tuple[str, Any]]) -> float:
    lengths = _norm(one) * _norm(other)
    product = sum(float((mine.conj() * theirs).sum().real) for (_, mine), (_, theirs) in zip(one, other, strict=True))
    return product / lengths if lengths else 0.0
