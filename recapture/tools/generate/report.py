"""What a generation found, as facts and as a document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from recapture.base.files import write_atomically
from recapture.base.text import duration_text, plural, shorten
from recapture.records.record import Record
from recapture.records.verdicts import RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.document import Block, Heading, Inline, Item, Items, Paragraph, Span, Table, code_list, code_span
from recapture.tools.generate.explanations import Known, known_from_suites, known_of
from recapture.tools.generate.families import FamilyKey, family_of
from recapture.tools.generate.folder import FAMILIES, Settings
from recapture.tools.generate.operator_programs import FORMS

if TYPE_CHECKING:
    from recapture.tools.generate.session import Generation

MEANINGS = FORMS | {
    "program": "a program of operators and Python",
    "rewritten": "the same in another spelling",
}
"""What each form is."""

FACTS_VERSION = 1
"""Version of the JSON form."""

MOST_NAMED = 8
"""Operators that are named in a line; the others are counted."""

MOST_ADDRESSES = 3
"""Cells that are named for a family."""


class FormCount(msgspec.Struct, frozen=True):
    """Programs of one form: how many were made, of how many operators, and how many eager refuses."""

    form: str
    programs: int
    operators: int
    refused: int


class FoundFamily(msgspec.Struct, frozen=True, kw_only=True):
    """Cells that do not pass in the same way, under some compilers.

    `known` says where the family is known from, `why` why it is so; both are empty for a new one. `alone` is the number
    of cells that ran in a process of their own and did not pass either.
    """

    outcome: str
    kind: str
    signature: str
    operator: str
    known: str
    why: str
    cells: int
    alone: int
    compilers: tuple[str, ...]
    forms: tuple[str, ...]
    operators: tuple[str, ...]
    examples: tuple[str, ...]
    shows: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a generation made and found."""

    schema: int
    settings: Settings
    seconds: float
    compilers: tuple[str, ...]
    operators: int
    programs: int
    planned: int
    cells: int
    verdicts: dict[str, dict[str, int]]
    forms: tuple[FormCount, ...]
    constructs: dict[str, int]
    without_programs: dict[str, str]
    never_accepted: tuple[str, ...]
    families: tuple[FoundFamily, ...]


def facts(generation: Generation) -> Facts:
    """Return the facts of a generation."""
    suites = generation.suites.values()
    made = [(suite, program) for suite in suites for program in suite.programs]
    verdicts: dict[str, Counter[str]] = {name: Counter() for name in generation.compilers}
    for record in generation.records.values():
        verdicts[record.compiler][str(record.verdict)] += 1
    return Facts(
        schema=FACTS_VERSION,
        settings=generation.settings,
        seconds=round(generation.seconds, 1),
        compilers=generation.compilers,
        operators=sum(bool(suite.programs) for suite in suites),
        programs=sum(program.refused is None for _, program in made),
        planned=generation.planned,
        cells=len(generation.records),
        verdicts={name: dict(counts.most_common()) for name, counts in verdicts.items()},
        forms=tuple(
            FormCount(
                form,
                sum(program.form == form for _, program in made),
                len({suite.subject for suite, program in made if program.form == form}),
                sum(program.form == form and program.refused is not None for _, program in made),
            )
            for form in dict.fromkeys(program.form for _, program in made)
        ),
        constructs=dict(Counter(construct for _, program in made for construct in program.constructs).most_common()),
        without_programs={suite.subject: suite.lacking for suite in suites if suite.lacking is not None},
        never_accepted=tuple(
            suite.subject
            for suite in suites
            if suite.programs and all(program.refused is not None for program in suite.programs)
        ),
        families=tuple(_families(generation)),
    )


def _families(generation: Generation) -> Iterator[FoundFamily]:
    """Yield the families: new ones first, silently wrong ones before others, then by size."""
    by_suite = {suite.name: suite for suite in generation.suites.values()}
    suites = known_from_suites(generation.settings.torch, generation.settings.device)
    members: dict[tuple[FamilyKey, Known | None], list[Record]] = defaultdict(list)
    for record in generation.records.values():
        if record.verdict in RIGHT or record.verdict is Verdict.NOT_APPLICABLE:
            continue
        suite = by_suite[record.case.split("::")[0]]
        form = _form(record)
        key = family_of(record, suite.subject)
        members[key, known_of(record, key, suite.subject, form, suite.excused, suites)].append(record)
    rank = {"silently wrong": 0}
    ordered = sorted(
        members.items(),
        key=lambda pair: (pair[0][1] is not None, rank.get(pair[0][0].outcome, 1), -len(pair[1]), pair[0][0]),
    )
    for (key, known), unsorted_records in ordered:
        records = sorted(unsorted_records, key=lambda record: (record.key not in generation.alone, record.key))
        yield FoundFamily(
            outcome=key.outcome,
            kind=key.kind,
            signature=key.signature,
            operator=key.operator,
            known="" if known is None else known.source,
            why="" if known is None else known.what,
            cells=len(records),
            alone=sum(record.key in generation.alone for record in records),
            compilers=tuple(name for name in generation.compilers if any(row.compiler == name for row in records)),
            forms=tuple(dict.fromkeys(map(_form, records))),
            operators=tuple(sorted({by_suite[record.case.split("::")[0]].subject for record in records})),
            examples=tuple(record.cell for record in records[:MOST_ADDRESSES]),
            shows=_shown(records[0]),
        )


