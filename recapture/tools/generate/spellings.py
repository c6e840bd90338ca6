"""The two spellings of a program of Python, in eager and compiled: which of the four agree."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from recapture.cases.compilers import EAGER
from recapture.records.record import Record
from recapture.records.verdicts import RIGHT
from recapture.tools.generate.python_programs import SECOND


class PairCount(msgspec.Struct):
    """Programs by how their two spellings compare under a compiler, each with eager on the first spelling.

    `changed` counts those whose second spelling differs in eager: there the rewriting is at fault, and no compiler.
    """

    right: int = 0
    original: int = 0
    rewritten: int = 0
    both: int = 0
    changed: int = 0


def pair_counts(records: Iterable[Record], compilers: Iterable[str]) -> dict[str, PairCount]:
    """Return the counts of each compiler for which both spellings of a program ran."""
    right = {(record.case, record.compiler): record.verdict in RIGHT for record in records}
    counts = {compiler: PairCount() for compiler in compilers if compiler != EAGER}
    for (case, compiler), rewritten in right.items():
        original = right.get((case.removesuffix(SECOND), compiler))
        if not case.endswith(SECOND) or original is None or compiler == EAGER:
            continue
        count = counts[compiler]
        if not right.get((case, EAGER), True):
            count.changed += 1
        elif original and rewritten:
            count.right += 1
        elif rewritten:
            count.original += 1
        elif original:
            count.rewritten += 1
        else:
            count.both += 1
    return {compiler: count for compiler, count in counts.items() if any(msgspec.structs.astuple(count))}
