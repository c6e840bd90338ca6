"""What the records say about a behaviour: with which compilers and on which releases it is silently wrong or fails."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

from packaging.version import InvalidVersion, Version

from recapture.base.errors import UsageError, did_you_mean
from recapture.data import Data
from recapture.tools.lint.patterns import BEHAVIOURS_LOOKED_FOR

Outcome = Literal["silently wrong", "failing", "broken"]

WORDS: dict[Outcome, str] = {
    "silently wrong": "silently wrong",
    "failing": "refused or failing",
    "broken": "breaks the graph",
}
"""The outcomes in the words of a message."""


class Affected(NamedTuple):
    """A compiler with which a behaviour ends badly, and the spans of releases, oldest first."""

    compiler: str
    outcome: Outcome
    spans: tuple[tuple[str, str], ...]

    def holds(self, release: str) -> bool:
        """Whether a release lies in one of the spans."""
        version = Version(release)
        return any(Version(first) <= version <= Version(last) for first, last in self.spans)

    @property
    def words(self) -> str:
        """The compiler and its releases, such as ``export in 2.9.1-2.15.0``."""
        spans = ", ".join(first if first == last else f"{first}-{last}" for first, last in self.spans)
        return f"{self.compiler} in {spans}"


def affected(data: Data, behaviour: str, compilers: Sequence[str], outcomes: Sequence[Outcome]) -> list[Affected]:
    """Return the compilers among some with which a behaviour has one of some outcomes, with the releases."""
    entry = data.behaviours[behaviour]
    rows = []
    for outcome in outcomes:
        for compiler in compilers:
            marks = [strip.marks for case in entry.cases for strip in data.cases[case].cells.get(compiler, {}).values()]
            bad = [any(_is(data, strip[place], outcome) for strip in marks) for place in range(len(data.releases))]
            spans = []
            for is_bad, group in itertools.groupby(zip(data.releases, bad, strict=True), key=lambda pair: pair[1]):
                releases = [release for release, _ in group]
                if is_bad:
                    spans.append((releases[0], releases[-1]))
            if spans:
                rows.append(Affected(compiler, outcome, tuple(spans)))
    return rows


def _is(data: Data, mark: str, outcome: Outcome) -> bool:
    facts = data.marks.get(mark)
    if facts is None:
        return False
    return facts.tone == "broken" if outcome == "broken" else facts.group == outcome


def chosen_compilers(data: Data, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of compilers; raises UsageError for an unknown one."""
    for name in names:
        if name not in data.compilers:
            raise UsageError(f"--compiler: unknown compiler {name!r}{did_you_mean(name, data.compilers)}")
    return tuple(dict.fromkeys(names))


def chosen_behaviours(names: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of behaviours; raises UsageError for one that no pattern looks for."""
    for name in names:
        if name not in BEHAVIOURS_LOOKED_FOR:
            raise UsageError(f"--select: no pattern looks for {name!r}{did_you_mean(name, BEHAVIOURS_LOOKED_FOR)}")
    return tuple(names)


def chosen_release(data: Data, text: str) -> str:
    """Return the newest recorded release that is not newer than a version, or the oldest; UsageError for no version."""
    try:
        version = Version(Version(text).base_version)
    except InvalidVersion:
        raise UsageError(f"--torch: {text!r} is not a version of torch, such as {data.releases[-1]}") from None
    older = [release for release in data.releases if Version(release) <= version]
    return older[-1] if older else data.releases[0]


def in_words(chosen: str, text: str) -> str:
    """Return the release that was chosen for a version, and the version itself where it is another one."""
    same = Version(Version(text).base_version) == Version(chosen)
    return f"torch {chosen}" + ("" if same else f" ({text} is not recorded)")
