"""The baseline in a user's repository: the outcome of each test, one line a test, the same bytes each time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from recapture.base.decode import Format
from recapture.base.errors import UsageError
from recapture.base.text import plural
from recapture.tools.upgrade.comparison import kind_of
from recapture.tools.upgrade.compile_counts import CompileCounts, FrameCounts
from recapture.tools.upgrade.outcomes import NOT_RUN, OUTCOMES, Failure, TestOutcome, Warned
from recapture.tools.upgrade.rounds import RoundResult
from recapture.tools.upgrade.upgrade import PlaceResult

_ROW = re.compile(r"(?P<outcome>[a-z ]+?)(?: (?P<signature>[0-9a-f]{10}) (?P<type>[^:]*)(?:: (?P<message>.*))?)?")

_ALIKE = re.compile(r"(?P<outcome>[a-z ]+) in (?P<runs>[1-9][0-9]{0,5}) runs?")

STEADY_RUNS = 15
"""Runs in a row that have to end alike before a test is no longer called flaky: five baselines of three runs each.

Of the tests that fail in one of five runs, 4 % pass so often by chance.
"""


class _Release(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One environment: its packages under test, its tests, those that are flaky, and its warnings.

    `steady` says of flaky tests how often in a row they ended alike, if they did so in all runs of the last baseline.
    `frames` are the functions with graph breaks or recompiles: absent where they were not counted, and None where they
    are unknown.
    """

    packages: dict[str, str] = {}
    flaky: tuple[str, ...] = ()
    steady: dict[str, str] = {}
    tests: dict[str, str] = {}
    warnings: tuple[str, ...] = ()
    frames: dict[str, FrameCounts] | msgspec.UnsetType | None = msgspec.UNSET