def _form(record: Record) -> str:
    return record.case.split("::")[1].rpartition("_")[0]


def _shown(record: Record) -> str:
    """Return what a cell shows, in a line."""
    if record.verdict in SILENTLY_WRONG:
        difference = record.differences[0]
        return shorten(f"{difference.where} ({difference.kind}): {difference.detail}", 200)
    if record.error is not None:
        return shorten(f"{record.error.type}: {record.error.message}", 200)
    return shorten(record.reason or "", 200)


def write_facts(folder: Path, found: Facts) -> None:
    """Write the facts into the folder of a generation."""
    write_atomically(folder / FAMILIES, msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def document(found: Facts) -> list[Block]:
    """Return the report: the programs, the verdicts by compiler, and the families."""
    settings = found.settings
    blocks: list[Block] = [
        Heading(f"Generated programs on torch {settings.torch}, {settings.device}, seed {settings.seed}", level=1),
        Paragraph(
            f"{plural(found.programs, 'program')} {_about(found)}; {found.cells} of {found.planned} cells ran, "
            f"{duration_text(found.seconds)}."
        ),
        Heading("Coverage"),
        Table(
            ["form", "what it is", "programs", "files", "eager refuses"],
            [
                [code_span(row.form), MEANINGS[row.form], row.programs, row.operators, row.refused]
                for row in found.forms
            ],
            "llrrr",
        ),
    ]
    if found.constructs:
        counts = [f"{construct} {number}" for construct, number in found.constructs.items()]
        blocks.append(Paragraph(f"Constructs, with the number of programs: {', '.join(counts)}."))
    if found.never_accepted:
        blocks.append(Paragraph(["Eager takes no program of: ", *code_list(found.never_accepted)]))
    if found.without_programs:
        reasons = Counter(found.without_programs.values())
        names = defaultdict(list)
        for operator, reason in found.without_programs.items():
            names[reason].append(operator)
        blocks.append(Paragraph(f"{plural(len(found.without_programs), 'file')} without a program:"))
        blocks.append(Items([Item([f"{reason}: ", *_named(names[reason])]) for reason, _ in reasons.most_common()]))
    names_of_verdicts = [
        str(verdict) for verdict in Verdict if any(str(verdict) in row for row in found.verdicts.values())
    ]
    blocks += [
        Heading("Verdicts"),
        Table(
            ["compiler", *names_of_verdicts],
            [
                [code_span(name), *(row.get(verdict, 0) for verdict in names_of_verdicts)]
                for name, row in found.verdicts.items()
            ],
            "lr",
        ),
    ]
    new = [family for family in found.families if not family.known]
    known = [family for family in found.families if family.known]
    blocks.append(Heading(f"Families without a known reason: {len(new)}"))
    blocks += [_table(new)] if new else [Paragraph("None.")]
    blocks.append(Heading(f"Families with a known reason: {len(known)}"))
    blocks += [_table(known, why=True)] if known else [Paragraph("None.")]
    return blocks


def _about(found: Facts) -> str:
    """Return what the programs are about."""
    if found.settings.source == "python":
        return f"of operators and Python in {plural(found.operators, 'file')}"
    return f"of {plural(found.operators, 'operator')}, in {found.settings.dtype} where an operator has that dtype"


def _table(families: list[FoundFamily], *, why: bool = False) -> Table:
    headers = ["cells", "family", "compilers", "operators", "for example", *(["why"] if why else [])]
    rows: list[list[Inline]] = []
    for family in families:
        row: list[Inline] = [
            family.cells,
            f"{family.outcome}: {family.kind}: {family.signature}",
            code_list(family.compilers),
            _named(family.operators),
            [code_span(family.examples[0]), f": {family.shows}"],
        ]
        rows.append([*row, f"{family.known}: {family.why}"] if why else row)
    return Table(headers, rows, "rl", terminal="lines")


def _named(names: tuple[str, ...] | list[str]) -> list[str | Span]:
    """Return the first of some names, and how many there are besides."""
    more = len(names) - MOST_NAMED
    return [*code_list(names[:MOST_NAMED]), *([f" and {more} more"] if more > 0 else [])]
