"""The known public issues (``suites/known_issues.toml``): what their sources say about the releases of torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec
from packaging.version import InvalidVersion, Version

from recapture.base.errors import UsageError, did_you_mean
from recapture.known.table import Table
from recapture.records.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

Sure = Literal["documented", "inferred", "open", "never", "unknown"]
"""How sure the range of an issue is; the comment at the top of known_issues.toml explains each word."""

THREAD = "https://github.com/pytorch/pytorch/issues/"
"""Address of the threads, without the number."""

ADVISORY = "https://osv.dev/vulnerability/"
"""Address of the advisories, without the id."""


class KnownIssue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One public issue; the comment at the top of known_issues.toml explains each field."""

    id: str
    what: str
    compares: str
    seen: tuple[str, ...]
    sure: Sure
    first_bad: str | None = None
    fixed_in: str | None = None
    advisory: str | None = None
    gpu: bool = False
    shown_by: tuple[str, ...] = ()
    not_shown: str | None = None
    explanation: str | None = None

    def __post_init__(self) -> None:
        if self.compares not in KINDS:
            raise ValueError(f"issue {self.id}: unknown kind of difference {self.compares!r}")
        for release in (*self.seen, self.first_bad, self.fixed_in):
            try:
                Version(release or "0")
            except InvalidVersion:
                raise ValueError(f"issue {self.id}: {release!r} is not a release") from None
        if not self.seen:
            raise ValueError(f"issue {self.id}: seen names no release")
        if (self.fixed_in is None) == (self.sure in ("documented", "inferred")) and self.first_bad is None:
            raise ValueError(f"issue {self.id}: {self.sure!r} does not go with fixed_in = {self.fixed_in!r}")
        if not self.shown_by and not self.not_shown:
            raise ValueError(f"issue {self.id}: neither shown_by nor not_shown is given")
        for cell in self.shown_by:
            if not re.fullmatch(r"\w+::\w+::[\w.:-]+", cell):
                raise ValueError(f"issue {self.id}: {cell!r} is not a cell, SUITE::CASE::COMPILER")

    @property
    def link(self) -> str:
        """The public address of the thread, or of the advisory."""
        return THREAD + self.id if self.id.isdigit() else ADVISORY + self.id

    @property
    def cases(self) -> tuple[str, ...]:
        """The cases that try it, ``suite::name``."""
        return tuple(dict.fromkeys("::".join(cell.split("::")[:2]) for cell in self.shown_by))

    @property
    def span(self) -> str:
        """The documented range in words."""
        start = f"from {self.first_bad}" if self.first_bad else f"seen on {', '.join(self.seen)}"
        return f"{start}, right from {self.fixed_in}" if self.fixed_in else start

    def says(self, release: str) -> Literal["wrong", "right"] | None:
        """Return what the sources say about a release, or None if they say nothing about it or it is not a version."""
        try:
            version = Version(Version(release).base_version)
        except InvalidVersion:
            return None
        if self.fixed_in is not None and version >= Version(self.fixed_in):
            return "right"
        if self.first_bad is not None:
            if version < Version(self.first_bad):
                return "right"
        elif version < min(map(Version, self.seen)):
            return None
        if self.sure == "unknown" and version > max(map(Version, self.seen)):
            return None
        return "wrong"

    def ends(self, releases: Iterable[str]) -> tuple[str, str] | None:
        """Return the two of `releases` at the ends of the documented range, or None where they hold only one end.

        The lower end is the first release that the sources call wrong. Where the issue was seen only between two
        releases, it is the newest release before. The upper end is the first release that is right again, or the
        newest one while the issue is open.
        """
        ordered = sorted(releases, key=Version)
        wrong = [release for release in ordered if self.says(release) == "wrong"]
        earliest = min(map(Version, self.seen))
        lower = wrong[:1] or [release for release in ordered if Version(Version(release).base_version) < earliest][-1:]
        if self.fixed_in is not None:
            upper = [release for release in ordered if Version(release) >= Version(self.fixed_in)][:1]
        else:
            upper = (wrong or ordered)[-1:]
        return (lower[0], upper[0]) if lower and upper and lower != upper else None


ISSUES: Table[dict[str, KnownIssue]] = Table(
    "known_issues.toml", "the known issues", lambda issues: {issue.id: issue for issue in issues}, issues=KnownIssue
)
"""The issues by id, in the order of the file."""


def chosen_issues(ids: tuple[str, ...]) -> list[KnownIssue]:
    """Return the issues with some ids, or all; raises UsageError for an unknown id, with the most similar one."""
    known = ISSUES.shipped
    for name in ids:
        if name not in known:
            raise UsageError(f"no known issue {name!r}{did_you_mean(name, known)} (`recapture list --issues`)")
    return [issue for name, issue in known.items() if not ids or name in ids]
