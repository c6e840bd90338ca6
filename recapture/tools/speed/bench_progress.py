"""The progress of a benchmark: a line for every process and every row, with how long the rest is likely to take."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from recapture.base.text import ratio_text, shorten, time_text
from recapture.tools.speed.remarks import remarks, why_wide
from recapture.tools.speed.report import configurations_text
from recapture.tools.speed.speedups import Row

if TYPE_CHECKING:  # no dependency: a part of Python from 3.11 on
    from typing_extensions import Self


class BenchProgress:
    """Shows a line for every process and every finished row and, on a terminal, a bar below.

    Use it as a context manager. Without a terminal, as in a log, a process also has a line when it starts.
    """

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

    def begun(self, text: str) -> None:
        """Print what starts, in a log."""
        if self._bar is None:
            self._print(text)

    def phase(self, text: str, seconds: float, left: str) -> None:
        """Print what a process that has ended did."""
        self._print(f"{text}, {time_text(seconds)}; {left}")

    def finished(self, row: Row) -> None:
        """Print a finished row."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        outcome = f"{row.measured.finding}: {ratio_text(row.measured.speedup)}" if row.measured else str(row.verdict)
        doubts = why_wide(row) if row.measured else remarks(row)[:1]
        why = "".join(f"; {shorten(doubt, 200)}" for doubt in doubts)
        self._print(f"{row.workload} {row.configuration}: {outcome}{why}")

    def _print(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        self._console.print(
            f"[{self._done}/{self._rows} {seconds:.0f} s] {text}",
            highlight=False,
            markup=False,
            soft_wrap=not self._console.is_terminal,
        )
