"""``recapture bisect -- COMMAND``: which release, or which package, turned a command bad."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from packaging.version import InvalidVersion, Version

from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.base.option_fields import option
from recapture.base.text import shorten
from recapture.command.output import echo, echo_error, print_json
from recapture.known.issues import ISSUES
from recapture.known.transitions import TRANSITIONS
from recapture.machine.pins import lock_text
from recapture.tools.upgrade.cell_bisect import mixed_lock
from recapture.tools.upgrade.command_bisect import BisectReport, Search, counted
from recapture.tools.upgrade.command_options import CommandOptions
from recapture.tools.upgrade.command_probe import (
    MEASURES,
    REPEATS,
    CommandProbe,
    Figure,
    Measure,
    NumberProbe,
    Worse,
    printed_number,
)
from recapture.tools.upgrade.consent import agree_to_install, halvings
from recapture.tools.upgrade.places import Place, find_places
from recapture.tools.upgrade.process_counts import Instructions

LONGEST = 600
"""Characters of the line with the packages that differ."""


@dataclass(frozen=True, kw_only=True)
class CommandSearchOptions:
    """What decides whether a command is good, and where it is tried."""

    across: str | None = option(
        "--across",
        default=None,
        metavar="RELEASE[,RELEASE…]|all",
        help="The releases to search, oldest first. [default: all]",
    )
    test: str | None = option("--test", default=None, metavar="ID", help="The test of pytest that decides.")
    metric: str | None = option(
        "--metric", default=None, metavar="REGEX", help="A number decides: the group in the last match of the output."
    )
    worse: Worse | None = option(
        "--worse", default=None, help="With --metric: whether a higher or a lower number is worse."
    )
    repeat: int = option(
        "--repeat",
        default=REPEATS,
        between=(1, 24),
        metavar="N",
        help="With --metric: runs of the command in an environment.",
    )
    measure: Measure | None = option(
        "--measure",
        default=None,
        metavar="NAME",
        help=f"A number of recapture decides: {', '.join(get_args(Measure))}; the memory is in megabytes.",
    )

    @property
    def figure(self) -> Figure | None:
        """What reads the number that decides; None if none does. Raises UsageError for options that do not fit."""
        if sum(value is not None for value in (self.test, self.metric, self.measure)) > 1:
            raise UsageError("--test, --metric and --measure all say what decides: give one of them")
        if self.metric is not None and self.worse is None:
            raise UsageError("--metric needs --worse higher or --worse lower")
        if self.worse is not None and self.metric is None and self.measure is None:
            raise UsageError("--worse is for --metric and --measure")
        if self.measure is not None:
            return MEASURES[self.measure].figure
        return printed_number(self.metric) if self.metric is not None else None

    @property
    def only_for_commands(self) -> bool:
        """Whether one was given that does not apply to a cell."""
        return any(value is not None for value in (self.test, self.metric, self.worse, self.measure))


def bisect_words(
    words: tuple[str, ...],
    good: str | None,
    bad: str | None,
    search: CommandSearchOptions,
    options: CommandOptions,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Find what turned a command bad, and print it. Raises UsageError for options that do not fit each other."""
    figure = search.figure
    if search.measure == "compile-instructions" and (why := Instructions().why_none):
        raise UsageError(f"--measure compile-instructions: this machine counts no instructions of a process: {why}")
    line = _line(find_places(search.across or "all", options.index), good, bad, options.index)
    root = Path.cwd()
    if search.test is not None:
        _check_test(search.test, root)
    state = options.folder("bisect", words, root)
    rounds = options.rounds(words, root, state)
    absent = [place.name for place in line if not rounds.places.has(place)]
    agree_to_install(absent, 2 + halvings(len(line) - 2), yes=yes, mixtures=True)
    command = CommandProbe(
        rounds=rounds,
        test=search.test,
        count=MEASURES[search.measure].needs if search.measure is not None else (),
    )
    with rounds.held():
        if figure is None:
            report = _searched(Search(words, command, echo_error), line, state, trusted=good is not None)
        else:
            number = NumberProbe(command, figure, search.worse or "higher", search.repeat)
            if search.measure is not None:
                number.absent = MEASURES[search.measure].absent
            # Several runs are one answer of it already.
            runs = Search(words, number, echo_error, confirmations=1)
            runs.report.never = number.calibrate(line[0], line[-1])
            report = runs.report if runs.report.never else _searched(runs, line, state, trusted=False)
    report.edited = tuple(rounds.edited)
    if as_json:
        print_json({"sentence": report.sentence, **_plain(report)})
    else:
        _print(report)


