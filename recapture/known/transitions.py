"""Known changes between releases (``suites/transitions.toml``): what changed in a cell, and where that is confirmed."""

from __future__ import annotations

import re

import msgspec
from packaging.version import InvalidVersion, Version

from recapture.known.table import Table, check_source
from recapture.records.verdicts import Outcome


class Transition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One change; the comment at the top of transitions.toml explains each field."""

    case: str
    compilers: tuple[str, ...]
    last: str
    first: str
    was: Outcome
    now: Outcome
    what: str
    source: str

    def __post_init__(self) -> None:
        name = f"{self.case}, {self.last} to {self.first}"
        if not re.fullmatch(r"\w+::\w+", self.case):
            raise ValueError(f"{name}: {self.case!r} is not a case, SUITE::NAME")
        if not self.compilers:
            raise ValueError(f"{name}: no compiler is named")
        if self.was == self.now:
            raise ValueError(f"{name}: {self.was} to {self.now} is no change")
        try:
            if Version(self.last) >= Version(self.first):
                raise ValueError(f"{name}: {self.last} is not before {self.first}")
        except InvalidVersion as error:
            raise ValueError(f"{name}: {error}") from None
        check_source(name, self.source)

    @property
    def line(self) -> str:
        """The change in one line, with its source."""
        return f"{self.last} {self.was}, {self.first} {self.now}: {self.what} ({self.source})"


TRANSITIONS: Table[tuple[Transition, ...]] = Table(
    "transitions.toml", "the known changes", tuple, transitions=Transition
)
"""The changes, in the order of the file."""


def transitions_of(case: str, compiler: str) -> list[Transition]:
    """Return the known changes of a cell, oldest release first."""
    changes = [entry for entry in TRANSITIONS.shipped if entry.case == case and compiler in entry.compilers]
    return sorted(changes, key=lambda entry: Version(entry.first))
