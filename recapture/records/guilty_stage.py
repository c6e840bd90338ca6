"""The stages of a compiler that can be guilty of a wrong or failing cell, and what a record says about one."""

from __future__ import annotations

from typing import Literal

import msgspec

from recapture.records.verdicts import FAILING, SILENTLY_WRONG, Verdict

StageName = Literal["dynamo", "aot_autograd", "decompositions", "inductor", "export"]

STAGES: dict[StageName, str] = {
    "dynamo": "Dynamo",
    "aot_autograd": "AOTAutograd",
    "decompositions": "decompositions",
    "inductor": "Inductor",
    "export": "torch.export",
}
"""Every stage, with its name in the reports."""

LONGEST = 300
"""Characters of the longest part or workaround."""


class GuiltyStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first stage of a compiler that shows what a cell shows, seen in two processes.

    `part` names the part of the stage that a switch turns off, such as ``vectorization``. `workaround` is code that
    makes the cell right, or for ``input checks`` an environment variable that makes it fail visibly.
    """

    name: StageName
    part: str | None = None
    workaround: str | None = None


def check_stage(stage: GuiltyStage, verdict: Verdict) -> None:
    """Raise ValueError for a stage that no run can have recorded with this verdict."""
    if verdict not in SILENTLY_WRONG | FAILING:
        raise ValueError(f"`verdict` is {verdict}, but there is a guilty `stage`")
    for field in ("part", "workaround"):
        text = getattr(stage, field)
        if text is not None and not 0 < len(text) <= LONGEST:
            raise ValueError(f"`{field}` of `stage` is empty or longer than {LONGEST} characters")
    if stage.workaround is not None and stage.part is None:
        raise ValueError("`stage` has a workaround of no part")
