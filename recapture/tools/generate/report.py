"""What a generation found, as facts and as a document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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
from recapture.tools.generate.python_programs import ORIGINAL, REWRITTEN
from recapture.tools.generate.spellings import PairCount, pair_counts
from recapture.tools.generate.suite_files import MadeProgram
from recapture.tools.generate.suspects import suspects

if TYPE_CHECKING:
    from recapture.tools.generate.session import Generation

MEANINGS = FORMS | {
    ORIGINAL: "a program of operators and Python",
    REWRITTEN: "the same in another spelling",
}
"""What each form is."""

FACTS_VERSION = 1
"""Version of the JSON form."""

MOST_NAMED = 8
"""Operators that are named in a line; the others are counted."""

SPELLING_WORDS = {
    "right": "both right",
    "original": "the original alone is not",
    "rewritten": "the rewritten one alone is not",
    "both": "neither is right",
    "changed": "eager differs",
}
"""What the numbers of `PairCount` are called."""

MOST_ADDRESSES = 3
"""Cells that are named for a family."""


class FormCount(msgspec.Struct, frozen=True):
    """Programs of one form: how many were made, of how many operators, and how many eager refuses."""

    form: str
    programs: int
    operators: int
    refused: int


class StepCount(msgspec.Struct, frozen=True):
    """Programs of Python with a construct or an expression, and how many of them eager refuses."""

    step: str
    programs: int
    refused: int


class FoundFamily(msgspec.Struct, frozen=True, kw_only=True):
    """Cells that do not pass in the same way, under some compilers.

    `known` says where the family is known from, `why` why it is so; both are empty for a new one. `alone` is the number
    of cells that ran in a process of their own and did not pass either. `suspect` is the operator, or the step of a
    program of Python, that is likely at fault.
    """

    outcome: str
    kind: str
    signature: str
    suspect: str
    known: str
    why: str
    cells: int
    alone: int
    compilers: tuple[str, ...]
    forms: tuple[str, ...]
    suspects: tuple[str, ...]
    examples: tuple[str, ...]
    shows: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A family that was worked out: the cell of its smallest program, and what came of it.

    `cell` is in the file of cases in the finding's folder. `lines` counts its lines, and `ending` says how the same
    program with torch alone ended. `similar` are cells of the suites that use the same names and show the same kind of
    difference, with what is known of them. `releases` has the verdict on each release that was tried, oldest first.
    `lacking` says what could not be worked out, and why.
    """

    name: str
    family: str
    cell: str
    verdict: str
    fault: str = ""
    stage: str = ""
    lines: int = 0
    ending: str = ""
    similar: tuple[str, ...] = ()
    releases: dict[str, str] = {}
    first_bad: str = ""
    lacking: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What came of it, in a line."""
        parts = [self.fault, plural(self.lines, "line") if self.lines else "not reduced", self.ending]
        parts += [f"first bad: {self.first_bad}"] if self.first_bad else []
        parts += [f"similar: {self.similar[0]}"] if self.similar else []
        return "; ".join(filter(None, [*parts, *self.lacking]))


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a generation made and facts."""

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
    steps: tuple[StepCount, ...]
    rewrites: dict[str, int]
    spellings: dict[str, PairCount]
    without_programs: dict[str, str]
    never_accepted: tuple[str, ...]
    families: tuple[FoundFamily, ...]


