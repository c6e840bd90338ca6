"""The table of what each configuration of a workload costs: counts that need no timing."""

from __future__ import annotations

from collections.abc import Sequence

from recapture.base.text import time_text
from recapture.report.cost_words import value_text
from recapture.report.document import Inline, Table, code_span
from recapture.tools.speed.speedups import Row

COLUMNS = {
    "graphs": "graphs",
    "breaks": "graph breaks",
    "recompiles": "recompiles",
    "kernels": "kernels",
    "code": "characters of code",
    "saved": "saved for backward",
    "instructions": "instructions of compiling",
    "compile_cpu": "CPU time of compiling",
}
"""The costs that have a column, with their headers."""


def cost_table(rows: Sequence[Row]) -> Table | None:
    """Return the costs of the rows that have some, without columns of which nothing is known; None if none has any."""
    rows = [row for row in rows if row.costs is not None]
    known = [name for name in COLUMNS if any(getattr(row.costs, name) is not None for row in rows)]
    if not known:
        return None
    lines: list[list[Inline]] = []
    for row in rows:
        values = [getattr(row.costs, name) for name in known]
        first = time_text(row.cold.capture + row.cold.calls[0]) if row.cold else ""
        texts = ["" if value is None else value_text(name, value) for name, value in zip(known, values, strict=True)]
        lines.append([code_span(str(row.configuration)), *texts, first])
    return Table(["configuration", *(COLUMNS[name] for name in known), "first call, cold"], lines, "lrrrrrrrrr")
