"""What a command says in one environment: by its exit status, by one of its tests, or by a number that it prints."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError
from recapture.base.text import shorten
from recapture.tools.upgrade.command_bisect import Answer, State
from recapture.tools.upgrade.command_rounds import CommandRounds
from recapture.tools.upgrade.compile_counts import CompileCounts, Count
from recapture.tools.upgrade.outcomes import COMMAND, NOT_RUN, TestOutcome
from recapture.tools.upgrade.places import Place
from recapture.tools.upgrade.rounds import Round, RoundResult

SKIP = 125
"""Exit status that says that an environment cannot be judged, as for ``git bisect run``."""

_NO_COMMAND = (126, 127)

REPEATS = 6
"""Runs of a command whose number decides: their extremes hold its median with a probability of 97 %."""

MOST_REPEATS = 24
"""Runs after which a number that is neither good nor bad is left undecided."""

REASON = 200
"""Characters of the reason of an answer."""

Worse = Literal["higher", "lower"]

Figure = Callable[[RoundResult, str], float | None]
"""Returns the number of one run, of its result and its output; None if it has none."""

Measure = Literal[
    "seconds", "peak-memory", "saved-for-backward", "graphs", "breaks", "recompiles", "compile-instructions"
]


class Measured(NamedTuple):
    """A number of a run that needs no output: what reads it, and what must be counted for it."""

    figure: Figure
    needs: tuple[Count, ...] = ()
    absent: str = "the command has no process whose memory is known"
    """Why a run may have no such number."""


_NO_TORCH = "no process of the command imports torch and ends by itself"
_OLD_TORCH = f"{_NO_TORCH}, or its torch is older than 2.6"

MEASURES: dict[Measure, Measured] = {
    "seconds": Measured(lambda result, _: result.seconds),
    "peak-memory": Measured(lambda result, _: result.memory / 1e6 if result.memory else None),
    "saved-for-backward": Measured(
        lambda result, _: _counted(result, lambda counts: counts.saved, 1e6), ("saved",), _NO_TORCH
    ),
    "graphs": Measured(lambda result, _: _counted(result, lambda counts: counts.graphs), ("compiled",), _NO_TORCH),
    "breaks": Measured(lambda result, _: _counted(result, lambda counts: counts.breaks), ("compiled",), _OLD_TORCH),
    "recompiles": Measured(
        lambda result, _: _counted(result, lambda counts: counts.recompiles), ("compiled",), _OLD_TORCH
    ),
    "compile-instructions": Measured(
        lambda result, _: _counted(result, lambda counts: counts.instructions),
        ("instructions",),
        f"{_NO_TORCH}, it compiles nothing, or this machine counts no instructions",
    ),
}
"""The megabytes are those of the largest process, and of what one process saves for its backward passes at a time."""


def _counted(result: RoundResult, number: Callable[[CompileCounts], int | None], unit: float = 1.0) -> float | None:
    value = number(result.counts) if result.counts is not None else None
    return value / unit if value is not None else None


@dataclass(kw_only=True)
class CommandProbe:
    """Runs a command, whose `rounds` these are; `test` is the one test that decides, None if the exit status does."""

    rounds: CommandRounds
    test: str | None = None
    count: tuple[Count, ...] = ()

    def __call__(self, place: Place, *, run: int = 1) -> Answer:
        """Return the answer of a place; what an earlier call has run is not run again."""
        try:
            result = self.round_of(place, run)
        except (EnvironmentUnfitError, UsageError) as error:
            # The user chose the project and its releases, but not a mixture of their packages.
            if isinstance(error, UsageError) and place.mixed is None:
                raise
            return Answer(state="skip", why=shorten(str(error), REASON))
        return self._of_test(result) if self.test is not None else self._of_status(result)

    def round_of(self, place: Place, run: int) -> RoundResult:
        """Return the result of one run of the command in a place."""
        round_ = self._round(place, run)
        complete = self.rounds.complete(place, round_)
        if complete is not None:
            return complete
        with self.rounds.places.interpreter(place) as interpreter:
            return self.rounds.run(place, round_, interpreter)

    def output_of(self, place: Place, run: int) -> str:
        """Return what the command printed in one run."""
        return self._round(place, run).output()

    def _round(self, place: Place, run: int) -> Round:
        return self.rounds.at(place, f"run-{run}", only=None if self.test is None else (self.test,), count=self.count)

    def _of_status(self, result: RoundResult) -> Answer:
        """Return the answer of the exit status: 0 is good, 125 says nothing, every other is bad."""
        row = next(row for row in result.tests if row.test == COMMAND)
        failing = [other for other in result.tests if other.fails and other.test != COMMAND]
        if result.status in _NO_COMMAND:
            raise UsageError(f"{self.rounds.words[0]!r} cannot be run: {row.failure.message if row.failure else ''}")
        if result.status == SKIP and not failing:
            return Answer(state="skip", why=f"exit status {SKIP}")
        if row.fails:
            return _bad([row])
        if failing or result.status != 0:
            return _bad(failing)
        return Answer(state="good")

    def _of_test(self, result: RoundResult) -> Answer:
        """Return the answer of the one test; a file that cannot be collected answers for its tests."""
        rows = {row.test: row for row in result.tests}
        row = rows.get(str(self.test))
        if row is None or row.outcome == NOT_RUN:
            files = [other for other in result.tests if other.outcome == "uncollected"]
            file = next((other for other in files if str(self.test).startswith(f"{other.test}::")), None)
            if file is not None:
                return _bad([file])
            whole = rows[COMMAND]
            why = whole.failure.sentence if whole.failure is not None else "the test was not collected"
            return Answer(state="skip", why=shorten(why, REASON))
        if row.fails:
            return _bad([row])
        return Answer(state="skip", why="skipped") if row.outcome == "skipped" else Answer(state="good")


def _bad(rows: Sequence[TestOutcome]) -> Answer:
    failures = [row.failure for row in rows if row.failure is not None]
    if not failures:
        return Answer(state="bad", why="it fails")
    # The set of all failures: a mixture of packages that breaks in another way as well is no answer.
    signatures = "\n".join(sorted({failure.signature for failure in failures}))
    return Answer(
        state="bad",
        why=shorten(failures[0].sentence, REASON),
        signature=hashlib.sha256(signatures.encode()).hexdigest()[:10] if len(failures) > 1 else failures[0].signature,
        operator=failures[0].operator,
    )


@dataclass
class NumberProbe:
    """Judges a place by a number of the command, which `figure` reads, against those of a good and a bad place.

    The command runs `repeats` times; a place is judged if all its numbers lie on
    one side of the middle between the numbers of the good and of the bad place, and else runs more often.
    """

    command: CommandProbe
    figure: Figure
    worse: Worse
    repeats: int = REPEATS
    absent: str = "--metric matches nothing that it prints"
    _middle: float = field(default=math.nan, init=False)

    def calibrate(self, good: Place, bad: Place) -> str:
        """Measure both ends; return why they cannot be told apart, or an empty string.

        Raises UsageError if the command gives no number at an end.
        """
        ends = [self._numbers(place, self.repeats) for place in (good, bad)]
        if not all(ends):
            missing = good if not ends[0] else bad
            raise UsageError(f"the command has no number on {missing.name}: {self.absent}")
        sign = 1 if self.worse == "higher" else -1
        low, high = (sorted(sign * number for number in numbers) for numbers in ends)
        if low[-1] >= high[0]:
            first, last = (interval_text(numbers) for numbers in ends)
            return f"{last} on {bad.name} is not certainly worse than {first} on {good.name}"
        self._middle = sign * (low[-1] + high[0]) / 2
        return ""

    def __call__(self, place: Place, *, run: int = 1) -> Answer:
        """Return the answer of a place; a further run measures it again, from the beginning."""
        repeats = self.repeats
        while True:
            try:
                numbers = self._numbers(place, repeats, first=1 + (run - 1) * MOST_REPEATS)
            except RecaptureError as error:
                return Answer(state="skip", why=shorten(str(error), REASON))
            if not numbers:
                return Answer(state="skip", why="no number")
            state = self._state(numbers)
            if state != "skip" or repeats >= MOST_REPEATS:
                return Answer(state=state, why=interval_text(numbers), numbers=tuple(numbers))
            repeats *= 2

    def _state(self, numbers: Sequence[float]) -> State:
        # With more runs, an outlier at either end no longer decides.
        spare = max(0, (len(numbers) - self.repeats) // 4)
        ordered = sorted(numbers)[spare : len(numbers) - spare]
        above = [number > self._middle for number in ordered]
        if all(above) or not any(above):
            return "bad" if all(above) == (self.worse == "higher") else "good"
        return "skip"

    def _numbers(self, place: Place, repeats: int, first: int = 1) -> list[float]:
        numbers = []
        for run in range(first, first + repeats):
            number = self.figure(self.command.round_of(place, run), self.command.output_of(place, run))
            if number is None:
                return []
            numbers.append(number)
        return numbers


def interval_text(numbers: Sequence[float]) -> str:
    """Return the median of some numbers with their extremes, such as ``4.1 [4, 4.3]``."""
    ordered = sorted(numbers)
    middle = ordered[len(ordered) // 2]
    return f"{middle:g} [{ordered[0]:g}, {ordered[-1]:g}]"


def printed_number(text: str) -> Figure:
    """Return what reads the group in the last match of a regular expression.

    Raises UsageError unless it has one group, and later where this matches no number.
    """
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(f"--metric {text!r} is not a regular expression: {error}") from None
    if pattern.groups != 1:
        raise UsageError(f"--metric {text!r} needs one group, which matches the number: 'loss=([0-9.]+)'")

    def last(_result: RoundResult, output: str) -> float | None:
        matches = pattern.findall(output)
        try:
            return float(matches[-1]) if matches else None
        except ValueError:
            raise UsageError(f"--metric {text!r} matches {matches[-1]!r}, which is not a number") from None

    return last
