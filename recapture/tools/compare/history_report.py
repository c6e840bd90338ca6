"""Renders the verdicts of a cell across the torch releases, with the releases that changed it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.base.text import plural
from recapture.known.transitions import transitions_of
from recapture.records.releases import labels
from recapture.report import summary
from recapture.report.differences import kinds_in_words, kinds_of
from recapture.report.document import Inline, Span, Table, code_span, strong
from recapture.report.findings import known_lines
from recapture.report.history import CellHistory, compared_with
from recapture.report.markdown_writer import table_markdown
from recapture.report.terminal_writer import say, say_table
from recapture.report.turns import IN_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from recapture.records.record import Record


HISTORY_SCHEMA_VERSION = 2
"""Version of the JSON form; 2 has `turns`: where a cell turned bad, right, and bad again."""

WHY_LIMIT = 120
"""Characters shown of the reason of an outcome."""


def to_json(histories: Iterable[CellHistory]) -> str:
    """Return histories as JSON: one object per cell and capability, whose entries have the complete records."""
    document = {"schema": HISTORY_SCHEMA_VERSION, "histories": list(histories)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_markdown(histories: Iterable[CellHistory]) -> str:
    """Return histories as GitHub Markdown: a table for each case and capability, then the changes."""
    sections = []
    for (case, capability), members in _by_case(histories).items():
        matrix, absent = _matrix(members)
        text = f"## {code(case)} on {code(capability)}\n\n{table_markdown(matrix)}"
        changes = [f"- {code(name)}: {plain(line)}" for name, line in _transitions(members)]
        turns = [f"- {code(one.compiler)}: {plain(line)}" for one in members for line in _turns(one)]
        if absent:
            text += f"\n\nNot recorded with {plain(', '.join(absent))}."
        text += "\n\n" + "\n".join(changes) if changes else ""
        text += "\n\nTurns:\n\n" + "\n".join(turns) if turns else ""
        known = [f"- {plain(line)}" for line in _known(members)]
        text += "\n\nKnown:\n\n" + "\n".join(known) if known else ""
        sections.append(text)
    legend = "; ".join(f"{mark} {words}" for mark, words in summary.LEGEND.items())
    return "\n\n".join([*sections, f"{legend}; → changed; empty: no such cell."]) + "\n"


def print_histories(console: Console, histories: Iterable[CellHistory]) -> None:
    """Print histories: a case as a table of compilers by releases, a single cell as one line per release."""
    for (case, capability), members in _by_case(histories).items():
        single = len(members) == 1
        say(console, f"{case}::{members[0].compiler} on {capability}" if single else f"{case} on {capability}", "bold")
        if single:
            for line in _lines(members[0]):
                say(console, line)
            for line in _turns(members[0]):
                say(console, line, "bold")
            for line in _known(members):
                say(console, f"known: {line}")
            continue
        matrix, absent = _matrix(members)
        say_table(console, matrix)
        if absent:
            say(console, f"not recorded with {', '.join(absent)}", "dim")
        for name, line in _transitions(members):
            say(console, f"→ {name}: {line}")
        for one in members:
            for line in _turns(one):
                say(console, f"{one.compiler}: {line}")
        for line in _known(members):
            say(console, f"known: {line}")
        marks = {summary.mark(entry.record) for one in members for entry in one.entries if entry.record}
        legend = "; ".join(f"{mark} {words}" for mark, words in summary.LEGEND.items() if mark in marks)
        say(console, f"{legend}; → changed", "dim")


def _by_case(histories: Iterable[CellHistory]) -> dict[tuple[str, str], list[CellHistory]]:
    grouped: dict[tuple[str, str], list[CellHistory]] = {}
    for one in histories:
        grouped.setdefault((one.case, one.capability), []).append(one)
    return grouped


def _matrix(members: Sequence[CellHistory]) -> tuple[Table, list[str]]:
    """Return the table of compilers by releases, and the releases left out because they have no such case."""
    heads = labels(members[0].entries)
    present = [any(cells) for cells in zip(*([entry.record for entry in one.entries] for one in members))]  # noqa: B905
    rows = []
    for one in members:
        row: list[Inline] = [code_span(one.compiler)]
        for entry in itertools.compress(one.entries, present):
            mark = summary.mark(entry.record) if entry.record else ""
            shown = strong(mark) if mark and mark in "Ww" else Span(mark)
            row.append(["→", shown] if entry.changed else shown)
        rows.append(row)
    headers = ["compiler", *itertools.compress(heads, present)]
    absent = [label for label, here in zip(heads, present) if not here]  # noqa: B905 - of one length
    return Table(headers, rows, "lc"), absent


def _transitions(members: Iterable[CellHistory]) -> Iterator[tuple[str, str]]:
    for one in members:
        heads = labels(one.entries)
        images, present = [entry.image for entry in one.entries], [entry.record is not None for entry in one.entries]
        for number, before in enumerate(compared_with(images, present)):
            entry, last = one.entries[number], None if before is None else one.entries[before].record
            if entry.record is None or not entry.changed or before is None or last is None:
                continue
            why = summary.explain(entry.record, WHY_LIMIT)
            edited = " (the case was edited)" if entry.edited else ""
            said = f": {why}" if why else ""
            was, now = _outcome(last), _outcome(entry.record)
            yield one.compiler, f"{heads[before]} {was} → {heads[number]} {now}{edited}{said}"


def _lines(one: CellHistory) -> Iterator[str]:
    heads = labels(one.entries)
    outcomes = [summary.measured(entry.record) if entry.record else "no such cell" for entry in one.entries]
    widths = (max(map(len, heads)), max(len(entry.image) for entry in one.entries), max(map(len, outcomes)))
    for label, entry, outcome in zip(heads, one.entries, outcomes):  # noqa: B905
        why = _why(entry.record) if entry.record else ""
        edited = "(the case was edited) " if entry.edited else ""
        yield (
            f"{'→' if entry.changed else ' '} {label:{widths[0]}}  {entry.image:{widths[1]}}  {outcome:{widths[2]}}  "
            f"{edited}{why}"
        ).rstrip()


def _turns(one: CellHistory) -> Iterator[str]:
    """Yield where a cell turned bad, right, and bad again, with what it became and the packages that changed."""
    names = dict(zip((entry.image for entry in one.entries), labels(one.entries), strict=True))
    records = {entry.image: entry.record for entry in one.entries}
    for turn in one.turns:
        record = records[turn.image]
        outcome = f" ({_outcome(record)})" if record else ""
        text = f"{IN_WORDS[turn.kind]} {names[turn.image]}{outcome}"
        if turn.before is None:
            yield f"{text}, the first release with a record"
            continue
        text += f", after {names[turn.before]}"
        if turn.skipped:
            text += f" ({plural(turn.skipped, 'release')} between say nothing)"
        yield text + (f"; changed: {', '.join(map(str, turn.changed))}" if turn.changed else "")


def _known(members: Iterable[CellHistory]) -> Iterator[str]:
    """Yield what is known of the cells: the changes between releases, and the causes of silently wrong results."""
    found: dict[str, None] = {}
    for one in members:
        releases = {entry.torch.partition("+")[0] for entry in one.entries if entry.record}
        for change in transitions_of(one.case, one.compiler):
            if {change.last, change.first} <= releases:
                found[change.line] = None
    records = [entry.record for one in members for entry in one.entries if entry.record]
    found |= {line: None for record in records for line in known_lines(record)}
    yield from found


def _outcome(record: Record) -> str:
    """Return a cell's verdict with the kinds of its silent differences, such as ``wrong (value, dtype)``."""
    kinds = kinds_in_words(record)
    return f"{summary.measured(record)} ({kinds})" if kinds else summary.measured(record)


def _why(record: Record) -> str:
    """Return the reason of an outcome, and the kinds of the differences that do not decide it."""
    noted = ", ".join(kinds_of(record.noted))
    parts = [summary.explain(record, WHY_LIMIT), f"noted: {noted}" if noted else ""]
    return "; ".join(part for part in parts if part)
