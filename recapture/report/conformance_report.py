"""``conformance.md``: a results directory as GitHub Markdown, with the same bytes for the same records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.base.text import one_line, plural, shorten
from recapture.machine.environment import Environment
from recapture.records.artifact_folders import INDEX, left_artifacts
from recapture.records.difference import Difference
from recapture.records.directories import REPORT, read_results
from recapture.records.kinds import KINDS
from recapture.records.record import CellKey, Record
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report import environment_facts, summary
from recapture.report.claim_sources import address, sentence
from recapture.report.differences import culprit, how_far, kinds_of, noted_by_compiler, place, silent_kinds, stage_of
from recapture.report.document import (
    Block,
    Fold,
    Heading,
    Inline,
    Item,
    Items,
    Paragraph,
    Span,
    Table,
    code_list,
    code_span,
    spans_of,
    strong,
)
from recapture.report.groups import (
    FEWEST,
    Group,
    break_groups,
    failure_groups,
    not_run_groups,
    noted_groups,
    remark_groups,
    static_refusals,
    suspects,
    together,
)
from recapture.report.markdown_writer import to_markdown
from recapture.report.model_captures import model_captures
from recapture.report.reasons.reason import lines_by_case, reasons
from recapture.report.reasons.sentence import Reason
from recapture.report.summary import ClaimStatus, suite_of

MESSAGE_LIMIT = 200
"""Characters of a message in a report; the records have the complete message."""

WHY_LIMIT = 400
"""Characters of a reason."""

DIFFERENCES_SHOWN = 4
"""Number of differences shown for one silently wrong cell; the records have all of them."""

MOST_WHYS = 3
"""Number of reasons shown for one failure, those of most cells first."""

SEVERAL = 3
"""Number of cases with the same compilers that share a line."""


def render_conformance(
    records: Sequence[Record], environment: Environment | None, artifacts: Mapping[str, str] | None = None
) -> str:
    """Return the conformance report of one results directory, without dates, times or paths.

    `artifacts` are folders with what a cell left for debugging, by the cell's address, relative to the report.
    """
    in_tables, left_out = summary.in_matrix(records)
    whys = reasons(records)
    return to_markdown(
        [
            *_head(records, environment),
            *_environment(environment),
            *_counts(in_tables),
            *model_captures(records),
            *_claims(records),
            *silent_wrongs(records, whys),
            *guilty_stages(records),
            *_artifacts(artifacts or {}),
            *_matrices(in_tables),
            *([Paragraph(left_out)] if left_out else []),
            *_failures(records, whys),
            *_folds("Graph breaks", "", break_groups(records)),
            *_noted(in_tables, records),
            *_folds("Right, with a remark", "Remarks that do not change the verdict.", remark_groups(records)),
            *_folds("Not run", "Why these cells say nothing about their compiler.", not_run_groups(records)),
        ]
    )


def write_report(directory: Path) -> Path:
    """Write ``conformance.md`` beside the records of a results directory and return its path.

    Raises UsageError if the records cannot be read or the report cannot be written.
    """
    results = read_results(directory)
    path = directory / REPORT
    try:
        text = render_conformance(results.records, results.environment, left_artifacts(directory, results.records))
        write_atomically(path, text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    return path


def _joined(parts: Iterable[Inline], separator: str) -> list[str | Span]:
    """Return pieces of text one after another, with a separator between them."""
    spans: list[str | Span] = []
    for part in parts:
        spans += [separator, *spans_of(part)] if spans else spans_of(part)
    return spans


# What was run, and where


def _head(records: Sequence[Record], environment: Environment | None) -> Iterator[Block]:
    where = environment_facts.place(records, environment)
    yield Heading(["Conformance: ", code_span(where.image), " on ", code_span(where.capability)], 1)
    numbers = summary.counts_by_verdict(records)
    verdicts = _joined(([f"{number} ", code_span(verdict)] for verdict, number in numbers.items()), ", ")
    accounting, complete = environment_facts.accounting(records, environment)
    yield Paragraph(["Cells: ", accounting if complete else strong(accounting), ": ", *(verdicts or ["none"]), "."])
    total = summary.count(records)
    answer = (
        f"{total.right} right, {total.silently_wrong} silently wrong, {total.failing} failing, {total.not_run} not run."
    )
    yield Paragraph(
        [
            strong(answer),
            " Right means: what eager does, on the example the compiler captured with and on every held-out input.",
        ]
    )


def _environment(environment: Environment | None) -> Iterator[Block]:
    yield Heading("Environment")
    if environment is None:
        yield Paragraph("Not recorded.")
        return
    lines: list[Inline] = [
        [name, ": ", shorten(value, MESSAGE_LIMIT)] for name, value in environment_facts.brief(environment)
    ]
    why = environment_facts.why_bare(environment)
    if why:
        lines.append(f"bare, not the image, because {shorten(why, 2 * MESSAGE_LIMIT)}")
    lines += [
        strong(f"at fault: {shorten(check, MESSAGE_LIMIT)}")
        for check in environment_facts.failing_checks(environment, lasting=True)
    ]
    lines += [
        f"warning: {shorten(check, MESSAGE_LIMIT)}" for check in environment_facts.warnings(environment, lasting=True)
    ]
    yield Items(list(map(Item, lines)))
    if missing := environment_facts.uncollected(environment):
        yield Heading("Suites that could not be collected")
        yield Paragraph("Nothing below says anything about their cases.")
        yield Items(
            [Item([code_span(name), ": ", code_span(shorten(error, MESSAGE_LIMIT))]) for name, error in missing]
        )


def _counts(records: Sequence[Record]) -> Iterator[Block]:
    if not records:
        return
    suites = summary.suites_in_order(records)
    by_compiler: dict[str, dict[str, list[Record]]] = {}
    by_suite: dict[str, list[Record]] = {}
    for record in records:
        suite = suite_of(record.case)
        by_compiler.setdefault(record.compiler, {}).setdefault(suite, []).append(record)
        by_suite.setdefault(suite, []).append(record)
    rows: list[list[Inline]] = []
    for compiler in summary.compilers_in_order(records):
        cells = by_compiler[compiler]
        every = [record for members in cells.values() for record in members]
        rows.append([code_span(compiler), _four(every), *(_four(cells.get(suite, [])) for suite in suites)])
    rows.append(["all", _four(records), *(_four(by_suite[suite]) for suite in suites)])
    yield Heading("Counts")
    yield Paragraph(["right/", strong("silently wrong"), "/failing/not run"])
    yield Table(["compiler", "all suites", *map(code_span, suites)], rows, "lr")


def _four(records: Sequence[Record]) -> Inline:
    if not records:
        return ""
    counts = summary.count(records)
    wrong = strong(str(counts.silently_wrong)) if counts.silently_wrong else "0"
    return [f"{counts.right}/", wrong, f"/{counts.failing}/{counts.not_run}"]  # spaces would allow line breaks


def _matrices(records: Sequence[Record]) -> Iterator[Block]:
    if not records:
        return
    marks: dict[tuple[str, str], Span] = {}
    by_suite: dict[str, list[Record]] = {}
    for record in records:
        mark = summary.mark(record)
        marks[record.case, record.compiler] = strong(mark) if record.verdict in SILENTLY_WRONG else Span(mark)
        by_suite.setdefault(suite_of(record.case), []).append(record)
    legend = ([strong(mark) if mark in "Ww" else mark, f" {words}; "] for mark, words in summary.LEGEND.items())
    yield Heading("Matrix")
    yield Paragraph([*(part for parts in legend for part in parts), "empty: no such cell."])
    for suite in summary.suites_in_order(records):
        cells = by_suite[suite]
        compilers = summary.compilers_in_order(cells)
        rows: list[list[Inline]] = [
            [code_span(case.split("::", 1)[-1]), *(marks.get((case, name), "") for name in compilers)]
            for case in sorted({record.case for record in cells})
        ]
        # A break after the family keeps seventeen columns within the width of a page.
        names = (one_line(name).replace(":", ":\n").replace("jit.", "jit.\n") for name in compilers)
        yield Heading(code_span(suite), 3)
        yield Table(["case", *names], rows, "lc")


def _artifacts(folders: Mapping[str, str]) -> Iterator[Block]:
    if folders:
        yield Heading("Left for debugging")
        yield Paragraph("Graphs, IR, generated code and traces of these cells.")
        yield Items([Item(Span(cell, "code", f"{folder}/{INDEX}")) for cell, folder in sorted(folders.items())])


# Published claims


def _claims(records: Sequence[Record]) -> Iterator[Block]:
    by_id = summary.claims_by_id(records)
    if not by_id:
        return
    overall = {claim: summary.overall_status(members) for claim, members in by_id.items()}
    numbers = Counter(overall.values())
    tally = ", ".join(f"{numbers[status]} {status}" for status in ClaimStatus if numbers[status])
    yield Heading("Published claims")
    yield Paragraph(
        f"{plural(len(by_id), 'claim')}: {tally}. The numbers count cells; a cell that could not run here does not "
        "count against its claim."
    )
    counted = (ClaimStatus.REPRODUCED, ClaimStatus.NOT_REPRODUCED, ClaimStatus.NOT_RUNNABLE)
    yield Table(
        ["claim", "status", *map(str, counted), "what it says"],
        [
            [
                Span(claim, link=address(claim)),
                _status(overall[claim]),
                *(sum(cell.status is status for cell in members) for status in counted),
                sentence(claim),
            ]
            for claim, members in by_id.items()
        ],
        "llrrrl",
    )
    yield Heading("Claim by claim", 3)
    yield Table(
        ["claim", "status", "case", "compiler", "expected", "measured"],
        [
            [
                Span(cell.id, link=address(cell.id)),
                _status(cell.status),  # early in the row: a narrow page hides the last columns
                code_span(cell.record.case),
                code_span(cell.record.compiler),
                code_span(cell.expected),
                code_span(summary.measured(cell.record, cell.expected)),
            ]
            for members in by_id.values()
            for cell in members
        ],
    )


def _status(status: ClaimStatus) -> Span:
    fine = status in (ClaimStatus.REPRODUCED, ClaimStatus.NOT_RUNNABLE)
    return Span(str(status)) if fine else strong(str(status))


# Silent differences


def silent_wrongs(records: Sequence[Record], whys: Mapping[CellKey, Reason]) -> Iterator[Block]:
    """Yield the silent differences: counted by kind, then cell by cell with reasons, then the suspect references."""
    if not records:
        return
    yield Heading("Silently wrong")
    by_case = summary.silent_wrongs(records)
    if not by_case:
        yield Paragraph("No cell.")
        return
    wrong = [record for cells in by_case.values() for record in cells]
    number = f"{plural(len(wrong), 'cell')} of {plural(len(by_case), 'case')}"
    yield Paragraph(f"{number} did something else than eager and said nothing.")
    rows: list[list[Inline]] = [
        [code_span(count.kind), count.cells, count.cases, KINDS[count.kind].meaning] for count in silent_kinds(wrong)
    ]
    yield Table(["kind of difference", "cells", "cases", "meaning"], rows, "lrrl")
    yield Items([_wrong_case(case, cells, whys) for case, cells in by_case.items()])
    if suspected := suspects(records):
        yield Heading("Suspect references", 3)
        yield Paragraph(
            f"{FEWEST} or more unrelated compilers show the same difference, so that eager or the case itself may be "
            "at fault."
        )
        yield Items(
            [
                Item(
                    [
                        code_span(suspect.case),
                        ": ",
                        *_differences([suspect.difference]),
                        ": ",
                        *code_list([record.compiler for record in suspect.records]),
                    ]
                )
                for suspect in suspected
            ]
        )


def _wrong_case(case: str, cells: Sequence[Record], whys: Mapping[CellKey, Reason]) -> Item:
    """Return a silently wrong case, with an entry for the cells that differ in the same way."""
    kinds = ", ".join(kinds_of(difference for record in cells for difference in record.differences))
    alike: dict[tuple[object, ...], list[Record]] = {}
    for record in cells:
        alike.setdefault((record.verdict, record.differences, stage_of(record)), []).append(record)
    entries = []
    for members in alike.values():
        first = members[0]
        differences = _differences(first.differences) or [first.reason or "no difference is recorded"]
        names = code_list([record.compiler for record in members])
        text = [*names, f" ({first.verdict}): ", *differences, *_guilty(first)]
        entries.append(Item(text, list(map(Item, _whys(members, whys)))))
    return Item([code_span(case), f" ({kinds})" if kinds else ""], entries)


def _whys(records: Sequence[Record], whys: Mapping[CellKey, Reason]) -> list[str]:
    """Return the reasons of cells with the same differences, each with its compilers if there are several."""
    texts: dict[str, list[str]] = {}
    for record in records:
        reason = whys.get(record.key)
        if reason is not None:
            texts.setdefault(str(reason), []).append(record.compiler)
        for line in record.explanation:
            texts.setdefault(f"torch reported: {line}", []).append(record.compiler)
    alone = len(texts) == 1
    return [f"why: {text}" if alone else f"why ({', '.join(names)}): {text}" for text, names in texts.items()]


def _differences(differences: Sequence[Difference]) -> list[str | Span]:
    """Return the first differences, naming each input once."""
    parts: list[list[str | Span]] = []
    last = None
    for difference in differences[:DIFFERENCES_SHOWN]:
        label = difference.input
        part: list[str | Span] = []
        if label != last:
            words = place(label)
            part = ["on ", code_span(label), ": "] if words == f"on {label}" else [words, ": "]
        part += [code_span(difference.where), f" {difference.kind}"]
        if distance := how_far(difference):
            part += [" (", distance, ")"]
        if difference.detail.strip():
            part += [" ", code_span(shorten(difference.detail, MESSAGE_LIMIT))]
        parts.append(part)
        last = label
    if len(differences) > DIFFERENCES_SHOWN:
        parts.append([f"and {len(differences) - DIFFERENCES_SHOWN} more"])
    return _joined(parts, "; ")


def _guilty(record: Record) -> list[str | Span]:
    """Return a cell's guilty stage and its workaround as the end of a line; empty if none is known."""
    stage = stage_of(record)
    if stage is None:
        return []
    workaround: list[str | Span] = ["; workaround: ", code_span(stage.workaround)] if stage.workaround else []
    return ["; guilty: ", strong(culprit(stage)), *workaround]


