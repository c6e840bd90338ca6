"""Where the time of eager and of a compiled run goes, by the operators that torch's profiler saw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from recapture.base.escape import markdown_text as plain
from recapture.base.files import write_atomically
from recapture.base.text import one_line, plural, shorten
from recapture.report.document import Inline, Table, code_span
from recapture.report.markdown_writer import table_markdown
from recapture.report.terminal_writer import say, say_table

if TYPE_CHECKING:
    from recapture.tools.speed.job import Operator

NAMED = 3
"""Number of operators that a sentence names at most."""

COVERED = 0.8
"""Share of a time that the named operators are to explain."""

LEVEL = 0.05
"""Share of eager's time below which a difference is no gain or loss: the profiler itself costs about that."""

NAME_LIMIT = 60
"""Characters of an operator's name in a sentence."""


@dataclass(frozen=True)
class OperatorTimes:
    """The operators of eager and of a compiled run over the same number of iterations.

    Self time counts where an operator itself works; total time includes the operators that it calls. Both in µs.
    """

    eager: Sequence[Operator]
    compiled: Sequence[Operator]
    iterations: int

    @property
    def on_device(self) -> bool:
        """Whether the time is that of a GPU; else it is the CPU's."""
        return any(operator.device for operator in (*self.eager, *self.compiled))

    def self_time(self, operator: Operator) -> float:
        """Return the µs that an operator itself takes, on the device if one was used."""
        return operator.device if self.on_device else operator.cpu

    def sentences(self) -> str:
        """Say where eager's time went and what the compiled run changed."""
        before = {operator.name: self.self_time(operator) for operator in self.eager}
        after = {operator.name: self.self_time(operator) for operator in self.compiled}
        old, new = sum(before.values()), sum(after.values())
        if not old or not new:
            return "The profiler saw no operators, so that nothing can be said of where the time goes."
        unit = "of GPU time" if self.on_device else "of CPU time"
        text = (
            f"Under the profiler, an iteration takes {self._ms(old)} {unit} in eager and {self._ms(new)} compiled "
            f"({old / new:.2f} times as fast)."
        )
        saved = {name: before.get(name, 0.0) - after.get(name, 0.0) for name in before | after}
        changed = False
        for words, sign in (("Less time goes to", 1), ("More goes to", -1)):
            moved = {name: sign * time for name, time in saved.items() if sign * time > 0}
            large = {name: time for name, time in moved.items() if time > LEVEL * old}
            if large:
                changed = True
                sides = [
                    (name, before.get(name, 0.0), after.get(name, 0.0))
                    for name in self._named(large, sum(moved.values()))
                ]
                named = (
                    f"{shown_name(name, NAME_LIMIT)} ({self._ms(was)} to {self._ms(now)})" for name, was, now in sides
                )
                text += f" {words} {_list(named)}."
        if not changed:
            most = self._named(before, old)
            shares = _list(f"{shown_name(name, NAME_LIMIT)} ({before[name] / old:.0%})" for name in most)
            text += f" No operator takes noticeably more or less time; most goes to {shares}."
        calls = [sum(operator.calls for operator in side) // self.iterations for side in (self.eager, self.compiled)]
        return f"{text} {plural(calls[0], 'call')} of operators became {calls[1]}."

    def _named(self, times: dict[str, float], whole: float) -> list[str]:
        """Return the names of the largest times, enough of them to explain most of the whole."""
        named: list[str] = []
        for name in sorted(times, key=lambda name: (-times[name], name))[:NAMED]:
            named.append(name)
            if sum(times[name] for name in named) >= COVERED * whole:
                break
        return named

    def _ms(self, microseconds: float) -> str:
        return f"{microseconds / 1000 / self.iterations:.3g} ms"


def shown_name(name: str, limit: int) -> str:
    """Return an operator's name in at most `limit` characters; Inductor's calls are named by what they run."""
    if name.startswith("## Call CompiledFxGraph "):
        return "the code that Inductor generated"
    return shorten(name, limit)


def _list(parts: Iterable[str]) -> str:
    texts = list(parts)
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


SHOWN = 25
"""Number of operators in the table."""

PRINTED = 10
"""Number of operators in the printed table."""

PRINTED_NAME = 40
"""Characters shown of an operator's name in the printed table."""

NAME_LIMIT = 80
"""Characters shown of an operator's name."""


class Profile(NamedTuple):
    """The operators of a profiled row, and the folder of their table and traces."""

    title: str
    folder: Path
    times: OperatorTimes


def write_profile(profile: Profile) -> None:
    """Write ``operators.md``: where the time went, and for each operator its time and its calls in both runs.

    The traces beside it (``eager.trace.json``, ``candidate.trace.json``) open in Perfetto or ``chrome://tracing``.
    """
    title, folder, times = profile
    text = (
        f"# Operators: {plain(title)}\n\n{plain(times.sentences())}\n\nThe table has the {SHOWN} greatest shares over "
        f"{times.iterations} iterations. Self is the share of all time that the operator itself takes; total "
        f"includes the operators that it calls.\n\n{table_markdown(operator_table(times))}\n"
    )
    write_atomically(folder / "operators.md", text.encode())


def print_profile(console: Console, profile: Profile) -> None:
    """Print where the time of eager and of a compiled run went, and the operators with the greatest shares."""
    title, folder, times = profile
    say(console, f"operators of {one_line(title)}", "bold")
    say(console, times.sentences())
    say_table(console, operator_table(times, PRINTED, PRINTED_NAME))
    say(console, f"all of them, and traces for Perfetto: {folder}")
    say(console)


def operator_table(times: OperatorTimes, limit: int = SHOWN, name_limit: int = NAME_LIMIT) -> Table:
    """Return the table operator × (self share, total share, total ms, device ms, calls), for eager and compiled.

    It has the `limit` operators with the greatest shares, with at most `name_limit` characters of each name.
    """
    sides = [{operator.name: operator for operator in side} for side in (times.eager, times.compiled)]
    cpu = [sum(operator.cpu for operator in side.values()) for side in sides]
    device = [sum(operator.device for operator in side.values()) for side in sides]

    def rank(name: str) -> float:
        known = [(side[name], index) for index, side in enumerate(sides) if name in side]
        return max(
            max(_share(operator.cpu, cpu[index]), _share(operator.device, device[index])) for operator, index in known
        )

    # By the larger share of the two runs: an operator that vanished tells as much as one that is new.
    names = sorted(sides[0].keys() | sides[1].keys(), key=lambda name: (-rank(name), name))[:limit]
    headers = ["operator"]
    for which in ("eager", "compiled"):
        headers += [f"{which}: self CPU", f"{which}: CPU total", f"{which}: total ms"]
        headers += [f"{which}: device ms"] if any(device) else []
        headers += [f"{which}: calls"]
    rows: list[list[Inline]] = []
    for name in names:
        row: list[Inline] = [code_span(shown_name(name, name_limit))]
        for index, side in enumerate(sides):
            row += _cells(side.get(name), cpu[index], on_device=any(device))
        rows.append(row)
    return Table(headers, rows, "lr")


def _cells(operator: Operator | None, whole: float, *, on_device: bool) -> Sequence[Inline]:
    if operator is None:
        return [""] * (5 if on_device else 4)
    device = [f"{operator.device / 1000:.3f}" if operator.device else ""] if on_device else []
    shares = [f"{_share(operator.cpu, whole):.1%}", f"{_share(operator.total, whole):.1%}"]
    return [*shares, f"{operator.total / 1000:.3f}", *device, str(operator.calls)]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
