"""Known changes between releases (``suites/transitions.toml``): what changed in a cell, and where that is confirmed."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import msgspec
from packaging.version import InvalidVersion, Version

from recapture.base.paths import data_folder
from recapture.base.toml_file import load_toml
from recapture.known.confirmation import check_source
from recapture.records.verdicts import Outcome

if TYPE_CHECKING:
    from pathlib import Path


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


class _TransitionFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of transitions.toml."""

    transitions: list[Transition]


@functools.cache
def known_transitions() -> tuple[Transition, ...]:
    """Return the changes that ship with recapture, in the order of the file."""
    return load_transitions(data_folder("suites") / "transitions.toml")


def transitions_of(case: str, compiler: str) -> list[Transition]:
    """Return the known changes of a cell, oldest release first."""
    found = [one for one in known_transitions() if one.case == case and compiler in one.compilers]
    return sorted(found, key=lambda one: Version(one.first))


def load_transitions(path: Path) -> tuple[Transition, ...]:
    """Read a file of changes, in its order.

    Raises UsageError, in one line, for an unreadable file, an unknown key, and an entry that cannot be true.
    """
    return load_toml(path, "the known changes", lambda file: tuple(msgspec.convert(file, _TransitionFile).transitions))