def guilty_stages(records: Sequence[Record]) -> Iterator[Block]:
    """Yield a table of the guilty stages with their workarounds and cells, those of silent wrongs first."""
    cells: dict[tuple[bool, str, str], list[str]] = {}
    for record in summary.in_report_order(records):
        stage = stage_of(record)
        if stage is not None:
            failing = record.verdict not in SILENTLY_WRONG
            cells.setdefault((failing, culprit(stage), stage.workaround or ""), []).append(record.cell)
    if not cells:
        return
    number = plural(sum(map(len, cells.values())), "cell")
    yield Heading("Guilty stages")
    yield Paragraph(
        [
            f"The first stage of the compiler that shows what the cell shows, for {number}: see ",
            code_span("recapture stage"),
            ".",
        ]
    )
    rows: list[list[Inline]] = [
        [
            words,
            "failing" if failing else "silently wrong",
            code_span(workaround) if workaround else "none found",
            len(members),
            code_list(members),
        ]
        for (failing, words, workaround), members in sorted(cells.items(), key=lambda row: (row[0][0], -len(row[1])))
    ]
    yield Table(["guilty", "its cells are", "workaround", "number", "cells"], rows, "lllrl")


def _noted(in_tables: Sequence[Record], records: Sequence[Record]) -> Iterator[Block]:
    """Yield the differences that decide no verdict: counted by compiler and kind, then one by one."""
    groups = noted_groups(records)
    if not groups:
        return
    by_compiler = noted_by_compiler(summary.by_compiler(in_tables))
    kinds = [kind for kind in KINDS if any(numbers[kind] for numbers in by_compiler.values())]
    yield Heading("Differences that do not decide a verdict")
    yield Paragraph(
        [
            "The numbers count cells. A case can make some of these differences decide, with ",
            code_span("strict="),
            ".",
        ]
    )
    rows: list[list[Inline]] = [
        [code_span(name), *(numbers[kind] or "" for kind in kinds)] for name, numbers in by_compiler.items()
    ]
    yield Table(["compiler", *map(code_span, kinds)], rows, "lr")
    yield from map(folded, groups)


