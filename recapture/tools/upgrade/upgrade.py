"""Runs a command in several environments, and says what an upgrade changes: `Upgrade.run` reads from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError
from recapture.base.text import plural, shorten
from recapture.images.each_image import run_in_each
from recapture.tools.upgrade.command_rounds import CommandRounds
from recapture.tools.upgrade.comparison import (
    BAD,
    Change,
    Group,
    TestHistory,
    compare,
    grouped,
    lost,
    new_warnings,
    suspects,
)
from recapture.tools.upgrade.compile_counts import FrameChange, FrameCounts, frame_changes
from recapture.tools.upgrade.outcomes import COMMAND, ENVIRONMENT, NOT_RUN, TestOutcome, Warned
from recapture.tools.upgrade.places import Place
from recapture.tools.upgrade.rounds import Round, RoundResult

BASELINE_FILE = "the baseline file"
"""What a report calls a baseline that is a file."""

REASON = 300
"""Characters of the reason why an environment could not be used."""


class PlaceResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment says: the first run, the later ones, and those of the suspects alone.

    `problem` says why there is no first run, with the exit `status` of this; `packages` are the versions of the lock.
    """

    name: str
    image: str = ""
    pinned: bool = True
    packages: dict[str, str] = {}
    problem: str = ""
    status: int = 0
    rounds: tuple[RoundResult, ...] = ()
    whole_runs: int = 1
    """How many of the rounds, the first ones, are of the whole command."""
    new_runs: int = 0
    """Runs of the whole command that this call has made, and no earlier one."""

    @property
    def history(self) -> TestHistory:
        """The outcomes of each test in all runs."""
        history = TestHistory()
        for number, result in enumerate(self.rounds):
            # A test that a later round did not run may not have been asked for.
            rows = result.tests if number < self.whole_runs else [row for row in result.tests if row.outcome != NOT_RUN]
            history.add(rows, result.unlike, whole=number < self.whole_runs)
        return history

    @property
    def frames(self) -> list[dict[str, FrameCounts] | None]:
        """The counts by function in each run of the whole command in which they were counted; None if unknown."""
        return [result.counts.frames for result in self.rounds if result.counts is not None]

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """The warnings of deprecation in the first run."""
        return self.rounds[0].warnings if self.rounds else ()


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the baseline and one environment.

    `planned` is the number of rows that the first run had to have: its tests, its files that cannot be collected, and
    the command. `recorded` is the number that it has, and `counts` are these by outcome.
    """

    name: str
    image: str
    pinned: bool
    against: str
    planned: int
    recorded: int
    counts: dict[str, int]
    changes: tuple[Change, ...] = ()
    groups: tuple[Group, ...] = ()
    frames: tuple[FrameChange, ...] = ()
    frames_unknown: str = ""
    """Why functions are not compared by their graph breaks and recompiles, though these were to be counted."""
    warnings: tuple[Warned, ...] = ()
    packages: tuple[tuple[str, str, str], ...] = ()
    problem: str = ""
    status: int = 0

    @property
    def bad(self) -> list[Change]:
        """The changes for the worse."""
        return [change for change in self.changes if change.category in BAD]

    @property
    def not_run(self) -> int:
        """The number of tests that ran in the baseline and did not run here."""
        return sum(change.category == "not_run" and change.before != NOT_RUN for change in self.changes)

    @property
    def worse_frames(self) -> list[FrameChange]:
        """The functions with more graph breaks or recompiles."""
        return [change for change in self.frames if change.worse]


class UpgradeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a command does in each environment, compared with the first one or with a baseline file."""

    command: tuple[str, ...]
    baseline: str
    fails_itself: str
    """How the command ends in the baseline without any test, which makes the comparison worth little; else empty."""
    uncollected: tuple[str, ...]
    """The files and classes that cannot be collected in the baseline, each with its reason: their tests are unknown."""
    places: tuple[Comparison, ...]
    flaky: tuple[str, ...]
    failing: tuple[Group, ...] = ()
    """The tests that fail in the baseline, by cause; none if that is a file."""
    edited: tuple[str, ...] = ()
    """The files of the project that were edited meanwhile, so that not all results are of the same code."""
    options: tuple[str, ...] = ()
    """The options with which `bisect` runs the command in the same way."""
    schema: Literal[1] = 1

    @property
    def from_file(self) -> bool:
        """Whether the baseline is a file, which an earlier state of the code may have written."""
        return self.baseline == BASELINE_FILE

    @property
    def worse(self) -> bool:
        """Whether something is newly failing, failing for another reason or not collected in any environment.

        So is a function with more graph breaks or recompiles, where these are counted.
        """
        return any(comparison.bad or comparison.worse_frames for comparison in self.places)

    @property
    def headline(self) -> str:
        """The answer in one line."""
        parts = ["the project was edited while this ran: nothing is decided"] if self.edited else []
        if self.fails_itself:
            parts.append(f"the command fails on {self.baseline} itself, without any test")
        if self.uncollected:
            parts.append(f"{plural(len(self.uncollected), 'file')} cannot be collected on {self.baseline} itself")
        for comparison in self.places:
            if comparison.problem:
                parts.append(f"{comparison.name} could not be tried")
            elif comparison.name == self.baseline:
                continue
            elif comparison.bad or comparison.worse_frames:
                causes = [group for group in comparison.groups if group.category in BAD]
                causes_text = "one cause" if len(causes) == 1 else f"{len(causes)} causes"
                tests = f"{plural(len(comparison.bad), 'test')} worse on {comparison.name}, {causes_text}"
                functions = plural(len(comparison.worse_frames), "function")
                more = f"{functions} with more graph breaks or recompiles on {comparison.name}"
                parts += [tests] if comparison.bad else []
                parts += [more] if comparison.worse_frames else []
            else:
                parts.append(f"nothing is worse on {comparison.name}")
            if comparison.not_run:
                parts.append(f"{plural(comparison.not_run, 'test')} did not run on {comparison.name}")
        flaky = f"; {plural(len(self.flaky), 'flaky test')}, blamed on no release" if self.flaky else ""
        return "; ".join(parts or ["only the baseline was asked for, so that nothing is compared"]) + flaky


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """Runs a command at each of the `chosen` places, the baseline first; `rounds` has its rounds.

    The baseline runs `runs` times, and tests that look worse run `confirm` times more on both sides, so that a test
    that disagrees with itself is known. `options` are those that `bisect` needs as well. With `frames`, graph breaks
    and recompiles are counted. With `saved`, a baseline from a file takes the place of the first environment.
    """

    rounds: CommandRounds
    chosen: tuple[Place, ...]
    runs: int = 3
    confirm: int = 5
    frames: bool = False
    options: tuple[str, ...] = ()
    saved: Callable[[str], PlaceResult] | None = None
    show: Callable[[str], object] = lambda _: None

    def run(self) -> tuple[UpgradeReport, list[PlaceResult]]:
        """Run everything that no earlier call has run, and compare. An environment that fails does not stop the others.

        Raises the reason if no environment could be used.
        """
        results = self._first_runs()
        if all(result.problem for result in results):
            reasons = {result.problem for result in results}
            usage = any(result.status == UsageError.exit_status for result in results)
            if len(reasons) == 1:
                raise (UsageError if usage else EnvironmentUnfitError)(reasons.pop())
        results = self._confirmed(results)
        comparisons = [self._compared(self._baseline_of(results, result), result) for result in results]
        flaky = {test for result in results for test in result.history.flaky}
        flaky |= {change.test for row in comparisons for change in row.changes if change.category == "flaky"}
        report = UpgradeReport(
            command=self.rounds.words,
            baseline=results[0].name if self.saved is None else BASELINE_FILE,
            fails_itself=_whole_failure(self._baseline_of(results, results[0])),
            uncollected=tuple(_uncollected(self._baseline_of(results, results[0]))),
            places=tuple(comparisons),
            flaky=tuple(sorted(flaky)),
            failing=tuple(_failing(results[0])) if self.saved is None else (),
            edited=tuple(self.rounds.edited),
            options=self.options,
        )
        return report, results

    def _baseline_of(self, results: Sequence[PlaceResult], result: PlaceResult) -> PlaceResult:
        return results[0] if self.saved is None else self.saved(result.name)

    def _first_runs(self) -> list[PlaceResult]:
        """Run the whole command at each place."""
        by_name = {place.name: place for place in self.chosen}
        results: dict[str, PlaceResult] = {}

        def run(name: str) -> int:
            place = by_name[name]
            repeated = self.saved is None and name == self.chosen[0].name
            runs = [(f"run-{number}", None) for number in range(1, (self.runs if repeated else 1) + 1)]
            earlier = sum(self._round(place, *run).result() is not None for run in runs)
            rounds = tuple(self._rounds(place, runs))
            results[name] = self._result(place, rounds=rounds, new_runs=len(runs) - earlier)
            return 0

        for outcome in run_in_each(list(by_name), run, self.show, {}):
            if outcome.problem:
                problem = shorten(outcome.problem, REASON)
                results[outcome.image] = self._result(by_name[outcome.image], problem=problem, status=outcome.status)
        return [results[place.name] for place in self.chosen]

    def _result(
        self,
        place: Place,
        *,
        rounds: tuple[RoundResult, ...] = (),
        new_runs: int = 0,
        problem: str = "",
        status: int = 0,
    ) -> PlaceResult:
        return PlaceResult(
            name=place.name,
            image=place.image.name if place.image is not None else "",
            pinned=place.pinned,
            packages=place.packages,
            problem=problem,
            status=status,
            rounds=rounds,
            whole_runs=len(rounds),
            new_runs=new_runs,
        )

    def _rounds(self, place: Place, chosen_rounds: Sequence[tuple[str, Sequence[str] | None]]) -> Iterator[RoundResult]:
        """Yield the results of rounds at a place; an environment is made only if one of them was not run yet."""
        rounds = [self._round(place, name, only) for name, only in chosen_rounds]
        if all(round_.result() is not None for round_ in rounds):
            yield from filter(None, (self.rounds.complete(place, round_) for round_ in rounds))
            return
        with self.rounds.places.interpreter(place) as interpreter:
            self.rounds.read_again(place)
            rounds = [self._round(place, name, only) for name, only in chosen_rounds]
            for number, round_ in enumerate(rounds, 1):
                if round_.only is not None:
                    number_of_tests = plural(len(round_.only), "test")
                    self.show(f"{place.name}: {number_of_tests} alone, again: {number} of {len(rounds)}")
                elif len(rounds) > 1:
                    self.show(f"{place.name}: run {number} of {len(rounds)}")
                yield self.rounds.run(place, round_, interpreter)

    def _round(self, place: Place, name: str, only: Sequence[str] | None) -> Round:
        return self.rounds.at(place, name, only=only, count=("compiled",) if self.frames and only is None else ())

    def _confirmed(self, results: list[PlaceResult]) -> list[PlaceResult]:
        """Return the results with further runs of the tests that look worse, on both sides.

        Where a test is not collected, the baseline has done so in each of its runs.
        """
        by_name = {place.name: place for place in self.chosen}
        changes = {
            result.name: self._compared(self._baseline_of(results, result), result).changes
            for result in results
            if result.rounds
        }
        tests = {name: sorted({*suspects(rows), *lost(rows)}) for name, rows in changes.items()}
        if self.saved is None and results[0].rounds:
            tests[results[0].name] = sorted({test for rows in changes.values() for test in suspects(rows)})
        confirmed = []
        for result in results:
            names = tests.get(result.name, [])
            more = self._again(by_name[result.name], names) if names and self.confirm else ()
            confirmed.append(msgspec.structs.replace(result, rounds=(*result.rounds, *more)))
        return confirmed

    def _again(self, place: Place, names: Sequence[str]) -> tuple[RoundResult, ...]:
        """Run suspects again: alone, or the whole command if that is one of them."""
        only = None if COMMAND in names else list(names)
        try:
            numbers = range(1, self.confirm + 1)
            return tuple(self._rounds(place, [(f"again-{number}", only) for number in numbers]))
        except (RecaptureError, OSError) as error:  # what is known so far is worth more
            self.show(f"{place.name}: the tests that look worse could not run again: {error}")
            return ()

    def _compared(self, old: PlaceResult, new: PlaceResult) -> Comparison:
        before, after = old.history, new.history
        if new.problem:
            after.add(TestOutcome(test=test, outcome=ENVIRONMENT) for test in before.tests)
        rows = new.rounds[0].tests if new.rounds else tuple(filter(None, map(after.outcome, after.tests)))
        counts: dict[str, int] = {}
        for row in rows:
            word = "flaky" if after.is_flaky(row.test) else row.outcome
            counts[word] = counts.get(word, 0) + 1
        changes = [] if old is new or not old.rounds else compare(before, after)
        new_packages = new.packages
        if self.saved is not None:  # a baseline file has the packages under test alone
            new_packages = {name: version for name, version in new.packages.items() if name in old.packages}
        packages = [
            (name, old.packages.get(name, ""), new_packages.get(name, ""))
            for name in sorted({*old.packages, *new_packages})
            if old.packages and new_packages and old.packages.get(name) != new_packages.get(name)
        ]
        return Comparison(
            name=new.name,
            image=new.image,
            pinned=new.pinned,
            against=old.name,
            planned=new.rounds[0].planned if new.rounds else len(before.tests),
            recorded=len(rows),
            counts=dict(sorted(counts.items())),
            changes=tuple(changes),
            groups=tuple(grouped(changes, old.packages, new_packages)),
            frames=tuple(frame_changes(old.frames, new.frames[0])) if old is not new and new.frames else (),
            frames_unknown=_unknown_frames(old, new),
            warnings=tuple(new_warnings(old.warnings, new.warnings)) if old is not new and old.rounds else (),
            packages=tuple(packages),
            problem=new.problem,
            status=new.status,
        )


