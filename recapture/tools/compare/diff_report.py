"""A diff as text for a terminal or a pipe, as Markdown, and as JSON."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from recapture.base.escape import indented_json
from recapture.base.text import plural, ratio_text, time_text
from recapture.known.devices import GROUPS, DeviceDifference, matching
from recapture.records.eager_calls import EAGER_CHANGES
from recapture.records.record import Record
from recapture.records.verdicts import outcome_of
from recapture.report import summary
from recapture.report.claim_sources import address
from recapture.report.cost_words import CATEGORIES as COST_CATEGORIES
from recapture.report.cost_words import change_text
from recapture.report.differences import (
    changed_note,
    kinds_in_words,
    kinds_of,
    notes_of,
    stage_changed,
)
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
from recapture.tools.compare.changes import (
    CATEGORIES,
    SPEED_CATEGORIES,
    SPEED_CHANGES,
    Change,
    CostChange,
    Diff,
    EagerDiff,
    Ratio,
    SpeedChange,
    SpeedSide,
    is_regression,
    matching_changes,
)
from recapture.tools.compare.failure_changes import changed_words, failure_words, only_wording

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

_BY_EAGER = ("newly_wrong", "newly_failing", "failing_differently", "fixed")
"""Categories of which another eager can be the cause."""

WORDS_LIMIT = 100
"""Characters of the words that only one side of a failure has."""

MOST_LINES = 10
"""Number of shared changes that are shown."""

MOST_ALIKE = 20
"""Number of cells whose notes changed alike that are shown one by one."""


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
    categories = [name for name in CATEGORIES if any(getattr(changes, name) for changes in steps)]
    rows: list[list[Inline]] = [
        [
            f"{changes.old.image} → {changes.new.image}",
            str(matching_changes(changes, "regression")),
            *(str(len(getattr(changes, name))) for name in categories),
        ]
        for changes in steps
    ]
    yield Heading("From one to the next", 1)
    yield Table(["", "regressions", *map(_words, categories)], rows, "l" + "r" * (len(categories) + 1))


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
            yield from _category(name, members, changes.eager)
    yield from _eager(changes)
    yield from _speeds(changes)


def _eager(changes: Diff) -> Iterator[Block]:
    """Yield how eager itself changed: a row for each case beyond rounding, and a line for each of the other kinds."""
    if changes.eager is None or not changes.eager.changed:
        return
    yield Heading("Eager itself changed")
    same = f"{plural(changes.eager.same, 'case')} with the same bits"
    unstable = f", {changes.eager.unstable} on which eager disagrees with itself" if changes.eager.unstable else ""
    yield Paragraph(f"{plural(len(changes.eager.changed), 'case')} changed, {same}{unstable}.")
    rows: list[list[Inline]] = [
        [code_span(entry.case), entry.change.input, entry.change.words] for entry in changes.eager.beyond_rounding
    ]
    if rows:
        yield Table(["case", "input", "change"], rows, terminal="lines")
    if lines := [line for kind in ("rounding", "inputs") if (line := _eager_line(changes.eager, kind))]:
        yield Items([Item(line, style="dim") for line in lines])


def _eager_line(eager: EagerDiff, kind: str) -> str:
    """Return a line for the cases whose eager changed in one way, those with the fewest agreeing digits first."""
    entries = [entry for entry in eager.changed if entry.change.kind == kind]
    if not entries:
        return ""
    named = ", ".join(
        entry.case + (f" ({entry.change.digits:.1f} digits)" if entry.change.digits is not None else "")
        for entry in entries[:MOST_LINES]
    )
    more = f" and {len(entries) - MOST_LINES} more" if len(entries) > MOST_LINES else ""
    return f"{plural(len(entries), 'case')} with {EAGER_CHANGES[entries[0].change.kind]}: {named}{more}"


def _environment(changes: Diff) -> Iterator[Block]:
    if not changes.environment:
        return
    yield Heading("What differs besides the cells")
    rows: list[list[Inline]] = [
        [fact.name, code_span(_without_long_digests(fact.old)), code_span(_without_long_digests(fact.new))]
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


def _without_long_digests(fact: str | None) -> str:
    """Return a fact with the first 12 digits of each digest and commit; the JSON has all of them."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b", r"\1", fact or "absent")


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
    beyond = len(changes.eager.beyond_rounding) if changes.eager is not None else 0
    eager = f", eager itself changed in {plural(beyond, 'case')}" if beyond else ""
    return f"{regressions}{counts}, {changes.unchanged} unchanged{not_asked}{speed}{eager}"


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
    The differences are those of ``suites/devices.toml``. What can come from another version of the judge is counted
    where one of them explains it, and is otherwise not a difference of the devices.
    """
    release = _release(changes.old.image)
    if release is None or release != _release(changes.new.image):
        return []
    cells: dict[DeviceDifference, int] = {}
    unexplained = 0
    for name in ("newly_wrong", "newly_failing", "failing_differently", "fixed", "judged_differently"):
        for change in getattr(changes, name):
            explanations = _device_differences(release, change)
            for difference in explanations:
                cells[difference] = cells.get(difference, 0) + 1
            unexplained += not explanations and name != "judged_differently" and _other_outcome(change)
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


def _category(name: str, members: tuple[Change, ...], eager: EagerDiff | None) -> Iterator[Block]:
    number = sum(is_regression(name, change) for change in members)
    worse = (
        f", {number} of them {'regressions' if number != 1 else 'a regression'}" if 0 < number < len(members) else ""
    )
    heading = f"{_words(name).capitalize()}: {len(members)}{worse} ({CATEGORIES[name]})"
    yield Heading(heading, style=_HEADING_STYLES.get(name, "bold"))
    individual, alike = told_apart(name, members)
    if individual:
        yield Table(["case", "compilers", "old", "new", "why"], _rows(name, individual, eager), terminal="groups")
    if lines := changed_alike(name, alike):
        yield Items([Item(line, style="dim") for line in lines])


def _rows(category: str, members: Iterable[Change], eager: EagerDiff | None) -> list[list[Inline]]:
    """Return a row for the cells of each case that changed in the same way.

    Where eager itself gives something else, the row says so: the compiler may be as right or wrong as before.
    """
    of_eager = {entry.case: entry.change.input for entry in eager.beyond_rounding} if eager is not None else {}
    grouped: dict[tuple[str, Span, Span, str, str], list[str]] = {}
    for change in members:
        old, new = _outcomes(category, change)
        stages = "" if category == "noted_differently" else stage_changed(change.old, change.new)
        remark = "possibly noise" if change.maybe_noise else stages
        if category in _BY_EAGER and change.case in of_eager:
            remark = "; ".join(filter(None, [remark, f"eager itself changed on {of_eager[change.case]}"]))
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
    costs: Counter[str] = Counter()
    for change in changes.speeds:
        costs.update({cost.category for cost in change.costs})
    parts = [f"{counts[name]} {_words(name)}" for name in SPEED_CATEGORIES if counts[name]]
    parts += [f"{number} {COST_CATEGORIES[name]}" for name, number in sorted(costs.items()) if name != "differs"]
    yield Paragraph(", ".join(parts))
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
    moved = [change.yardstick for change in changes.speeds if change.yardstick is not None]
    if moved:
        middle = sorted(moved)[len(moved) // 2]
        yield Paragraph(
            f"The machine itself was {_times(middle)} as fast in NEW, by a fixed piece of work beside each row. "
            "Seconds are compared without that."
        )
    costlier = [
        Item([code_span(change.workload), " ", code_span(change.configuration), f": {'; '.join(map(_cost, changed))}"])
        for change in sorted(changes.speeds, key=lambda change: (change.workload, change.configuration))
        if (changed := [cost for cost in change.costs if cost.category != "differs"])
    ]
    if costlier:
        yield Items(costlier)
    compiled = sum(any(cost.category == "differs" for cost in change.costs) for change in changes.speeds)
    if compiled:
        yield Paragraph(f"{plural(compiled, 'configuration')} with other graphs, kernels or code: see --format json")


def _cost(cost: CostChange) -> str:
    return change_text(cost.cost, cost.category, cost.old, cost.new)


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


# Changes that many cells share


def told_apart(category: str, members: tuple[Change, ...]) -> tuple[list[Change], list[Change]]:
    """Return the changes to show one by one, and those to show once with the number of their cells.

    The latter are failures that only changed the wording of their message, and a change of notes that many cells share.
    """
    individual: list[Change] = []
    alike: list[Change] = []
    notes = Counter(map(_notes_that_changed, members)) if category == "noted_differently" else Counter()
    for change in members:
        wording = (
            category == "failing_differently" and change.old and change.new and only_wording(change.old, change.new)
        )
        shared = category == "noted_differently" and notes[_notes_that_changed(change)] > MOST_ALIKE
        (alike if wording or shared else individual).append(change)
    return individual, alike


def changed_alike(category: str, members: Iterable[Change]) -> list[str]:
    """Return a line for each change that cells share, with their number; the commonest first."""
    cells: dict[str, list[Change]] = {}
    for change in members:
        if change.old is None or change.new is None:
            continue
        if category == "noted_differently":
            words = changed_note(change.old, change.new, WORDS_LIMIT)
        elif change.old.error and change.new.error:
            differing = changed_words(change.old.error.message, change.new.error.message, WORDS_LIMIT)
            words = f"{change.new.error.type}: {differing}"
        else:
            continue
        cells.setdefault(words, []).append(change)
    if category == "noted_differently":
        return _lines("whose notes changed alike", "changes of notes", cells)
    return _lines("with the same failure in other words", "changes of wording", cells)


def _lines(what: str, changes: str, cells: dict[str, list[Change]]) -> list[str]:
    if not cells:
        return []
    ranked = sorted(cells.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = [f"{plural(sum(map(len, cells.values())), 'cell')} {what}:"]
    for words, members in ranked[:MOST_LINES]:
        first = f"{members[0].case}::{members[0].compiler}"
        more = f" and {len(members) - 1} more" if len(members) > 1 else ""
        lines.append(f"{words} ({first}{more})")
    others = ranked[MOST_LINES:]
    if others:
        number = plural(sum(len(members) for _, members in others), "cell")
        lines.append(f"and {number} with {len(others)} other {changes}")
    return lines


def _notes_that_changed(change: Change) -> frozenset[tuple[str, ...]]:
    """Return what identifies the notes that only one side of a change has."""
    if change.old is None or change.new is None:
        return frozenset()
    return frozenset(notes_of(change.old).keys() ^ notes_of(change.new).keys())
