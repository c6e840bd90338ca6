"""How many cells changed in each suite and with each compiler, as tables that come before the cells."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from recapture.report import summary
from recapture.report.document import Inline, Table, code_span

if TYPE_CHECKING:
    from recapture.tools.compare.changes import Diff

FEWEST = 4
"""Smallest number of changed cells that is worth a summary."""


def summary_tables(changes: Diff) -> list[Table]:
    """Return the changed cells of each suite, and of each compiler, by category; nothing if only a few changed."""
    names = [name for name, members in changes.categories() if members]
    suites: dict[str, Counter[str]] = defaultdict(Counter)
    compilers: dict[str, Counter[str]] = defaultdict(Counter)
    for name, members in changes.categories():
        for one in members:
            suites[summary.suite_of(one.case)][name] += 1
            compilers[one.compiler][name] += 1
    if sum(map(Counter.total, suites.values())) < FEWEST:
        return []
    by_compiler = dict(sorted(compilers.items(), key=lambda item: summary.compiler_key(item[0])))
    heads = [name.replace("_", " ") for name in names]
    return [
        Table([noun, *heads], [_row(key, counts, names) for key, counts in groups.items()], "l" + "r" * len(heads))
        for noun, groups in (("suite", dict(sorted(suites.items()))), ("compiler", by_compiler))
    ]


def _row(key: str, counts: Counter[str], names: list[str]) -> list[Inline]:
    return [code_span(key), *(str(counts[name]) if counts[name] else "" for name in names)]
