"""Groups of cells: equal failures, graph breaks, noted differences and remarks, and cells that did not run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.base.text import one_line
from recapture.records.verdicts import FAILING, NOT_RUN, RIGHT, Verdict
from recapture.report.differences import describe_away_from_input
from recapture.report.summary import first_line, in_report_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recapture.records.record import Record


@dataclass(frozen=True)
class Group:
    """Cells with the same outcome: `title` is its kind (an exception's type or a verdict), `text` its message."""

    title: str
    text: str
    records: tuple[Record, ...]


def failure_groups(records: Iterable[Record]) -> list[Group]:
    """Return the failing cells by fingerprint, or by verdict and reason without an exception; largest group first."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in in_report_order(records):
        if record.verdict in FAILING:
            error = record.error
            what = (str(Verdict.ERROR), error.fingerprint) if error else (str(record.verdict), record.reason or "")
            groups[what].append(record)
    return _largest_first(
        Group(
            title=members[0].error.type if members[0].error else kind,
            text=one_line(first_line(members[0].error.message) if members[0].error else what),
            records=tuple(members),
        )
        for (kind, what), members in groups.items()
    )


def break_groups(records: Iterable[Record]) -> list[Group]:
    """Return the cells with graph breaks, by reason; a cell with several reasons is in several groups."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in in_report_order(records):
        if record.verdict is Verdict.PASS_WITH_BREAKS or record.graph_breaks:
            for reason in dict.fromkeys(record.break_reasons) or ["no reason is given"]:
                groups[one_line(reason)].append(record)
    return _largest_first(Group("graph break", reason, tuple(members)) for reason, members in groups.items())


def not_run_groups(records: Iterable[Record]) -> list[Group]:
    """Return the cells that say nothing about their compiler, by verdict and reason."""
    groups: dict[tuple[Verdict, str], list[Record]] = defaultdict(list)
    for record in in_report_order(records):
        if record.verdict in NOT_RUN:
            reason = record.reason or (record.error.message if record.error else "no reason is given")
            groups[record.verdict, one_line(reason)].append(record)
    return _largest_first(Group(str(verdict), reason, tuple(members)) for (verdict, reason), members in groups.items())


def noted_groups(records: Iterable[Record]) -> list[Group]:
    """Return the cells with differences that do not decide a verdict, by kind, place and detail."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in in_report_order(records):
        for difference in record.noted:
            members = groups[difference.kind, describe_away_from_input(difference)]
            if not members or members[-1] is not record:  # the same on several inputs
                members.append(record)
    return _largest_first(Group(kind, text, tuple(members)) for (kind, text), members in groups.items())


def remark_groups(records: Iterable[Record]) -> list[Group]:
    """Return the right cells with remarks, such as warnings of torch, by remark."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in in_report_order(records):
        if record.verdict in RIGHT:
            for note in dict.fromkeys(record.notes):
                groups[one_line(note)].append(record)
    return _largest_first(Group("note", note, tuple(members)) for note, members in groups.items())


def together(records: Iterable[Record]) -> dict[str, list[str]]:
    """Return the compilers of each case, both in the order of the reports."""
    cases: dict[str, list[str]] = defaultdict(list)
    for record in in_report_order(records):
        cases[record.case].append(record.compiler)
    return dict(cases)


def _largest_first(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: (-len(group.records), group.title, group.text))
