"""The sections of ``conformance.md`` about differences: silent wrongs, suspect references, and what decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.analysis import summary
from recapture.analysis.differences import how_far, kinds_of, noted_by_compiler, place, silent_kinds
from recapture.analysis.groups import noted_groups, together
from recapture.analysis.stage_words import stage_of
from recapture.analysis.suspects import FEWEST, suspects
from recapture.base.text import plural, shorten
from recapture.report.markup import code, html_text, plain
from recapture.report.stages_markdown import blame
from recapture.report.tables import Cell, Table, code_span, to_markdown
from recapture.results.kinds import KINDS
from recapture.results.verdicts import SILENTLY_WRONG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.analysis.groups import Group
    from recapture.results.records import Difference, Record

__all__ = ["MESSAGE_LIMIT", "folded", "noted", "silent_wrongs"]

MESSAGE_LIMIT = 200
"""Characters of a message in a report; the records have the complete message."""

DIFFERENCES_SHOWN = 4
"""Number of differences shown for one silently wrong cell; the records have all of them."""

SUSPECT = (
    f"{FEWEST} or more unrelated compilers show the same difference, so that eager or the case itself may be at fault."
)
"""Sentence below the heading of suspect references."""


def silent_wrongs(records: Sequence[Record]) -> str:
    """Return the silent differences: counted by kind, then cell by cell, then the suspect references."""
    by_case = summary.silent_wrongs(records)
    number = sum(len(cells) for cells in by_case.values())
    if not number:
        return "## Silently wrong\n\nNo cell." if records else ""
    lines = []
    for case, cells in by_case.items():
        kinds = ", ".join(kinds_of(one for record in cells for one in record.differences))
        lines.append(f"- {code(case)} ({kinds})" if kinds else f"- {code(case)}")
        alike: dict[tuple[object, ...], list[Record]] = {}
        for record in cells:
            alike.setdefault((record.verdict, record.differences, stage_of(record)), []).append(record)
        for members in alike.values():
            names = ", ".join(code(record.compiler) for record in members)
            said = _differences(members[0].differences) or plain(members[0].reason or "no difference is recorded")
            lines.append(f"  - {names} ({members[0].verdict}): {said}{blame(stage_of(members[0]))}")
    wrong_cases = plural(len(by_case), "case")
    return (
        f"## Silently wrong\n\n{plural(number, 'cell')} of {wrong_cases} did something else than eager "
        f"and said nothing.\n\n{_kinds_table(records)}\n\n" + "\n".join(lines) + _suspects(records)
    )


def _kinds_table(records: Sequence[Record]) -> str:
    """Return the table of the silent differences by kind."""
    wrong = [record for record in records if record.verdict in SILENTLY_WRONG]
    rows: list[list[Cell]] = [
        [code_span(one.kind), one.cells, one.cases, KINDS[one.kind]] for one in silent_kinds(wrong)
    ]
    return to_markdown(Table(["kind of difference", "cells", "cases", "meaning"], rows, "lrrl"))


def _suspects(records: Sequence[Record]) -> str:
    """Return the cases in which eager itself may be at fault."""
    lines = [
        f"- {code(one.case)}: {_differences([one.difference])}: "
        + ", ".join(code(record.compiler) for record in one.records)
        for one in suspects(records)
    ]
    if not lines:
        return ""
    return f"\n\n### Suspect references\n\n{SUSPECT}\n\n" + "\n".join(lines)


def _differences(differences: Sequence[Difference]) -> str:
    """Return the first differences, naming each input once."""
    parts = []
    last = None
    for one in differences[:DIFFERENCES_SHOWN]:
        on = f"{_on(one.input)}: " if one.input != last else ""
        far = f" ({plain(far)})" if (far := how_far(one)) else ""
        detail = f" {code(shorten(one.detail, MESSAGE_LIMIT))}" if one.detail.strip() else ""
        parts.append(f"{on}{code(one.where)} {plain(one.kind)}{far}{detail}")
        last = one.input
    if len(differences) > DIFFERENCES_SHOWN:
        parts.append(f"and {len(differences) - DIFFERENCES_SHOWN} more")
    return "; ".join(parts)


def _on(label: str) -> str:
    """Return an input in words, with the name of an argument as code."""
    words = place(label)
    return f"on {code(label)}" if words == f"on {label}" else plain(words)


def noted(shown: Sequence[Record], records: Sequence[Record]) -> str:
    """Return the differences that decide no verdict: counted by compiler and kind, then one by one."""
    groups = noted_groups(records)
    if not groups:
        return ""
    by_compiler = noted_by_compiler(summary.by_compiler(shown))
    kinds = [kind for kind in KINDS if any(numbers[kind] for numbers in by_compiler.values())]
    rows: list[list[Cell]] = [
        [code_span(name), *(numbers[kind] or "" for kind in kinds)] for name, numbers in by_compiler.items()
    ]
    table = to_markdown(Table(["compiler", *map(code_span, kinds)], rows, "lr"))
    return (
        "## Differences that do not decide a verdict\n\nThe numbers count cells. A case can make some of these "
        f"differences decide, with `strict=`.\n\n{table}\n\n" + "\n".join(map(folded, groups))
    )


def folded(group: Group) -> str:
    """Return a group as one line that expands to its cells, in HTML, because a summary cannot contain Markdown."""
    title = f"<b>{html_text(group.title)}</b> " if group.title not in ("graph break", "note") else ""
    text = f"<code>{html_text(shorten(group.text, MESSAGE_LIMIT))}</code>" if group.text else ""
    cells = "\n".join(
        f"<li><code>{html_text(case)}</code>: {', '.join(f'<code>{html_text(name)}</code>' for name in names)}</li>"
        for case, names in together(group.records).items()
    )
    number = plural(len(group.records), "cell")
    return f"<details><summary>{number}: {title}{text}</summary>\n<ul>\n{cells}\n</ul>\n</details>"
