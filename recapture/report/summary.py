"""Facts that all reports use, computed from the records: marks, counts, claims and explanations."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from recapture.base.text import shorten
from recapture.cases.compiler import Family
from recapture.cases.compilers import compiler_facts
from recapture.records.record import Record
from recapture.records.verdicts import FAILING, NOT_RUN, RIGHT, SILENTLY_WRONG, Tone, Verdict, legend, mark_of
from recapture.report.differences import describe_difference, kinds_of, place

LEGEND = {mark: words for mark, (words, _) in legend().items()}
"""The character for each outcome of a cell, with its meaning."""

COLOURS: dict[Tone, str] = {
    "right": "green",
    "broken": "cyan",
    "wrong": "bold red",
    "failing": "yellow",
    "none": "dim",
}
"""The style of an outcome on a terminal, by the tone of its verdict."""

TYPE_LIMIT = 100
"""Characters shown of an exception's type."""

MOST_COMPILERS = 100
"""Largest number of columns of a matrix."""

MOST_SUITES = 300
"""Largest number of suites with a matrix and a column of counts."""

MOST_CASES = 5000
"""Largest number of rows of all matrices together."""

_FAMILIES = list(Family)
_COUNTED = re.compile(r"\b(graphs|graph_breaks|recompiles)=")


class ClaimStatus(str, Enum):
    """Whether the results confirm a published claim."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT_REPRODUCED = "not reproduced"
    NOT_RUNNABLE = "not runnable here"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class ClaimCell:
    """One claim on one cell."""

    id: str
    expected: str
    status: ClaimStatus
    record: Record


@dataclass(frozen=True)
class Counts:
    """Numbers of cells that are right, silently wrong, failing, or say nothing about the compiler."""

    right: int
    silently_wrong: int
    failing: int
    not_run: int

    @property
    def total(self) -> int:
        """All cells counted."""
        return self.right + self.silently_wrong + self.failing + self.not_run


def mark(record: Record) -> str:
    """Return the character of `LEGEND` for a cell's outcome."""
    return mark_of(record.verdict, record.phase).letter


def suite_of(case: str) -> str:
    """Return the suite of a case's address, ``suite::name``."""
    return case.split("::", 1)[0]


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key that puts T2 before T10; numbers may have any length."""
    parts = re.findall(r"([0-9]+)|([^0-9]+)", text)
    return [(0, len(digits.lstrip("0")), digits.lstrip("0")) if digits else (1, 0, words) for digits, words in parts]


@functools.lru_cache(maxsize=1000)  # sorting asks for the same few names again and again
def compiler_key(name: str) -> tuple[int, str, str]:
    """Sort key of compilers: the reference first, then by family, users' own compilers last."""
    family = compiler_facts(name).family
    return (_FAMILIES.index(family) if isinstance(family, Family) else len(_FAMILIES), str(family), name)


def compilers_in_order(records: Iterable[Record]) -> list[str]:
    """Return the compilers in the records, in the order of the reports."""
    return sorted({record.compiler for record in records}, key=compiler_key)


def suites_in_order(records: Iterable[Record]) -> list[str]:
    """Return the suites in the records, by name."""
    return sorted({suite_of(record.case) for record in records})


