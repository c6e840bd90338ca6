"""Compares the outcomes of a command's tests in two environments, and groups what is new by its cause.

A test that disagrees with itself, in repeated runs of one environment, is flaky and is never blamed on a release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from recapture.base.scrub import recorded_fingerprint
from recapture.machine.pins import normalise
from recapture.tools.upgrade.outcomes import ENVIRONMENT, FAILING, NOT_RUN, Failure, TestOutcome, Warned

Category = Literal[
    "newly_failing",
    "failing_differently",
    "not_collected",
    "newly_skipped",
    "not_run",
    "environment",
    "flaky",
    "fixed",
    "still_failing",
    "new_test",
]

CATEGORIES: dict[Category, str] = {
    "newly_failing": "newly failing",
    "failing_differently": "failing for another reason",
    "not_collected": "not collected any more",
    "newly_skipped": "skipped, and ran before",
    "not_run": "not run",
    "environment": "without an environment",
    "flaky": "flaky",
    "fixed": "fixed",
    "still_failing": "failing as before",
    "new_test": "not in the baseline",
}
"""What a change is called, the worst first."""

BAD: frozenset[Category] = frozenset(("newly_failing", "failing_differently", "not_collected"))
"""Categories of changes that an upgrade brings and that are bad."""

UNDECIDED: frozenset[Category] = frozenset(("not_run", "environment"))
"""Categories of tests about which nothing is known."""

_NORMAL = frozenset({"passed", "xfailed", "xpassed"})


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A test whose outcome differs from the baseline, or that fails: its category, and both outcomes."""

    test: str
    category: Category
    before: str
    after: str
    failure: Failure | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Tests that changed in one way and for one reason. `cause` is what changed it, empty where that is not decided."""

    category: Category
    failure: Failure | None
    tests: tuple[str, ...]
    cause: str = ""


class TestHistory:
    """The outcomes of each test in the repeated runs of one environment."""

    __test__ = False  # pytest takes the name for that of tests

    def __init__(self) -> None:
        self._outcomes: dict[str, list[TestOutcome]] = {}
        self._unlike: set[str] = set()
        self._whole_runs: list[set[str]] = []

    @property
    def tests(self) -> list[str]:
        """The ids of all tests, sorted."""
        return sorted(self._outcomes)

    def add(self, outcomes: Iterable[TestOutcome], unlike: Iterable[str] = (), *, whole: bool = True) -> None:
        """Add a run; `unlike` are tests that disagreed with themselves within it.

        A run that was asked for some of the tests is not `whole`.
        """
        rows = list(outcomes)
        if whole:
            self._whole_runs.append({row.test for row in rows})
        for outcome in rows:
            if outcome.outcome != NOT_RUN or outcome.test not in self._outcomes:
                self._outcomes.setdefault(outcome.test, []).append(outcome)
        self._unlike.update(unlike)

    def outcome(self, test: str) -> TestOutcome | None:
        """Return the first outcome of a test that says something; None if it was not collected."""
        outcomes = self._outcomes.get(test, [])
        return next((outcome for outcome in outcomes if outcome.outcome != NOT_RUN), outcomes[0] if outcomes else None)

    def signatures(self, test: str) -> set[str]:
        """Return the signatures of a test's failures."""
        return {outcome.failure.signature for outcome in self._outcomes.get(test, []) if outcome.failure is not None}

    def is_flaky(self, test: str) -> bool:
        """Whether a test is not collected each time, or does not end alike; why it fails may differ."""
        kinds = {kind_of(outcome.outcome) for outcome in self._outcomes.get(test, []) if outcome.outcome != NOT_RUN}
        missing = test in self._outcomes and any(test not in run for run in self._whole_runs)
        return test in self._unlike or len(kinds) > 1 or missing

    @property
    def flaky(self) -> list[str]:
        """The ids of the flaky tests, sorted."""
        return [test for test in self.tests if self.is_flaky(test)]


def kind_of(outcome: str) -> str:
    """Return what two outcomes share that do not disagree: ``failing``, ``normal``, or a word of its own."""
    return "failing" if outcome in FAILING else "normal" if outcome in _NORMAL else outcome


