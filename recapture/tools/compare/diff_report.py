"""A diff as text for a terminal or a pipe, as Markdown, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.base.text import plural
from recapture.report import summary
from recapture.report.claim_sources import address
from recapture.report.differences import changed_note, kinds_in_words, kinds_of
from recapture.report.document import Inline, Span, Table, code_list, code_span
from recapture.report.markdown_writer import table_markdown
from recapture.report.stage_words import stage_changed
from recapture.report.terminal_writer import say, say_table
from recapture.tools.compare.changed_words import failure_words
from recapture.tools.compare.changes import CATEGORIES, Change, Diff, found, is_regression
from recapture.tools.compare.diff_alike import WORDS_LIMIT, in_short, told_apart
from recapture.tools.compare.diff_devices import device_lines
from recapture.tools.compare.diff_speeds import speed_lines, speeds_markdown
from recapture.tools.compare.diff_summary import summary_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from recapture.records.record import Record

WHY_LIMIT = 160
"""Characters of a reason shown in text and Markdown; the JSON has the complete records."""

KNOWN_OF_DEVICES = "Known differences between a CPU and a GPU"
"""The heading of what explains changes from one device to another."""

_STYLES = {
    "newly_wrong": "bold red",
    "newly_failing": "red",
    "newly_breaking": "yellow",
    "removed": "red",
    "no_longer_run": "yellow",
    "fixed": "green",
    "whole_again": "green",
}


class _Row(NamedTuple):
    """Cells of one case that changed in the same way."""

    case: str
    compilers: tuple[str, ...]
    old: str
    new: str
    why: str
    remark: str


def to_json(changes: Diff) -> str:
    """Return the diff as JSON, indented; `recapture.tools.compare.changes.diff_schema` describes it."""
    return msgspec.json.format(msgspec.json.encode(changes), indent=2).decode() + "\n"


def to_markdown(changes: Diff) -> str:
    """Return the diff as GitHub Markdown."""
    sections = [
        f"# Changes from {code(_name(changes, 'old'))} to {code(_name(changes, 'new'))}",
        _verdict(changes),
        "\n".join(f"- **Note:** {plain(warning)}" for warning in changes.warnings),
        _environment_markdown(changes),
        _claims_markdown(changes),
        _renamed_markdown(changes),
        _summary_markdown(changes),
        _devices_markdown(changes),
        *(_category_markdown(name, members) for name, members in changes.categories() if members),
        speeds_markdown(changes),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _environment_markdown(changes: Diff) -> str:
    if not changes.environment:
        return ""
    rows: list[list[Inline]] = [
        [fact.name, code_span(fact.old or "absent"), code_span(fact.new or "absent")]
        for fact in changes.environment
        if not fact.minor
    ]
    parts = [table_markdown(Table(["", "old", "new"], rows))] if rows else []
    parts += [f"Other packages: {plain(others)}."] if (others := _others(changes)) else []
    return "## What differs besides the cells\n\n" + "\n\n".join(parts)


def _claims_markdown(changes: Diff) -> str:
    if not changes.claims:
        return ""
    rows: list[list[Inline]] = [
        [
            Span(claim.id, link=address(claim.id)),
            code_span(claim.case),
            code_span(claim.compiler),
            code_span(claim.expected),
            claim.old,
            claim.new,
        ]
        for claim in changes.claims
    ]
    headers = ["claim", "case", "compiler", "expected", "old", "new"]
    return "## Published claims whose status changed\n\n" + table_markdown(Table(headers, rows))


def _renamed_markdown(changes: Diff) -> str:
    lines = [f"- {code(one.old)} is now {code(one.new)}" for one in changes.renamed]
    return "## Renamed\n\n" + "\n".join(lines) if lines else ""


def _summary_markdown(changes: Diff) -> str:
    found_tables = [table_markdown(table) for table in summary_tables(changes)]
    return "## Changed cells by suite and compiler\n\n" + "\n\n".join(found_tables) if found_tables else ""


def _devices_markdown(changes: Diff) -> str:
    lines = [f"- {plain(line)}" for line in device_lines(changes)]
    return f"## {KNOWN_OF_DEVICES}\n\n" + "\n".join(lines) if lines else ""


def _category_markdown(name: str, members: tuple[Change, ...]) -> str:
    told, alike = told_apart(name, members)
    parts = [f"## {_heading(name, members)}"]
    if told:
        parts.append(_rows_markdown(name, told))
    parts += ["\n".join(f"- {plain(line)}" for line in in_short(name, alike))] if alike else []
    return "\n\n".join(parts)


def _rows_markdown(name: str, members: Iterable[Change]) -> str:
    rows: list[list[Inline]] = []
    for row in _rows(name, members):
        why: list[str | Span] = [Span(row.remark)] if row.remark else []
        if row.why:
            why += ["; ", code_span(row.why)] if why else [code_span(row.why)]
        rows.append([code_span(row.case), code_list(row.compilers), row.old, row.new, why])
    return table_markdown(Table(["case", "compilers", "old", "new", "why"], rows))


def print_diff(console: Console, changes: Diff) -> None:
    """Print the diff without wrapping, so that a pipe gets one line for each change."""
    for line, style in _head(changes):
        say(console, line, style)
    for table in summary_tables(changes):
        say(console)
        say_table(console, table)
    known = device_lines(changes)
    for line, style in (("", ""), (KNOWN_OF_DEVICES, "bold"), *((f"  {one}", "") for one in known)) if known else ():
        say(console, line, style)
    for line, style in _lines(changes):
        say(console, line, style)


def _head(changes: Diff) -> Iterator[tuple[str, str]]:
    yield f"{_name(changes, 'old')} → {_name(changes, 'new')}", "bold"
    major = [fact for fact in changes.environment if not fact.minor]
    width = max((len(fact.name) for fact in major), default=0)
    for fact in major:
        yield f"  {fact.name:{width}}  {fact.old or 'absent'} → {fact.new or 'absent'}", ""
    if others := _others(changes):
        yield f"  other packages: {others}", "dim"
    for warning in changes.warnings:
        yield f"note: {warning}", "yellow"
    if changes.claims:
        yield "", ""
        yield f"published claims whose status changed: {len(changes.claims)}", "bold"
        for claim in changes.claims:
            where = f"{claim.case}::{claim.compiler}"
            yield f"  {claim.id}  {where}  {claim.expected}: {claim.old} → {claim.new}", ""
    if changes.renamed:
        yield "", ""
        yield f"renamed: {len(changes.renamed)}", "bold"
        for one in changes.renamed:
            yield f"  {one.old} → {one.new}", ""


def _lines(changes: Diff) -> Iterator[tuple[str, str]]:
    for name, members in changes.categories():
        if not members:
            continue
        yield "", ""
        yield _heading(name, members), _STYLES.get(name, "bold")
        case = ""
        told, alike = told_apart(name, members)
        for row in _rows(name, told):
            if row.case != case:
                case = row.case
                yield f"  {case}", ""
            why = ": ".join(part for part in (row.remark, row.why) if part)
            yield f"    {', '.join(row.compilers)}  {row.old} → {row.new}" + (f"  {why}" if why else ""), ""
        for line in in_short(name, alike):
            yield f"  {line}", "dim"
    yield from speed_lines(changes)
    yield "", ""
    yield _verdict(changes), "bold"


def _others(changes: Diff) -> str:
    return ", ".join(
        f"{fact.name} {fact.old or 'absent'} → {fact.new or 'absent'}" for fact in changes.environment if fact.minor
    )


def _name(changes: Diff, side: str) -> str:
    one = getattr(changes, side)
    return f"{one.image}/{one.capability}"


def _verdict(changes: Diff) -> str:
    number = found(changes, "regression")
    regressions = f"{number} {'regression' if number == 1 else 'regressions'}" if number else "no regression"
    counts = "".join(f", {len(members)} {_words(name)}" for name, members in changes.categories() if members)
    left = "".join(
        f", {side.not_asked} not asked for in {name}"
        for name, side in (("OLD", changes.old), ("NEW", changes.new))
        if side.not_asked
    )
    slower = found(changes, "slower")
    speed = f", {plural(slower, 'configuration')} slower or no longer right" if changes.speeds else ""
    return f"{regressions}{counts}, {changes.unchanged} unchanged{left}{speed}"


def _words(category: str) -> str:
    return category.replace("_", " ")


def _heading(category: str, members: tuple[Change, ...]) -> str:
    number = sum(is_regression(category, change) for change in members)
    worse = (
        f", {number} of them {'regressions' if number != 1 else 'a regression'}" if 0 < number < len(members) else ""
    )
    return f"{_words(category).capitalize()}: {len(members)}{worse} ({CATEGORIES[category]})"


def _rows(category: str, members: Iterable[Change]) -> list[_Row]:
    grouped: dict[tuple[str, str, str, str, str], list[str]] = {}
    for change in members:
        old, new = _outcome(change.old), _outcome(change.new)
        if change.old and change.new:
            if category == "captured_differently":
                old, new = _counts(change.old, change.new)
            elif category == "noted_differently" and _notes_of(change.old) != _notes_of(change.new):
                old, new = _notes_of(change.old), _notes_of(change.new)
            elif category == "failing_differently" and kinds_in_words(change.old) != kinds_in_words(change.new):
                old, new = _with_kinds(change.old), _with_kinds(change.new)
        stages = "" if category == "noted_differently" else stage_changed(change.old, change.new)
        remark = "possibly noise" if change.maybe_noise else stages
        grouped.setdefault((change.case, old, new, _why(category, change), remark), []).append(change.compiler)
    return [_Row(case, tuple(names), old, new, why, remark) for (case, old, new, why, remark), names in grouped.items()]


def _outcome(record: Record | None) -> str:
    return summary.measured(record) if record else "–"


def _counts(old: Record, new: Record) -> tuple[str, str]:
    """Return the counts that differ, on each side."""
    names = [name for name in ("graphs", "graph_breaks", "recompiles") if getattr(old, name) != getattr(new, name)]
    old_counts, new_counts = (
        ", ".join(f"{name}={'unknown' if getattr(side, name) is None else getattr(side, name)}" for name in names)
        for side in (old, new)
    )
    return old_counts, new_counts


def _with_kinds(record: Record) -> str:
    kinds = kinds_in_words(record)
    return f"{_outcome(record)} ({kinds})" if kinds else _outcome(record)


def _notes_of(record: Record) -> str:
    """Return the kinds of a cell's noted differences and its number of remarks, or ``none``."""
    parts = kinds_of(record.noted) + ([plural(len(record.notes), "remark")] if record.notes else [])
    return ", ".join(parts) or "none"


def _why(category: str, change: Change) -> str:
    """Return the reason of the worse side, or of the other side if that has none."""
    if category == "failing_differently" and change.old and change.new:
        if words := failure_words(change.old, change.new, WORDS_LIMIT):
            return words
    elif category == "noted_differently" and change.old and change.new:
        return changed_note(change.old, change.new, WHY_LIMIT)
    sides = (change.old, change.new) if category in ("fixed", "whole_again") else (change.new, change.old)
    for record in sides:
        if record is not None and (why := summary.explain(record, WHY_LIMIT)):
            return why
    return ""
