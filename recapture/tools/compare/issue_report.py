"""Renders the known public issues: what the sources say about each release, against what was measured."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.records.releases import labels
from recapture.report.document import Inline, Span, Table
from recapture.report.markdown_writer import link, table_markdown
from recapture.report.terminal_writer import say, say_all, say_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from recapture.tools.compare.issue_comparison import IssueEntry, IssueRow, IssueTable

ISSUES_SCHEMA_VERSION = 1
"""Version of the JSON form."""

MARKS = {"wrong": "W", "wrong otherwise": "o", "right": "r", "fails": "e", "not run": "–", "not recorded": ""}
"""Text of what was measured in one release."""

LEGEND = (
    "W measured silently wrong · o wrong in another way · r measured right · e fails · – not run · empty: not recorded "
    "· ! after a mark: the sources say otherwise; ? after it: the sources say nothing about this release."
)
"""Explanation of the marks in the columns of the releases."""


def to_json(found: Iterable[IssueTable]) -> str:
    """Return the tables as JSON."""
    document = {"schema": ISSUES_SCHEMA_VERSION, "tables": list(found)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_markdown(found: Iterable[IssueTable]) -> str:
    """Return the tables as GitHub Markdown."""
    sections = []
    for one in found:
        sections.append(f"# Known issues, documented against measured: {code(one.capability)}")
        sections += [plain(_counts(one)), table_markdown(_table(one)), plain(LEGEND)]
        notes = list(_explanations(one))
        if notes:
            lines = [f"- {link(f'#{row.issue.id}', row.issue.link)}: {plain(text)}" for row, text in notes]
            sections.append("## Disagreements and remarks\n\n" + "\n".join(lines))
    return "\n\n".join(sections) + "\n"


def print_issues(console: Console, found: Iterable[IssueTable]) -> None:
    """Print the tables."""
    for number, one in enumerate(found):
        if number:
            say(console)
        say(console, f"{one.capability}: {_counts(one)}", "bold")
        say_table(console, _table(one))
        say(console, LEGEND)
        say_all(console, [f"#{row.issue.id}: {text}" for row, text in _explanations(one)])


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