def by_compiler(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of each compiler, in the order of the reports."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.compiler, []).append(record)
    return {name: grouped[name] for name in sorted(grouped, key=compiler_key)}


def by_suite(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of each suite, by name."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(suite_of(record.case), []).append(record)
    return dict(sorted(grouped.items()))


def count(records: Iterable[Record]) -> Counts:
    """Count cells by group of verdicts."""
    verdicts = [record.verdict for record in records]
    return Counts(*(sum(verdict in kind for verdict in verdicts) for kind in (RIGHT, SILENTLY_WRONG, FAILING, NOT_RUN)))


def counts_by_verdict(records: Iterable[Record]) -> dict[Verdict, int]:
    """Count cells by verdict, in the order of `Verdict`, without zero counts."""
    verdicts = [record.verdict for record in records]
    return {verdict: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}


def claim_status(*, holds: bool | None) -> ClaimStatus:
    """Return the status of one claim on one cell."""
    if holds is None:
        return ClaimStatus.NOT_RUNNABLE
    return ClaimStatus.REPRODUCED if holds else ClaimStatus.NOT_REPRODUCED


def claim_cells(records: Iterable[Record]) -> list[ClaimCell]:
    """Return every claim on every cell, by claim (T2 before T10), then case, then compiler."""
    cells = [
        ClaimCell(claim.id, claim.expected, claim_status(holds=claim.holds), record)
        for record in records
        for claim in record.claims
    ]
    return sorted(
        cells,
        key=lambda cell: (natural_key(cell.id), cell.record.case, compiler_key(cell.record.compiler), cell.expected),
    )


def claims_by_id(records: Iterable[Record]) -> dict[str, list[ClaimCell]]:
    """Return the cells of every claim, in the order of `claim_cells`."""
    grouped: dict[str, list[ClaimCell]] = {}
    for cell in claim_cells(records):
        grouped.setdefault(cell.id, []).append(cell)
    return grouped


def overall_status(cells: Iterable[ClaimCell]) -> ClaimStatus:
    """Return the status of a claim about several cells; cells that could not run do not count against it."""
    statuses = {cell.status for cell in cells} - {ClaimStatus.NOT_RUNNABLE}
    if not statuses:
        return ClaimStatus.NOT_RUNNABLE
    return statuses.pop() if len(statuses) == 1 else ClaimStatus.PARTLY


def measured(record: Record, expected: str = "") -> str:
    """Return a cell's outcome in the grammar of claims, with the counts that `expected` contains."""
    words = str(record.verdict)
    if record.verdict is Verdict.ERROR:
        words += f"({record.phase})" if record.phase else ""
        words += f":{shorten(record.error.type.rsplit('.', 1)[-1], TYPE_LIMIT)}" if record.error else ""
    for name in dict.fromkeys(_COUNTED.findall(expected)):
        number = getattr(record, name)
        words += f" {name}={'unknown' if number is None else number}"
    return words


def measured_with_kinds(record: Record) -> str:
    """Return a cell's outcome with the kinds of its silent differences, such as ``wrong (value, dtype)``."""
    kinds = ", ".join(kinds_of(record.differences))
    return f"{measured(record)} ({kinds})" if kinds else measured(record)


def colour(record: Record | None) -> str:
    """Return the terminal's style for a cell's outcome; empty if there is no cell."""
    return "" if record is None else COLOURS[record.verdict.facts.tone]


def silent_wrongs(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the silently wrong cells by case, in the order of the reports."""
    grouped: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: (record.case, compiler_key(record.compiler))):
        if record.verdict in SILENTLY_WRONG:
            grouped[record.case].append(record)
    return dict(grouped)


def explain(record: Record, limit: int = 160) -> str:
    """Return the reason of a cell's outcome in one line of at most `limit` characters; empty if there is none."""
    if record.differences:
        first = record.differences[0]
        more = ""
        if len(record.differences) > 1:
            others = [kind for kind in kinds_of(record.differences) if kind != first.kind]
            also = f", also {', '.join(others)}" if others else ""
            more = f" {shorten(f'(and {len(record.differences) - 1} more{also})', limit // 2)}"
        return shorten(describe_difference(first), limit - len(more)) + more
    if record.error:
        at = f"{record.phase}" + (f" {place(record.input)}" if record.input and record.phase != "capture" else "")
        words = f"{at}: " if record.phase else ""
        return shorten(f"{words}{record.error.type}: {first_line(record.error.message)}", limit)
    if record.reason:
        at = f"{record.phase} {place(record.input)}: " if record.phase and record.input else ""
        return shorten(at + record.reason, limit)
    if record.break_reasons:
        many = f"{record.graph_breaks} graph breaks" if record.graph_breaks != 1 else "1 graph break"
        return shorten(
            f"{many if record.graph_breaks is not None else 'graph breaks'}: {record.break_reasons[0]}", limit
        )
    return ""


def in_report_order(records: Iterable[Record]) -> list[Record]:
    """Return records by case, then compiler in the order of the reports, then device."""
    return sorted(records, key=lambda record: (record.case, compiler_key(record.compiler), record.device))


def first_line(text: str) -> str:
    """Return the first line of a message, or the whole message if Dynamo gives only a place."""
    text = text.strip()
    return text if text.startswith("from user code:") else text.split("\n", 1)[0]


def in_matrix(records: Sequence[Record]) -> tuple[Sequence[Record], str]:
    """Return the records that matrices and tables of counts show, and a text about omitted ones, else empty."""
    suites, cases = suites_in_order(records), sorted({record.case for record in records})
    included_suites = set(suites[:MOST_SUITES])
    included_cases = {*[case for case in cases if suite_of(case) in included_suites][:MOST_CASES]}
    included = [record for record in records if record.case in included_cases]
    included_compilers = set(compilers_in_order(included)[:MOST_COMPILERS])
    included = [record for record in included if record.compiler in included_compilers]
    compilers = {record.compiler for record in records}
    parts = [
        f"{all_of_them - number} of {all_of_them} {noun}"
        for all_of_them, number, noun in (
            (len(suites), len(included_suites), "suites"),
            (len(compilers), len(included_compilers), "compilers"),
            (len(cases), len(included_cases), "cases"),
        )
        if all_of_them > number
    ]
    return (included, f"Left out of the matrix: {', '.join(parts)}; the records have them.") if parts else (records, "")