def _uncollected(result: PlaceResult) -> Iterator[str]:
    for row in result.rounds[0].tests if result.rounds else ():
        if row.outcome == "uncollected":
            yield f"{row.test}: {row.failure.sentence}" if row.failure is not None else row.test


def _failing(result: PlaceResult) -> list[Group]:
    """Return the tests that fail each time in an environment, by cause."""
    history = result.history
    rows = [row for test in history.tests if not history.is_flaky(test) and (row := history.outcome(test)) is not None]
    return grouped(
        (
            Change(test=row.test, category="still_failing", before=row.outcome, after=row.outcome, failure=row.failure)
            for row in rows
            if row.fails and row.outcome != "uncollected" and row.test != COMMAND
        ),
        {},
        {},
    )


def _unknown_frames(old: PlaceResult, new: PlaceResult) -> str:
    """Return why graph breaks and recompiles were to be counted and are not known on both sides; empty if they are."""
    if not new.frames:
        return ""
    for result in (new, old):
        if not result.frames and result.rounds:
            return f"they were not counted in {result.name}"
        for round_ in result.rounds:
            if round_.counts is not None and round_.counts.frames is None:
                return f"{round_.counts.why_unknown(result.packages.get('torch', ''))} on {result.name}"
    return ""


def _whole_failure(result: PlaceResult) -> str:
    """Return why a command fails in an environment before it runs any test; empty if it does not."""
    history = result.history
    tests = [test for test in history.tests if test != COMMAND]
    if tests and all((row := history.outcome(test)) and row.outcome == NOT_RUN for test in tests):
        return f"pytest collects {plural(len(tests), 'test')} and runs none"
    row = None if tests else history.outcome(COMMAND)
    return row.failure.sentence if row is not None and row.failure is not None else ""
