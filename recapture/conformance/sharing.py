"""Which cells run in one process, one after the other, because creating a CUDA context takes longer than a cell.

Cells of one case that only capture share a process. A cell that does not pass in a process that had run others before
is run again alone, and so its record is that of a process of its own. In its order, a group begins with the cells that
are expected to pass: after one that does not, a new process is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.declare.compilers import builtin_compilers
from recapture.results.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from recapture.conformance.plan import PlannedCell
    from recapture.results.records import Phase

__all__ = ["compiles", "group_of", "in_groups", "usable_after"]

SHARED_VERDICTS = (Verdict.PASS, Verdict.PASS_WITH_BREAKS, Verdict.NOT_APPLICABLE)
"""Verdicts of cells after which a process can run another cell."""

LIKELY_TO_PASS = (
    "eager",
    "compile:eager",
    "compile:aot_eager",
    "jit.script",
    "fx",
    "fx:concrete_args",
    "make_fx",
    "jit.trace",
    "export",
    "export:nonstrict",
    "export:dynamic",
)
"""Compilers that only capture, in the order of the share of recorded cells that pass, highest first."""


def usable_after(verdict: Verdict, phase: Phase | None) -> bool:
    """Whether a process can run another cell after one with this verdict.

    A cell that is not applicable for what eager did, in phase ``reference``, left a GPU that refuses everything.
    """
    return verdict in SHARED_VERDICTS and phase is None


def compiles(cell: PlannedCell) -> bool:
    """Whether a cell may generate code, because of its compiler (unless a user's own) or because of the case."""
    compiler = builtin_compilers().get(cell.spec.compiler)
    return compiler is None or compiler.generates_code or cell.info.compiles


def group_of(cell: PlannedCell, verdicts: Collection[str]) -> str | None:
    """Return the name of the group that a cell belongs to; None if it needs a process of its own.

    `verdicts` are those of earlier runs. A cell that did not pass would have to run again alone.
    """
    if compiles(cell) or not {str(one) for one in verdicts} <= {str(one) for one in SHARED_VERDICTS}:
        return None
    return f"{cell.spec.suite}::{cell.spec.case}"


def in_groups(cells: list[PlannedCell], group: Callable[[PlannedCell], str | None]) -> list[PlannedCell]:
    """Return cells in their order, but with each group at the place of its first cell, likely passes first."""
    members: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        name = group(cell)
        if name is not None:
            members.setdefault(name, []).append(cell)
    ordered: list[PlannedCell] = []
    for cell in cells:
        name = group(cell)
        ordered += [cell] if name is None else sorted(members.pop(name, []), key=_rank)
    return ordered


def _rank(cell: PlannedCell) -> int:
    name = cell.spec.compiler
    return LIKELY_TO_PASS.index(name) if name in LIKELY_TO_PASS else len(LIKELY_TO_PASS)
