"""What people read of an upgrade: one document for the terminal, for Markdown and for HTML, and JUnit's XML."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from recapture.base.text import plural, shorten
from recapture.machine.pins import load_images
from recapture.records.verdicts import Verdict
from recapture.report.document import Block, Fold, Heading, Inline, Item, Items, Paragraph, Table, code_span
from recapture.report.junit import JUnitCase, junit
from recapture.tools.upgrade.comparison import BAD, CATEGORIES, UNDECIDED, Group
from recapture.tools.upgrade.outcomes import COMMAND, Failure
from recapture.tools.upgrade.places import place_of
from recapture.tools.upgrade.sources import edited_text
from recapture.tools.upgrade.upgrade import Comparison, PlaceResult, UpgradeReport

SHOWN = 10
"""Tests of one group that are listed; the others are counted."""

LONGEST = 300
"""Characters shown of one message."""


def upgrade_document(report: UpgradeReport, *, whole: bool = False) -> list[Block]:
    """Return the report as a document; with `whole`, every test of a group is listed, behind a fold."""
    against = f"; compared with {report.baseline}" if report.places else ""
    blocks: list[Block] = [
        Heading(report.headline, level=1),
        Paragraph(["command: ", code_span(shlex.join(report.command)), against]),
    ]
    if report.edited:
        blocks.append(Paragraph(edited_text(report.edited), style="bold"))
    if report.fails_itself:
        blocks.append(Paragraph(shorten(report.fails_itself, LONGEST)))
    if report.uncollected:
        rows = [Item(shorten(line, LONGEST)) for line in report.uncollected[:SHOWN]]
        blocks += [
            Paragraph(f"not collected on {report.baseline} itself, so that their tests are unknown:"),
            Items(rows),
        ]
    blocks.append(_table(report))
    for comparison in report.places:
        blocks += _section(report, comparison, whole=whole)
    if report.failing:
        number = sum(len(group.tests) for group in report.failing)
        blocks += [Heading(f"Failing on {report.baseline} itself: {plural(number, 'test')}"), *_causes(report.failing)]
    if report.flaky:
        blocks += [
            Heading(f"Flaky: {plural(len(report.flaky), 'test')}"),
            Paragraph("These do not end alike each time, in one environment. No release is blamed for them."),
            _names(report.flaky, whole=whole),
        ]
    return blocks


def _causes(groups: Sequence[Group]) -> Iterator[Block]:
    """Yield each cause with the first of its tests."""
    items = []
    for group in groups[:SHOWN]:
        number = len(group.tests)
        more = f" and {number - 1} more" if number > 1 else ""
        reason = f": {_reason(group.failure)}" if group.failure is not None else ""
        items.append(Item([code_span(group.tests[0]), f"{more}{reason}"]))
    if len(groups) > SHOWN:
        items.append(Item(f"and {plural(len(groups) - SHOWN, 'further cause')}"))
    yield Items(items)


def _table(report: UpgradeReport) -> Table:
    outcomes = sorted({name for comparison in report.places for name in comparison.counts})
    rows: list[Sequence[Inline]] = []
    for comparison in report.places:
        counts = [str(comparison.counts.get(name, "")) for name in outcomes]
        equal = f"{comparison.planned} = {comparison.recorded}"
        name = comparison.name if comparison.pinned or comparison.name == "here" else f"{comparison.name} (not pinned)"
        rows.append([name, equal, *counts])
    return Table(["environment", "planned = recorded", *outcomes], rows, "lr")


def _section(report: UpgradeReport, comparison: Comparison, *, whole: bool) -> list[Block]:
    if comparison.problem:
        return [Heading(comparison.name), Paragraph(f"This environment could not be used: {comparison.problem}")]
    groups = [group for group in comparison.groups if group.category not in ("still_failing", "new_test", "flaky")]
    alike = [group for group in comparison.groups if group.category in ("still_failing", "new_test")]
    if not (groups or alike or comparison.warnings or comparison.frames or comparison.frames_unknown):
        return []
    against = "" if comparison.against == comparison.name else f", against {comparison.against}"
    blocks: list[Block] = [Heading(f"{comparison.name}{against}")]
    for group in groups:
        blocks += _group(report, comparison, group, whole=whole)
    for category in dict.fromkeys(group.category for group in alike):
        number = sum(len(group.tests) for group in alike if group.category == category)
        blocks.append(Paragraph(f"{plural(number, 'test')} {CATEGORIES[category]}"))
    if comparison.frames:
        blocks.append(Paragraph(f"graph breaks and recompiles differ in {plural(len(comparison.frames), 'function')}:"))
        blocks.append(Items([Item(change.sentence) for change in comparison.frames]))
    if comparison.frames_unknown:
        blocks.append(Paragraph(f"graph breaks and recompiles are unknown: {comparison.frames_unknown}"))
    if comparison.warnings:
        blocks.append(Paragraph(f"{plural(len(comparison.warnings), 'new warning')} that something is deprecated:"))
        rows = [Item(shorten(f"{row.category}: {row.message}", LONGEST)) for row in comparison.warnings]
        blocks.append(Items(rows))
    if comparison.packages and any(group.category in BAD for group in groups):
        blocks.append(Paragraph(f"packages that differ: {_changed_packages(comparison.packages)}"))
    return blocks


def _changed_packages(packages: Sequence[tuple[str, str, str]]) -> str:
    """Return what differs; CUDA's packages, of which a release has dozens, are counted."""
    cuda = [row for row in packages if row[0].startswith(("nvidia-", "cuda-"))]
    others = [
        f"{name} {old or 'absent'} → {new or 'absent'}" for name, old, new in packages if (name, old, new) not in cuda
    ]
    return shorten(", ".join([*others, *([f"{len(cuda)} of CUDA"] if cuda else [])]), 4 * LONGEST)


