"""Compares ``recapture lint`` with ``recapture check`` on functions that nobody here wrote.

    python -m benchmarks.lint --records FILE [--list NAME] [--compiler NAME]... [--at-once N] [--warned-first] [--table]

The targets are those of a list of ``lint_targets.py``: the patterns were written with the first, so that only the
others say how lint does on other code. Some processes check them, each with one pool, and
every finished cell is appended to the file of records, so that an interrupted benchmark goes on where it stopped. Then
the file that defines the target is linted for the same release and compilers. A warning is confirmed if the check of
its function is silently wrong with the compiler that the warning names. ``--table`` checks nothing and prints the
Markdown tables. The libraries of the targets are installed by the user.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import random
import time
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from benchmarks.lint_targets import LISTS, TargetList, lines_of, target_at
from benchmarks.record_lines import read_lines
from benchmarks.side_by_side import append_row, run_parts
from recapture.base.errors import RecaptureError
from recapture.base.text import one_line, shorten
from recapture.cases.compiler import Family
from recapture.cases.compilers import compiler_facts
from recapture.cases.target import parse_input
from recapture.data import load
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report.document import Table, code_span
from recapture.report.markdown_writer import table_markdown
from recapture.tools.check.answers import CheckRow
from recapture.tools.check.case_text import Prepared
from recapture.tools.check.request import CheckOptions, CheckRequest
from recapture.tools.check.session import CheckEvents, pool_of_checks, run_check
from recapture.tools.lint.source import read_source
from recapture.tools.lint.warnings import Linter, LintWarning

COMPILERS = ("export:dynamic", "jit.trace")
"""Default compilers: they generate no code. A static export would refuse other sizes before it could be wrong."""

SECONDS = 60.0
"""Seconds that a compiler may take for one target, on a machine that does nothing else."""


class Checked(msgspec.Struct, frozen=True):
    """One cell of a target, or why the target could not be checked. `inputs` counts the derived inputs."""

    target: str
    row: CheckRow | None = None
    error: str = ""
    inputs: int = 0


class Announced(msgspec.Struct, frozen=True):
    """The warnings about a target that name a compiler."""

    target: str
    compiler: str
    warnings: tuple[LintWarning, ...]


class Target(NamedTuple):
    """Where a target stands: its list, its line there, counted from one, and its inputs, as after ``--input``."""

    listed: TargetList
    line: int
    inputs: tuple[str, ...]


@cache
def targets(listed: TargetList) -> dict[str, Target]:
    """Return the targets of a list by their names."""
    rows = {}
    for number, line in enumerate(lines_of(listed.file), 1):
        if line and not line.startswith("#"):
            name, *inputs = line.split(" ")
            rows[name] = Target(listed, number, tuple(inputs))
    return rows


def all_targets() -> dict[str, Target]:
    """Return the targets of all lists."""
    return {name: target for listed in LISTS.values() for name, target in targets(listed).items()}


def request_of(name: str) -> CheckRequest:
    """Return what to check of a target."""
    target = all_targets()[name]
    inputs = tuple(parse_input(word) for word in target.inputs)
    place, _, function = name.partition(":")
    if function.endswith(")"):
        makers = str(Path(__file__).with_name("lint_targets.py"))
        return CheckRequest(place=makers, name=f"{target.listed.letter}{target.line}", inputs=inputs)
    return CheckRequest(place=place, name=function, inputs=inputs)


def check_targets(file: Path, names: tuple[str, ...], compilers: tuple[str, ...], timeout: float) -> None:
    """Check targets in this process, one after the other; every finished cell is a line of the file of records."""
    options = CheckOptions(compilers=compilers, jobs=1, timeout=timeout)
    with pool_of_checks(options) as pool:
        for target in names:
            inputs: list[int] = []

            def finished(row: CheckRow, target: str = target, inputs: list[int] = inputs) -> None:
                append_row(file, msgspec.json.encode(Checked(target, row, "", inputs[0])))

            def prepared(known: Prepared, inputs: list[int] = inputs) -> None:
                inputs.append(len(known.inputs))

            try:
                run_check(request_of(target), options, CheckEvents(prepared=prepared, finished=finished), opened=pool)
            except RecaptureError as failure:
                append_row(file, msgspec.json.encode(Checked(target, None, shorten(one_line(str(failure)), 300))))


def warnings_of(target: str, linter: Linter) -> list[LintWarning]:
    """Return the warnings about the code of a target: of its function or class, and of what it calls in its file."""
    place = all_targets()[target]
    built = target_at(place.listed, place.line)
    code: Any = built if inspect.isroutine(built) else type(built).forward
    code = inspect.unwrap(getattr(code, "__func__", code))
    path = Path(inspect.getsourcefile(code) or "")
    first = code.__qualname__.partition(".")[0]
    names = reached(path, first)
    return [warning for warning in linted(linter, path) if warning.function.partition(".")[0] in names]


@cache
def linted(linter: Linter, path: Path) -> tuple[LintWarning, ...]:
    """Return the warnings about a file, which is read once."""
    return tuple(linter.lint(path))


@cache
def reached(path: Path, name: str) -> frozenset[str]:
    """Return a function or class of a file with the functions of the file that it calls, directly or through others."""
    source = read_source(path)
    names, waiting = {name}, [name]
    while waiting:
        node = source.functions.get(waiting[-1]) or source.classes.get(waiting[-1])
        waiting.pop()
        for inner in ast.walk(node) if node is not None else ():
            called = inner.func.id if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) else ""
            if called in source.functions and called not in names:
                names.add(called)
                waiting.append(called)
    return frozenset(names)


@cache
def linter_for(compilers: tuple[str, ...]) -> Linter:
    """Return what looks for silently wrong behaviours on the installed torch."""
    release = ".".join(importlib.metadata.version("torch").split("+")[0].split(".")[:3])
    return Linter(load(), compilers, ("silently wrong",), release)


def warned(target: str, compilers: tuple[str, ...]) -> bool:
    """Whether there is a warning about a target with one of some compilers."""
    try:
        return bool(warnings_of(target, linter_for(compilers)))
    except Exception:
        return False


def announced(rows: dict[str, dict[str, CheckRow]]) -> list[Announced]:
    """Return the warnings about every checked target, by compiler."""
    linter = linter_for(tuple(dict.fromkeys(name for cells in rows.values() for name in cells)))
    return [
        Announced(target, compiler, tuple(warning for warning in warnings if compiler in warning.compilers))
        for target, cells in rows.items()
        for warnings in [warnings_of(target, linter)]
        for compiler in cells
    ]


def table(checked: list[Checked], list_of_targets: TargetList) -> str:
    """Return the tables: confirmed warnings and announced cells by compiler, and by behaviour; what was missed.

    A warning is undecided where the compiler refuses the code, or loudly refuses an input of another kind: a check ends
    there. A compiler that takes tensors alone is left out where the inputs have a number: it refuses every such call.
    """
    rows: dict[str, dict[str, CheckRow]] = defaultdict(dict)
    listed = targets(list_of_targets)
    numbers = {name for name, target in listed.items() if any(word.startswith("=") for word in target.inputs)}
    for entry in checked:
        if entry.row is not None and entry.target in listed:
            if entry.target in numbers and compiler_facts(entry.row.compiler).family == Family.TRACE:
                continue
            rows[entry.target][entry.row.compiler] = entry.row
    wrong = {
        (target, name)
        for target, cells in rows.items()
        for name, row in cells.items()
        if row.verdict in {*map(str, SILENTLY_WRONG)}
    }
    cells_run = {
        (target, name)
        for target, cells in rows.items()
        for name, row in cells.items()
        if row.verdict not in ("error", "not_applicable", "timeout", "crash", "oom", "unstable")
    }
    of_behaviour: dict[str, Counter[str]] = defaultdict(Counter)
    warned_cells = set()
    for told_of in announced(rows):
        cell = (told_of.target, told_of.compiler)
        for warning in told_of.warnings:
            of_behaviour[warning.behaviour]["warnings"] += 1
            of_behaviour[warning.behaviour]["confirmed"] += cell in wrong
            of_behaviour[warning.behaviour]["undecided"] += cell not in cells_run
            warned_cells.add(cell)
    names = list(dict.fromkeys(name for cells in rows.values() for name in cells))
    lines = []
    for name in [*names, "all"]:
        bad = {cell for cell in wrong if name in (cell[1], "all")}
        warned = {cell for cell in warned_cells if name in (cell[1], "all")}
        decided = warned & cells_run
        lines.append(
            [
                code_span(name),
                str(len(warned)),
                str(len(warned - cells_run)),
                _share(len(decided & bad), len(decided)),
                str(len(bad)),
                _share(len(bad & warned), len(bad)),
            ]
        )
    heads = ["compiler", "with a warning", "undecided", "confirmed", "silently wrong in check", "announced"]
    behaviours = [
        [code_span(name), str(counts["warnings"]), str(counts["confirmed"]), str(counts["undecided"])]
        for name, counts in sorted(of_behaviour.items(), key=lambda pair: (-pair[1]["warnings"], pair[0]))
    ]
    missed = [
        f"- `{target}` {name}: on {', '.join(rows[target][name].wrong_on[:3])}: "
        f"{shorten(one_line(rows[target][name].differences[0]), 140) if rows[target][name].differences else ''}"
        for target, name in sorted(wrong - warned_cells)
    ]
    false = sorted({cell for cell in warned_cells if cell not in wrong})
    return "\n\n".join(
        [
            f"{len(rows)} functions and modules, {sum(map(len, rows.values()))} cells.",
            table_markdown(Table(heads, lines, "lrrrrr")),
            table_markdown(Table(["behaviour", "warnings", "confirmed", "undecided"], behaviours, "lrrr")),
            "Not announced:",
            "\n".join(missed),
            "Not confirmed:",
            "\n".join(f"- `{target}` {name}: {rows[target][name].verdict}" for target, name in false),
        ]
    )


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "–"


@click.command()
@click.option("--records", "file", type=click.Path(path_type=Path), required=True, help="The file of records.")
@click.option("--compiler", "compilers", multiple=True, default=COMPILERS)
@click.option("--target", "only_targets", multiple=True, help="Only targets whose name contains this.")
@click.option("--only", multiple=True, help="A target by its whole name, in this process.")
@click.option("--at-once", default=1, help="Processes that check targets at the same time.")
@click.option("--seconds", default=float("inf"), help="Stop after this time; finished cells are kept.")
@click.option("--timeout", default=SECONDS, show_default=True, help="Seconds that a compiler may take for a target.")
@click.option("--list", "list_name", type=click.Choice([*LISTS]), default="tuned", help="The list of targets.")
@click.option("--warned-first", is_flag=True, help="Check targets with a warning before the others.")
@click.option("--table", "only_table", is_flag=True, help="Check nothing; print the tables.")
def main(
    file: Path,
    compilers: tuple[str, ...],
    only_targets: tuple[str, ...],
    only: tuple[str, ...],
    at_once: int,
    seconds: float,
    timeout: float,
    list_name: str,
    *,
    warned_first: bool,
    only_table: bool,
) -> None:
    """Check functions that nobody here wrote, lint them, and print tables."""
    deadline = time.monotonic() + seconds
    chosen = LISTS[list_name]
    if only:
        check_targets(file, only, compilers, timeout)
        return
    if not only_table:
        known = read_lines(file, Checked)
        finished = Counter(entry.target for entry in known if entry.row is None or entry.row.compiler in compilers)
        failed = {entry.target for entry in known if entry.row is None}
        names = [*targets(chosen)]
        random.Random(0).shuffle(names)  # noqa: S311 - what is interrupted has checked a sample
        if warned_first:
            names.sort(key=lambda name: not warned(name, compilers))
        left = [
            target
            for target in names
            if target not in failed
            and finished[target] < len(compilers)
            and (not only_targets or any(text in target for text in only_targets))
        ]
        words = ["--records", str(file), "--timeout", str(timeout)]
        words += [word for name in compilers for word in ("--compiler", name)]
        parts = {
            f"part {place + 1}": [*words, *(word for target in left[place::at_once] for word in ("--only", target))]
            for place in range(min(at_once, len(left)))
        }
        run_parts("benchmarks.lint", parts, at_once, deadline)
    print(table(read_lines(file, Checked), chosen))


if __name__ == "__main__":
    main()