def compare(old: TestHistory, new: TestHistory) -> list[Change]:
    """Return what differs between two environments, and what fails in both; sorted by test."""
    broken_files = [test for test in new.tests if (row := new.outcome(test)) and row.outcome == "uncollected"]
    changes = []
    for test in sorted({*old.tests, *new.tests}):
        before, after = old.outcome(test), new.outcome(test)
        category = _category(old, new, test, before, after)
        if category is None:
            continue
        failure = after.failure if after is not None else None
        if category == "not_collected":
            # The reason is that of the file or class that the test is in.
            file = next((file for file in broken_files if test == file or test.startswith(f"{file}::")), None)
            failure = row.failure if file is not None and (row := new.outcome(file)) is not None else None
        changes.append(
            Change(
                test=test,
                category=category,
                before=before.outcome if before is not None else "absent",
                after=after.outcome if after is not None else "absent",
                failure=failure,
            )
        )
    # A file that cannot be collected is a row of its own only if no test of it was known.
    explained = {change.failure.signature for change in changes if change.failure and change.after == "absent"}
    return [
        change
        for change in changes
        if not (change.after == "uncollected" and change.failure and change.failure.signature in explained)
    ]


def _category(
    old: TestHistory, new: TestHistory, test: str, before: TestOutcome | None, after: TestOutcome | None
) -> Category | None:
    """Return how a test changed; None if it did not, or if nothing about it is to be told."""
    if after is not None and after.outcome == ENVIRONMENT:
        return "environment"
    if old.is_flaky(test) or new.is_flaky(test):
        return "flaky"
    if after is None:
        return "not_collected" if before is not None and before.outcome != "uncollected" else None
    if after.outcome == NOT_RUN:
        return "not_run"
    if before is None:
        return "newly_failing" if after.fails else "new_test"
    if after.fails:
        if not before.fails:
            return "newly_failing"
        alike = old.signatures(test) & new.signatures(test)
        # A failure whose words change from run to run cannot be told from another one.
        steady = len(old.signatures(test)) == len(new.signatures(test)) == 1
        return "failing_differently" if steady and not alike else "still_failing"
    if before.fails:
        return "fixed"
    return "newly_skipped" if after.outcome == "skipped" and before.outcome != "skipped" else None


def grouped(changes: Iterable[Change], old: Mapping[str, str], new: Mapping[str, str]) -> list[Group]:
    """Return the changes by category and signature, the worst and largest groups first.

    `old` and `new` are the versions of the packages of both environments.
    """
    groups: dict[tuple[Category, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.category, _cause_key(change)), []).append(change)
    order = list(CATEGORIES)
    rows = [
        Group(
            category=category,
            failure=members[0].failure,
            tests=tuple(change.test for change in members),
            cause=_cause(members[0].failure, old, new) if category in BAD else "",
        )
        for (category, _), members in groups.items()
    ]
    return sorted(rows, key=lambda group: (order.index(group.category), -len(group.tests), group.tests))


def _cause_key(change: Change) -> str:
    """Return what changes with one cause share: the signature, without a frame that is that of the test itself."""
    failure = change.failure
    if failure is None:
        return ""
    if failure.place.partition(":")[0] != change.test.partition("::")[0]:
        return failure.signature
    return recorded_fingerprint(f"{failure.type}\n{failure.operator}", failure.message)


def _cause(failure: Failure | None, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the package that a failure comes from, if its version differs; empty where nothing says so."""
    if failure is None:
        return ""
    raised = failure.package
    if not raised and failure.operator:
        raised = re.split(r"[.:]", failure.operator)[0].replace("aten", "torch").replace("prims", "torch")
    name = normalise(raised) if raised else ""
    before, after = old.get(name), new.get(name)
    if not name or before == after:
        return ""
    return f"{name} {before or 'absent'} → {after or 'absent'}"


def suspects(changes: Iterable[Change]) -> list[str]:
    """Return the tests that are to run again before they are blamed on a release."""
    blamed: tuple[Category, ...] = ("newly_failing", "failing_differently")
    return [change.test for change in changes if change.category in blamed and change.after != "uncollected"]


def lost(changes: Iterable[Change]) -> list[str]:
    """Return the tests that are not collected any more: what collects them may disagree with itself."""
    return [change.test for change in changes if change.category == "not_collected"]


def new_warnings(old: Iterable[Warned], new: Iterable[Warned]) -> list[Warned]:
    """Return the warnings of deprecation that are new, sorted."""
    before = set(old)
    return sorted({row for row in new if row not in before}, key=lambda row: (row.category, row.message))