def _group(report: UpgradeReport, comparison: Comparison, group: Group, *, whole: bool) -> list[Block]:
    number = len(group.tests)
    one_cause = ", one cause" if number > 1 and group.failure is not None else ""
    parts: list[Inline] = [f"{plural(number, 'test')} {CATEGORIES[group.category]}{one_cause}"]
    reason = f": {_reason(group.failure)}" if group.failure is not None else ""
    blocks: list[Block] = [Paragraph(f"{parts[0]}{reason}", style="bold" if group.category in BAD else "")]
    if group.category in BAD:
        facts = []
        if group.failure is not None and group.failure.place:
            line = f", line {group.failure.line}" if group.failure.line else ""
            facts.append(f"in {group.failure.place}{line}")
        if group.failure is not None and group.failure.operator:
            facts.append(f"operator: {group.failure.operator}")
        # The code of a baseline file may be older than that of this run.
        if group.cause:
            facts.append(f"raised in {group.cause}" + (", unless your code changed" if report.from_file else ""))
        else:
            facts.append("the cause is not decided")
            facts += ["your code may have changed, too"] if report.from_file else []
        blocks.append(Paragraph("; ".join(facts)))
        if not group.cause:
            blocks.append(Paragraph(f"to find it: {_advice(report, comparison, group)}"))
    return [*blocks, _names(group.tests, whole=whole)]


def _advice(report: UpgradeReport, comparison: Comparison, group: Group) -> str:
    """Return the command that finds what a change comes from, between the two releases that were compared."""
    old = comparison.against.partition(" ")[0]  # a baseline file says which release of it
    releases = {place_of(image).name for image in load_images().values()}
    between = ["--good", old, "--bad", comparison.name] if {old, comparison.name} <= releases else []
    test = [] if group.tests[0] == COMMAND else ["--test", group.tests[0]]
    return shlex.join(["recapture", "bisect", *between, *test, *report.options, "--", *report.command])


def _reason(failure: Failure | None) -> str:
    if failure is None:
        return ""
    return shorten(f"{failure.type}: {failure.message}" if failure.message else failure.type, LONGEST)


def _names(tests: Sequence[str], *, whole: bool) -> Block:
    rows = Items([Item([code_span(test)]) for test in tests])
    if whole and len(tests) > SHOWN:
        return Fold(plural(len(tests), "test"), [rows])
    if len(tests) <= SHOWN:
        return rows
    return Items([*rows.items[:SHOWN], Item(f"and {len(tests) - SHOWN} more")])


def upgrade_junit(report: UpgradeReport, results: Sequence[PlaceResult]) -> bytes:
    """Return a test case for each test and environment: what is worse fails, what could not be decided is skipped."""
    cases = [case for pair in zip(report.places, results, strict=True) for case in _cases(*pair)]
    return junit(cases, {"command": shlex.join(report.command), "baseline": report.baseline}, report.headline)


def _cases(comparison: Comparison, result: PlaceResult) -> Iterator[JUnitCase]:
    changes = {change.test: change for change in comparison.changes}
    rows = {row.test: row for row in (result.rounds[0].tests if result.rounds else ())}
    for test in sorted({*changes, *rows}):
        change = changes.get(test)
        seconds = rows[test].seconds if test in rows else 0.0
        verdict, message, details = Verdict.PASS, "", []
        if change is not None and change.category in BAD:
            verdict = Verdict.ERROR
            message = f"{CATEGORIES[change.category]}: {_reason(change.failure) or change.after}"
            details = [change.failure.sentence] if change.failure is not None else []
        elif change is not None and (change.category in UNDECIDED or change.category in ("flaky", "still_failing")):
            verdict, message = Verdict.NOT_APPLICABLE, CATEGORIES[change.category]
        elif test in rows and rows[test].outcome == "skipped":
            verdict, message = Verdict.NOT_APPLICABLE, "skipped"
        file, _, name = test.partition("::")
        yield JUnitCase(f"{comparison.name} {file}", name or file, seconds, verdict, message, details)
