"""What is likely at fault in a program: the operator that it is about, or the step that fails most often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from recapture.records.record import Record
from recapture.records.verdicts import RIGHT
from recapture.tools.generate.suite_files import GeneratedSuite


def suspects(suites: Iterable[GeneratedSuite], records: Iterable[Record]) -> dict[str, str]:
    """Return what is likely at fault in each program, by its case.

    In a program of Python it is the step that fails in the largest share of all programs that have it.
    """
    steps = {
        f"{suite.name}::{program.name}": program.steps or (suite.subject,)
        for suite in suites
        for program in suite.programs
    }
    ran: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for record in records:
        names = set(steps[record.case])
        ran.update(names)
        failed.update(names if record.verdict not in RIGHT else ())
    return {case: max(names, key=lambda name: (failed[name] / (ran[name] + 1), name)) for case, names in steps.items()}
