"""What `recapture explain` says about one cell: the verdict, the reason, and what torch reported."""

from __future__ import annotations

import msgspec

from recapture.records.cell_facts import CellFacts
from recapture.records.record import Record
from recapture.report.findings import known_lines
from recapture.report.reasons.reason import reason_of


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One explained cell: `kind` and `why` are the reason, `known` is what was found; `folder` has its artifacts."""

    cell: str
    torch: str
    image: str
    why: str | None
    kind: str | None
    record: Record
    known: tuple[str, ...] = ()
    facts: CellFacts | None = None
    folder: str | None = None


def explanation_of(
    record: Record, facts: CellFacts | None, torch: str, image: str, beside: list[Record], folder: str | None = None
) -> Explanation:
    """Return the explanation of one cell; `beside` are other records of its case, of this run or an earlier one."""
    reason = reason_of(record, beside)
    return Explanation(
        cell=record.cell,
        torch=torch,
        image=image,
        why=None if reason is None else str(reason),
        kind=None if reason is None else reason.kind,
        record=record,
        known=tuple(known_lines(record)),
        facts=facts,
        folder=folder,
    )
