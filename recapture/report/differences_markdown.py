"""The sections of ``conformance.md`` about differences: silent wrongs, suspect references, and what decides nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from recapture.base.escape import html_text
from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.base.text import plural, shorten
from recapture.records.kinds import KINDS
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report import summary
from recapture.report.differences import how_far, kinds_of, noted_by_compiler, place, silent_kinds
from recapture.report.document import Inline, Table, code_span
from recapture.report.groups import noted_groups, together
from recapture.report.markdown_writer import table_markdown
from recapture.report.reasons.reason import key_of, lines_by_case
from recapture.report.stage_words import stage_of
from recapture.report.stages_markdown import blame
from recapture.report.suspects import FEWEST, suspects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recapture.records.difference import Difference
    from recapture.records.record import Record
    from recapture.report.groups import Group
    from recapture.report.reasons.reason import Key
    from recapture.report.reasons.sentence import Reason

MESSAGE_LIMIT = 200
"""Characters of a message in a report; the records have the complete message."""

WHY_LIMIT = 400
"""Characters of a reason."""

DIFFERENCES_SHOWN = 4
"""Number of differences shown for one silently wrong cell; the records have all of them."""

MOST_WHYS = 3
"""Number of reasons shown for one failure, those of most cells first."""

SEVERAL = 3
"""Number of cases with the same compilers that share a line."""

SUSPECT = (
    f"{FEWEST} or more unrelated compilers show the same difference, so that eager or the case itself may be at fault."
)
"""Sentence below the heading of suspect references."""


def silent_wrongs(records: Sequence[Record], found: Mapping[Key, Reason]) -> str:
    """Return the silent differences: counted by kind, then cell by cell with reasons, then the suspect references."""
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
            lines += [f"    - {plain(why)}" for why in _whys(members, found)]
    wrong_cases = plural(len(by_case), "case")
    return (
        f"## Silently wrong\n\n{plural(number, 'cell')} of {wrong_cases} did something else than eager "
        f"and said nothing.\n\n{_kinds_table(records)}\n\n" + "\n".join(lines) + _suspects(records)
    )


def _whys(records: Sequence[Record], found: Mapping[Key, Reason]) -> list[str]:
    """Return the reasons of cells with the same differences, each with its compilers if there are several."""
    texts: dict[str, list[str]] = {}
    for record in records:
        reason = found.get(key_of(record))
        if reason is not None:
            texts.setdefault(str(reason), []).append(record.compiler)
        for line in record.explanation:
            texts.setdefault(f"torch reported: {line}", []).append(record.compiler)
    alone = len(texts) == 1
    return [f"why: {text}" if alone else f"why ({', '.join(names)}): {text}" for text, names in texts.items()]


def _kinds_table(records: Sequence[Record]) -> str:
    """Return the table of the silent differences by kind."""
    wrong = [record for record in records if record.verdict in SILENTLY_WRONG]
    rows: list[list[Inline]] = [
        [code_span(one.kind), one.cells, one.cases, KINDS[one.kind].meaning] for one in silent_kinds(wrong)
    ]
    return table_markdown(Table(["kind of difference", "cells", "cases", "meaning"], rows, "lrrl"))


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
    rows: list[list[Inline]] = [
        [code_span(name), *(numbers[kind] or "" for kind in kinds)] for name, numbers in by_compiler.items()
    ]
    table = table_markdown(Table(["compiler", *map(code_span, kinds)], rows, "lr"))
    return (
        "## Differences that do not decide a verdict\n\nThe numbers count cells. A case can make some of these "
        f"differences decide, with `strict=`.\n\n{table}\n\n" + "\n".join(map(folded, groups))
    )


def folded(group: Group, found: Mapping[Key, Reason] | None = None) -> str:
    """Return a group as one line that expands to its cells, in HTML, because a summary cannot contain Markdown.

    With reasons, the most frequent are said once, and beside a case is the line of its code.
    """
    title = f"<b>{html_text(group.title)}</b> " if group.title not in ("graph break", "note") else ""
    text = f"<code>{html_text(shorten(group.text, MESSAGE_LIMIT))}</code>" if group.text else ""
    known = found or {}
    whys = Counter(known[key_of(one)].text for one in group.records if key_of(one) in known)
    shown = "".join(f"<p>Why: {html_text(shorten(why, WHY_LIMIT))}</p>\n" for why, _ in whys.most_common(MOST_WHYS))
    if len(whys) > MOST_WHYS:
        others = plural(len(whys) - MOST_WHYS, "other reason")
        shown += f"<p>and {others} like these: see <code>recapture explain CELL</code></p>\n"
    places = lines_by_case(group.records, known)
    cells = "\n".join(f"<li>{line}</li>" for line in _cells(together(group.records), places))
    number = plural(len(group.records), "cell")
    return f"<details><summary>{number}: {title}{text}</summary>\n{shown}<ul>\n{cells}\n</ul>\n</details>"


def _cells(compilers_by_case: Mapping[str, Sequence[str]], places: Mapping[str, str]) -> list[str]:
    """Return a line for each case, or one line for all cases with the same compilers where there are several."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for case, names in compilers_by_case.items():
        alike.setdefault(tuple(names), []).append(case)
    lines = []
    for names, cases in alike.items():
        shown = ", ".join(f"<code>{html_text(name)}</code>" for name in names)
        named = [f"<code>{html_text(case)}</code>" for case in cases]
        at = [f" at <code>{html_text(places[case])}</code>" if case in places else "" for case in cases]
        if len(cases) < SEVERAL:
            lines += [f"{case}: {shown}{place}" for case, place in zip(named, at, strict=True)]
        else:
            lines.append(f"{shown}: " + ", ".join(case + place for case, place in zip(named, at, strict=True)))
    return lines
