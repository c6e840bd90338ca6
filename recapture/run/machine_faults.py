"""Decides which results of a cell a fault of the machine can explain, so that they say nothing about the compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.records.verdicts import SILENTLY_WRONG

if TYPE_CHECKING:
    from recapture.records.difference import Difference
    from recapture.run.cell import CellResult


def explainable(found: CellResult) -> bool:
    """Whether a fault of the machine can be all that a result shows.

    Right results are among them: if eager and a compiled call fail in the same way because of the machine, they agree,
    but that says nothing about the compiler. A silently wrong result shows no more if each of its differences is an
    exception that eager alone raises: where the machine breaks eager, as a numpy does that this torch cannot convert,
    there is nothing to compare with.
    """
    if found.verdict in SILENTLY_WRONG:
        return bool(found.differences) and all(_eager_alone_raises(one) for one in found.differences)
    return found.verdict.facts.may_be_machine


def _eager_alone_raises(one: Difference) -> bool:
    return one.unlike == "raises" and one.other is None
