"""Groups of cells that share something: a failure, a reason, a note, a difference of unrelated compilers, a refusal."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from recapture.base.text import one_line, plural
from recapture.cases.compiler import Family
from recapture.cases.compilers import builtin_compilers, compiler_facts
from recapture.records.difference import Difference
from recapture.records.record import Record
from recapture.records.verdicts import FAILING, NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.differences import describe_away_from_input
from recapture.report.summary import by_compiler, first_line, in_report_order

FEWEST = 4
"""Number of ways to capture that show the same difference from which eager itself is suspect."""

_EXPORTERS = [compiler for compiler in builtin_compilers().values() if compiler.family == Family.EXPORT]

DYNAMIC = next(compiler.name for compiler in _EXPORTERS if compiler.sees_held_out)
"""The compiler that captures with the sizes dynamic in which inputs differ."""

STATIC = tuple(compiler.name for compiler in _EXPORTERS if not compiler.sees_held_out)
"""Compilers that capture the sizes of the example."""

_OTHER_SIZE = re.compile(
    r"Guard failed: .*\.size\(\)\[\d+\] == \d+"  # 2.9 and later
    r"|\.shape\[\d+\] to be equal to \d+, but got"  # 2.2 to 2.8
    r"|\.shape\[\d+\] is specialized at \d+"  # 2.1
)


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


# Cases whose reference is suspect, because unrelated compilers differ from eager in the same way


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
    cells: dict[str, dict[Difference, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in in_report_order(records):
        if record.verdict in SILENTLY_WRONG:
            for difference in dict.fromkeys(record.differences):
                cells[record.case][difference].append(record)
    suspected = []
    for case, by_difference in cells.items():
        shared = [(difference, members) for difference, members in by_difference.items() if _unrelated(members)]
        # One is enough to look at the case: others usually follow from it.
        suspected += [Suspect(case, difference, tuple(members)) for difference, members in shared[:1]]
    return suspected


def _unrelated(records: Iterable[Record]) -> bool:
    """Whether records are of compilers with enough ways to capture."""
    return len({compiler_facts(record.compiler).frontend for record in records}) >= FEWEST


# Refusals of another size alone, and what dynamic sizes make of the same cases


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
        refuses = f"{self.compiler} refuses {plural(len(self.refused), 'case')} by static shapes alone"
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
    refusals = []
    for name in STATIC:
        refused = sorted({cell.case for cell in cells.get(name, []) if cell.case in tried and is_static_refusal(cell)})
        if refused:
            right = tuple(case for case in refused if tried[case] in RIGHT)
            refusals.append(StaticRefusals(name, tuple(refused), right))
    return refusals
