"""The guilty stage of a cell, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from recapture.records.guilty_stage import STAGES, GuiltyStage

if TYPE_CHECKING:
    from recapture.records.record import Record


def stage_of(record: Record) -> GuiltyStage | None:
    """Return the guilty stage that a record names, if it names one."""
    return None if record.stage is msgspec.UNSET else record.stage


def culprit(stage: GuiltyStage) -> str:
    """Return a stage and its part, such as ``Inductor, vectorization``."""
    return STAGES[stage.name] + (f", {stage.part}" if stage.part else "")


def stage_changed(old: Record | None, new: Record | None) -> str:
    """Return a note if both records name a guilty stage, and not the same; else an empty text."""
    before, after = (None if one is None else stage_of(one) for one in (old, new))
    if before is None or after is None or culprit(before) == culprit(after):
        return ""
    return f"guilty stage: {culprit(before)} → {culprit(after)}"
