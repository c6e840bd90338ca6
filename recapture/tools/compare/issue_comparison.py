"""Known public issues: what their sources say about each release, against what the records say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from recapture.machine.pins import load_images
from recapture.records.releases import is_bare, read_by_age, torch_version, twin
from recapture.records.verdicts import NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from recapture.known.issues import KnownIssue
    from recapture.records.directories import Results
    from recapture.records.record import Record

Measured = Literal["wrong", "right", "wrong otherwise", "fails", "not run", "not recorded"]
"""The result of an issue's cells in one release; ``wrong otherwise`` by another kind of difference than the issue's."""

Outcome = Literal["agrees", "disagrees", "no statement", "GPU only", "no program", "not run", "not recorded"]
"""The sources against the records, over all releases of a table."""


UNTRIED = ("not run", "not recorded")
"""Results that say nothing about a release."""


@dataclass(frozen=True)
class IssueEntry:
    """One release: what the sources say about it (None: nothing), and what was measured."""

    torch: str
    image: str
    documented: Literal["wrong", "right"] | None
    measured: Measured

    @property
    def agrees(self) -> bool | None:
        """Whether both say the same; None where one of them says nothing."""
        if self.documented is None or self.measured not in ("wrong", "right"):
            return None
        return self.documented == self.measured


@dataclass(frozen=True)
class IssueRow:
    """One issue through the releases, oldest first."""

    issue: KnownIssue
    entries: tuple[IssueEntry, ...]
    outcome: Outcome
    ends: tuple[str, str] | None
    """The pinned releases at the ends of the documented range; None where none of them is at one of the ends."""

    @property
    def at_both_ends(self) -> bool:
        """Whether the issue's cells ran on the releases at both ends of its documented range."""
        ran = {one.torch.split("+")[0] for one in self.entries if one.measured not in UNTRIED}
        return self.ends is not None and set(self.ends) <= ran


@dataclass(frozen=True)
class IssueTable:
    """The issues on one capability. `images` are the columns of every row."""

    capability: str
    images: tuple[IssueEntry, ...]
    rows: tuple[IssueRow, ...]


def compare_issues(
    issues: Sequence[KnownIssue], root: Path, *, check: Callable[[Results], object] | None = None
) -> list[IssueTable]:
    """Return a table for each capability that has results at or below a directory.

    A column is an image; drifted twins and runs outside an image are left out where a capability has others. Raises
    UsageError if there are no results, or if reading them fails.
    """
    results = read_by_age(root, check)
    pinned = {one.torch for one in load_images().values()}
    tables = []
    for capability in sorted({one.capability for one in results}):
        found = [one for one in results if one.capability == capability]
        columns = [one for one in found if not twin(one.image) and not is_bare(one.image)] or found
        records = [{f"{row.case}::{row.compiler}": row for row in one.records} for one in columns]
        rows = tuple(
            IssueRow(issue, entries, _outcome(issue, entries, on_gpu=capability != "cpu"), issue.ends(pinned))
            for issue in issues
            for entries in [_entries(issue, columns, records)]
        )
        heads = tuple(IssueEntry(torch_version(one), one.image, None, "not recorded") for one in columns)
        tables.append(IssueTable(capability, heads, rows))
    return tables


def _entries(
    issue: KnownIssue, columns: Sequence[Results], records: Sequence[dict[str, Record]]
) -> tuple[IssueEntry, ...]:
    entries = []
    for one, cells in zip(columns, records, strict=True):
        release = torch_version(one)
        found = [cells.get(cell) for cell in issue.shown_by]
        entries.append(IssueEntry(release, one.image, issue.says(release), _measured(issue, found)))
    return tuple(entries)


def _measured(issue: KnownIssue, found: Sequence[Record | None]) -> Measured:
    records = [one for one in found if one is not None]
    if not records:
        return "not recorded"
    silent = [one for one in records if one.verdict in SILENTLY_WRONG]
    if silent:
        kinds = {difference.kind for one in silent for difference in one.differences}
        return "wrong" if issue.compares in kinds else "wrong otherwise"
    ran = [one for one in records if one.verdict not in NOT_RUN]
    if not ran:
        return "not run"
    if all(_is_right(issue, one) for one in ran):
        return "right"
    return "fails"


def _is_right(issue: KnownIssue, record: Record) -> bool:
    """Whether a cell does not show the issue. A lost check is back where the call raises, whatever the exception."""
    raises = issue.compares == "exception" and record.verdict is Verdict.ERROR and record.phase == "call"
    return raises or record.verdict in RIGHT


def _outcome(issue: KnownIssue, entries: Sequence[IssueEntry], *, on_gpu: bool) -> Outcome:
    if not issue.shown_by:
        return "no program"
    if issue.gpu and not on_gpu:
        return "GPU only"
    found = [one.agrees for one in entries]
    if False in found:
        return "disagrees"
    if True in found:
        return "agrees"
    measured = {one.measured for one in entries}
    if measured <= {"not recorded"}:
        return "not recorded"
    return "not run" if measured <= {"not recorded", "not run"} else "no statement"
