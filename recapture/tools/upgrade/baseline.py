"""The baseline in a user's repository: the outcome of each test, one line a test, the same bytes each time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from recapture.base.decode import Format
from recapture.base.errors import UsageError
from recapture.tools.upgrade.compile_counts import CompileCounts, FrameCounts
from recapture.tools.upgrade.outcomes import OUTCOMES, Failure, TestOutcome, Warned
from recapture.tools.upgrade.rounds import RoundResult
from recapture.tools.upgrade.upgrade import PlaceResult

_ROW = re.compile(r"(?P<outcome>[a-z ]+?)(?: (?P<signature>[0-9a-f]{10}) (?P<type>[^:]*)(?:: (?P<message>.*))?)?")


class _Release(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One environment: its packages under test, its tests, those that are flaky, and its warnings.

    `frames` are the functions with graph breaks or recompiles: absent where they were not counted, and None where they
    are unknown.
    """

    packages: dict[str, str] = {}
    flaky: tuple[str, ...] = ()
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


FORMAT: Format[Baseline] = Format(Baseline, "baseline", 1, _check)
"""The format of a baseline file."""


def baseline_text(command: Sequence[str], results: Sequence[PlaceResult]) -> str:
    """Return the baseline file of these environments; one that could not be used is left out.

    Raises UsageError if none could be used.
    """
    releases: dict[str, dict[str, object]] = {}
    for result in results:
        if not result.rounds:
            continue
        history = result.history
        flaky = history.flaky
        rows = [row for test in history.tests if test not in flaky and (row := history.outcome(test)) is not None]
        releases[result.name] = {
            "packages": {name: result.packages[name] for name in _PACKAGES if name in result.packages},
            "flaky": flaky,
            "tests": {row.test: _row(row) for row in rows},
            "warnings": [f"{warned.category}: {warned.message}" for warned in result.warnings],
        }
        if result.frames:
            releases[result.name]["frames"] = msgspec.to_builtins(_steady(result.frames))
    if not releases:
        raise UsageError("no environment could be used: there is no baseline to write")
    document = {"schema": 1, "command": list(command), "releases": releases}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _steady(runs: Sequence[Mapping[str, FrameCounts] | None]) -> dict[str, FrameCounts] | None:
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


def as_result(baseline: Baseline, name: str) -> PlaceResult:
    """Return what a baseline says about an environment, or about its first one if it does not know this."""
    chosen = name if name in baseline.releases else next(iter(baseline.releases))
    release = baseline.releases[chosen]
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