def facts_of(generation: Generation) -> Facts:
    """Return the facts of a generation."""
    suites = generation.suites.values()
    generated = [(suite, program) for suite in suites for program in suite.programs]
    verdicts: dict[str, Counter[str]] = {name: Counter() for name in generation.compilers}
    for record in generation.records.values():
        verdicts[record.compiler][str(record.verdict)] += 1
    return Facts(
        schema=FACTS_VERSION,
        settings=generation.settings,
        seconds=round(generation.seconds, 1),
        compilers=generation.compilers,
        operators=sum(bool(suite.programs) for suite in suites),
        programs=sum(program.refused is None for _, program in generated),
        planned=generation.planned,
        cells=len(generation.records),
        verdicts={name: dict(counts.most_common()) for name, counts in verdicts.items()},
        forms=tuple(
            FormCount(
                form,
                sum(program.form == form for _, program in generated),
                len({suite.subject for suite, program in generated if program.form == form}),
                sum(program.form == form and program.refused is not None for _, program in generated),
            )
            for form in dict.fromkeys(program.form for _, program in generated)
        ),
        steps=_steps([program for _, program in generated if program.form == ORIGINAL]),
        rewrites=dict(Counter(rewrite for _, program in generated for rewrite in program.rewrites).most_common()),
        spellings=pair_counts(generation.records.values(), generation.compilers),
        without_programs={suite.subject: suite.lacking for suite in suites if suite.lacking is not None},
        never_accepted=tuple(
            suite.subject
            for suite in suites
            if suite.programs and all(program.refused is not None for program in suite.programs)
        ),
        families=tuple(_families(generation)),
    )


def _steps(programs: list[MadeProgram]) -> tuple[StepCount, ...]:
    """Return how often each step of programs of Python occurs."""
    numbers = Counter(step for program in programs for step in set(program.steps))
    refused = Counter(step for program in programs if program.refused is not None for step in set(program.steps))
    return tuple(StepCount(step, number, refused[step]) for step, number in numbers.most_common())


def _families(generation: Generation) -> Iterator[FoundFamily]:
    """Yield the families: new ones first, silently wrong ones before others, then by size."""
    suites = {suite.name: suite for suite in generation.suites.values()}
    forms = {f"{suite.name}::{program.name}": program.form for suite in suites.values() for program in suite.programs}
    suspected = suspects(suites.values(), generation.records.values())
    of_suites = known_from_suites(generation.settings.torch, generation.settings.device)
    members: dict[tuple[FamilyKey, Known | None], list[Record]] = defaultdict(list)
    for record in generation.records.values():
        if record.verdict in RIGHT or record.verdict is Verdict.NOT_APPLICABLE:
            continue
        suspect, excused = suspected[record.case], suites[record.case.split("::")[0]].excused
        key = family_of(record, suspect)
        members[key, known_of(record, key, suspect, forms[record.case], excused, of_suites)].append(record)
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
            suspect=key.suspect,
            known="" if known is None else known.source,
            why="" if known is None else known.what,
            cells=len(records),
            alone=sum(record.key in generation.alone for record in records),
            compilers=tuple(name for name in generation.compilers if any(row.compiler == name for row in records)),
            forms=tuple(dict.fromkeys(forms[record.case] for record in records)),
            suspects=tuple(sorted({suspected[record.case] for record in records})),
            examples=tuple(record.cell for record in records[:MOST_ADDRESSES]),
            shows=_shown(records[0]),
        )


def _shown(record: Record) -> str:
    """Return what a cell shows, in a line."""
    if record.verdict in SILENTLY_WRONG:
        difference = record.differences[0]
        return shorten(f"{difference.where} ({difference.kind}): {difference.detail}", 200)
    if record.error is not None:
        return shorten(f"{record.error.type}: {record.error.message}", 200)
    return shorten(record.reason or "", 200)


def write_facts(folder: Path, facts: Facts) -> None:
    """Write the facts into the folder of a generation."""
    write_atomically(folder / FAMILIES, msgspec.json.format(msgspec.json.encode(facts)) + b"\n")


