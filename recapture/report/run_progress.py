"""The progress of a run: a bar on a terminal, or a line from time to time elsewhere."""

from __future__ import annotations

import time
from collections import Counter
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

TOWARDS_MEAN = 0.2
"""Weight of the mean of a compiler's cells in what one of them is likely to take.

Long cells start first. A cell that took long once takes less the next time, on average, and a short one more: without
this, the first cells would promise too little for those that follow. Measured with the recorded durations of the
images, each estimated by those of its neighbour.
"""

PRIOR_SECONDS = 30.0
"""Seconds of work after which the pace of this run counts as much as that of the run that was recorded."""

KEPT_SHARE = 0.97
"""Weight of what a compiler's cells took when one more ended: the last thirty decide its pace."""

COMPILER_SECONDS = 5.0
"""Seconds of a compiler's cells after which their own pace counts as much as that of all cells."""

PARALLEL_SECONDS = 10.0
"""Seconds after which the measured number of cells at a time counts as much as the number of jobs."""

BAR_WIDTH = 16
"""Characters of the bar."""

WRONG_CASES_NAMED = 10
"""Number of silently wrong cases that get a line during the run; the summary lists the others."""

REASON_LIMIT = 200
"""Characters shown of the difference in a silently wrong cell."""


class TimeLeft:
    """Estimates how long a run still takes, by what its cells are likely to take and what those that ended took.

    Compilers differ in pace: another machine may capture as fast as the recorded one, and compile C++ at a third of its
    speed. So the finished cells of a compiler correct what its other cells are likely to take, and those of all
    compilers correct one that has not ended many.
    """

    def __init__(self, likely: Mapping[str, float], jobs: int) -> None:
        """`likely` are the seconds of each cell, by its address; `jobs` is the number of cells at a time."""
        self._jobs = jobs
        numbers = Counter(map(_compiler, likely))
        self._remaining = dict.fromkeys(numbers, 0.0)
        for cell, seconds in likely.items():
            self._remaining[_compiler(cell)] += seconds
        means = {compiler: seconds / numbers[compiler] for compiler, seconds in self._remaining.items()}
        self._likely = {
            cell: (1 - TOWARDS_MEAN) * seconds + TOWARDS_MEAN * means[_compiler(cell)]
            for cell, seconds in likely.items()
        }
        self._took = dict.fromkeys(numbers, 0.0)
        self._was_likely = dict.fromkeys(numbers, 0.0)
        self._ended_seconds = 0.0
        self._started: dict[str, float] = {}

    def started(self, cell: str, now: float) -> None:
        """Record that a cell began, `now` seconds after the run."""
        self._started[cell] = now

    def finished(self, cell: str, seconds: float) -> None:
        """Record that a cell took so many seconds."""
        self._started.pop(cell, None)
        self._ended_seconds += seconds
        if cell in self._likely:
            compiler, likely = _compiler(cell), self._likely.pop(cell)
            self._remaining[compiler] -= likely
            self._took[compiler] = KEPT_SHARE * self._took[compiler] + seconds
            self._was_likely[compiler] = KEPT_SHARE * self._was_likely[compiler] + likely

    def at(self, now: float) -> float:
        """Return the seconds that are left, `now` seconds after the beginning of the run."""
        took, was_likely = sum(self._took.values()), sum(self._was_likely.values())
        pace = (took + PRIOR_SECONDS) / (was_likely + PRIOR_SECONDS)
        paces = {
            compiler: (self._took[compiler] + COMPILER_SECONDS * pace) / (self._was_likely[compiler] + COMPILER_SECONDS)
            for compiler in self._remaining
        }
        work = sum(seconds * paces[compiler] for compiler, seconds in self._remaining.items())
        running = 0.0
        for cell, began in self._started.items():
            running += now - began
            work -= min(now - began, self._likely.get(cell, 0.0) * paces.get(_compiler(cell), 1.0))
        parallel = (self._ended_seconds + running + self._jobs * PARALLEL_SECONDS) / (now + PARALLEL_SECONDS)
        return max(0.0, work / parallel)


def _compiler(cell: str) -> str:
    """Return the compiler of a cell, ``suite::case::compiler``."""
    return cell.rpartition("::")[2]


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
        self._time_left = TimeLeft({}, 1)
        self._promises = False
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

    def start(self, likely: Mapping[str, float], jobs: int, *, guessed: bool) -> None:
        """Show the number of cells to run and about how long they take.

        `likely` are the seconds that each cell, by its address, is likely to take. If they are `guessed`, no time is
        shown before the first cell has ended.
        """
        self._total, self._promises = len(likely), not guessed
        self._time_left = TimeLeft(likely, jobs)
        self._began = self._spoke = self._clock()
        if self._progress is not None:
            self._task = self._progress.add_task("", total=self._total, state=self._state())
            return
        seconds = self.seconds_left()
        about = f", about {duration_text(seconds)}" if seconds is not None else ""
        say(self._console, f"{plural(self._total, 'cell')}{about}")

    def cell_started(self, cell: str) -> None:
        """Record that a cell, ``suite::name::compiler``, is running."""
        self._running[cell] = None
        self._time_left.started(cell, self._clock() - self._began)
        self._show()

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Record the end of a running cell, and its seconds."""
        self._running.pop(record.cell, None)
        self._done += 1
        self._time_left.finished(record.cell, seconds)
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
        """Return an estimate of the remaining seconds, or None if nothing is known yet."""
        if self._done >= self._total:
            return 0.0
        return self._time_left.at(self._clock() - self._began) if self._promises or self._done else None

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
