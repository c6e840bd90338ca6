"""``conformance.html``: the report as one self-contained page, to read and search in a browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from recapture.base.text import shorten
from recapture.machine.environment import Environment
from recapture.records.kinds import KINDS
from recapture.records.record import CellKey, Record
from recapture.records.verdicts import OUTCOMES, legend
from recapture.report import environment_facts, summary
from recapture.report.claim_sources import address, sentence, source_text
from recapture.report.conformance_report import folded
from recapture.report.differences import (
    commonest_difference,
    culprit,
    how_far,
    noted_by_compiler,
    noted_numbers,
    silent_kinds,
    stage_of,
)
from recapture.report.groups import (
    FEWEST,
    break_groups,
    failure_groups,
    not_run_groups,
    noted_groups,
    remark_groups,
    suspects,
)
from recapture.report.html_writer import to_html
from recapture.report.reasons.reason import reasons
from recapture.report.reasons.sentence import Reason
from recapture.report.summary import ClaimStatus, in_matrix

TEXT_LIMIT = 1500
"""Characters of one text in the page; the records have the complete text."""

LABEL_LENGTH = 44
"""Characters of a case's name that the matrix shows on one line if the page is wide enough."""

CHARACTER_WIDTH = 0.5
"""Width of a character of a case's name, in root em."""

LABEL_PADDING = 2.0
"""Space beside a case's name, in root em."""

EXAMPLE_LIMIT = 200
"""Characters shown of a silently wrong case's difference."""

COLUMN_WIDTH = 2.2
"""Width of a column of the matrix with a vertical header, in root em."""

COLUMNS_SHARE = 78
"""Percent of the matrix's width that its columns of compilers share on a wide page."""

WIDE_COLUMN_WIDTH = 4.0
"""Width of a column of the matrix with a horizontal header, in root em."""


def render_html(
    every: Sequence[Record], environment: Environment | None, artifacts: Mapping[str, str] | None = None
) -> str:
    """Return the report as one HTML page without external parts; the same bytes for the same records.

    `artifacts` are folders with what a cell left for debugging, by the cell's address, relative to the page.
    """
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("recapture.report"),
        autoescape=True,
        # A name that the template misspells is an error, and no gap in the page.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    records, left_out = in_matrix(every)
    by_compiler = summary.by_compiler(records)
    compilers = list(by_compiler)
    ordered = sorted(records, key=_order)
    places = {(record.case, record.compiler): place for place, record in enumerate(ordered)}
    longest = max((len(record.case.split("::", 1)[-1]) for record in records), default=0)
    label = CHARACTER_WIDTH * min(longest, LABEL_LENGTH) + LABEL_PADDING
    marks = {summary.mark(record) for record in records}
    claims = _claims(records, places)
    whys = reasons(records)
    groups = _all_groups(records, whys)
    brief = environment_facts.brief(environment) if environment else []
    page = templates.get_template("conformance.html.j2").render(
        place=environment_facts.place(every, environment),
        accounting=environment_facts.accounting(every, environment),
        counts=summary.count(every),
        by_kind=_verdicts_by_kind(every),
        facts=brief,
        why_bare=environment_facts.why_bare(environment) if environment else "",
        faults=environment_facts.failing_checks(environment),
        warnings=environment_facts.warnings(environment),
        uncollected=environment_facts.uncollected(environment),
        left_out=left_out,
        compilers=compilers,
        totals={name: summary.count(cells) for name, cells in by_compiler.items()},
        label=round(label, 1),
        fits=round(label + COLUMN_WIDTH * len(compilers), 1),
        wide=round(label + WIDE_COLUMN_WIDTH * len(compilers), 1),
        share=round(COLUMNS_SHARE / max(len(compilers), 1), 2),
        legend={mark: meaning for mark, meaning in legend().items() if mark in marks},
        suites=_suites(ordered, places, compilers),
        details=[_detail(record, whys.get(record.key), (artifacts or {}).get(record.cell)) for record in ordered],
        claims=claims,
        tally=_tally(claims),
        claim_texts=_claim_texts(records),
        wrong_cases=_wrong_cases(records, places),
        silent={count.kind: count.cells for count in silent_kinds(records)},
        kinds={name: kind.meaning for name, kind in KINDS.items()},
        fewest=FEWEST,
        noted_kinds=noted_numbers(records),
        noted_by_compiler=noted_by_compiler(by_compiler),
        sections=_sections(groups, has_claims=bool(claims), has_environment=bool(brief)),
        **groups,
    )
    return page.rstrip() + "\n"


def _all_groups(records: Sequence[Record], whys: Mapping[CellKey, Reason]) -> dict[str, str]:
    """Return the groups of cells that the page lists as HTML, by the name that its template uses."""
    groups = {
        "failures": failure_groups(records),
        "breaks": break_groups(records),
        "noted": noted_groups(records),
        "remarks": remark_groups(records),
        "not_run": not_run_groups(records),
    }
    return {
        name: to_html(folded(group, whys, limit=TEXT_LIMIT) for group in members) for name, members in groups.items()
    }


def _sections(groups: Mapping[str, object], *, has_claims: bool, has_environment: bool) -> list[tuple[str, str, bool]]:
    """Return the sections of the page: anchor, title, and whether the page has it."""
    return [
        ("claims", "Claims", has_claims),
        ("wrong", "Silently wrong", True),
        ("matrix", "Matrix", True),
        ("failing", "Failing", bool(groups["failures"])),
        ("breaks", "Graph breaks", bool(groups["breaks"])),
        ("noted" if groups["noted"] else "remarks", "Notes", bool(groups["noted"] or groups["remarks"])),
        ("not-run", "Not run", bool(groups["not_run"])),
        ("environment", "Environment", has_environment),
    ]


