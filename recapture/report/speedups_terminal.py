"""What a benchmark shows on the terminal: what runs now, each row as it is finished, and a table a workload."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from recapture.analysis.ranking import best_first
from recapture.analysis.remarks import remarks
from recapture.base.text import ratio_text, shorten, time_text
from recapture.report.speedups import break_even_text, claim_status, configurations_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rich.console import Console
    from typing_extensions import Self

    from recapture.results.speedups import Row, Speedups

__all__ = ["BenchProgress", "print_speedups"]

WIDE = 130
"""From this many columns on the costs are shown too."""

COSTS = ("eager", "first call", "pays back after\n(iterations)")

COLOURS = {"faster": "green", "slower": "red"}


class BenchProgress:
    """A bar on a terminal, and everywhere a line for every finished row; a context manager."""

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
        """Say how many rows there will be."""
        self._rows = rows
        if self._bar is not None:
            self._bar.update(self._task, total=rows, description="")
        else:
            self._console.print(configurations_text(rows), highlight=False)

    def doing(self, what: dict[int, str]) -> None:
        """Show what runs now."""
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
    """Print a table a workload, best first, then the claims; of some workloads or all."""
    rows = [row for row in speedups.rows if workloads is None or row.workload in workloads]
    for name in dict.fromkeys(row.workload for row in rows):
        mine = best_first([row for row in rows if row.workload == name])
        console.print(_table(name, mine, wide=console.width >= WIDE))
        for row in mine:
            for remark in remarks(row, mine)[:1]:
                line = shorten(f"{row.configuration}: {remark}", console.width - 2)
                console.print(f"  {line}", highlight=False, markup=False, style="dim")
        console.print()
    for row in rows:
        for claim in row.claims:
            measured = ratio_text(row.measured.speedup) if row.measured else str(row.verdict)
            console.print(
                f"claim {claim.id}: {claim_status(row, claim)}: {row.workload} {row.configuration}: {measured}, "
                f"published {claim.published}",
                highlight=False,
                markup=False,
            )


def _table(name: str, rows: Sequence[Row], *, wide: bool) -> Table:
    table = Table(title=escape(name), title_justify="left", title_style="bold", box=None, pad_edge=False)
    left = ("configuration", "finding")
    for header in ("configuration", "speedup \\[95 %]", "finding", "median", *(COSTS if wide else ())):
        table.add_column(header, justify="left" if header in left else "right", no_wrap=True)
    for row in rows:
        if row.measured is None:
            table.add_row(escape(str(row.configuration)), "", f"[bold]{row.verdict}[/bold]")
            continue
        one = row.measured
        colour = COLOURS.get(one.finding)
        pays = break_even_text(one.finding, one.break_even_cold)
        first = time_text(row.cold.capture + row.cold.calls[0]) if row.cold else ""
        table.add_row(
            escape(str(row.configuration)),
            escape(ratio_text(one.speedup)),
            f"[{colour}]{one.finding}[/{colour}]" if colour else one.finding,
            time_text(one.seconds),
            *([time_text(one.eager_seconds), first, pays] if wide else []),
        )
    return table
