"""Which refusals of `export` are of another size alone, and what `export:dynamic` makes of the same cases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.cases.compiler import Family
from recapture.cases.compilers import builtin_compilers
from recapture.records.verdicts import RIGHT, Verdict
from recapture.report.summary import by_compiler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recapture.records.record import Record

_EXPORTERS = [one for one in builtin_compilers().values() if one.family == Family.EXPORT]

DYNAMIC = next(one.name for one in _EXPORTERS if one.sees_held_out)
"""The compiler that captures with the sizes dynamic in which inputs differ."""

STATIC = tuple(one.name for one in _EXPORTERS if not one.sees_held_out)
"""Compilers that capture the sizes of the example."""

_OTHER_SIZE = re.compile(
    r"Guard failed: .*\.size\(\)\[\d+\] == \d+"  # 2.9 and later
    r"|\.shape\[\d+\] to be equal to \d+, but got"  # 2.2 to 2.8
    r"|\.shape\[\d+\] is specialized at \d+"  # 2.1
)


@dataclass(frozen=True)
class StaticRefusals:
    """The cases that a compiler refuses by static shapes, and those of them that `export:dynamic` captures rightly."""

    compiler: str
    refused: tuple[str, ...]
    captured: tuple[str, ...]

    @property
    def limits(self) -> tuple[str, ...]:
        """The cases that dynamic sizes do not help."""
        return tuple(case for case in self.refused if case not in self.captured)

    def __str__(self) -> str:
        one = len(self.refused) == 1
        refuses = f"{self.compiler} refuses {len(self.refused)} {'case' if one else 'cases'} by static shapes alone"
        return f"{refuses}: a size differs from the example's; {DYNAMIC} captures {len(self.captured)} of them rightly"


def is_static_refusal(record: Record) -> bool:
    """Whether a captured program refused an input because a size is not that of the example."""
    return (
        record.verdict is Verdict.ERROR
        and record.phase == "call"
        and (record.input or "").startswith("held_out")
        and record.error is not None
        and _OTHER_SIZE.search(record.error.message) is not None
    )


def static_refusals(records: Iterable[Record]) -> list[StaticRefusals]:
    """Return the refusals by static shapes of each compiler, among cases that `export:dynamic` was tried on."""
    cells = by_compiler(records)
    tried = {record.case: record.verdict for record in cells.get(DYNAMIC, [])}
    found = []
    for name in STATIC:
        refused = sorted({one.case for one in cells.get(name, []) if one.case in tried and is_static_refusal(one)})
        if refused:
            right = tuple(case for case in refused if tried[case] in RIGHT)
            found.append(StaticRefusals(name, tuple(refused), right))
    return found
