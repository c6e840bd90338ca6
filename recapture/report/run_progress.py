"""The progress of a run: a bar on a terminal, or a line from time to time elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from recapture.base.text import duration_text, one_line, plural, shorten
from recapture.records.verdicts import FAILING, SILENTLY_WRONG, Verdict
from recapture.report import summary
from recapture.report.terminal_writer import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress, TaskID
    from typing_extensions import Self

    from recapture.records.record import Record

QUIET_SECONDS = 10.0
"""Seconds between two lines of progress if the output is not a terminal."""

TRUSTED_SHARE = 0.25
"""Share of the cells after which their measured pace replaces the initial estimate."""

BAR_WIDTH = 16
"""Characters of the bar."""

WRONG_CASES_NAMED = 10
"""Number of silently wrong cases that get a line during the run; the summary lists the others."""

REASON_LIMIT = 200
"""Characters shown of the difference in a silently wrong cell."""


class RunProgress:
    """Shows the progress of a run: a bar on a terminal, elsewhere a line every `QUIET_SECONDS`.

    The first silently wrong cell of a case gets a line at once, for up to `WRONG_CASES_NAMED` cases. Use as a context
    manager; call `start` once, then `cell_started` with a cell's address and `cell_finished` with its record.
    """

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if console is None:
            from recapture.report.terminal_writer import SafeConsole

            console = SafeConsole(stderr=True)
        self._console = console
        self._clock = clock
        self._running: dict[str, None] = {}
        self._wrong_cases: set[str] = set()
        self._total = self._done = self._wrong = self._failing = 0
        self._estimate: float | None = None
        self._expected: Mapping[str, float] = {}
        self._expected_seconds = self._done_seconds = 0.0
        self._began = self._spoke = clock()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn

            self._progress = Progress(
                BarColumn(bar_width=BAR_WIDTH),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[state]}", markup=False),
                console=self._console,
                transient=True,
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
        if not self._total:
            return
        stopped = " (stopped)" if self._done < self._total else ""
        seconds = self._clock() - self._began
        cells = f"{self._done}/{plural(self._total, 'cell')}"
        say(self._console, f"{cells} in {duration_text(seconds)}{stopped}: {self._troubles()}")

    def start(
        self, total: int, estimate_seconds: float | None = None, expected: Mapping[str, float] | None = None
    ) -> None:
        """Show the number of cells to run and, if known, the estimated seconds.

        `expected` are the seconds that each cell, by its address, is expected to take: long cells run first, so that
        their number alone says little about what is left. Without it, all cells count alike.
        """
        self._total, self._estimate, self._expected = total, estimate_seconds, expected or {}
        self._expected_seconds = sum(self._expected.values())
        self._began = self._spoke = self._clock()
        if self._progress is not None:
            self._task = self._progress.add_task("", total=total, state=self._state())
            return
        about = f", about {duration_text(estimate_seconds)}" if estimate_seconds is not None else ""
        say(self._console, f"{plural(total, 'cell')}{about}")

    def cell_started(self, cell: str) -> None:
        """Record that a cell, ``suite::name::compiler``, is running."""
        self._running[cell] = None
        self._show()

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Record the end of a running cell, and its seconds."""
        self._running.pop(record.cell, None)
        self._done += 1
        self._done_seconds += self._expected.get(record.cell, 0.0)
        self._failing += record.verdict in FAILING
        if record.verdict in SILENTLY_WRONG:
            self._wrong += 1
            self._name_wrong(record)
        if record.verdict is Verdict.TIMEOUT:
            say(self._console, f"gave up after {duration_text(seconds)}: {record.cell}", "yellow")
        self._show()

    def _name_wrong(self, record: Record) -> None:
        if record.case in self._wrong_cases:
            return
        self._wrong_cases.add(record.case)
        if len(self._wrong_cases) > WRONG_CASES_NAMED + 1:
            return
        line = f"silently wrong: {summary.mark(record)} {record.cell}: {summary.explain(record, REASON_LIMIT)}"
        if len(self._wrong_cases) > WRONG_CASES_NAMED:
            line = "silently wrong: more cases; the summary at the end lists them"
        say(self._console, shorten(line, self._console.width) if self._console.is_terminal else one_line(line), "red")

    def seconds_left(self) -> float | None:
        """Return an estimate of the remaining seconds, or None if nothing is known yet.

        The pace so far gradually replaces the initial estimate.
        """
        if self._done >= self._total:
            return 0.0
        expected = self._expected_seconds
        share = self._done_seconds / expected if expected else self._done / self._total
        planned = None if self._estimate is None else self._estimate * (1 - share)
        if not share:
            return planned
        measured = (self._clock() - self._began) * (1 - share) / share
        if planned is None:
            return measured
        trust = min(1.0, share / TRUSTED_SHARE)
        return trust * measured + (1 - trust) * planned

    def _show(self) -> None:
        if self._progress is not None:
            if self._task is not None:
                self._progress.update(self._task, completed=self._done, state=self._state())
            return
        now = self._clock()
        if now - self._spoke >= QUIET_SECONDS:
            self._spoke = now
            say(self._console, f"{self._done}/{self._total}: {self._state()}")

    def _state(self) -> str:
        left = self.seconds_left()
        state = self._troubles() if left is None else f"{duration_text(left)} left, {self._troubles()}"
        if self._running:
            state += f"; {', '.join(self._running)}"
        # Fit one line on any terminal: the bar and the numbers take the rest of the width.
        taken = BAR_WIDTH + len(f" {self._total}/{self._total} ")
        return shorten(state, max(self._console.width - taken, 20) if self._progress is not None else 240)

    def _troubles(self) -> str:
        return f"{self._wrong} silently wrong, {self._failing} failing"
