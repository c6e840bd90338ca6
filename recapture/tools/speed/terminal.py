"""Terminal output of a benchmark: the running processes, each finished row, and a table for each workload."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from recapture.base.text import one_line, ratio_text, shorten, time_text
from recapture.report.say import say, say_all
from recapture.report.tables import Span, Table, terminal_lines
from recapture.tools.speed.ranking import best_first
from recapture.tools.speed.remarks import remarks
from recapture.tools.speed.report import break_even_text, claim_status, configurations_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rich.console import Console
    from rich.text import Text
    from typing_extensions import Self

    from recapture.report.tables import Cell
    from recapture.tools.speed.speedups import Row, Speedups

WIDE = 130
"""Width of the console in columns from which the costs are also shown."""

COSTS = ("eager", "first call", "pays back after\n(iterations)")
"""Headers of the columns with the costs of a speedup."""

COLUMNS = (7, 4, 3)
"""Possible numbers of columns of a table: with costs, without costs, and without the median."""

COLOURS = {"faster": "green", "slower": "red"}
"""Colour by finding."""


class BenchProgress:
    """Shows a line for every finished row and, on a terminal, a bar below; use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._rows = 0
        self._done = 0
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar = Progress(
                BarColumn(bar_width=16),
                TextColumn("{task.completed}/{task.total}"),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, rows: int) -> None:
        """Set the number of rows."""
        self._rows = rows
        if self._bar is not None:
            self._bar.update(self._task, total=rows, description="")
        else:
            self._console.print(configurations_text(rows), highlight=False)

    def doing(self, what: dict[int, str]) -> None:
        """Show the running processes."""
        if self._bar is not None:
            room = max(20, self._console.width - 40)
            self._bar.update(self._task, description=shorten("; ".join(what.values()), room))

    def finished(self, row: Row) -> None:
        """Print a finished row."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        seconds = time.monotonic() - self._began
        said = f"{row.measured.finding}: {ratio_text(row.measured.speedup)}" if row.measured else str(row.verdict)
        why = "" if row.measured else "".join(f", {shorten(one, 100)}" for one in remarks(row)[:1])
        self._console.print(
            f"[{self._done}/{self._rows} {seconds:.0f} s] {row.workload} {row.configuration}: {said}{why}",
            highlight=False,
            markup=False,
            soft_wrap=not self._console.is_terminal,
        )


def print_speedups(console: Console, speedups: Speedups, workloads: set[str] | None = None) -> None:
    """Print a table for each workload, best row first, then the claims; for the given workloads or all."""
    rows = [row for row in speedups.rows if workloads is None or row.workload in workloads]
    for name in dict.fromkeys(row.workload for row in rows):
        mine = best_first([row for row in rows if row.workload == name])
        say(console, one_line(name), "bold")
        say_all(console, _table_lines(mine, console.width))
        for row in mine:
            for remark in remarks(row, mine)[:1]:
                line = shorten(f"{row.configuration}: {remark}", console.width - 2)
                say(console, f"  {line}", "dim")
        say(console)
    for row in rows:
        for claim in row.claims:
            measured = ratio_text(row.measured.speedup) if row.measured else str(row.verdict)
            where = f"{row.workload} {row.configuration}"
            say(
                console,
                f"claim {claim.id}: {claim_status(row, claim)}: {where}: {measured}, published {claim.published}",
            )


def _table_lines(rows: Sequence[Row], width: int) -> list[Text]:
    """Return a table of one workload with as many of its columns as fit into `width` characters."""
    lines: list[Text] = []
    for columns in COLUMNS if width >= WIDE else COLUMNS[1:]:
        lines = terminal_lines(_table(rows, columns))
        if max(line.cell_len for line in lines) <= width:
            break
    return lines


def _table(rows: Sequence[Row], columns: int) -> Table:
    headers = ["configuration", "speedup [95 %]", "finding", "median", *COSTS][:columns]
    shown: list[list[Cell]] = []
    for row in rows:
        name = str(row.configuration)
        if row.measured is None:
            shown.append([name, "", Span(str(row.verdict), style="bold")])
            continue
        one = row.measured
        first = time_text(row.cold.capture + row.cold.calls[0]) if row.cold else ""
        cells: list[Cell] = [
            name,
            ratio_text(one.speedup),
            Span(one.finding, style=COLOURS.get(one.finding, "")),
            time_text(one.seconds),
            time_text(one.eager_seconds),
            first,
            break_even_text(one.finding, one.break_even_cold),
        ]
        shown.append(cells[:columns])
    return Table([Span(header, style="bold") for header in headers], shown, "lrlr")
