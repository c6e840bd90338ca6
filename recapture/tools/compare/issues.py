"""Known public issues: what their sources say about each release, against what the records say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recapture.base.escape import indented_json
from recapture.base.text import plural
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
        releases_run = {entry.torch.split("+")[0] for entry in self.entries if entry.measured not in UNTRIED}
        return self.ends is not None and set(self.ends) <= releases_run


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
    pinned = {image.torch for image in load_images().values()}
    tables = []
    for capability in sorted({folder.capability for folder in results}):
        on_capability = [folder for folder in results if folder.capability == capability]
        columns = [
            folder for folder in on_capability if not twin(folder.image) and not is_bare(folder.image)
        ] or on_capability
        records = [{f"{row.case}::{row.compiler}": row for row in folder.records} for folder in columns]
        rows = tuple(
            IssueRow(issue, entries, _outcome(issue, entries, on_gpu=capability != "cpu"), issue.ends(pinned))
            for issue in issues
            for entries in [_entries(issue, columns, records)]
        )
        heads = tuple(IssueEntry(torch_version(folder), folder.image, None, "not recorded") for folder in columns)
        tables.append(IssueTable(capability, heads, rows))
    return tables


def _entries(
    issue: KnownIssue, columns: Sequence[Results], records: Sequence[dict[str, Record]]
) -> tuple[IssueEntry, ...]:
    entries = []
    for folder, cells in zip(columns, records, strict=True):
        release = torch_version(folder)
        recorded = [cells.get(cell) for cell in issue.shown_by]
        entries.append(IssueEntry(release, folder.image, issue.says(release), _measured(issue, recorded)))
    return tuple(entries)


def _measured(issue: KnownIssue, recorded: Sequence[Record | None]) -> Measured:
    records = [record for record in recorded if record is not None]
    if not records:
        return "not recorded"
    silent = [record for record in records if record.verdict in SILENTLY_WRONG]
    if silent:
        kinds = {difference.kind for record in silent for difference in record.differences}
        return "wrong" if issue.compares in kinds else "wrong otherwise"
    tried = [record for record in records if record.verdict not in NOT_RUN]
    if not tried:
        return "not run"
    if all(_is_right(issue, record) for record in tried):
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
    agreements = [entry.agrees for entry in entries]
    if False in agreements:
        return "disagrees"
    if True in agreements:
        return "agrees"
    measured = {entry.measured for entry in entries}
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


def _document(table: IssueTable) -> Iterator[Block]:
    yield Heading(["Known issues, documented against measured: ", code_span(table.capability)], 1)
    yield Paragraph(_counts(table))
    yield _table(table)
    yield Paragraph(LEGEND)
    remarks = [
        Item([Span(f"#{row.issue.id}", "verbatim", row.issue.link), f": {text}"]) for row, text in _explanations(table)
    ]
    if remarks:
        yield Heading("Disagreements and remarks")
        yield Items(remarks)


def _counts(table: IssueTable) -> str:
    counted = Counter(row.outcome for row in table.rows)
    parts = ", ".join(f"{number} {outcome}" for outcome, number in counted.most_common())
    pairs = [entry.agrees for row in table.rows for entry in row.entries if entry.agrees is not None]
    text = f"{plural(len(table.rows), 'known issue')}: {parts}."
    if pairs:
        text += f" Of {len(pairs)} pairs of issue and release that can be compared, {sum(pairs)} agree."
    tried = sum(row.at_both_ends for row in table.rows)
    were = "was" if tried == 1 else "were"
    return f"{text} {tried} {were} tried on the releases at both ends of their documented range."


def _table(table: IssueTable) -> Table:
    heads = labels(table.images)
    rows: list[list[Inline]] = []
    for row in table.rows:
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


def _explanations(table: IssueTable) -> Iterator[tuple[IssueRow, str]]:
    """Yield the rows that disagree, with the explanation or the fact that there is none, and those with a remark."""
    for row in table.rows:
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
