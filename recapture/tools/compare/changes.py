"""The content of a diff: its categories, the definition of regressions, and its JSON form.

History of the JSON form, newest first (``DIFF_SCHEMA_VERSION``):

5. `Diff.judged_differently`: what can be the judge's, where the two sides were judged by different versions of it.
4. `Diff.eager`: what eager itself gave, where both sides have digests of it. `SpeedChange.costs`: what a configuration
   saves for backward, and what compiling it takes.
3. `Diff.noted_differently`: cells whose verdicts agree and whose notes do not.
2. `Side.not_asked`: cells that only one side selected are neither added nor removed. `Diff.speeds`.
1. first version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from recapture.records.eager_calls import EagerChange
from recapture.records.record import Record
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict

DIFF_SCHEMA_VERSION = 5

CATEGORIES = {
    "newly_wrong": "silently wrong now, and not before",
    "newly_failing": "right before, failing now",
    "newly_breaking": "captured whole before, with graph breaks now",
    "removed": "no longer there",
    "no_longer_run": "ran before, not applicable or at the mercy of the machine now",
    "failing_differently": "wrong or failing on both sides, in another way",
    "fixed": "wrong or failing before, right now",
    "whole_again": "graph breaks before, captured whole now",
    "captured_differently": "right on both sides, with another number of graphs, graph breaks or recompiles",
    "noted_differently": "the same outcome on both sides, with other differences that do not decide a verdict",
    "judged_differently": "can be the judge's: the two runs were judged by different versions of it",
    "newly_run": "not run before, run now",
    "not_run_differently": "run on neither side, for another reason",
    "added": "not there before",
    "case_edited": "the case itself is not the same",
    "noise": "eager does not agree with itself on one side",
}
"""Categories of changed cells, worst first, with their meaning; a cell is in at most one."""


SpeedCategory = Literal[
    "no_longer_right",
    "slower",
    "newly_right",
    "faster",
    "failing_differently",
    "edited",
    "too_noisy",
    "no_difference_shown",
    "counted",
    "not_timed",
    "only_in_old",
    "only_in_new",
]

SPEED_CATEGORIES: dict[SpeedCategory, str] = {
    "no_longer_right": "right and timed before, and not now",
    "slower": "slower beyond doubt",
    "newly_right": "not right before, right and timed now",
    "faster": "faster beyond doubt",
    "failing_differently": "right on neither side, for another reason",
    "edited": "the workload itself is not the same",
    "too_noisy": "too noisy to say, or of too few processes",
    "no_difference_shown": "no difference shown",
    "counted": "right on both sides and not timed on both, so that costs alone are compared",
    "not_timed": "right on neither side, for the same reason",
    "only_in_old": "not measured in the new benchmark",
    "only_in_new": "not measured in the old benchmark",
}
"""Categories of a benchmark's configurations, worst first; each configuration is in exactly one."""

Ratio = tuple[float, float, float]
"""A ratio with its 95 % interval."""


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell that changed; `old` or `new` is None if that side has no such cell.

    `case` is the case's address in the new results, or in the old results if it no longer exists. `maybe_noise` means
    that one side exceeded its deadline, which a busy machine can cause.
    """

    case: str
    compiler: str
    old: Record | None
    new: Record | None
    maybe_noise: bool = False


class FactChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package, or another fact of the environment, that differs; None if a side does not have it.

    `minor` marks a package that rarely affects results.
    """

    name: str
    old: str | None
    new: str | None
    minor: bool = False


class ClaimChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published claim about one cell that is confirmed, or could be checked, on only one side."""

    id: str
    case: str
    compiler: str
    expected: str
    old: str
    new: str


class Rename(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A renamed case: the same source under another address."""

    old: str
    new: str


