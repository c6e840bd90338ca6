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
    by_compiler = {f"planted:{defect.name}": Catch(defect) for defect in defects}
    for outcome in outcomes:
        catch = by_compiler.get(outcome.compiler)
        if catch is None or not outcome.planted or outcome.verdict in UNDECIDED:
            continue
        catch.planted += 1
        caught, kinds = _seen(catch.defect, outcome)
        if not caught:
            catch.missed.append(f"{outcome.case} [{outcome.verdict}{': ' + outcome.error if outcome.error else ''}]")
            continue
        catch.caught += 1
        if kinds is None or kinds & set(catch.defect.kinds):
            catch.kind_right += 1
        else:
            catch.other_kind.append(f"{outcome.case} [{', '.join(sorted(kinds))}]")
    return list(by_compiler.values())


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
    by_compiler: dict[str, Blame] = {}
    for outcome in outcomes:
        if outcome.compiler.startswith("planted:") or outcome.verdict in UNDECIDED:
            continue
        asks_for_order = outcome.compiler == "equal:reordered-dicts" and "order" in outcome.strict
        if outcome.cell in genuine or asks_for_order:
            continue
        blame = by_compiler.setdefault(outcome.compiler, Blame(outcome.compiler))
        blame.cells += 1
        if outcome.verdict not in RIGHT:
            why = "; ".join(f"{kind} on {label}: {detail}" for label, kind, detail in outcome.differences[:2])
            blame.blamed.append(f"{outcome.case} [{outcome.verdict}: {why or outcome.error}]")
        elif outcome.noted:
            label, kind, detail = outcome.noted[0]
            blame.noted.append(f"{outcome.case} [{kind} on {label}: {detail}]")
    return list(by_compiler.values())


def catch_table(rows: list[Catch], form: str = "simple") -> str:
    """Return the table of planted differences, with a line for all of them."""
    body = [
        [
            catch.defect.name,
            catch.defect.level,
            "/".join(catch.defect.kinds),
            catch.planted,
            catch.caught,
            f"{catch.caught / catch.planted:.0%}",
            catch.kind_right,
        ]
        for catch in rows
        if catch.planted
    ]
    total = [
        sum(catch.planted for catch in rows),
        sum(catch.caught for catch in rows),
        sum(catch.kind_right for catch in rows),
    ]
    share = f"{total[1] / total[0]:.2%}" if total[0] else "–"
    nowhere = [catch.defect.name for catch in rows if not catch.planted]
    body.append([f"all {len(body)}", "", "", total[0], total[1], share, total[2]])
    text = tabulate(body, ["planted", "level", "kinds", "cells", "caught", "share", "kind right"], tablefmt=form)
    lists = {f"{catch.defect.name}, missed": catch.missed for catch in rows}
    lists |= {f"{catch.defect.name}, found as something else": catch.other_kind for catch in rows}
    absent = [f"Planted nowhere: {', '.join(nowhere)}."] if nowhere else []
    return "\n\n".join([text, *absent, *_lists(lists)])


def blame_table(rows: list[Blame], form: str = "simple") -> str:
    """Return the table of compilers that change nothing, with a line for all of them."""
    body = [[blame.compiler, blame.cells, len(blame.blamed), len(blame.noted)] for blame in rows]
    body.append(["all", *(sum(row[column] for row in body) for column in (1, 2, 3))])  # type: ignore[misc]
    text = tabulate(body, ["equal to eager", "cells", "blamed", "with a note"], tablefmt=form)
    lists = {f"{blame.compiler}, blamed": blame.blamed for blame in rows}
    lists |= {f"{blame.compiler}, noted": blame.noted for blame in rows if blame.compiler != "equal:reordered-dicts"}
    return "\n\n".join([text, *_lists(lists)])


def _lists(named: dict[str, list[str]]) -> list[str]:
    texts = []
    for name, cells in named.items():
        if cells:
            counted: dict[str, int] = defaultdict(int)
            for cell in cells:
                counted[cell] += 1
            lines = [f"- {cell}" + (f" ({count} times)" if count > 1 else "") for cell, count in counted.items()]
            more = [f"- and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
            texts.append("\n".join([f"{name}:", *lines[:SHOWN], *more]))
    return texts
