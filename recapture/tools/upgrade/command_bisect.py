"""Finds the release, or the package, with which a command turns bad: first over releases, then over their packages.

Triton, numpy, scipy and cuDNN are exchanged between the two neighbours before torch is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from recapture.base.text import in_a_row, plural
from recapture.tools.upgrade.places import Place
from recapture.tools.upgrade.sources import edited_text

State = Literal["good", "bad", "skip"]
"""What one environment says; ``skip`` where it cannot be decided."""

CONFIRMATIONS = 5
"""Further runs on both sides of a boundary before it is believed."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did in one environment: how bad it was, why, and the signature of its failure.

    `numbers` are the samples of a figure, if one decides.
    """

    state: State
    why: str = ""
    signature: str = ""
    operator: str = ""
    numbers: tuple[float, ...] = ()


class Probe(Protocol):
    """Runs the command in an environment."""

    def __call__(self, place: Place, *, run: int = 1) -> Answer:
        """Return the answer of a place; a larger `run` is a further one, to confirm the first."""


WithPackages = Callable[[Place, Place, str, Iterable[str]], Place]
"""Returns the first place with some packages of the second one; the text names these packages."""


class PackageGroup(NamedTuple):
    """Packages that are exchanged together, and what they are called."""

    name: str
    packages: tuple[str, ...]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One environment that was tried, and its answer."""

    place: str
    answer: Answer


class BisectReport(msgspec.Struct, kw_only=True):
    """The outcome of a search: every trial, and what turned the command bad.

    `good` and `bad` are the neighbours between which it turns. `culprit` is ``torch``, the name of a package, or
    several of them joined by a plus sign; it is empty if none is certain. `flaky` names an environment that disagrees
    with itself. `release_runs` and `package_runs` count the environments that were tried, `confirmations` the further
    runs on both sides of the boundary.
    """

    command: tuple[str, ...]
    trials: list[Trial] = []
    good: str = ""
    bad: str = ""
    undecided: tuple[str, ...] = ()
    culprit: str = ""
    changed: tuple[tuple[str, str, str], ...] = ()
    known: tuple[str, ...] = ()
    flaky: str = ""
    never: str = ""
    sure: bool = False
    how: str = ""
    edited: tuple[str, ...] = ()
    """The files of the project that were edited meanwhile, so that not all environments ran the same code."""
    release_runs: int = 0
    package_runs: int = 0
    confirmations: int = 0
    schema: Literal[1] = 1

    @property
    def sentence(self) -> str:
        """The answer in one sentence, with how sure it is."""
        if self.edited:
            return f"not decided: {edited_text(self.edited)}"
        if self.flaky:
            return f"not decided: the command disagrees with itself on {self.flaky}, so that no release is to blame"
        if self.never:
            return f"not decided: {self.never}"
        certainty = "sure" if self.sure else "not sure"
        what = f"{self.culprit} turns it bad" if self.culprit else "no single package is shown to turn it bad"
        between = f", with {', '.join(self.undecided)} between them undecided" if self.undecided else ""
        return f"first bad on {self.bad}, good on {self.good}{between}: {what} ({certainty}: {self.how})"


