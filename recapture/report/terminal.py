"""What a run shows on the terminal: its progress while it lasts, and a summary of the verdicts at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from recapture.analysis import facts, summary
from recapture.analysis.matrix import in_matrix
from recapture.analysis.summary import ClaimStatus
from recapture.base.text import one_line, plural, shorten
from recapture.results.directories import REPORT
from recapture.results.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress, TaskID
    from typing_extensions import Self

    from recapture.analysis.summary import Group
    from recapture.machine.environment import Environment
    from recapture.results.records import Record

__all__ = ["RunProgress", "print_summary"]

QUIET_SECONDS = 10.0
"""Where there is no terminal, the least time between two lines of progress."""

TRUSTED_SHARE = 0.25
"""The share of the cells after which their measured pace replaces the estimate made beforehand."""

BAR_WIDTH = 16

CLAIMS_NAMED = 12
"""How many claims of one status the summary names."""

FAILURES_NAMED = 10
"""How many different failures the summary tells; the report beside the records has all of them."""

MESSAGE_LIMIT = 160
"""Characters of a failure's line where there is no terminal whose width it could have."""


def print_summary(
    console: Console, records: Sequence[Record], environment: Environment | None, directory: Path
) -> None:
    """Print counts, the matrix, every silent wrong in a line, the commonest failures, and the claims.

    Where the console is too narrow for the matrix, counts by compiler take its place. `directory` has the report.
    """
    where = facts.place(records, environment)
    _say(console, f"{where.image} on {where.capability}", "bold")
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in summary.counts_by_verdict(records).items())
    accounting, complete = facts.accounting(records, environment)
    _say(console, f"{accounting}: {verdicts or 'none'}", "" if complete else "bold red")
    for name, error in facts.uncollected(environment):
        _say(console, f"suite {name} could not be collected: {shorten(error, 160)}", "bold red")
    for check in facts.failing_checks(environment):
        _say(console, f"the machine is at fault: {shorten(check, 160)}", "bold red")
    shown, left_out = in_matrix(records)
    if records and not _print_matrix(console, shown):
        _print_counts(console, shown)
    if left_out:
        _say(console, left_out)
    wrong = [record for cells in summary.silent_wrongs(records).values() for record in cells]
    if wrong:
        _say(console, f"\nsilently wrong: {len(wrong)}", "bold red")
    for record in wrong:
        _say(console, _one_wrong(record, console.width if console.is_terminal else None))
    _print_failures(console, summary.failure_groups(records), directory / REPORT)
    _print_claims(console, records)


