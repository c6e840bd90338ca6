"""The correctness check of a benchmark: compares results, gradients and updated parameters with eager's.

Number, types, dtypes, shapes, text and integers must be equal, as in the verdict of a cell. The elements of tensors and
Python floats are compared by norms, because rounding errors accumulate through a whole model: eager and the candidate
are both compared with the same computation in float64. A candidate's error may be FACTOR times eager's, and is always
allowed to reach the precision of its arithmetic (FLOORS), because fusing and reordering change rounding. If float64 is
not a valid reference (the model does not run in it, or takes another path), the candidate is compared with eager.

Training steps are checked separately. A few steps are tiny compared with the parameters, so that parameters that were
never updated are still within any tolerance of the right values. The distance from float64's step says little, because
a step of Adam turns the sign of a gradient that is only rounding noise into a full step. So the lengths of the steps
between two snapshots are compared, and their direction with eager's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, sqrt
from typing import Any

from recapture.judge.compare import compare_form
from recapture.judge.snapshot import snapshot_form
from recapture.tools.speed.speedups import Deviation
from recapture.tools.speed.subject import Subject
from recapture.torch_api.compat import tree_leaves

FACTOR = 4.0
"""Largest accepted ratio of a candidate's error to eager's, both against float64."""

FLOORS = {"fp32-strict": 1e-4, "fp32": 2e-3, "tf32": 5e-3, "bf16": 3e-2, "amp": 3e-2}
"""Relative error against float64 that each arithmetic may cause; with fp32, cuDNN may use TF32 on a GPU."""

PLAUSIBLE = {"fp32-strict": 1e-2, "fp32": 5e-2, "tf32": 5e-2, "bf16": 0.2, "amp": 0.2}
"""Largest plausible relative error of eager against float64; above it, the model does something else in float64.

Gradients have no such bound: in a deep network with norm layers, their noise is as large as the gradients after a few
steps.
"""

SMALL = 1e-3
"""Ratio to the group's norm below which a tensor's error is relative to the group: gradients that cancel are noise."""

GROUPS_AS_A_WHOLE = frozenset({"parameters"})
"""Groups whose tensors are measured together: a step of Adam turns even a tiny gradient's sign into a full step."""


PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Types that a result may contain besides tensors."""


class Snapshot:
    """Copies of a subject's tensors after one of its iterations, by group."""

    def __init__(self, subject: Subject) -> None:
        import torch

        leaves = tree_leaves(subject.result)
        for leaf in leaves:
            # What cannot be compared must not count as equal.
            if not isinstance(leaf, (torch.Tensor, torch.dtype, torch.device, torch.Size, *PLAIN)):
                raise TypeError(
                    f"the result holds a {type(leaf).__name__}, which cannot be compared: return tensors and plain "
                    "values, in tuples, lists and dicts"
                )
        self.groups: dict[str, list[tuple[str, Any]]] = {
            "result": [(f"[{number}]", _copy(leaf)) for number, leaf in enumerate(leaves)]
        }
        if subject.workload.trains:
            named = list(subject.model.named_parameters())
            self.groups["gradients"] = [(name, _copy(parameter.grad)) for name, parameter in named]
            self.groups["parameters"] = [(name, _copy(parameter)) for name, parameter in named]
            self.groups["buffers"] = [(name, _copy(buffer)) for name, buffer in subject.model.named_buffers()]

    @property
    def nbytes(self) -> int:
        """Bytes of the copies."""
        import torch

        values = (value for group in self.groups.values() for _, value in group)
        return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


