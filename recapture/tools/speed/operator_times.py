"""Where the time of eager and of a compiled run goes, from the operators that torch's profiler saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.base.text import plural, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
        return any(one.device for one in (*self.eager, *self.compiled))

    def self_time(self, one: Operator) -> float:
        """Return the µs that an operator itself takes, on the device if one was used."""
        return one.device if self.on_device else one.cpu

    def sentences(self) -> str:
        """Say where eager's time went and what the compiled run changed."""
        before = {one.name: self.self_time(one) for one in self.eager}
        after = {one.name: self.self_time(one) for one in self.compiled}
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
        calls = [sum(one.calls for one in side) // self.iterations for side in (self.eager, self.compiled)]
        return f"{text} {plural(calls[0], 'call')} of operators became {calls[1]}."

    def _named(self, times: dict[str, float], whole: float) -> list[str]:
        """Return the names of the largest times, enough of them to explain most of the whole."""
        named: list[str] = []
        for name in sorted(times, key=lambda name: (-times[name], name))[:NAMED]:
            named.append(name)
            if sum(times[one] for one in named) >= COVERED * whole:
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