def document(facts: Facts, findings: Sequence[Finding] = ()) -> list[Block]:
    """Return the report: the programs, the verdicts by compiler, and the families."""
    settings = facts.settings
    blocks: list[Block] = [
        Heading(f"Generated programs on torch {settings.torch}, {settings.device}, seed {settings.seed}", level=1),
        Paragraph(
            f"{plural(facts.programs, 'program')} {_about(facts)}; {facts.cells} of {facts.planned} cells ran, "
            f"{duration_text(facts.seconds)}."
        ),
        Heading("Coverage"),
        Table(
            ["form", "what it is", "programs", "files", "eager refuses"],
            [
                [code_span(row.form), MEANINGS[row.form], row.programs, row.operators, row.refused]
                for row in facts.forms
            ],
            "llrrr",
        ),
    ]
    blocks += _python_coverage(facts)
    if facts.never_accepted:
        blocks.append(Paragraph(["Eager takes no program of: ", *code_list(facts.never_accepted)]))
    if facts.without_programs:
        reasons = Counter(facts.without_programs.values())
        names = defaultdict(list)
        for operator, reason in facts.without_programs.items():
            names[reason].append(operator)
        blocks.append(Paragraph(f"{plural(len(facts.without_programs), 'file')} without a program:"))
        blocks.append(Items([Item([f"{reason}: ", *_named(names[reason])]) for reason, _ in reasons.most_common()]))
    names_of_verdicts = [
        str(verdict) for verdict in Verdict if any(str(verdict) in row for row in facts.verdicts.values())
    ]
    blocks += [
        Heading("Verdicts"),
        Table(
            ["compiler", *names_of_verdicts],
            [
                [code_span(name), *(row.get(verdict, 0) for verdict in names_of_verdicts)]
                for name, row in facts.verdicts.items()
            ],
            "lr",
        ),
    ]
    new = [family for family in facts.families if not family.known]
    known = [family for family in facts.families if family.known]
    blocks.append(Heading(f"Families without a known reason: {len(new)}"))
    blocks += [_table(new)] if new else [Paragraph("None.")]
    blocks.append(Heading(f"Families with a known reason: {len(known)}"))
    blocks += [_table(known, why=True)] if known else [Paragraph("None.")]
    if findings:
        blocks.append(Heading("Findings"))
        blocks.append(Items([Item([code_span(finding.name), f": {finding.words}"]) for finding in findings]))
    return blocks


def _python_coverage(facts: Facts) -> list[Block]:
    """Return what programs of Python are made of, and how their two spellings compare."""
    if not facts.steps:
        return []
    never = [row.step for row in facts.steps if row.programs == row.refused]
    rewrites = ", ".join(f"{rewrite} {number}" for rewrite, number in facts.rewrites.items())
    return [
        Table(
            ["step", "programs", "eager refuses"],
            [[code_span(row.step), row.programs, row.refused] for row in facts.steps],
            "lrr",
        ),
        *([Paragraph(["Eager takes no program with: ", *code_list(never)])] if never else []),
        Paragraph(f"Rewrites, with their number: {rewrites}."),
        Heading("Two spellings of one program"),
        Table(
            ["compiler", *(words for words in SPELLING_WORDS.values())],
            [
                [code_span(compiler), *(getattr(count, name) for name in SPELLING_WORDS)]
                for compiler, count in facts.spellings.items()
            ],
            "lrrrrr",
        ),
    ]


def _about(facts: Facts) -> str:
    """Return what the programs are about."""
    if facts.settings.source == "python":
        return f"of operators and Python in {plural(facts.operators, 'file')}"
    return f"of {plural(facts.operators, 'operator')}, in {facts.settings.dtype} where an operator has that dtype"


def _table(families: list[FoundFamily], *, why: bool = False) -> Table:
    headers = ["cells", "family", "compilers", "suspects", "for example", *(["why"] if why else [])]
    rows: list[list[Inline]] = []
    for family in families:
        row: list[Inline] = [
            family.cells,
            f"{family.outcome}: {family.kind}: {family.signature}",
            code_list(family.compilers),
            _named(family.suspects),
            [code_span(family.examples[0]), f": {family.shows}"],
        ]
        rows.append([*row, f"{family.known}: {family.why}"] if why else row)
    return Table(headers, rows, "rl", terminal="lines")


def _named(names: tuple[str, ...] | list[str]) -> list[str | Span]:
    """Return the first of some names, and how many there are besides."""
    more = len(names) - MOST_NAMED
    return [*code_list(names[:MOST_NAMED]), *([f" and {more} more"] if more > 0 else [])]