class Search:
    """A search along places, which are releases from old to new, and then over packages."""

    def __init__(
        self,
        command: Sequence[str],
        probe: Probe,
        show: Callable[[str], object],
        confirmations: int = CONFIRMATIONS,
    ) -> None:
        self.report = BisectReport(command=tuple(command))
        self._probe, self._show, self._confirmations = probe, show, confirmations
        self._answers: dict[str, Answer] = {}

    def over_releases(self, line: Sequence[Place], *, trusted: bool) -> tuple[Place, Place] | None:
        """Return the neighbours between which the command turns bad; None if there are none, as the report then says.

        The first place is good and the last one bad, which is tried unless it is `trusted`.
        """
        states: dict[int, State] = {}
        for end, expected in ((0, "good"), (len(line) - 1, "bad")):
            answer = Answer(state="good" if end == 0 else "bad") if trusted else self._try(line[end])
            if answer.state != expected:
                why = f": {answer.why}" if answer.why else ""
                self.report.never = f"it is {_word(answer.state)} on {line[end].name}{why}"
                return None
            states[end] = answer.state
        low, high = 0, len(line) - 1
        while between := [number for number in range(low + 1, high) if number not in states]:
            middle = between[len(between) // 2]
            states[middle] = self._try(line[middle]).state
            if states[middle] == "good":
                low = middle
            elif states[middle] == "bad":
                high = middle
        self.report.good, self.report.bad = line[low].name, line[high].name
        self.report.undecided = tuple(line[number].name for number in range(low + 1, high))
        self.report.release_runs = len(self._answers)
        return (line[low], line[high]) if self._confirmed(line[low], line[high]) else None

    def _try(self, place: Place) -> Answer:
        if place.name not in self._answers:
            answer = self._probe(place)
            self._answers[place.name] = answer
            self.report.trials.append(Trial(place=place.name, answer=answer))
            self._show(f"{place.name}: {_word(answer.state)}{f': {answer.why}' if answer.why else ''}")
        return self._answers[place.name]

    def _confirmed(self, *ends: Place) -> bool:
        """Run both sides of the boundary again; an environment that disagrees with itself ends the search."""
        for place, expected in zip(ends, ("good", "bad"), strict=True):
            first = self._answers.get(place.name) or Answer(state="good" if expected == "good" else "bad")
            known = place.name in self._answers
            for number in range(1, self._confirmations + 1):
                answer = self._probe(place, run=number + known)
                self.report.confirmations += 1
                if not known:  # an end that the user vouched for
                    self._answers[place.name] = first = answer
                    self.report.trials.append(Trial(place=place.name, answer=answer))
                    known = True
                    if answer.state != expected:
                        self.report.never = f"it is {_word(answer.state)} on {place.name}, which was to be {expected}"
                        return False
                if answer.state != first.state:
                    self.report.flaky = place.name
                    return False
        return True

    def over_packages(self, good: Place, bad: Place, with_packages: WithPackages) -> None:
        """Find which package turns the command bad between two neighbours, and write it into the report."""
        if good.image is None or bad.image is None:
            self.report.how = "the packages of an environment that is not pinned cannot be exchanged"
            self.report.culprit, self.report.sure = "torch or what came with it", False
            return
        old, new = good.packages, bad.packages
        self.report.changed = tuple(
            (name, old.get(name, ""), new.get(name, ""))
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        )
        groups = package_groups(old, new)
        before = len(self._answers)
        PackageSearch(self._tried_with(good, bad, groups, with_packages), groups, good, bad).run(self.report)
        self.report.package_runs = len(self._answers) - before

    def _tried_with(
        self,
        good: Place,
        bad: Place,
        groups: Sequence[PackageGroup],
        with_packages: WithPackages,
    ) -> Callable[[frozenset[str]], State]:
        """Return a function that tries the good place with some groups of the bad one."""
        failure = self._answers[bad.name]
        by_name = {group.name: group.packages for group in groups}

        def tried(names: frozenset[str]) -> State:
            if not names:
                return "good"
            if names == frozenset(by_name):
                return "bad"
            label = ", ".join(name for name in by_name if name in names)
            packages = [package for name in names for package in by_name[name]]
            answer = self._try(with_packages(good, bad, label, packages))
            # Packages that do not fit each other fail in a way of their own, which says nothing about the question.
            if answer.state == "bad" and answer.signature != failure.signature:
                return "skip"
            return answer.state

        return tried


def _word(state: State) -> str:
    return "undecided" if state == "skip" else state


TORCH = "torch"

_NAMES: Mapping[str, tuple[str, ...]] = {
    "Triton": ("triton", "pytorch-triton"),
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "cuDNN": ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
}
"""Packages that are tried by themselves, in this order."""


def package_groups(old: Mapping[str, str], new: Mapping[str, str]) -> list[PackageGroup]:
    """Return the groups of packages that differ between two locks; the last one is torch with its CUDA."""
    differ = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    groups = [
        PackageGroup(name, packages)
        for name, members in _NAMES.items()
        if (packages := tuple(package for package in members if package in differ))
    ]
    named = {package for group in groups for package in group.packages}
    # torchvision and CUDA's libraries belong to one torch alone.
    with_torch = {
        name for name in differ - named if name.startswith(("nvidia-", "cuda-")) or name in (TORCH, "torchvision")
    }
    others = tuple(sorted(differ - named - with_torch))
    if others:
        groups.append(PackageGroup("other packages" if len(others) > 1 else others[0], others))
    return [*groups, PackageGroup(TORCH, tuple(sorted(with_torch)))]


class PackageSearch:
    """Finds the guilty group: `tried` says what the good place does with some groups of the bad one."""

    def __init__(
        self,
        tried: Callable[[frozenset[str]], State],
        groups: Sequence[PackageGroup],
        good: Place,
        bad: Place,
    ) -> None:
        self._tried = tried
        self._packages = [group.name for group in groups if group.name != TORCH]
        self._good, self._bad = good.name, bad.name

    def run(self, report: BisectReport) -> None:
        """Write the culprit into the report, and how sure it is."""
        packages = frozenset(self._packages)
        if not packages:
            report.culprit, report.sure = TORCH, not report.undecided
            report.how = "no other package differs between the two"
            return
        together = self._tried(packages)
        if together == "good":
            self._torch(report, packages)
            return
        # By themselves, even where they do not work together: one of them may.
        alone = {name: self._tried(frozenset([name])) for name in self._until_bad(together)}
        guilty = [name for name, state in alone.items() if state == "bad"]
        if guilty:
            self._package(report, guilty[0], packages)
        elif together == "bad":
            report.culprit = " + ".join(self._packages)
            report.how = f"with these of {self._bad}, {self._good} is bad, and with none of them alone"
            report.sure = not report.undecided and "skip" not in alone.values()
        else:
            undecided = [name for name, state in alone.items() if state == "skip"]
            self._without(report, undecided)

    def _until_bad(self, together: State) -> Iterable[str]:
        """Yield the packages to try; where all together are bad, none after the first that is bad alone."""
        for name in self._packages:
            yield name
            if together == "bad" and self._tried(frozenset([name])) == "bad":
                return

    def _package(self, report: BisectReport, name: str, packages: frozenset[str]) -> None:
        report.culprit = name
        rest_of_all = self._tried((packages | {TORCH}) - {name})
        alone = f"{self._good} with {name} of {self._bad} is bad"
        if rest_of_all == "good":
            report.sure, report.how = not report.undecided, f"{alone}, and {self._bad} with the old {name} is good"
        elif rest_of_all == "bad":
            report.sure, report.how = False, f"{alone}, but {self._bad} with the old {name} is bad, too"
        else:
            report.sure, report.how = False, f"{alone}; {self._bad} with the old {name} was not decided"

    def _torch(self, report: BisectReport, packages: frozenset[str]) -> None:
        """Name torch: every other package of the bad place leaves the good one good."""
        state = self._tried(frozenset([TORCH]))
        stays = f"{self._good} stays good with {in_a_row(self._packages)} of {self._bad}"
        if state == "bad":
            report.culprit, report.sure = TORCH, not report.undecided
            report.how = f"{stays}, and {self._bad} with the old ones is bad"
        elif state == "good":
            partners = [name for name in self._packages if self._tried(frozenset([TORCH, name])) == "bad"]
            report.culprit = " + ".join([TORCH, *(partners or sorted(packages))])
            report.sure = not report.undecided and bool(partners)
            report.how = f"{stays}, and so does torch of {self._bad} with the old ones; together they are bad"
        else:
            report.culprit, report.sure = TORCH, False
            report.how = f"{stays}; torch of {self._bad} with the old ones was not decided"

    def _without(self, report: BisectReport, undecided: Sequence[str]) -> None:
        """Name torch, or nothing, where the packages together could not be tried."""
        state = self._tried(frozenset([TORCH]))
        excluded = [name for name in self._packages if name not in undecided]
        stays = (
            f"{self._good} stays good with {in_a_row(excluded, 'or')} of {self._bad}"
            if excluded
            else "no package was decided"
        )
        if state == "bad":
            report.culprit, report.sure = TORCH, not report.undecided
            report.how = f"{self._bad} with the packages of {self._good} is bad"
        elif state == "good" and len(undecided) == 1:
            report.culprit, report.sure = undecided[0], False
            report.how = f"{stays}, {self._bad} with the old packages is good, and {undecided[0]} was not decided"
        else:
            unknown = [*undecided, *([TORCH] if state == "skip" else [])]
            report.how = f"{stays}; {in_a_row(unknown) or 'the packages together'} could not be decided"


def counted(report: BisectReport) -> str:
    """Return how much was run, in words."""
    runs = plural(report.release_runs, "release")
    more = f", {plural(report.package_runs, 'mixture')} of packages" if report.package_runs else ""
    again = f", {plural(report.confirmations, 'further run')} to confirm" if report.confirmations else ""
    return f"tried: {runs}{more}{again}"
