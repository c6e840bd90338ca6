"""The operators of eager and of a compiled run in one table, to show the cause of a speedup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.files import write_atomically
from recapture.base.text import one_line
from recapture.report.markup import plain
from recapture.report.say import say, say_table
from recapture.report.tables import Cell, Table, code_span, to_markdown
from recapture.tools.speed.operator_times import shown_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from recapture.tools.speed.job import Operator
    from recapture.tools.speed.operator_times import OperatorTimes

SHOWN = 25
"""Number of operators in the table."""

PRINTED = 10
"""Number of operators in the printed table."""

PRINTED_NAME = 40
"""Characters shown of an operator's name in the printed table."""

NAME_LIMIT = 80
"""Characters shown of an operator's name."""


def write_profile(folder: Path, title: str, times: OperatorTimes) -> None:
    """Write ``operators.md``: where the time went, and for each operator its time and its calls in both runs.

    The traces beside it (``eager.trace.json``, ``candidate.trace.json``) open in Perfetto or ``chrome://tracing``.
    """
    text = (
        f"# Operators: {plain(title)}\n\n{plain(times.sentences())}\n\nThe table has the {SHOWN} greatest shares over "
        f"{times.iterations} iterations. Self is the share of all time that the operator itself takes; total "
        f"includes the operators that it calls.\n\n{to_markdown(operator_table(times))}\n"
    )
    write_atomically(folder / "operators.md", text.encode())


def print_profile(console: Console, title: str, folder: Path, times: OperatorTimes) -> None:
    """Print where the time of eager and of a compiled run went, and the operators with the greatest shares."""
    say(console, f"operators of {one_line(title)}", "bold")
    say(console, times.sentences())
    say_table(console, operator_table(times, PRINTED, PRINTED_NAME))
    say(console, f"all of them, and traces for Perfetto: {folder}")
    say(console)


def operator_table(times: OperatorTimes, shown: int = SHOWN, name_limit: int = NAME_LIMIT) -> Table:
    """Return the table operator × (self share, total share, total ms, device ms, calls), for eager and compiled.

    It has the `shown` operators with the greatest shares, with at most `name_limit` characters of each name.
    """
    sides = [{one.name: one for one in side} for side in (times.eager, times.compiled)]
    cpu = [sum(one.cpu for one in side.values()) for side in sides]
    device = [sum(one.device for one in side.values()) for side in sides]

    def rank(name: str) -> float:
        known = [(side[name], index) for index, side in enumerate(sides) if name in side]
        return max(max(_share(one.cpu, cpu[index]), _share(one.device, device[index])) for one, index in known)

    names = sorted(sides[0].keys() | sides[1].keys(), key=lambda name: (-rank(name), name))[:shown]
    headers = ["operator"]
    for which in ("eager", "compiled"):
        headers += [f"{which}: self CPU", f"{which}: CPU total", f"{which}: total ms"]
        headers += [f"{which}: device ms"] if any(device) else []
        headers += [f"{which}: calls"]
    rows: list[list[Cell]] = []
    for name in names:
        row: list[Cell] = [code_span(shown_name(name, name_limit))]
        for index, side in enumerate(sides):
            row += _cells(side.get(name), cpu[index], on_device=any(device))
        rows.append(row)
    return Table(headers, rows, "lr")


def _cells(one: Operator | None, whole: float, *, on_device: bool) -> Sequence[Cell]:
    if one is None:
        return [""] * (5 if on_device else 4)
    device = [f"{one.device / 1000:.3f}" if one.device else ""] if on_device else []
    shares = [f"{_share(one.cpu, whole):.1%}", f"{_share(one.total, whole):.1%}"]
    return [*shares, f"{one.total / 1000:.3f}", *device, str(one.calls)]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
