"""The option ``--explain``, which this tool adds to `recapture run`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.base.option_fields import option

if TYPE_CHECKING:
    from recapture.run.plan import RunOptions
    from recapture.run.runner import OpenRun

BUDGET = 5
"""Number of extra cells for one cell, unless more are asked for."""

EXPLAIN = "recapture.tools.explain.recorded_run:explain"
"""The function that runs a cell and records what torch reports about it."""


@dataclass(frozen=True, kw_only=True)
class ExplainOption:
    """Whether a run explains its cells and searches the guilty stages of those that are wrong or failing."""

    explain: bool = option(
        "--explain",
        default=False,
        help=f"Record what torch reports about each cell, and, with up to {BUDGET} more runs of it, the guilty stage.",
    )

    def applied(self, options: RunOptions) -> tuple[RunOptions, list[Callable[[OpenRun], None]]]:
        """Return the options of the run with what this option changes, and what follows when all cells are done."""
        if not self.explain:
            return options, []
        from recapture.tools.explain.stage_search import StageRecorder

        return dataclasses.replace(options, examiner=EXPLAIN), [StageRecorder(BUDGET)]
