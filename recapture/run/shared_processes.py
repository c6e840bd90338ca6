"""Which cells run in one process, one after the other, because creating a CUDA context takes longer than a cell.

Cells of one case share a process. What a cell gives in a process that others had used before counts if the cell is
known to end in this way on this release of torch (see `recapture.run.earlier_outcomes`). Otherwise it runs again,
alone, and so its record is that of a process of its own.

Of cells that never ran on this release, only those that capture share a process, and only while each passes. In its
order, a group begins with the cells that are expected to pass: after one that does not, a new process may be needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.cases.compilers import builtin_compilers
from recapture.records.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from recapture.records.record import Phase
    from recapture.run.earlier_outcomes import End
    from recapture.run.plan import PlannedCell

UNEVENTFUL = frozenset(verdict.value for verdict in Verdict if verdict.facts.uneventful)
"""Verdicts, as they are written, of cells in which nothing failed or differed."""

LONG = 10.0
"""Seconds above which a cell runs in a process of its own: a CUDA context costs it little, and long cells in one
process, one after the other, would be the last of a run."""


LIKELY_TO_PASS = tuple(
    compiler.name
    for compiler in sorted(builtin_compilers().values(), key=lambda one: one.share_passing, reverse=True)
    if compiler.share_passing and not compiler.generates_code
)
"""Compilers that only capture, in the order of the share of recorded cells that pass, highest first."""


def passes(verdict: Verdict, phase: Phase | None) -> bool:
    """Whether a cell with this verdict passed, or had nothing to compare.

    A cell that is not applicable for what eager did, in phase ``reference``, left a GPU that refuses everything.
    """
    return verdict.facts.uneventful and phase is None


def leaves_process_whole(verdict: Verdict) -> bool:
    """Whether a process can run another cell after one with this verdict, if nothing else shows that it cannot."""
    return verdict.facts.reusable


def compiles(cell: PlannedCell) -> bool:
    """Whether a cell may generate code, because of its compiler (unless a user's own) or because of the case."""
    compiler = builtin_compilers().get(cell.spec.compiler)
    return compiler is None or compiler.generates_code or cell.info.compiles


def group_of(cell: PlannedCell, ends: Collection[End], verdicts: Collection[str], seconds: float = 0.0) -> str | None:
    """Return the name of the group that a cell belongs to; None if it needs a process of its own.

    `ends` are the known ones on this release of torch, `verdicts` those of earlier runs on any release. A cell that
    never ran on this release, and may not pass, would have to run again alone. `seconds` are those that the cell is
    expected to take.
    """
    if seconds > LONG:
        return None
    name = f"{cell.spec.suite}::{cell.spec.case}"
    if not ends:
        return None if compiles(cell) or not set(verdicts) <= UNEVENTFUL else name
    own = cell.spec.compiler not in builtin_compilers()
    if own or not all(leaves_process_whole(end.verdict) for end in ends):
        return None
    return name


def in_groups(
    cells: list[PlannedCell],
    group: Callable[[PlannedCell], str | None],
    seconds: Callable[[PlannedCell], float],
    ends: Callable[[PlannedCell], Collection[End]],
) -> list[PlannedCell]:
    """Return the cells in the order in which they start: the groups that take the longest first.

    `seconds` are those that a cell is expected to take. A group's cells are one after the other, those first that are
    likely to pass.
    """
    members: dict[object, list[PlannedCell]] = {}
    for cell in cells:
        members.setdefault(group(cell) or cell.key, []).append(cell)
    longest_first = sorted(members.values(), key=lambda one: sum(map(seconds, one)), reverse=True)
    return [cell for one in longest_first for cell in sorted(one, key=lambda cell: _rank(cell, ends(cell)))]


def _rank(cell: PlannedCell, ends: Collection[End]) -> tuple[bool, int]:
    name = cell.spec.compiler
    place = LIKELY_TO_PASS.index(name) if name in LIKELY_TO_PASS else len(LIKELY_TO_PASS)
    return any(not end.verdict.facts.uneventful for end in ends), place
