"""Cases whose reference is suspect, because unrelated compilers differ from eager in the same way."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.cases.compilers import compiler_facts
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report.summary import in_report_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recapture.records.difference import Difference
    from recapture.records.record import Record

FEWEST = 4
"""Number of ways to capture that show the same difference from which eager itself is suspect."""


@dataclass(frozen=True)
class Suspect:
    """One case, the first difference that unrelated compilers share, and all cells that show it."""

    case: str
    difference: Difference
    records: tuple[Record, ...]


def suspects(records: Iterable[Record]) -> list[Suspect]:
    """Return the cases in which `FEWEST` or more unrelated compilers show the same silent difference.

    Compilers with one frontend are related, because they share their way to capture. Different tracers often make the
    same mistake, such as a branch that is not taken, so all frontends must agree, the one with guards too. The
    difference is the same if input, place, kind and detail are, so both sides have the same values.
    """
    found: dict[str, dict[Difference, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in in_report_order(records):
        if record.verdict in SILENTLY_WRONG:
            for difference in dict.fromkeys(record.differences):
                found[record.case][difference].append(record)
    shared = (
        next((Suspect(case, one, tuple(cells)) for one, cells in by_difference.items() if _unrelated(cells)), None)
        for case, by_difference in found.items()
    )
    return [one for one in shared if one is not None]


def _unrelated(records: Iterable[Record]) -> bool:
    """Whether records are of compilers with enough ways to capture."""
    return len({compiler_facts(record.compiler).frontend for record in records}) >= FEWEST
