"""The reason of a cell's outcome: `reason_of` for every record that is not right."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from recapture.base.source_lines import source_line
from recapture.base.text import plural
from recapture.records.record import CellKey
from recapture.records.verdicts import RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.reasons.failed import failed_reason
from recapture.report.reasons.sentence import Reason
from recapture.report.reasons.silent import silent_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from recapture.records.record import Record


def lines_by_case(records: Iterable[Record], found: Mapping[CellKey, Reason]) -> dict[str, str]:
    """Return the line of code that the reasons of a case name first, by case."""
    lines: dict[str, str] = {}
    for record in records:
        reason = found.get(record.key)
        if reason is not None and reason.line is not None:
            lines.setdefault(record.case, str(reason.line))
    return lines


def reasons(records: Iterable[Record]) -> dict[CellKey, Reason]:
    """Return the reason of every record that has one, by case, compiler and device.

    The other cells of a case help: where `compile:eager` is right, the fault is not Dynamo's.
    """
    cases: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        cases[record.case, record.device].append(record)
    return {
        record.key: reason
        for members in cases.values()
        for record in members
        if (reason := reason_of(record, members)) is not None
    }


def reason_of(record: Record, beside: Sequence[Record] = ()) -> Reason | None:
    """Return why a cell has its verdict, None for one that is right and captured whole.

    It is derived from the record, and from records of the same case `beside` it. Equal records give equal reasons.
    """
    if record.verdict in SILENTLY_WRONG:
        return silent_reason(record, beside)
    if record.verdict is Verdict.PASS_WITH_BREAKS:
        return _breaks(record)
    if record.verdict in RIGHT:
        return None
    return failed_reason(record, beside)


def _breaks(record: Record) -> Reason:
    number = "graphs were broken" if record.graph_breaks is None else plural(record.graph_breaks, "graph break")
    first = next(iter(record.break_reasons), "")
    line = source_line(first)
    said = first.rpartition(" at ")[0] if line and first.rpartition(" at ")[0] else first
    return Reason("graph break", f"{number}: {said}" if said else number, line)
