"""The doctor's checks as a table for a terminal."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from recapture.base.text import plural
from recapture.report.document import Table
from recapture.report.terminal_writer import terminal_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.machine.doctor.register import Check

FALLBACK_SIZE = (120, 24)
"""Columns and lines of the table if the output is not a terminal."""


def render(checks: Sequence[Check]) -> str:
    """Return a table of the checks, as wide as the terminal, and a last line with the number of problems."""
    table = Table(["check", "status", "found", "fix"], [[one.name, one.status, one.found, one.mend] for one in checks])
    lines = terminal_lines(table, width=shutil.get_terminal_size(FALLBACK_SIZE).columns, wrapped=(2, 3))
    faults, warnings, unknown = (
        sum(one.status == status for one in checks) for status in ("fault", "warning", "unknown")
    )
    counts = [plural(faults, "fault")] if faults else []
    counts += [plural(warnings, "warning")] if warnings else []
    counts += [f"{unknown} unknown"] if unknown else []
    return "\n".join([*(line.plain for line in lines), "", ", ".join(counts) or "nothing is wrong", ""])
