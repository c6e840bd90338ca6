"""Size limits of a matrix: results beyond them are counted, and shown only in the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.report import summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.records.record import Record

MOST_COMPILERS = 100
"""Largest number of columns of a matrix."""

MOST_SUITES = 300
"""Largest number of suites with a matrix and a column of counts."""

MOST_CASES = 5000
"""Largest number of rows of all matrices together."""


def in_matrix(records: Sequence[Record]) -> tuple[Sequence[Record], str]:
    """Return the records that matrices and tables of counts show, and a text about omitted ones, else empty."""
    suites, cases = summary.suites_in_order(records), sorted({record.case for record in records})
    shown_suites = set(suites[:MOST_SUITES])
    shown_cases = {*[case for case in cases if summary.suite_of(case) in shown_suites][:MOST_CASES]}
    shown = [record for record in records if record.case in shown_cases]
    shown_compilers = set(summary.compilers_in_order(shown)[:MOST_COMPILERS])
    shown = [record for record in shown if record.compiler in shown_compilers]
    compilers = {record.compiler for record in records}
    parts = [
        f"{all_of_them - number} of {all_of_them} {noun}"
        for all_of_them, number, noun in (
            (len(suites), len(shown_suites), "suites"),
            (len(compilers), len(shown_compilers), "compilers"),
            (len(cases), len(shown_cases), "cases"),
        )
        if all_of_them > number
    ]
    return (shown, f"Left out of the matrix: {', '.join(parts)}; the records have them.") if parts else (records, "")
