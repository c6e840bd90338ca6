"""The speeds of a diff, as lines of text and as a table in Markdown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from recapture.base.escape import markdown_text as plain
from recapture.base.text import ratio_text, time_text
from recapture.report.document import Inline, Span, Table, code_span, verbatim
from recapture.report.markdown_writer import table_markdown
from recapture.tools.compare.changes import SPEED_CATEGORIES, SPEED_CHANGES, Diff

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recapture.tools.compare.changes import Ratio, SpeedChange, SpeedSide

_STYLES = {"no_longer_right": "red", "slower": "red", "newly_right": "green", "faster": "green"}


def speeds_markdown(changes: Diff) -> str:
    """Return the section of a benchmark's changes; empty if no speeds were compared."""
    if not changes.speeds:
        return ""
    rows: list[list[Inline]] = [
        [
            code_span(one.workload),
            code_span(one.configuration),
            _speed(one.old, one),
            _speed(one.new, one),
            _by(one),
            _words(one.category),
            _times(one.eager),
            _first_calls(one),
        ]
        for one in _worst_first(changes.speeds)
    ]
    headers: list[str | Span] = [
        "workload",
        "configuration",
        "old",
        "new",
        verbatim("faster by [95 %]"),
        "",
        "eager",
        "first call, cold",
    ]
    parts = [f"## Speed\n\n{plain(_speed_heading(changes))}"]
    parts += [table_markdown(Table(headers, rows))] if rows else []
    return "\n\n".join(parts)


def speed_lines(changes: Diff) -> Iterator[tuple[str, str]]:
    """Yield the lines of a benchmark's changes, each with its style."""
    if not changes.speeds:
        return
    yield "", ""
    yield f"Speed: {_speed_heading(changes)}", "bold"
    workload = ""
    for one in _worst_first(changes.speeds):
        if one.workload != workload:
            workload = one.workload
            yield f"  {workload}", ""
        parts = [
            f"{one.configuration}  {_words(one.category)}",
            f"{_speed(one.old, one)} → {_speed(one.new, one)}",
            _by(one),
            f"(eager {_times(one.eager)})" if one.eager else "",
            f"first call, cold: {calls}" if (calls := _first_calls(one)) else "",
        ]
        yield f"    {'  '.join(part for part in parts if part)}", _STYLES.get(one.category, "")


def _worst_first(speeds: Iterable[SpeedChange]) -> list[SpeedChange]:
    """Return certain and possible changes by workload, with each workload's worst first."""
    order = {name: place for place, name in enumerate(SPEED_CATEGORIES)}
    shown = (one for one in speeds if one.category in (*SPEED_CHANGES, "too_noisy"))
    return sorted(shown, key=lambda one: (one.workload, order[one.category], one.configuration))


def _speed_heading(changes: Diff) -> str:
    counts = Counter(one.category for one in changes.speeds)
    return ", ".join(f"{counts[name]} {_words(name)}" for name in SPEED_CATEGORIES if counts[name])


def _speed(side: SpeedSide | None, change: SpeedChange) -> str:
    """Return one side's seconds, with the speedup if speedups were compared, or the verdict if it was not timed."""
    if side is None:
        return "–"
    if side.seconds is None or side.speedup is None:
        return str(side.verdict)
    return time_text(side.seconds) + (f" ({side.speedup[0]:.2f}×)" if change.basis == "speedup" else "")


def _by(change: SpeedChange) -> str:
    """Return how much faster it is now, with a remark if speedups were compared instead of seconds."""
    return _times(change.change) + (" over eager" if change.change and change.basis == "speedup" else "")


def _times(ratio: Ratio | None) -> str:
    return "" if ratio is None else ratio_text(ratio)


def _first_calls(change: SpeedChange) -> str:
    """Return the seconds of the first call with cold caches on both sides."""
    seconds = [time_text(side.cold) if side is not None else "" for side in (change.old, change.new)]
    return " → ".join(one or "–" for one in seconds) if any(seconds) else ""


def _words(category: str) -> str:
    return category.replace("_", " ")
