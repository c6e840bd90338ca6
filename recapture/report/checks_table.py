"""The checks as a table for a terminal."""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.machine.doctor.register import Check

__all__ = ["render"]


def render(checks: Sequence[Check]) -> str:
    """Return a table of the checks, as wide as the terminal, and a last line that counts what is wrong."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False)
    for heading in ("check", "status", "found", "fix"):
        table.add_column(heading, overflow="fold", no_wrap=heading in {"check", "status"})
    for one in checks:
        table.add_row(*(Text(text) for text in (one.name, one.status, one.found, one.mend)))
    out = io.StringIO()
    Console(file=out, width=shutil.get_terminal_size((120, 24)).columns, no_color=True).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    counts = {status: sum(one.status == status for one in checks) for status in ("fault", "warning", "unknown")}
    told = [
        f"{count} {status}{'s' if count != 1 else ''}"
        for status, count in counts.items()
        if count and status != "unknown"
    ]
    told += [f"{counts['unknown']} unknown"] if counts["unknown"] else []
    return "\n".join([*lines, "", ", ".join(told) if told else "nothing is wrong", ""])