def _check_test(test: str, root: Path) -> None:
    """Raise UsageError for a test of a file that does not exist, before environments are made.

    Ids of pytest are relative to its root, which can be a folder above. Whether the file has the test, pytest alone
    knows: a class can inherit it.
    """
    file = test.partition("::")[0]
    if not any((folder / file).is_file() for folder in (root, *root.parents)):
        raise UsageError(f"--test {shorten(test, 80)}: there is no file {shorten(file, 60)} here")


def _searched(runs: Search, line: Sequence[Place], state: Path, *, trusted: bool) -> BisectReport:
    """Search over releases and then over packages, and return what that says."""
    neighbours = runs.over_releases(line, trusted=trusted)
    if neighbours is not None:
        runs.over_packages(*neighbours, lambda *names: _mixed_place(state, *names))
        runs.report.known = known_changes(runs.report)
    return runs.report


def _line(places: Sequence[Place], good: str | None, bad: str | None, index: str) -> list[Place]:
    """Return the places from the good to the bad one, without which these are the first and the last."""
    names = [place.name for place in places]
    ends = (0, len(names) - 1)
    if good is not None and bad is not None:
        chosen = [find_places(name, index)[0].name for name in (good, bad)]
        for name in chosen:
            if name not in names:
                raise UsageError(f"{name} is not among the releases to search: {', '.join(names)}")
        ends = (names.index(chosen[0]), names.index(chosen[1]))
    if ends[0] == ends[1]:
        raise UsageError("a search needs two releases: name them with --across, or with --good and --bad")
    first, last = min(ends), max(ends)
    line = list(places[first : last + 1])
    return line if ends[0] < ends[1] else line[::-1]


def _mixed_place(state: Path, good: Place, bad: Place, label: str, packages: Iterable[str]) -> Place:
    """Return a place with some packages of another one, by a lock that is mixed of both."""
    if good.lock is None or bad.lock is None:
        raise UsageError(f"{good.name} or {bad.name} has no lock")
    text = mixed_lock(lock_text(good.lock), lock_text(bad.lock), list(packages))
    folder = state / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
    write_atomically(path, text.encode())
    return Place(name=f"{good.name} with {label} of {bad.name}", image=good.image, mixed=path)


def known_changes(report: BisectReport) -> tuple[str, ...]:
    """Return what is known to have changed between the two neighbours about the operator of the failure.

    These are changes between releases, and public issues that the newer neighbour has and the older one has not.
    """
    answers = {trial.place: trial.answer for trial in report.trials}
    operator = answers[report.bad].operator if report.bad in answers else ""
    name = operator.replace("::", ".").rpartition(".")[2]
    try:
        good, bad = Version(report.good), Version(report.bad)
    except InvalidVersion:
        return ()
    if not name:
        return ()
    named = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    lines = {
        f"{change.what} ({change.source})"
        for change in TRANSITIONS.shipped
        if good < Version(change.first) <= bad and named.search(change.what)
    }
    lines |= {
        f"{issue.what}: wrong {issue.span} ({issue.link})"
        for issue in ISSUES.shipped.values()
        if named.search(issue.what) and issue.says(str(bad)) == "wrong" and issue.says(str(good)) != "wrong"
    }
    return tuple(sorted(lines))


def _plain(report: BisectReport) -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(report)
    return fields


def _print(report: BisectReport) -> None:
    echo(report.sentence)
    for trial in report.trials:
        why = f": {trial.answer.why}" if trial.answer.why else ""
        echo(f"  {trial.place}: {'undecided' if trial.answer.state == 'skip' else trial.answer.state}{why}")
    if report.changed:
        text = ", ".join(f"{name} {old or 'absent'} → {new or 'absent'}" for name, old, new in report.changed)
        echo(shorten(f"differ: {text}", LONGEST))
    for line in report.known:
        echo(f"known: {line}")
    echo(counted(report))
