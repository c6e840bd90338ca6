"""Known public issues: what their sources say about each release, against what the records say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recapture.base.escape import indented_json
from recapture.known.issues import KnownIssue
from recapture.machine.pins import load_images
from recapture.records.directories import Results
from recapture.records.record import Record
from recapture.records.releases import is_bare, labels, read_by_age, torch_version, twin
from recapture.records.verdicts import NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.document import Block, Heading, Inline, Item, Items, Paragraph, Span, Table, code_span
from recapture.report.markdown_writer import to_markdown as markdown

if TYPE_CHECKING:
    from rich.console import Console

Measured = Literal["wrong", "right", "wrong otherwise", "fails", "not run", "not recorded"]
"""The result of an issue's cells in one release; ``wrong otherwise`` by another kind of difference than the issue's."""

Outcome = Literal["agrees", "disagrees", "no statement", "GPU only", "no program", "not run", "not recorded"]
"""The sources against the records, over all releases of a table."""

UNTRIED = ("not run", "not recorded")
"""Results that say nothing about a release."""

ISSUES_SCHEMA_VERSION = 1
"""Version of the JSON form."""

MARKS = {"wrong": "W", "wrong otherwise": "o", "right": "r", "fails": "e", "not run": "–", "not recorded": ""}
"""Text of what was measured in one release."""

LEGEND = (
    "W measured silently wrong · o wrong in another way · r measured right · e fails · – not run · empty: not recorded "
    "· ! after a mark: the sources say otherwise; ? after it: the sources say nothing about this release."
)
"""Explanation of the marks in the columns of the releases."""


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


# Rendering


def to_json(tables: Iterable[IssueTable]) -> str:
    """Return the tables as JSON."""
    return indented_json({"schema": ISSUES_SCHEMA_VERSION, "tables": list(tables)})


def to_markdown(tables: Iterable[IssueTable]) -> str:
    """Return the tables as GitHub Markdown."""
    return markdown(block for table in tables for block in _document(table))


def print_issues(console: Console, tables: Iterable[IssueTable]) -> None:
    """Print the tables."""
    from recapture.report.terminal_writer import print_document

    print_document(console, [block for table in tables for block in _document(table)])


def _document(one: IssueTable) -> Iterator[Block]:
    yield Heading(["Known issues, documented against measured: ", code_span(one.capability)], 1)
    yield Paragraph(_counts(one))
    yield _table(one)
    yield Paragraph(LEGEND)
    remarks = [
        Item([Span(f"#{row.issue.id}", "verbatim", row.issue.link), f": {text}"]) for row, text in _explanations(one)
    ]
    if remarks:
        yield Heading("Disagreements and remarks")
        yield Items(remarks)


def _counts(one: IssueTable) -> str:
    counted = Counter(row.outcome for row in one.rows)
    parts = ", ".join(f"{number} {outcome}" for outcome, number in counted.most_common())
    pairs = [entry.agrees for row in one.rows for entry in row.entries if entry.agrees is not None]
    text = f"{len(one.rows)} known issues: {parts}."
    if pairs:
        text += f" Of {len(pairs)} pairs of issue and release that can be compared, {sum(pairs)} agree."
    tried = sum(row.at_both_ends for row in one.rows)
    return f"{text} {tried} were tried on the releases at both ends of their documented range."


def _table(one: IssueTable) -> Table:
    heads = labels(one.images)
    rows: list[list[Inline]] = []
    for row in one.rows:
        issue = row.issue
        rows.append(
            [
                Span(f"#{issue.id}" if issue.id.isdigit() else issue.id, link=issue.link),
                issue.what + (f" ({issue.advisory})" if issue.advisory else ""),
                issue.compares,
                issue.span,
                issue.sure,
                *map(_mark, row.entries),
                row.outcome,
            ]
        )
    columns = ["issue", "what", "shows in", "documented", "how sure", *heads, "outcome"]
    return Table(columns, rows, "lllll" + "c" * len(heads) + "l")


def _mark(entry: IssueEntry) -> str:
    mark = MARKS[entry.measured]
    if entry.measured not in ("wrong", "right"):
        return mark
    return mark + {True: "", False: "!", None: "?"}[entry.agrees]


def _explanations(one: IssueTable) -> Iterator[tuple[IssueRow, str]]:
    """Yield the rows that disagree, with the explanation or the fact that there is none, and those with a remark."""
    for row in one.rows:
        against = [
            f"{entry.torch.split('+')[0]} (documented {entry.documented}, measured {entry.measured})"
            for entry in row.entries
            if entry.agrees is False
        ]
        why = row.issue.explanation or row.issue.not_shown
        if against:
            yield row, f"disagrees on {', '.join(against)}. {why or 'No explanation is known.'}"
        elif why:
            yield row, why
