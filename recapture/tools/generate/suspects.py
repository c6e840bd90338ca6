"""What is likely at fault in a program: the operator that it is about, or the step that fails most often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from recapture.cases.compilers import EAGER
from recapture.records.record import Record
from recapture.records.verdicts import RIGHT
from recapture.tools.generate.python_programs import SECOND
from recapture.tools.generate.suite_files import GeneratedSuite

DEVIATIONS = 1.96
"""Standard deviations between a share and the end of its interval of 95 %."""


def suspects(suites: Iterable[GeneratedSuite], records: Iterable[Record]) -> dict[str, str]:
    """Return what is likely at fault in each program, by its case.

    In a program of Python it is the step that fails in the largest share of the programs that have it, in the same
    spelling: a second spelling may lack what is wrong. Few programs say little, so the lower end of the share's
    interval counts.
    """
    steps = {
        f"{suite.name}::{program.name}": program.steps or (suite.subject,)
        for suite in suites
        for program in suite.programs
    }
    totals: Counter[tuple[str, bool]] = Counter()
    failed: Counter[tuple[str, bool]] = Counter()
    for record in records:
        if record.compiler != EAGER:
            names = {(name, record.case.endswith(SECOND)) for name in steps[record.case]}
            totals.update(names)
            failed.update(names if record.verdict not in RIGHT else ())
    return {
        case: max(names, key=lambda name: (lowest_share(failed[name, second], totals[name, second]), name))
        for case, names in steps.items()
        for second in [case.endswith(SECOND)]
    }


def lowest_share(part: int, whole: int) -> float:
    """Return the lower end of Wilson's interval of 95 % for a share."""
    if not whole:
        return 0.0
    share, square = part / whole, DEVIATIONS**2
    spread: float = DEVIATIONS * (share * (1 - share) / whole + square / (4 * whole**2)) ** 0.5
    return (share + square / (2 * whole) - spread) / (1 + square / whole)
