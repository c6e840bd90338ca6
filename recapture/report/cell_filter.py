"""Which of the recorded cells a report shows: of some suites, of cases that match words, with some kinds of outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from recapture.base.errors import UsageError, did_you_mean
from recapture.records.directories import Results
from recapture.report.differences import with_kinds
from recapture.report.summary import suite_of


@dataclass(frozen=True)
class CellFilter:
    """What is kept of results; an empty part restricts nothing.

    `matches` is a predicate for addresses ``suite::name`` (see `recapture.cases.name_filter`), `kinds` are kinds of
    differences and verdicts.
    """

    suites: Collection[str] = ()
    matches: Callable[[str], bool] | None = None
    kinds: Collection[str] = ()

    def __bool__(self) -> bool:
        return bool(self.suites or self.matches or self.kinds)

    def check(self, results: Iterable[Results]) -> None:
        """Raise UsageError, with the most similar name, for a suite that none of the results has."""
        known = {suite_of(record.case) for result in results for record in result.records}
        for name in self.suites:
            if name not in known:
                raise UsageError(f"no results have a suite {name!r}{did_you_mean(name, sorted(known))}")

    def applied(self, results: Results) -> Results:
        """Return results with only the cells that are kept; reports say how many of the recorded cells they show."""
        if not self:
            return results
        chosen = tuple(
            record
            for record in results.records
            if (not self.suites or suite_of(record.case) in self.suites)
            and (self.matches is None or self.matches(record.case))
        )
        return with_kinds(dataclasses.replace(results, records=chosen), self.kinds)
