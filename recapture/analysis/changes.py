"""What a diff holds: its categories, which of them are regressions, and its JSON form.

History of the JSON form, newest first (``DIFF_SCHEMA_VERSION``):

2. `Side.not_asked`: cells that one side alone was asked to run are neither added nor removed. `Diff.speeds`.
1. first version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from recapture.results.records import Record  # noqa: TC001 - msgspec resolves the annotation at run time
from recapture.results.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "CATEGORIES",
    "DIFF_SCHEMA_VERSION",
    "FAIL_ON",
    "SPEED_CATEGORIES",
    "SPEED_CHANGES",
    "Change",
    "ClaimChange",
    "Diff",
    "FactChange",
    "Ratio",
    "Rename",
    "Side",
    "SpeedCategory",
    "SpeedChange",
    "SpeedSide",
    "diff_schema",
    "found",
    "is_regression",
]

DIFF_SCHEMA_VERSION = 2

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
    "newly_run": "not run before, run now",
    "not_run_differently": "run on neither side, for another reason",
    "added": "not there before",
    "case_edited": "the case itself is not the same",
    "noise": "eager does not agree with itself on one side",
}
"""Every way a cell can change, worst first, and what it means; a cell is in at most one."""


SpeedCategory = Literal[
    "no_longer_right",
    "slower",
    "newly_right",
    "faster",
    "failing_differently",
    "edited",
    "too_noisy",
    "no_difference_shown",
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
    "not_timed": "right on neither side, for the same reason",
    "only_in_old": "not measured in the new benchmark",
    "only_in_new": "not measured in the old benchmark",
}
"""What can become of a configuration of a benchmark, worst first; it is in exactly one."""

Ratio = tuple[float, float, float]
"""A ratio with its 95 % interval."""


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell that changed; `old` or `new` is None where that side has no such cell.

    `case` is the case's address in the new results (in the old ones where it is gone). `maybe_noise` says that one side
    passed its deadline, which a busy machine can cause.
    """

    case: str
    compiler: str
    old: Record | None
    new: Record | None
    maybe_noise: bool = False


class FactChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package, or something else about the environment, that differs; None where a side does not have it.

    `minor` marks a package that rarely decides anything.
    """

    name: str
    old: str | None
    new: str | None
    minor: bool = False


class ClaimChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published claim about one cell that is borne out on one side only, or could be checked on one side only."""

    id: str
    case: str
    compiler: str
    expected: str
    old: str
    new: str


class Rename(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case that has moved: the same source under another address."""

    old: str
    new: str


class Side(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the two results directories; `not_asked` counts cells of the other that this one was not asked to run."""

    image: str
    capability: str
    cells: int
    not_asked: int = 0


class SpeedSide(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration in one of two benchmarks; without figures its verdict says why, and `reason` more.

    `speedup` is eager ÷ candidate. `seconds` are of an iteration, `cold` and `warm` of the first call with cold and
    with warm caches, capturing included. `memory` is the peak in bytes.
    """

    verdict: Verdict
    reason: str | None = None
    speedup: Ratio | None = None
    seconds: float | None = None
    memory: int | None = None
    cold: float | None = None
    warm: float | None = None


class SpeedChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of one configuration; `old` or `new` is None where that side has no such row.

    `change` is by how much it is faster now (less than 1: slower): old seconds ÷ new, or, with `basis` ``speedup``
    because that is surer or the hardware is not the same, new speedup over eager ÷ old. `eager` is old seconds ÷ new of
    eager beside it.
    """

    workload: str
    configuration: str
    category: SpeedCategory
    basis: Literal["seconds", "speedup"]
    old: SpeedSide | None
    new: SpeedSide | None
    change: Ratio | None = None
    eager: Ratio | None = None


class Diff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What changed between two results directories; `CATEGORIES` says what the lists of changes mean.

    `speeds` has every configuration of the benchmarks beside them, by what `SPEED_CATEGORIES` lists.

    `warnings` are reasons for care in reading it (cells that were planned and are missing, a suite not collected, …).
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
    newly_run: tuple[Change, ...] = ()
    not_run_differently: tuple[Change, ...] = ()
    added: tuple[Change, ...] = ()
    case_edited: tuple[Change, ...] = ()
    noise: tuple[Change, ...] = ()
    unchanged: int = 0
    speeds: tuple[SpeedChange, ...] = ()
    schema: int = DIFF_SCHEMA_VERSION

    def categories(self) -> Iterator[tuple[str, tuple[Change, ...]]]:
        """Yield every category with its changes, worst first, the empty ones too."""
        for name in CATEGORIES:
            yield name, getattr(self, name)


def is_regression(category: str, change: Change) -> bool:
    """Whether a cell that was right has become worse.

    A right answer that disappears counts, whether its cell is gone or no longer runs. An edited case does not: another
    question was asked. Neither does a case on which eager disagrees with itself. Silently wrong where it used to fail
    loudly counts, because the user no longer sees an error.
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


def _any(_category: str, _change: Change) -> bool:
    return True


FAIL_ON: dict[str, Callable[[str, Change], bool]] = {
    "regression": is_regression,
    "wrong": _newly_wrong,
    "failing": _newly_failing,
    "any": _any,
}
"""What ``--fail-on`` can name of cells; `SPEEDS_FAIL_ON` of configurations of a benchmark.

``regression``: see `is_regression`. ``wrong`` and ``failing``: silently wrong (failing) now and not before, in any
category, added and edited cases included. ``any``: any cell that is not unchanged.
"""

SPEED_CHANGES: tuple[SpeedCategory, ...] = (
    "no_longer_right",
    "slower",
    "newly_right",
    "faster",
    "failing_differently",
    "edited",
)
"""The categories of what changed beyond doubt."""

SPEEDS_FAIL_ON: dict[str, tuple[SpeedCategory, ...]] = {
    "slower": ("no_longer_right", "slower"),
    "any": SPEED_CHANGES,
}


def found(changes: Diff, name: str) -> int:
    """Return how many changes are of the kind that ``--fail-on NAME`` asks for."""
    number = sum(one.category in SPEEDS_FAIL_ON.get(name, ()) for one in changes.speeds)
    asked = FAIL_ON.get(name)
    if asked is not None:
        number += sum(asked(category, change) for category, members in changes.categories() for change in members)
    return number


def diff_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``recapture diff --format json``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"recapture diff, version {DIFF_SCHEMA_VERSION}",
        **msgspec.json.schema(Diff),
    }