# Groups of cells


def _failures(records: Sequence[Record], whys: Mapping[CellKey, Reason]) -> Iterator[Block]:
    groups = failure_groups(records)
    if not groups:
        return
    number = sum(len(group.records) for group in groups)
    yield Heading("Failing")
    yield Paragraph(f"{plural(number, 'cell')}, {plural(len(groups), 'different failure')}.")
    items = []
    for refusals in static_refusals(records):
        limits = [". Not captured either: ", *code_list(refusals.limits)] if refusals.limits else []
        items.append(Item([str(refusals), *limits, "."]))
    if items:
        yield Items(items)
    for group in groups:
        yield folded(group, whys)


def _folds(title: str, intro: str, groups: Sequence[Group]) -> Iterator[Block]:
    if groups:
        yield Heading(title)
        if intro:
            yield Paragraph(intro)
        yield from map(folded, groups)


def folded(group: Group, whys: Mapping[CellKey, Reason] | None = None, *, limit: int = MESSAGE_LIMIT) -> Fold:
    """Return a group of cells as one line that opens to its cells; `limit` are the characters shown of its message.

    With reasons, the most frequent are said once, and beside a case is the line of its code.
    """
    summary_line: list[str | Span] = [f"{plural(len(group.records), 'cell')}: "]
    if group.title not in ("graph break", "note"):
        summary_line += [strong(group.title), " "]
    if group.text:
        summary_line.append(code_span(shorten(group.text, limit)))
    known = whys or {}
    counted = Counter(known[record.key].text for record in group.records if record.key in known)
    blocks: list[Block] = [Paragraph(f"Why: {shorten(why, WHY_LIMIT)}") for why, _ in counted.most_common(MOST_WHYS)]
    if len(counted) > MOST_WHYS:
        others = plural(len(counted) - MOST_WHYS, "other reason")
        blocks.append(Paragraph([f"and {others} like these: see ", code_span("recapture explain CELL")]))
    lines = lines_by_case(group.records, known)
    return Fold(summary_line, [*blocks, Items(list(map(Item, _cells(together(group.records), lines))))])


def _cells(compilers_by_case: Mapping[str, Sequence[str]], lines: Mapping[str, str]) -> Iterator[list[str | Span]]:
    """Yield a line for each case, or one line for all cases with the same compilers where there are several."""
    alike: dict[tuple[str, ...], list[list[str | Span]]] = {}
    for case, names in compilers_by_case.items():
        at: list[str | Span] = [" at ", code_span(lines[case])] if case in lines else []
        alike.setdefault(tuple(names), []).append([code_span(case), *at])
    for names, cases in alike.items():
        compilers = code_list(names)
        if len(cases) < SEVERAL:
            yield from ([case, ": ", *compilers, *at] for case, *at in cases)
        else:
            yield [*compilers, ": ", *_joined(cases, ", ")]