def _copy(value: Any) -> Any:
    import torch

    # Copied, because the next iteration overwrites parameters, and CUDA graphs their results.
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def deviations(
    eager: Sequence[Snapshot], candidate: Sequence[Snapshot], exact: Sequence[Snapshot] | None, dtype: str
) -> tuple[list[Deviation], str | None]:
    """Compare snapshots of the same iterations; return the error of each group, and a message if it is too large.

    Eager replaces `exact` as the reference if `exact` is missing (the model cannot run in float64) or implausible.
    """
    largest: dict[str, Deviation] = {}
    wrong = None
    for expected, other, double in zip(eager, candidate, exact or eager, strict=True):
        reference = double if _plausible(expected, double, PLAUSIBLE[dtype]) else expected
        for group, values in expected.groups.items():
            others = other.groups.get(group, [])
            different = _structure(group, values, others)
            if different is not None:
                return list(largest.values()), different
            worst, why = _worst(group, values, others, reference.groups[group], FLOORS[dtype])
            # Of the calls that are compared, the worst is recorded.
            if worst is not None and (group not in largest or worst.candidate > largest[group].candidate):
                largest[group] = worst
            wrong = wrong or why
    return list(largest.values()), wrong or _wrong_steps(eager, candidate, exact)


def _wrong_steps(
    eager: Sequence[Snapshot], candidate: Sequence[Snapshot], exact: Sequence[Snapshot] | None
) -> str | None:
    """Return a message if the training steps between the first and the last snapshot are wrong."""
    if len(eager) < 2 or "parameters" not in eager[0].groups:
        return None

    def ends(snapshots: Sequence[Snapshot]) -> tuple[Any, Any]:
        return snapshots[0].groups["parameters"], snapshots[-1].groups["parameters"]

    return wrong_update(ends(eager), ends(candidate), ends(exact) if exact else None)


def _structure(group: str, eager: list[tuple[str, Any]], other: list[tuple[str, Any]]) -> str | None:
    """Return a difference in number, type, dtype, shape or plain value, with the rules of a cell's verdict."""
    if len(eager) != len(other):
        return f"{group}: eager has {len(eager)} values, this {len(other)}"
    for (name, own), (_, candidate) in zip(eager, other, strict=True):
        if type(own) is type(candidate) and type(own) in (float, complex):
            continue  # measured as a tensor
        difference = compare_form(f"{group} {name}", snapshot_form(own), snapshot_form(candidate))
        if difference is not None:
            return f"{difference.where}: {difference.kind}: {difference.detail}"[:200]
    return None


def _plausible(eager: Snapshot, exact: Snapshot, bound: float) -> bool:
    """Whether float64 computes the same as eager, except for rounding."""
    own, reference = eager.groups["result"], exact.groups["result"]
    # Other results in float64: the model took another path.
    if len(own) != len(reference):
        return False
    return all(error <= bound * scale for _, scale, error, _ in _distances("result", own, own, reference)[0])


def _worst(
    group: str, eager: list[tuple[str, Any]], other: list[tuple[str, Any]], exact: list[tuple[str, Any]], floor: float
) -> tuple[Deviation | None, str | None]:
    """Return the largest deviation in a group, relative to the allowed one, and a message if it is too large."""
    rows, different = _distances(group, eager, other, exact)
    if different is not None:
        return None, different
    worst: tuple[float, Deviation, str] | None = None
    for name, scale, eager_error, error in rows:
        allowed = max(FACTOR * eager_error / scale, floor)
        deviation = Deviation(
            group=group,
            eager=float(f"{eager_error / scale:.3g}"),
            candidate=float(f"{error / scale:.3g}"),
            allowed=float(f"{allowed:.3g}"),
        )
        excess = error / scale / allowed
        if worst is None or excess > worst[0]:
            worst = (excess, deviation, name)
    if worst is None:
        return None, None
    excess, deviation, name = worst
    if not excess <= 1:
        where = f"{group} {name}".strip()
        judge = f"float64 where eager is {deviation.eager:.2g} and" if deviation.eager else "eager where"
        return deviation, f"{where}: {deviation.candidate:.2g} away from {judge} {deviation.allowed:.2g} is allowed"
    return deviation, None