class Baseline(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The content of a baseline file: the command, and what each environment said."""

    schema: int
    command: tuple[str, ...]
    releases: dict[str, _Release]

    @property
    def has_frames(self) -> bool:
        """Whether graph breaks and recompiles were counted."""
        return any(release.frames is not msgspec.UNSET for release in self.releases.values())


def _check(baseline: Baseline) -> None:
    if not baseline.releases:
        raise ValueError("`releases` is empty")
    for name, release in baseline.releases.items():
        for test, row in release.tests.items():
            match = _ROW.fullmatch(row)
            if match is None or match["outcome"] not in OUTCOMES:
                raise ValueError(f"`releases.{name}.tests`: {test!r} has the outcome {row!r}, which does not exist")
        for test, row in release.steady.items():
            match = _ALIKE.fullmatch(row)
            if match is None or match["outcome"] not in OUTCOMES:
                raise ValueError(f"`releases.{name}.steady`: {test!r} has {row!r}, which is no number of runs")


FORMAT: Format[Baseline] = Format(Baseline, "baseline", 1, _check)
"""The format of a baseline file."""


class NewBaseline(NamedTuple):
    """The text of a baseline file, and what became of the tests that were flaky in the file before.

    `steady` ended alike this time and stay flaky. `forgotten` did so often enough, and are flaky no more.
    """

    text: str
    steady: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()


def new_baseline(
    command: Sequence[str], results: Sequence[PlaceResult], earlier: Baseline | None = None
) -> NewBaseline:
    """Return the baseline file of these environments; one that could not be used is left out.

    A test that was flaky in the `earlier` file stays so until it has ended alike in `STEADY_RUNS` runs. Raises
    UsageError if no environment could be used.
    """
    releases: dict[str, dict[str, object]] = {}
    all_steady: set[str] = set()
    all_forgotten: set[str] = set()
    for result in results:
        if not result.rounds:
            continue
        history = result.history
        steady = _steady_tests(_release_of(earlier, result.name)[1], result) if earlier is not None else {}
        forgotten = {test for test, (_, runs) in steady.items() if runs >= STEADY_RUNS}
        flaky = sorted({*history.flaky, *steady} - forgotten)
        all_steady |= steady.keys() - forgotten
        all_forgotten |= forgotten
        chosen = set(flaky)
        rows = [row for test in history.tests if test not in chosen and (row := history.outcome(test)) is not None]
        releases[result.name] = {
            "packages": {name: result.packages[name] for name in _PACKAGES if name in result.packages},
            "flaky": flaky,
        }
        counted = {
            test: f"{outcome} in {plural(runs, 'run')}"
            for test, (outcome, runs) in sorted(steady.items())
            if test in chosen and runs
        }
        releases[result.name] |= {"steady": counted} if counted else {}
        releases[result.name] |= {
            "tests": {row.test: _row(row) for row in rows},
            "warnings": [f"{warned.category}: {warned.message}" for warned in result.warnings],
        }
        if result.frames:
            releases[result.name]["frames"] = msgspec.to_builtins(_alike(result.frames))
    if not releases:
        raise UsageError("no environment could be used: there is no baseline to write")
    document = {"schema": 1, "command": list(command), "releases": releases}
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return NewBaseline(text, tuple(sorted(all_steady)), tuple(sorted(all_forgotten)))


def _steady_tests(earlier: _Release, result: PlaceResult) -> dict[str, tuple[str, int]]:
    """Return the tests that were flaky and are not in these runs: how they ended, and in how many runs in a row.

    Runs that an earlier call has made are counted in the file that this call wrote. A run that skips a test says
    nothing about it.
    """
    history = result.history
    uncollected = [test for test in history.tests if (row := history.outcome(test)) and row.outcome == "uncollected"]
    steady = {}
    for test in earlier.flaky:
        row = history.outcome(test)
        match = _ALIKE.fullmatch(earlier.steady.get(test, ""))
        before = (match["outcome"], int(match["runs"])) if match is not None else ("", 0)
        if history.is_flaky(test):
            continue
        if row is None:
            if any(test.startswith(f"{file}::") for file in uncollected):
                steady[test] = before
        elif row.outcome in ("skipped", NOT_RUN):
            steady[test] = before
        else:
            runs = before[1] if kind_of(before[0]) == kind_of(row.outcome) else 0
            steady[test] = (row.outcome, runs + result.new_runs)
    return steady


def _alike(runs: Sequence[Mapping[str, FrameCounts] | None]) -> dict[str, FrameCounts] | None:
    """Return the counts of the functions that count alike in each run; None where they are not known."""
    first, *others = runs
    if first is None:
        return None
    return {frame: counts for frame, counts in first.items() if all(run and run.get(frame) == counts for run in others)}


_PACKAGES = ("torch", "torchvision", "triton", "numpy", "scipy", "setuptools")


def _row(outcome: TestOutcome) -> str:
    failure = outcome.failure
    if failure is None:
        return outcome.outcome
    text = f"{outcome.outcome} {failure.signature} {failure.type.replace(':', '.')}"
    return f"{text}: {failure.message}" if failure.message else text


def read_baseline(path: Path) -> Baseline:
    """Return a baseline file; raises UsageError, naming the file and the field, for one that is none."""
    return FORMAT.read(path)


def _release_of(baseline: Baseline, name: str) -> tuple[str, _Release]:
    """Return an environment of a baseline with its name, or its first one if it does not know this."""
    chosen = name if name in baseline.releases else next(iter(baseline.releases))
    return chosen, baseline.releases[chosen]


def as_result(baseline: Baseline, name: str) -> PlaceResult:
    """Return what a baseline says about an environment, or about its first one if it does not know this."""
    chosen, release = _release_of(baseline, name)
    rows = []
    for test, text in release.tests.items():
        match = _ROW.fullmatch(text)
        if match is None:
            continue  # refused when the file was read
        failure = None
        if match["signature"]:
            failure = Failure(signature=match["signature"], type=match["type"], message=match["message"] or "")
        rows.append(TestOutcome(test=test, outcome=match["outcome"], failure=failure))
    warnings = []
    for line in release.warnings:
        category, _, message = line.partition(": ")
        warnings.append(Warned(category=category, message=message))
    flaky = [TestOutcome(test=test, outcome="passed") for test in release.flaky]
    result = RoundResult(
        tests=(*rows, *flaky),
        planned=len(rows) + len(flaky),
        unlike=release.flaky,
        warnings=tuple(warnings),
        counts=CompileCounts(frames=release.frames) if release.frames is not msgspec.UNSET else None,
    )
    return PlaceResult(name=f"{chosen} of the baseline file", packages=release.packages, rounds=(result,))
