"""Adds the guilty stages to the records of a run, when its cells are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from recapture.base.text import plural
from recapture.run.shared_processes import compiles
from recapture.tools.explain.run_options import BUDGET
from recapture.tools.explain.stage_search import Staged, stage_cells
from recapture.tools.explain.stages import stageable

if TYPE_CHECKING:
    from recapture.run.runner import OpenRun


class StageRecorder:
    """Searches the guilty stage of each wrong or failing cell of a run, and amends its record.

    It is given to `recapture.run.runner.run_cells` as what follows the cells. `budget` is the most extra cells for each
    cell. Afterwards `staged` has the cells whose stage was searched.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.staged: list[Staged] = []

    def __call__(self, run: OpenRun) -> None:
        """Search the stages. A record that names one already keeps it, so that a run can be resumed."""
        options, ledger = run.options, run.ledger
        rows = [(cell, ledger.done[key]) for key, cell in ledger.cells.items()]
        searched = [(cell, row) for cell, row in rows if stageable(row) and row.stage is msgspec.UNSET]
        if not searched:
            return
        if run.prepare is not None and options.device == "cpu" and any(compiles(cell) for cell, _ in searched):
            run.prepare(run.pool)
        run.warn(f"searching the guilty stage of {plural(len(searched), 'cell')}")

        def record(staged: Staged) -> None:
            if staged.report.stage is not None:
                ledger.amend(staged.with_stage)

        self.staged = stage_cells(
            run.pool,
            searched,
            timeout=options.timeout,
            memory=options.memory,
            budget=self.budget,
            known=ledger.done,
            found=record,
        )
