"""Counts what the judge caught, missed and blamed, and prints it as tables."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable

from tabulate import tabulate

from benchmarks.judge.groups import Outcome
from benchmarks.judge.planting import Defect

UNDECIDED = ("unstable", "not_applicable", "environment", "oom", "timeout")
"""Verdicts of cells in which nothing is compared."""

RIGHT = ("pass", "pass_with_breaks")

SHOWN = 12
"""Number of cells that a table names in a row; the JSON file names all."""


@dataclasses.dataclass
class Catch:
    """One planted difference: how many cells it was planted in, and how the judge answered."""

    defect: Defect
    planted: int = 0
    caught: int = 0
    kind_right: int = 0
    missed: list[str] = dataclasses.field(default_factory=list)
    """Cells in which it was not found, or not as seriously as it is."""
    other_kind: list[str] = dataclasses.field(default_factory=list)
    """Cells in which it was found under a kind that it is not."""


@dataclasses.dataclass
class Blame:
    """One compiler that changes nothing: its cells, those blamed, and those with a note."""

    compiler: str
    cells: int = 0
    blamed: list[str] = dataclasses.field(default_factory=list)
    noted: list[str] = dataclasses.field(default_factory=list)


def catches(defects: Iterable[Defect], outcomes: Iterable[Outcome]) -> list[Catch]:
    """Return how each planted difference was judged, over the cells in which it was planted."""
    found = {f"planted:{one.name}": Catch(one) for one in defects}
    for outcome in outcomes:
        one = found.get(outcome.compiler)
        if one is None or not outcome.planted or outcome.verdict in UNDECIDED:
            continue
        one.planted += 1
        caught, kinds = _seen(one.defect, outcome)
        if not caught:
            one.missed.append(f"{outcome.case} [{outcome.verdict}{': ' + outcome.error if outcome.error else ''}]")
            continue
        one.caught += 1
        if kinds is None or kinds & set(one.defect.kinds):
            one.kind_right += 1
        else:
            one.other_kind.append(f"{outcome.case} [{', '.join(sorted(kinds))}]")
    return list(found.values())


def _seen(defect: Defect, outcome: Outcome) -> tuple[bool, set[str] | None]:
    """Whether a planted difference was found as seriously as it is, and under which kinds (None: it has no kind)."""
    if defect.level == "error":
        return outcome.verdict == "error", None
    silent = {kind for _, kind, _ in outcome.differences}
    if defect.level == "silent" or defect.level in outcome.strict:
        return bool(silent), silent
    return bool(outcome.noted) and not silent and outcome.verdict in RIGHT, {kind for _, kind, _ in outcome.noted}


def blames(outcomes: Iterable[Outcome], genuine: dict[str, str]) -> list[Blame]:
    """Return how each compiler that changes nothing was judged.

    `genuine` names the cells in which such a compiler does change something, with the reason.
    """
    found: dict[str, Blame] = {}
    for outcome in outcomes:
        if outcome.compiler.startswith("planted:") or outcome.verdict in UNDECIDED:
            continue
        asked = outcome.compiler == "equal:reordered-dicts" and "order" in outcome.strict
        if outcome.cell in genuine or asked:
            continue
        one = found.setdefault(outcome.compiler, Blame(outcome.compiler))
        one.cells += 1
        if outcome.verdict not in RIGHT:
            why = "; ".join(f"{kind} on {label}: {detail}" for label, kind, detail in outcome.differences[:2])
            one.blamed.append(f"{outcome.case} [{outcome.verdict}: {why or outcome.error}]")
        elif outcome.noted:
            label, kind, detail = outcome.noted[0]
            one.noted.append(f"{outcome.case} [{kind} on {label}: {detail}]")
    return list(found.values())


def catch_table(rows: list[Catch], form: str = "simple") -> str:
    """Return the table of planted differences, with a line for all of them."""
    body = [
        [
            one.defect.name,
            one.defect.level,
            "/".join(one.defect.kinds),
            one.planted,
            one.caught,
            f"{one.caught / one.planted:.0%}",
            one.kind_right,
        ]
        for one in rows
        if one.planted
    ]
    total = [sum(one.planted for one in rows), sum(one.caught for one in rows), sum(one.kind_right for one in rows)]
    share = f"{total[1] / total[0]:.2%}" if total[0] else "–"
    nowhere = [one.defect.name for one in rows if not one.planted]
    body.append([f"all {len(body)}", "", "", total[0], total[1], share, total[2]])
    text = tabulate(body, ["planted", "level", "kinds", "cells", "caught", "share", "kind right"], tablefmt=form)
    lists = {f"{one.defect.name}, missed": one.missed for one in rows}
    lists |= {f"{one.defect.name}, found as something else": one.other_kind for one in rows}
    absent = [f"Planted nowhere: {', '.join(nowhere)}."] if nowhere else []
    return "\n\n".join([text, *absent, *_lists(lists)])


def blame_table(rows: list[Blame], form: str = "simple") -> str:
    """Return the table of compilers that change nothing, with a line for all of them."""
    body = [[one.compiler, one.cells, len(one.blamed), len(one.noted)] for one in rows]
    body.append(["all", *(sum(row[column] for row in body) for column in (1, 2, 3))])  # type: ignore[misc]
    text = tabulate(body, ["equal to eager", "cells", "blamed", "with a note"], tablefmt=form)
    lists = {f"{one.compiler}, blamed": one.blamed for one in rows}
    lists |= {f"{one.compiler}, noted": one.noted for one in rows if one.compiler != "equal:reordered-dicts"}
    return "\n\n".join([text, *_lists(lists)])


def _lists(named: dict[str, list[str]]) -> list[str]:
    found = []
    for name, cells in named.items():
        if cells:
            counted: dict[str, int] = defaultdict(int)
            for cell in cells:
                counted[cell] += 1
            shown = [f"- {cell}" + (f" ({count} times)" if count > 1 else "") for cell, count in counted.items()]
            more = [f"- and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
            found.append("\n".join([f"{name}:", *shown[:SHOWN], *more]))
    return found
