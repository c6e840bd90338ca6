"""Compares ``recapture lint`` with the records of the suites: by compiler and release, without running anything.

    python -m benchmarks.lint_suites [--newest N] [--missed] [--without-own]

A cell is a case, a compiler and a release. It is announced if lint warns about the source of the case, or about what it
calls in its file, with that compiler on that release. The warning is confirmed if the cell is recorded as silently
wrong. A warning gets its compilers and releases from the records of all cases of a behaviour, so that this measures the
patterns and not the records; with ``--without-own``, the records of the case itself are left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks.lint import reached
from recapture.data import NOT_RECORDED, Data, load
from recapture.report.document import Table, code_span
from recapture.report.markdown_writer import table_markdown
from recapture.tools.lint.ranges import Outcome
from recapture.tools.lint.warnings import Linter

SUITES = Path(__file__).parents[1] / "suites"
WRONG: Outcome = "silently wrong"


class Compared(NamedTuple):
    """A recorded cell. `is_decided` says that it ran to the end, on some device."""

    case: str
    compiler: str
    release: str
    is_wrong: bool
    is_announced: bool
    is_decided: bool


def behaviours_by_case(data: Data) -> dict[str, set[str]]:
    """Return the behaviours that lint finds in the source of each case, and in what it calls in its file."""
    linter = Linter(data, tuple(data.compilers), (WRONG,), None)
    behaviours: dict[str, set[str]] = {}
    for path in sorted(SUITES.glob("*.py")):
        by_function = defaultdict(set)
        for warning in linter.lint(path):
            by_function[warning.function.partition(".")[0]].add(warning.behaviour)
        for case in data.cases:
            suite, _, name = case.partition("::")
            if suite == path.stem:
                behaviours[case] = set().union(*(by_function[function] for function in reached(path, name)))
    return behaviours


def outcomes(data: Data, case: str, compiler: str, place: int) -> set[str]:
    """Return what a cell ended with on a release, on all devices with a record."""
    strips = data.cases[case].cells.get(compiler, {}).values()
    return {data.marks[strip.marks[place]].group for strip in strips if strip.marks[place] != NOT_RECORDED}


def compared(data: Data, *, without_own: bool) -> Iterator[Compared]:
    """Yield the recorded cells of the suites."""
    behaviours = behaviours_by_case(data)
    for case, facts in data.cases.items():
        alike = {sibling for name in behaviours.get(case, ()) for sibling in data.behaviours[name].cases}
        if without_own:
            alike.discard(case)
        for compiler in facts.cells:
            if data.compilers[compiler].is_reference:
                continue
            for place, release in enumerate(data.releases):
                known = outcomes(data, case, compiler, place)
                if known:
                    is_announced = any(WRONG in outcomes(data, sibling, compiler, place) for sibling in alike)
                    yield Compared(
                        case, compiler, release, WRONG in known, is_announced, bool(known & {"right", WRONG})
                    )


def table(cells: list[Compared], column: str) -> str:
    """Return a table with a row for each compiler or release, and one for all."""
    rows = []
    names = list(dict.fromkeys(getattr(cell, column) for cell in cells))
    for name in [*names, "all"]:
        chosen = [cell for cell in cells if name in (getattr(cell, column), "all")]
        wrong = sum(cell.is_wrong for cell in chosen)
        right_warnings = sum(cell.is_wrong and cell.is_announced for cell in chosen)
        decided = sum(cell.is_announced and cell.is_decided for cell in chosen)
        if wrong:
            confirmed = f"{100 * right_warnings / decided:.0f} %" if decided else "–"
            rows.append([code_span(name), str(decided), confirmed, str(wrong), f"{100 * right_warnings / wrong:.0f} %"])
    return table_markdown(Table([column, "with a warning", "confirmed", "silently wrong", "announced"], rows, "lrrrr"))


@click.command()
@click.option("--newest", type=int, help="Only this many of the newest releases.")
@click.option("--missed", is_flag=True, help="Name the behaviours whose cells are not announced, by compiler.")
@click.option("--without-own", is_flag=True, help="Leave out the records of the case itself.")
def main(newest: int | None, *, missed: bool, without_own: bool) -> None:
    """Compare lint with the records of the suites, and print tables."""
    data = load()
    releases = data.releases[-newest:] if newest else data.releases
    cells = [cell for cell in compared(data, without_own=without_own) if cell.release in releases]
    click.echo(table(cells, "compiler"))
    click.echo()
    click.echo(table(cells, "release"))
    if missed:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for cell in cells:
            if cell.is_wrong and not cell.is_announced:
                counts[str(data.cases[cell.case].behaviour)][cell.compiler] += 1
        for behaviour, by_compiler in sorted(counts.items(), key=lambda pair: -pair[1].total()):
            click.echo(f"- `{behaviour}`: {', '.join(f'{name} {n}' for name, n in by_compiler.most_common())}")


if __name__ == "__main__":
    main()