def _distances(
    group: str, eager: list[tuple[str, Any]], other: list[tuple[str, Any]], exact: list[tuple[str, Any]]
) -> tuple[list[tuple[str, float, float, float]], str | None]:
    """Return each tensor's name, its scale, and the errors of eager and the other against the reference.

    The second value is a message about a difference that rounding cannot explain.
    """
    import torch

    rows = []
    names = [name for name, _ in eager]
    for name, own, candidate, reference in zip(names, *map(_tensors, (eager, other, exact)), strict=True):
        if not isinstance(own, torch.Tensor) or own.numel() == 0:
            continue
        if not (own.is_floating_point() or own.is_complex()):
            if not torch.equal(own, candidate):
                return [], f"{group} {name}: integers differ"
            continue
        # NaN and infinity must be equal; finite values are measured.
        finite = torch.isfinite(own)
        if not torch.equal(finite, torch.isfinite(candidate)):
            return [], f"{group} {name}: not finite in other places than eager's"
        if not (finite | (own == candidate) | (own.isnan() & candidate.isnan())).all():
            return [], f"{group} {name}: another infinity or NaN than eager's"
        # Without a usable reference, eager itself is the truth.
        truth = _finite(own, finite)
        if isinstance(reference, torch.Tensor) and reference.shape == own.shape:
            exactly = _finite(reference, finite)
            # Ignore elements where eager is finite and float64 is not: they say nothing about rounding.
            truth = exactly if exactly.norm().isfinite() else truth
        norm, eager_error, error = (
            float(x.norm()) for x in (truth, *(_finite(x, finite) - truth for x in (own, candidate)))
        )
        rows.append((name, own.numel(), norm, eager_error, error))
    total = hypot(*(norm for _, _, norm, _, _ in rows))
    if rows and group in GROUPS_AS_A_WHOLE:
        eager_error, error = (hypot(*errors) for errors in zip(*((row[3], row[4]) for row in rows), strict=True))
        return [("", total or 1.0, eager_error, error)], None
    # The root mean square of the group's elements: a tensor of far smaller ones is judged by the group.
    level = total / (sum(count for _, count, _, _, _ in rows) or 1) ** 0.5
    return [
        (name, max(norm, SMALL * level * count**0.5) or 1.0, eager_error, error)
        for name, count, norm, eager_error, error in rows
    ], None


def _tensors(values: list[tuple[str, Any]]) -> list[Any]:
    """Return a group's values, Python floats as tensors."""
    import torch

    wide = {float: torch.float64, complex: torch.complex128}
    return [torch.as_tensor(value, dtype=wide[type(value)]) if type(value) in wide else value for _, value in values]


def _finite(values: Any, finite: Any) -> Any:
    """Return values in double precision, with 0 where eager is not finite."""
    import torch

    return torch.where(finite, values.to(torch.complex128 if values.is_complex() else torch.float64), 0)


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
        eager_move, candidate_move, _ = moves
        if eager_move is None or candidate_move is None:
            continue
        if not candidate_move.any() and float(eager_move.count_nonzero()) > MOST * eager_move.numel():
            return f"parameters {name}: never updated, eager's are"
        for row, move in enumerate(moves):
            for column, other in enumerate(moves):
                if move is not None and other is not None:
                    products[row][column] += float((move.conj() * other).sum().real)
    return _judged(products, with_float64=exact is not None)


def _judged(products: list[list[float]], *, with_float64: bool) -> str | None:
    """Judge the inner products of eager's, the candidate's and the reference's steps."""

    def cosine(side: int, other: int) -> float:
        lengths = sqrt(products[side][side] * products[other][other])
        return products[side][other] / lengths if lengths else 0.0

    eager_length, length = (sqrt(products[side][side]) for side in (0, 1))
    if not eager_length / LONGER <= length <= eager_length * LONGER:
        ratio = length / eager_length if eager_length else float("inf")
        return f"parameters: the steps are {ratio:.2g} times as long as eager's"
    # Eager's own steps do not point where float64's do: they are mostly noise, and have no direction.
    if not eager_length or (with_float64 and cosine(0, 2) < AGREE):
        return None
    # The candidate has as much noise as eager, which lowers a cosine; a wrong gradient lowers it further.
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
    # What is not finite is compared elsewhere; in a sum it would hide every other element.
    return (after.to(double) - before.to(double)).nan_to_num(0.0, 0.0, 0.0)
