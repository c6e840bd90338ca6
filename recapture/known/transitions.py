"""Known changes between releases (``suites/transitions.toml``): what changed in a cell, and where that is confirmed."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from packaging.version import InvalidVersion, Version

from recapture.known.table import Table, check_source
from recapture.records.verdicts import Outcome


class Transition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One change; the comment at the top of transitions.toml explains each field.

    A change of what a compiler's name means is of all its cells: it has neither a case nor outcomes.
    """

    compilers: tuple[str, ...]
    last: str
    first: str
    what: str
    source: str
    case: str | None = None
    was: Outcome | None = None
    now: Outcome | None = None
    device: Literal["cpu", "cuda"] = "cpu"

    def __post_init__(self) -> None:
        name = f"{self.case or 'all cases'}, {self.last} to {self.first}"
        if self.case is not None and not re.fullmatch(r"\w+::\w+", self.case):
            raise ValueError(f"{name}: {self.case!r} is not a case, SUITE::NAME")
        if not self.compilers:
            raise ValueError(f"{name}: no compiler is named")
        if len({part is None for part in (self.case, self.was, self.now)}) > 1:
            raise ValueError(f"{name}: a change has a case and both outcomes, or none of them")
        if self.case is not None and self.was == self.now:
            raise ValueError(f"{name}: {self.was} to {self.now} is not a change")
        try:
            if Version(self.last) >= Version(self.first):
                raise ValueError(f"{name}: {self.last} is not before {self.first}")
        except InvalidVersion as error:
            raise ValueError(f"{name}: {error}") from None
        check_source(name, self.source)

    @property
    def line(self) -> str:
        """The change in one line, with its source."""
        if self.case is None:
            return f"{self.last}, {self.first}: {self.what} ({self.source})"
        where = " on a GPU" if self.device == "cuda" else ""
        return f"{self.last} {self.was}, {self.first} {self.now}{where}: {self.what} ({self.source})"


TRANSITIONS: Table[tuple[Transition, ...]] = Table(
    "transitions.toml", "the known changes", tuple, transitions=Transition
)
"""The changes, in the order of the file."""


def transitions_of(case: str, compiler: str, *, gpu: bool = False) -> list[Transition]:
    """Return the known changes of a cell, oldest release first; with `gpu`, also those that a GPU alone shows."""
    devices = ("cpu", "cuda") if gpu else ("cpu",)
    changes = [
        entry
        for entry in TRANSITIONS.shipped
        if entry.case in (case, None) and compiler in entry.compilers and entry.device in devices
    ]
    return sorted(changes, key=lambda entry: Version(entry.first))
