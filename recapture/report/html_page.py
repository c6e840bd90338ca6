"""``conformance.html``: the same report as one page that needs nothing else, to look at and search in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from recapture.analysis import facts, summary
from recapture.analysis.matrix import in_matrix
from recapture.base.text import shorten
from recapture.results.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recapture.analysis.summary import Group
    from recapture.machine.environment import Environment
    from recapture.results.records import Record

__all__ = ["render_html"]

TEXT_LIMIT = 1500
"""Characters of any one text put into the page; the records hold the whole of it."""


def render_html(records: Sequence[Record], environment: Environment | None) -> str:
    """Return the report as one HTML page without external parts; the same bytes for the same records."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("recapture.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown, _ = in_matrix(records)
    compilers = summary.compilers_in_order(shown)
    page = templates.get_template("conformance.html.j2").render(
        place=facts.place(records, environment),
        accounting=facts.accounting(records, environment),
        counts=summary.count(records),
        verdicts={str(verdict): number for verdict, number in summary.counts_by_verdict(records).items()},
        facts=facts.brief(environment) if environment else [],
        why_bare=facts.why_bare(environment) if environment else "",
        faults=facts.failing_checks(environment),
        warnings=facts.warnings(environment),
        uncollected=facts.uncollected(environment),
        compilers=compilers,
        totals={name: summary.count(cells) for name, cells in summary.by_compiler(shown).items()},
        legend={mark: (words, _LEGEND_KINDS[mark]) for mark, words in summary.LEGEND.items()},
        suites=_suites(shown, compilers),
        details=[_detail(record) for record in sorted(shown, key=_order)],
        claims=_claims(records),
        failures=_groups(summary.failure_groups(records)),
        breaks=_groups(summary.break_groups(records)),
        not_run=_groups(summary.not_run_groups(records)),
    )
    return page.rstrip() + "\n"


def _kind(record: Record) -> str:
    """Return the class that colours a cell."""
    if record.verdict in RIGHT:
        return "right" if record.verdict is Verdict.PASS else "broken"
    if record.verdict in SILENTLY_WRONG:
        return "wrong"
    return "failing" if record.verdict in FAILING else "none"


_LEGEND_KINDS = {
    mark: kind
    for marks, kind in (("P", "right"), ("p", "broken"), ("Ww", "wrong"), ("EeCTM", "failing"), ("U–!", "none"))
    for mark in marks
}


def _order(record: Record) -> tuple[str, tuple[int, str, str], str]:
    return (record.case, summary.compiler_key(record.compiler), record.device)


def _suites(records: Sequence[Record], compilers: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of the matrix suite by suite; a cell knows its place among the details."""
    ordered = sorted(records, key=_order)
    places = {(record.case, record.compiler): place for place, record in enumerate(ordered)}
    suites = []
    for suite, members in summary.by_suite(records).items():
        rows = []
        for case in sorted({record.case for record in members}):
            cells = []
            for compiler in compilers:
                place = places.get((case, compiler))
                record = None if place is None else ordered[place]
                cells.append(
                    {
                        "place": place,
                        "mark": summary.mark(record),
                        "kind": _kind(record),
                        "verdict": str(record.verdict),
                    }
                    if record
                    else None
                )
            rows.append({"case": case, "name": case.split("::", 1)[-1], "cells": cells})
        suites.append({"name": suite, "rows": rows})
    return suites


def _detail(record: Record) -> dict[str, Any]:
    """Return what a cell shows when it is opened; what is empty is left out."""
    built = msgspec.to_builtins(record)
    kept = {name: value for name, value in built.items() if value not in (None, [], (), "") and name != "schema"}
    cut: dict[str, Any] = _cut(kept)
    return cut


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= TEXT_LIMIT else value[:TEXT_LIMIT] + "…"
    if isinstance(value, dict):
        return {name: _cut(one) for name, one in value.items()}
    return [_cut(one) for one in value] if isinstance(value, (list, tuple)) else value


def _claims(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return the claims by id, each with its cells."""
    by_id: dict[str, list[summary.ClaimCell]] = {}
    for cell in summary.claim_cells(records):
        by_id.setdefault(cell.id, []).append(cell)
    return [
        {
            "id": claim,
            "status": str(summary.overall_status(cells)),
            "cells": [
                {
                    "case": cell.record.case,
                    "compiler": cell.record.compiler,
                    "expected": cell.expected,
                    "measured": summary.measured(cell.record, cell.expected),
                    "status": str(cell.status),
                }
                for cell in cells
            ],
        }
        for claim, cells in by_id.items()
    ]


def _groups(groups: Iterable[Group]) -> list[dict[str, Any]]:
    return [
        {
            "title": group.title,
            "text": shorten(group.text, TEXT_LIMIT),
            "number": len(group.records),
            "cases": summary.together(group.records),
        }
        for group in groups
    ]