class Side(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the two results directories; `not_asked` counts cells of the other that this one did not select."""

    image: str
    capability: str
    cells: int
    not_asked: int = 0


class SpeedSide(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration in one of two benchmarks; without figures, `verdict` and `reason` explain why.

    `speedup` is eager ÷ candidate. `seconds` is the time of an iteration; `cold` and `warm` are the times of the first
    call with cold and warm caches, including capturing. `memory` is the peak in bytes.
    """

    verdict: Verdict
    reason: str | None = None
    speedup: Ratio | None = None
    seconds: float | None = None
    memory: int | None = None
    cold: float | None = None
    warm: float | None = None


CostCategory = Literal["hungrier", "longer_to_compile", "less_hungry", "shorter_to_compile", "differs"]


class CostChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cost of a configuration that differs: memory in bytes, CPU time in seconds, or a count."""

    cost: Literal["saved", "memory", "instructions", "compile_cpu", "graphs", "breaks", "recompiles", "kernels", "code"]
    category: CostCategory
    old: float
    new: float


class SpeedChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The change of one configuration; `old` or `new` is None if that side has no such row.

    `change` is the factor by which it is faster now (less than 1: slower): old seconds ÷ new seconds. With `basis`
    ``speedup``, which is used if it is more certain or the hardware differs, it is new speedup over eager ÷ old
    speedup. `eager` is old seconds ÷ new seconds of eager in the same row. `yardstick` is the same of a fixed piece of
    work, where both sides timed it; then `change` in seconds, and `eager`, are without it: what remains is torch's and
    not the machine's. `costs` are those that differ.
    """

    workload: str
    configuration: str
    category: SpeedCategory
    basis: Literal["seconds", "speedup"]
    old: SpeedSide | None
    new: SpeedSide | None
    change: Ratio | None = None
    eager: Ratio | None = None
    yardstick: Ratio | None = None
    costs: tuple[CostChange, ...] = ()


class EagerOfCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case for which eager itself does not give what it gave: the worst change among its inputs."""

    case: str
    change: EagerChange


class EagerDiff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What eager itself gave on the two sides: the cases that changed, the worst first, and how many did not.

    `unstable` counts cases on which eager disagrees with itself on a side.
    """

    changed: tuple[EagerOfCase, ...] = ()
    same: int = 0
    unstable: int = 0

    @property
    def beyond_rounding(self) -> list[EagerOfCase]:
        """The cases whose change rounding does not explain, and whose inputs are the same."""
        return [entry for entry in self.changed if entry.change.kind not in ("rounding", "inputs")]


class Diff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes between two results directories; `CATEGORIES` explains the lists of changes.

    `eager` is None where a side has no digests of what eager gave. `speeds` has every configuration of their
    benchmarks, ordered by `SPEED_CATEGORIES`.

    `warnings` are reasons to read the diff with care (planned cells are missing, a suite was not collected, …).
    """

    old: Side
    new: Side
    environment: tuple[FactChange, ...] = ()
    warnings: tuple[str, ...] = ()
    claims: tuple[ClaimChange, ...] = ()
    renamed: tuple[Rename, ...] = ()
    newly_wrong: tuple[Change, ...] = ()
    newly_failing: tuple[Change, ...] = ()
    newly_breaking: tuple[Change, ...] = ()
    removed: tuple[Change, ...] = ()
    no_longer_run: tuple[Change, ...] = ()
    failing_differently: tuple[Change, ...] = ()
    fixed: tuple[Change, ...] = ()
    whole_again: tuple[Change, ...] = ()
    captured_differently: tuple[Change, ...] = ()
    noted_differently: tuple[Change, ...] = ()
    judged_differently: tuple[Change, ...] = ()
    newly_run: tuple[Change, ...] = ()
    not_run_differently: tuple[Change, ...] = ()
    added: tuple[Change, ...] = ()
    case_edited: tuple[Change, ...] = ()
    noise: tuple[Change, ...] = ()
    unchanged: int = 0
    eager: EagerDiff | None = None
    speeds: tuple[SpeedChange, ...] = ()
    schema: int = DIFF_SCHEMA_VERSION

    def categories(self) -> Iterator[tuple[str, tuple[Change, ...]]]:
        """Yield every category with its changes, worst first, including empty categories."""
        for name in CATEGORIES:
            yield name, getattr(self, name)


def is_regression(category: str, change: Change) -> bool:
    """Whether a cell that was right became worse.

    A right cell that no longer exists or no longer runs is a regression. An edited case is not, because it is a
    different test, nor is a case on which eager disagrees with itself. A change from a visible failure to silently
    wrong is a regression, because the error is no longer reported.
    """
    if category in ("newly_wrong", "newly_failing", "newly_breaking"):
        return True
    return category in ("removed", "no_longer_run") and change.old is not None and change.old.verdict in RIGHT


def _is_newly(verdicts: frozenset[Verdict], change: Change) -> bool:
    return (
        change.new is not None
        and change.new.verdict in verdicts
        and (change.old is None or change.old.verdict not in verdicts)
    )


def _newly_wrong(_category: str, change: Change) -> bool:
    return _is_newly(SILENTLY_WRONG, change)


def _newly_failing(_category: str, change: Change) -> bool:
    return _is_newly(FAILING, change)


def _any(category: str, _change: Change) -> bool:
    return category != "noted_differently"


def _notes(category: str, _change: Change) -> bool:
    return category == "noted_differently"


FAIL_ON: dict[str, Callable[[str, Change], bool]] = {
    "regression": is_regression,
    "wrong": _newly_wrong,
    "failing": _newly_failing,
    "any": _any,
    "notes": _notes,
}
"""Conditions of ``--fail-on`` for cells; `SPEEDS_FAIL_ON` and `COSTS_FAIL_ON` have those for benchmarks.

``regression``: see `is_regression`. ``wrong`` and ``failing``: silently wrong (failing) now and not before, in any
category, including added and edited cases. ``any``: any changed cell, unless only its notes changed. ``notes``: a cell
of which only the notes changed.
"""

SPEED_CHANGES: tuple[SpeedCategory, ...] = (
    "no_longer_right",
    "slower",
    "newly_right",
    "faster",
    "failing_differently",
    "edited",
)
"""Categories of certain changes of speed."""

SPEEDS_FAIL_ON: dict[str, tuple[SpeedCategory, ...]] = {
    "slower": ("no_longer_right", "slower"),
    "any": SPEED_CHANGES,
}


COSTS_FAIL_ON: dict[str, CostCategory] = {"hungrier": "hungrier", "longer-to-compile": "longer_to_compile"}
"""Conditions of ``--fail-on`` for the costs of configurations."""


def matching_changes(changes: Diff, name: str) -> int:
    """Return the number of changes that match ``--fail-on NAME``."""
    number = sum(change.category in SPEEDS_FAIL_ON.get(name, ()) for change in changes.speeds)
    if name == "eager" and changes.eager is not None:
        number += len(changes.eager.beyond_rounding)
    costs = COSTS_FAIL_ON.get(name)
    number += sum(any(cost.category == costs for cost in change.costs) for change in changes.speeds)
    is_counted = FAIL_ON.get(name)
    if is_counted is not None:
        number += sum(is_counted(category, change) for category, members in changes.categories() for change in members)
    return number


def diff_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``recapture diff --format json``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"recapture diff, version {DIFF_SCHEMA_VERSION}",
        **msgspec.json.schema(Diff),
    }
