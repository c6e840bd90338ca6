"""The operators of eager and of a compiled run in one table, to show the cause of a speedup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.files import write_atomically
from recapture.base.text import shorten
from recapture.report.markup import plain
from recapture.report.tables import Cell, Table, code_span, to_markdown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from recapture.bench.job import Operator

__all__ = ["write_profile"]

SHOWN = 25
"""Number of operators in the table."""

NAME_LIMIT = 80
"""Characters shown of an operator's name."""


def write_profile(folder: Path, title: str, operators: tuple[Sequence[Operator], Sequence[Operator]]) -> None:
    """Write ``operators.md``: for eager and the candidate, each operator's own CPU and device time and its calls.

    The traces beside it (``eager.trace.json``, ``candidate.trace.json``) open in Perfetto or ``chrome://tracing``.
    """
    eager, candidate = ({one.name: one for one in rows} for rows in operators)
    totals = [(sum(one.cpu for one in rows), sum(one.device for one in rows)) for rows in operators]
    names = sorted(
        eager.keys() | candidate.keys(),
        key=lambda name: (
            -max(_share(by.get(name), total) for by, total in ((eager, totals[0]), (candidate, totals[1])))
        ),
    )[:SHOWN]
    rows: list[list[Cell]] = []
    for name in names:
        row: list[Cell] = [code_span(shorten(name, NAME_LIMIT))]
        for by, (cpu, device) in ((eager, totals[0]), (candidate, totals[1])):
            one = by.get(name)
            if one is None:
                row += ["", "", "", ""]
                continue
            share = f"{one.cpu / cpu:.1%}" if cpu else ""
            row += [share, f"{one.cpu / 1000:.3f}", f"{one.device / 1000:.3f}" if device else "", str(one.calls)]
        rows.append(row)
    headers = ["operator"]
    for which in ("eager", "compiled"):
        headers += [f"{which}: CPU", f"{which}: CPU ms", f"{which}: device ms", f"{which}: calls"]
    text = (
        f"# Operators: {plain(title)}\n\nSelf time over three iterations, the {SHOWN} greatest shares; the share is of "
        f"the CPU's time.\n\n{to_markdown(Table(headers, rows, 'lr'))}\n"
    )
    write_atomically(folder / "operators.md", text.encode())


def _share(one: Operator | None, total: tuple[float, float]) -> float:
    """Return the larger of an operator's two shares: of the CPU's time and of the device's time."""
    if one is None:
        return 0.0
    return max(one.cpu / total[0] if total[0] else 0.0, one.device / total[1] if total[1] else 0.0)