def _verdicts_by_kind(records: Iterable[Record]) -> dict[str, dict[str, int]]:
    """Return the number of cells of each verdict, for each of the four numbers at the top of the page."""
    by_kind: dict[str, dict[str, int]] = {"right": {}, "wrong": {}, "failing": {}, "none": {}}
    for verdict, number in summary.counts_by_verdict(records).items():
        by_kind[OUTCOMES.get(verdict.facts.group, "none")][str(verdict)] = number
    return by_kind


def _tally(claims: Sequence[dict[str, Any]]) -> str:
    """Return a text with the number of claims of each status."""
    numbers = Counter(claim["status"] for claim in claims)
    return ", ".join(f"{numbers[str(status)]} {status}" for status in ClaimStatus if numbers[str(status)])


def _order(record: Record) -> tuple[str, tuple[int, str, str], str]:
    return (record.case, summary.compiler_key(record.compiler), record.device)


def _suites(
    ordered: Sequence[Record], places: Mapping[tuple[str, str], int], compilers: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the rows of the matrix by suite; each cell has its index among the details."""
    cases: dict[str, dict[str, None]] = {}
    for record in ordered:
        cases.setdefault(summary.suite_of(record.case), {})[record.case] = None
    suites = []
    for suite in sorted(cases):
        rows = []
        for case in cases[suite]:
            cell_places = [places.get((case, compiler)) for compiler in compilers]
            cells = [None if place is None else _cell(ordered[place], place) for place in cell_places]
            rows.append({"case": case, "name": case.split("::", 1)[-1], "cells": cells})
        suites.append({"name": suite, "rows": rows})
    return suites


def _cell(record: Record, place: int) -> dict[str, Any]:
    """Return the data of a cell for the matrix, the claims and the silent wrongs."""
    return {
        "place": place,
        "case": record.case,
        "compiler": record.compiler,
        "mark": summary.mark(record),
        "kind": record.verdict.facts.tone,
        "verdict": str(record.verdict),
    }


def _detail(record: Record, reason: Reason | None, folder: str | None) -> dict[str, Any]:
    """Return the data of an opened cell, without empty fields."""
    built = msgspec.to_builtins(record)
    built["why"] = str(reason) if reason else None
    built["folder"] = f"{quote(folder)}/" if folder else None
    for name, differences in (("differences", record.differences), ("noted", record.noted)):
        built[name] = [
            {
                "input": difference.input,
                "where": difference.where,
                "kind": difference.kind,
                "far": how_far(difference),
                "detail": difference.detail,
            }
            for difference in differences
        ]
    stage = stage_of(record)
    if stage is not None:
        built["stage"] = culprit(stage) + (f"; workaround: {stage.workaround}" if stage.workaround else "")
    present = {name: value for name, value in built.items() if value not in (None, [], (), "") and name != "schema"}
    cut: dict[str, Any] = _cut(present)
    return cut


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= TEXT_LIMIT else value[:TEXT_LIMIT] + "…"
    if isinstance(value, dict):
        return {name: _cut(part) for name, part in value.items()}
    return [_cut(part) for part in value] if isinstance(value, (list, tuple)) else value


def _claims(records: Iterable[Record], places: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Return the claims, those not reproduced first, each with its sentence, source and cells."""
    by_id = summary.claims_by_id(records)
    order = (ClaimStatus.NOT_REPRODUCED, ClaimStatus.PARTLY, ClaimStatus.REPRODUCED, ClaimStatus.NOT_RUNNABLE)
    claims = [
        {
            "id": claim,
            "status": summary.overall_status(cells),
            "sentence": sentence(claim),
            "source": source_text(claim),
            "link": address(claim),
            "reproduced": sum(cell.status is ClaimStatus.REPRODUCED for cell in cells),
            "cells": [
                {
                    **_cell(cell.record, places[cell.record.case, cell.record.compiler]),
                    "expected": cell.expected,
                    "measured": summary.measured(cell.record, cell.expected),
                    "status": str(cell.status),
                }
                for cell in cells
            ],
        }
        for claim, cells in by_id.items()
    ]
    claims.sort(key=lambda claim: order.index(claim["status"]))
    return [{**claim, "status": str(claim["status"])} for claim in claims]


def _claim_texts(records: Iterable[Record]) -> dict[str, dict[str, str]]:
    """Return the sentence and address of every claim, for the details of a cell."""
    ids = dict.fromkeys(claim.id for record in records for claim in record.claims)
    return {claim: {"sentence": sentence(claim), "link": address(claim)} for claim in sorted(ids)}


def _wrong_cases(records: Iterable[Record], places: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Return the silently wrong cases, those with the most cells first, each with its cells and differences."""
    records = list(records)
    suspected = {suspect.case for suspect in suspects(records)}
    cases = []
    for case, cells in summary.silent_wrongs(records).items():
        suite, _, name = case.partition("::")
        what, others = commonest_difference(cells)
        cases.append(
            {
                "suite": suite,
                "name": name,
                "cells": [_cell(record, places[case, record.compiler]) for record in cells],
                "what": shorten(what, EXAMPLE_LIMIT) + (f" (+{others} more)" if others else ""),
                "suspect": case in suspected,
                "example": summary.explain(cells[0], EXAMPLE_LIMIT),
            }
        )
    return sorted(cases, key=lambda case: -len(case["cells"]))
