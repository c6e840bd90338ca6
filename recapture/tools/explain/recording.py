"""Adds the guilty stages to the records of a run, when its cells are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from recapture.base.text import plural
from recapture.run.shared_processes import compiles
from recapture.tools.explain.stage_search import Staged, stage_cells
from recapture.tools.explain.stages import stageable

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.pool.worker_pool import WorkerPool
    from recapture.run.plan import RunOptions
    from recapture.run.result_files import Ledger


def record_stages(
    pool: WorkerPool,
    ledger: Ledger,
    options: RunOptions,
    warn: Callable[[str], None],
    prepare: Callable[[WorkerPool], None] | None,
) -> list[Staged]:
    """Search the guilty stage of each wrong or failing cell of a run that asks for it, and amend its record.

    A record that names a stage already keeps it, so that a run can be resumed. `prepare` makes the pool preload what
    cells need that generate code, if it has not; `warn` receives a line about what begins.
    """
    if not options.explain or options.budget == 0:
        return []
    rows = [(cell, ledger.done[key]) for key, cell in ledger.cells.items()]
    wanted = [(cell, row) for cell, row in rows if stageable(row) and row.stage is msgspec.UNSET]
    if not wanted:
        return []
    if prepare is not None and options.device == "cpu" and any(compiles(cell) for cell, _ in wanted):
        prepare(pool)
    warn(f"searching the guilty stage of {plural(len(wanted), 'cell')}")

    def found(one: Staged) -> None:
        if one.report.stage is not None:
            ledger.amend(one.with_stage)

    return stage_cells(
        pool,
        wanted,
        timeout=options.timeout,
        memory=options.memory,
        budget=options.budget,
        known=ledger.done,
        found=found,
    )