class RunProgress:
    """Progress of a run: a bar on a terminal; elsewhere a line now and then, and one for every silent wrong at once.

    A context manager; call `start` once, then `cell_started` with a cell's address and `cell_finished` with its record.
    """

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if console is None:
            from recapture.report.console import SafeConsole

            console = SafeConsole(stderr=True)
        self._console = console
        self._clock = clock
        self._running: dict[str, None] = {}
        self._total = self._done = self._wrong = self._failing = 0
        self._estimate: float | None = None
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
        _say(self._console, f"{cells} in {_duration(seconds)}{stopped}: {self._troubles()}")

    def start(self, total: int, estimate_seconds: float | None = None) -> None:
        """Say how many cells will run and, where it is known, how many seconds that should take."""
        self._total, self._estimate = total, estimate_seconds
        self._began = self._spoke = self._clock()
        if self._progress is not None:
            self._task = self._progress.add_task("", total=total, state=self._state())
            return
        about = f", about {_duration(estimate_seconds)}" if estimate_seconds is not None else ""
        _say(self._console, f"{plural(total, 'cell')}{about}")

    def cell_started(self, cell: str) -> None:
        """Note that a cell, ``suite::name::compiler``, is running."""
        self._running[cell] = None
        self._show()

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Note how a running cell ended, and the seconds it took."""
        self._running.pop(record.cell, None)
        self._done += 1
        self._failing += record.verdict in FAILING
        if record.verdict in SILENTLY_WRONG:
            self._wrong += 1
            width = self._console.width if self._console.is_terminal else None
            _say(self._console, f"silently wrong: {_one_wrong(record, width and width - 16)}", "red")
        if record.verdict is Verdict.TIMEOUT:
            _say(self._console, f"gave up after {_duration(seconds)}: {record.cell}", "yellow")
        self._show()

    def seconds_left(self) -> float | None:
        """Return an estimate of the seconds left, None while nothing is known.

        The pace so far replaces the estimate made beforehand step by step.
        """
        if self._done >= self._total:
            return 0.0
        share = self._done / self._total
        planned = None if self._estimate is None else self._estimate * (1 - share)
        if not self._done:
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
            _say(self._console, f"{self._done}/{self._total}: {self._state()}")

    def _state(self) -> str:
        left = self.seconds_left()
        state = self._troubles() if left is None else f"{_duration(left)} left, {self._troubles()}"
        if self._running:
            state += f"; {', '.join(self._running)}"
        # One line on any terminal: the bar and the numbers take the rest of it.
        taken = BAR_WIDTH + len(f" {self._total}/{self._total} ")
        return shorten(state, max(self._console.width - taken, 20) if self._progress is not None else 240)

    def _troubles(self) -> str:
        return f"{self._wrong} silently wrong, {self._failing} failing"


def _print_matrix(console: Console, records: Sequence[Record]) -> bool:
    """Print the matrix with a column of one character for each compiler; False where the console is too narrow."""
    from rich.text import Text

    compilers = summary.compilers_in_order(records)
    label = max(len(record.case.split("::", 1)[-1]) for record in records) + 2
    column = len(str(len(compilers))) + 1
    if label + 2 + column * len(compilers) > console.width:
        return False
    cells = {(record.case, record.compiler): record for record in records}
    _say(console, "")
    _say(console, " " * (label + 2) + "".join(f"{number:>{column}}" for number in range(1, len(compilers) + 1)), "dim")
    for suite, members in summary.by_suite(records).items():
        _say(console, suite, "bold")
        for case in sorted({record.case for record in members}):
            line = Text(f"  {case.split('::', 1)[-1]:{label}}")
            for compiler in compilers:
                record = cells.get((case, compiler))
                line.append(" " * (column - 1))
                line.append(*(_styled(record) if record else (" ", "")))
            console.print(line, soft_wrap=True)
    _say(console, "")
    for words in _filled([f"{number} {name}" for number, name in enumerate(compilers, 1)], console.width):
        _say(console, words, "dim")
    seen = {summary.mark(record) for record in records}
    for words in _filled([f"{one} {said}" for one, said in summary.LEGEND.items() if one in seen], console.width):
        _say(console, words, "dim")
    return True


def _print_counts(console: Console, records: Sequence[Record]) -> None:
    """Print a line for each compiler, never wrapped and never cut."""
    from rich.text import Text

    compilers = summary.by_compiler(records)
    label = max(map(len, compilers)) + 2
    _say(console, "")
    _say(console, " " * label + "".join(f"{name:>8}" for name in ("right", "wrong", "failing", "not run")), "dim")
    for compiler, cells in compilers.items():
        counts = summary.count(cells)
        line = Text(f"{compiler:{label}}{counts.right:>8}")
        line.append(f"{counts.silently_wrong:>8}", "bold red" if counts.silently_wrong else "")
        line.append(f"{counts.failing:>8}{counts.not_run:>8}")
        console.print(line, soft_wrap=True)


def _print_failures(console: Console, groups: Sequence[Group], report: Path) -> None:
    """Print a line for each of the commonest failures, with one cell that ended so."""
    if not groups:
        return
    number = sum(len(group.records) for group in groups)
    ways = f", in {len(groups)} different ways" if len(groups) > 1 else ""
    _say(console, f"\nfailing: {number}{ways}", "bold")
    for group in groups[:FAILURES_NAMED]:
        first = group.records[0]
        width = (console.width if console.is_terminal else MESSAGE_LIMIT) - 5
        line = f"{summary.measured(first)}, {first.cell}: {group.text}"
        _say(console, f"{len(group.records):>4} {shorten(line, width)}")
    if len(groups) > FAILURES_NAMED:
        _say(console, f"and {len(groups) - FAILURES_NAMED} more: see {report}")


def _print_claims(console: Console, records: Sequence[Record]) -> None:
    by_id: dict[str, list[summary.ClaimCell]] = {}
    for cell in summary.claim_cells(records):
        by_id.setdefault(cell.id, []).append(cell)
    if not by_id:
        return
    _say(console, f"\npublished claims: {len(by_id)}", "bold")
    for status in ClaimStatus:
        ids = [claim for claim, cells in by_id.items() if summary.overall_status(cells) is status]
        if ids:
            more = f" and {len(ids) - CLAIMS_NAMED} more" if len(ids) > CLAIMS_NAMED else ""
            _say(console, f"  {len(ids):>3} {status}: {', '.join(ids[:CLAIMS_NAMED])}{more}")


def _one_wrong(record: Record, width: int | None) -> str:
    line = f"{summary.mark(record)} {record.cell}: {summary.explain(record, 200)}"
    return shorten(line, width) if width else one_line(line)


def _styled(record: Record) -> tuple[str, str]:
    if record.verdict in RIGHT:
        style = "green" if record.verdict is Verdict.PASS else "cyan"
    elif record.verdict in SILENTLY_WRONG:
        style = "bold white on red"
    else:
        style = "yellow" if record.verdict in FAILING else "dim"
    return summary.mark(record), style


def _filled(parts: Sequence[str], width: int) -> list[str]:
    """Put parts on as few lines as the width allows, none of them broken."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _say(console: Console, text: str, style: str = "") -> None:
    """Print one line as it is: nothing in it is markup, and it is not wrapped."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
