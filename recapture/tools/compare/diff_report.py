"""A diff as text for a terminal or a pipe, as Markdown, and as JSON."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from recapture.base.escape import indented_json
from recapture.base.text import plural, ratio_text, time_text
from recapture.known.devices import GROUPS, DeviceDifference, matching
from recapture.records.record import Record
from recapture.records.verdicts import outcome_of
from recapture.report import summary
from recapture.report.claim_sources import address
from recapture.report.differences import changed_note, kinds_in_words, kinds_of, stage_changed
from recapture.report.document import (
    Block,
    Heading,
    Inline,
    Item,
    Items,
    Paragraph,
    Span,
    Table,
    code_list,
    code_span,
    strong,
    verbatim,
)
from recapture.report.markdown_writer import to_markdown as markdown
from recapture.tools.compare.changed_words import WORDS_LIMIT, changed_alike, failure_words, told_apart
from recapture.tools.compare.changes import (
    CATEGORIES,
    SPEED_CATEGORIES,
    SPEED_CHANGES,
    Change,
    Diff,
    Ratio,
    SpeedChange,
    SpeedSide,
    is_regression,
    matching_changes,
)

if TYPE_CHECKING:
    from rich.console import Console

STEPS_SCHEMA_VERSION = 1
"""Version of the JSON form of several diffs."""

WHY_LIMIT = 160
"""Characters of a reason shown in text and Markdown; the JSON has the complete records."""

FEWEST_SUMMARISED = 4
"""Smallest number of changed cells that is worth a summary by suite and compiler."""

_HEADING_STYLES = {
    "newly_wrong": "bold red",
    "newly_failing": "red",
    "newly_breaking": "yellow",
    "removed": "red",
    "no_longer_run": "yellow",
    "fixed": "green",
    "whole_again": "green",
}

_SPEED_STYLES = {"no_longer_right": "red", "slower": "red", "newly_right": "green", "faster": "green"}


def to_json(*steps: Diff) -> str:
    """Return a diff as JSON, which `recapture.tools.compare.changes.diff_schema` describes, or a list of several."""
    return indented_json(steps[0] if len(steps) == 1 else {"schema": STEPS_SCHEMA_VERSION, "diffs": list(steps)})


def to_markdown(*steps: Diff) -> str:
    """Return diffs as GitHub Markdown; before several, a table of what each changed."""
    blocks = list(_steps(steps))
    for changes in steps:
        blocks += [_title(changes), Paragraph(_verdict(changes)), *_sections(changes)]
    return markdown(blocks)


def print_diff(console: Console, *steps: Diff) -> None:
    """Print diffs, each with its verdict at the end, where it stays in view; a pipe gets one line for each change."""
    from recapture.report.terminal_writer import print_document

    blocks = list(_steps(steps))
    for changes in steps:
        blocks += [_title(changes), *_sections(changes), Heading(_verdict(changes))]
    print_document(console, blocks)


def _steps(steps: Sequence[Diff]) -> Iterator[Block]:
    """Yield the number of regressions, and of changed cells of each category, for each of several diffs."""
    if len(steps) == 1:
        return
    seen = [name for name in CATEGORIES if any(getattr(changes, name) for changes in steps)]
    rows: list[list[Inline]] = [
        [
            f"{changes.old.image} → {changes.new.image}",
            str(matching_changes(changes, "regression")),
            *(str(len(getattr(changes, name))) for name in seen),
        ]
        for changes in steps
    ]
    yield Heading("From one to the next", 1)
    yield Table(["", "regressions", *map(_words, seen)], rows, "l" + "r" * (len(seen) + 1))


def _title(changes: Diff) -> Block:
    old, new = (f"{side.image}/{side.capability}" for side in (changes.old, changes.new))
    return Heading(["Changes from ", code_span(old), " to ", code_span(new)], 1)


def _sections(changes: Diff) -> Iterator[Block]:
    if changes.warnings:
        yield Items([Item([strong("Note:"), f" {warning}"], style="yellow") for warning in changes.warnings])
    yield from _environment(changes)
    if changes.claims:
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
        yield Heading("Published claims whose status changed")
        yield Table(["claim", "case", "compiler", "expected", "old", "new"], rows, terminal="lines")
    if changes.renamed:
        yield Heading("Renamed")
        yield Items([Item([code_span(rename.old), " is now ", code_span(rename.new)]) for rename in changes.renamed])
    if tables := _summary_tables(changes):
        yield Heading("Changed cells by suite and compiler")
        yield from tables
    if lines := device_lines(changes):
        yield Heading("Known differences between a CPU and a GPU")
        yield Items([Item(line) for line in lines])
    for name, members in changes.categories():
        if members:
            yield from _category(name, members)
    yield from _speeds(changes)


def _environment(changes: Diff) -> Iterator[Block]:
    if not changes.environment:
        return
    yield Heading("What differs besides the cells")
    rows: list[list[Inline]] = [
        [fact.name, code_span(fact.old or "absent"), code_span(fact.new or "absent")]
        for fact in changes.environment
        if not fact.minor
    ]
    if rows:
        yield Table(["", "old", "new"], rows, terminal="lines")
    others = ", ".join(
        f"{fact.name} {fact.old or 'absent'} → {fact.new or 'absent'}" for fact in changes.environment if fact.minor
    )
    if others:
        yield Paragraph(["Other packages: ", others, "."], style="dim")


def _verdict(changes: Diff) -> str:
    number = matching_changes(changes, "regression")
    regressions = plural(number, "regression") if number else "no regression"
    counts = "".join(f", {len(members)} {_words(name)}" for name, members in changes.categories() if members)
    not_asked = "".join(
        f", {side.not_asked} not asked for in {name}"
        for name, side in (("OLD", changes.old), ("NEW", changes.new))
        if side.not_asked
    )
    slower = matching_changes(changes, "slower")
    speed = f", {plural(slower, 'configuration')} slower or no longer right" if changes.speeds else ""
    return f"{regressions}{counts}, {changes.unchanged} unchanged{not_asked}{speed}"


def _words(category: str) -> str:
    return category.replace("_", " ")


# How many cells changed, and what is known of them


def _summary_tables(changes: Diff) -> list[Table]:
    """Return the changed cells of each suite, and of each compiler, by category; nothing if only a few changed."""
    names = [name for name, members in changes.categories() if members]
    suites: dict[str, Counter[str]] = defaultdict(Counter)
    compilers: dict[str, Counter[str]] = defaultdict(Counter)
    for name, members in changes.categories():
        for change in members:
            suites[summary.suite_of(change.case)][name] += 1
            compilers[change.compiler][name] += 1
    if sum(map(Counter.total, suites.values())) < FEWEST_SUMMARISED:
        return []
    by_compiler = dict(sorted(compilers.items(), key=lambda item: summary.compiler_key(item[0])))
    align = "l" + "r" * len(names)
    return [
        Table([noun, *map(_words, names)], [_counts_row(key, counts, names) for key, counts in groups.items()], align)
        for noun, groups in (("suite", dict(sorted(suites.items()))), ("compiler", by_compiler))
    ]


def _counts_row(key: str, counts: Counter[str], names: list[str]) -> list[Inline]:
    return [code_span(key), *(str(counts[name]) if counts[name] else "" for name in names)]


def device_lines(changes: Diff) -> list[str]:
    """Return a line for each known difference of two devices with the cells that it explains, and one for the others.

    There is none unless the two sides are a CPU and a GPU with the same release of torch, or nothing is known of it.
    The differences are those of ``suites/devices.toml``.
    """
    release = _release(changes.old.image)
    if release is None or release != _release(changes.new.image):
        return []
    cells: dict[DeviceDifference, int] = {}
    unexplained = 0
    for name in ("newly_wrong", "newly_failing", "failing_differently", "fixed"):
        for change in getattr(changes, name):
            explanations = _device_differences(release, change)
            for difference in explanations:
                cells[difference] = cells.get(difference, 0) + 1
            unexplained += not explanations and _other_outcome(change)
    lines = [
        f"{plural(number, 'cell')}: {GROUPS[difference.group]}. {difference.line}"
        for difference, number in cells.items()
    ]
    if lines and unexplained:
        lines.append(f"{plural(unexplained, 'cell')} with another outcome: not explained")
    return lines


def _release(image: str) -> str | None:
    match = re.search(r"torch(\d+(?:\.\d+)*)", image)
    return match[1] if match else None


def _device_differences(release: str, change: Change) -> list[DeviceDifference]:
    """Return what explains a change between two devices; nothing if both records are of one device."""
    by_device = {record.device: record for record in (change.old, change.new) if record is not None}
    if by_device.keys() != {"cpu", "cuda"}:
        return []
    return matching(release, by_device["cpu"], by_device["cuda"])


def _other_outcome(change: Change) -> bool:
    if change.old is None or change.new is None:
        return False
    return outcome_of(change.old.verdict) != outcome_of(change.new.verdict)


# The cells of one category


def _category(name: str, members: tuple[Change, ...]) -> Iterator[Block]:
    number = sum(is_regression(name, change) for change in members)
    worse = (
        f", {number} of them {'regressions' if number != 1 else 'a regression'}" if 0 < number < len(members) else ""
    )
    heading = f"{_words(name).capitalize()}: {len(members)}{worse} ({CATEGORIES[name]})"
    yield Heading(heading, style=_HEADING_STYLES.get(name, "bold"))
    told, alike = told_apart(name, members)
    if told:
        yield Table(["case", "compilers", "old", "new", "why"], _rows(name, told), terminal="groups")
    if lines := changed_alike(name, alike):
        yield Items([Item(line, style="dim") for line in lines])


def _rows(category: str, members: Iterable[Change]) -> list[list[Inline]]:
    """Return a row for the cells of each case that changed in the same way."""
    grouped: dict[tuple[str, Span, Span, str, str], list[str]] = {}
    for change in members:
        old, new = _outcomes(category, change)
        stages = "" if category == "noted_differently" else stage_changed(change.old, change.new)
        remark = "possibly noise" if change.maybe_noise else stages
        grouped.setdefault((change.case, old, new, remark, _why(category, change)), []).append(change.compiler)
    rows: list[list[Inline]] = []
    for (case, old, new, remark, why), compilers in grouped.items():
        parts: list[str | Span] = [remark] if remark else []
        if why:
            parts += ["; ", code_span(why)] if parts else [code_span(why)]
        rows.append([code_span(case), code_list(compilers), old, new, parts])
    return rows


def _outcomes(category: str, change: Change) -> tuple[Span, Span]:
    """Return what differs between the two sides of a change, each in the colour of its verdict."""
    old, new = change.old, change.new
    words = tuple(summary.measured(record) if record else "–" for record in (old, new))
    if old and new:
        if category == "captured_differently":
            words = _counts(old, new)
        elif category == "noted_differently" and _notes_of(old) != _notes_of(new):
            words = (_notes_of(old), _notes_of(new))
        elif category == "failing_differently" and kinds_in_words(old) != kinds_in_words(new):
            words = (summary.measured_with_kinds(old), summary.measured_with_kinds(new))
    before, after = (Span(text, style=summary.colour(record)) for text, record in zip(words, (old, new), strict=True))
    return before, after


def _counts(old: Record, new: Record) -> tuple[str, str]:
    """Return the counts that differ, on each side."""
    names = [name for name in ("graphs", "graph_breaks", "recompiles") if getattr(old, name) != getattr(new, name)]
    old_counts, new_counts = (
        ", ".join(f"{name}={'unknown' if getattr(side, name) is None else getattr(side, name)}" for name in names)
        for side in (old, new)
    )
    return old_counts, new_counts


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


# Speeds


def _speeds(changes: Diff) -> Iterator[Block]:
    if not changes.speeds:
        return
    counts = Counter(change.category for change in changes.speeds)
    yield Heading("Speed")
    yield Paragraph(", ".join(f"{counts[name]} {_words(name)}" for name in SPEED_CATEGORIES if counts[name]))
    rows: list[list[Inline]] = [
        [
            code_span(change.workload),
            code_span(change.configuration),
            _speed(change.old, change),
            _speed(change.new, change),
            _by(change),
            Span(_words(change.category), style=_SPEED_STYLES.get(change.category, "")),
            _times(change.eager),
            _first_calls(change),
        ]
        for change in _worst_first(changes.speeds)
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
    if rows:
        yield Table(headers, rows, terminal="groups", labels=(6, 7))


def _worst_first(speeds: Iterable[SpeedChange]) -> list[SpeedChange]:
    """Return certain and possible changes by workload, with each workload's worst first."""
    order = {name: place for place, name in enumerate(SPEED_CATEGORIES)}
    listed = (change for change in speeds if change.category in (*SPEED_CHANGES, "too_noisy"))
    return sorted(listed, key=lambda change: (change.workload, order[change.category], change.configuration))


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
    return " → ".join(text or "–" for text in seconds) if any(seconds) else ""
