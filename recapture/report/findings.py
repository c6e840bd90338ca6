"""What is known of a silently wrong cell: what was found out by hand, and the public issues that it shows."""

from __future__ import annotations

from recapture.known.findings import FINDINGS, Cause, findings_by_cell
from recapture.known.issues import ISSUES, KnownIssue
from recapture.records.record import Record
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report.reasons.silent import unlike_example


def finding_of(record: Record) -> Cause | None:
    """Return the finding that explains a silently wrong cell, None for another cell and where there is none."""
    if record.verdict not in SILENTLY_WRONG:
        return None
    named = findings_by_cell().get(f"{record.case}::{record.compiler}")
    if named is not None or not unlike_example(record):
        return named
    return next((finding for finding in FINDINGS.shipped if record.compiler in finding.inputs_unlike_the_example), None)


def issues_of(record: Record) -> list[KnownIssue]:
    """Return the known public issues that a silently wrong cell shows."""
    if record.verdict not in SILENTLY_WRONG:
        return []
    return [issue for issue in ISSUES.shipped.values() if f"{record.case}::{record.compiler}" in issue.shown_by]


def known_lines(record: Record) -> list[str]:
    """Return what is known of a silently wrong cell, a line each: its finding, and the public issues that it shows."""
    finding = finding_of(record)
    lines = [] if finding is None else [finding.line]
    return lines + [f"{issue.what} ({issue.link})" for issue in issues_of(record)]
