"""An explained cell in a terminal: the answer first, then what torch reported, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.text import plural, shorten, time_text
from recapture.records.verdicts import RIGHT
from recapture.report.differences import describe_difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recapture.records.cell_facts import BreakFacts, CellFacts, RefusalFacts
    from recapture.tools.explain.explain_cells import Explanation

MOST = 6
"""Lines of each kind of fact."""

MOST_BRIEF = 2
"""Lines of each kind of fact if several cells are explained."""

LONGEST = 200
"""Characters of a line."""

UNKNOWN = "unknown on this release"

MOST_OPERATORS = 12
"""Operators of one graph that are shown."""


def explanation_lines(one: Explanation, *, brief: bool = False) -> list[str]:
    """Return the lines of one explained cell; `brief` for one of several."""
    record = one.record
    head = f"{one.cell} on torch {one.torch}: {record.verdict}"
    head += f" ({record.phase})" if record.phase and record.verdict not in RIGHT else ""
    head += f" on {record.input}" if record.input and record.verdict not in RIGHT else ""
    lines = [head]
    if one.why:
        lines.append(f"why: {one.why}")
    known = [f"known: {line}" for line in one.known]
    most = MOST_BRIEF if brief else MOST
    lines += _listed("difference", [describe_difference(found) for found in record.differences], most)
    if one.facts is not None:
        lines += _facts(one.facts, most, brief=brief)
    elif record.reason:
        lines.append(f"reason: {record.reason}")
    if one.folder:
        lines.append(f"artifacts: {one.folder}")
    shown = [shorten(line, LONGEST) if not line.startswith(" ") else f"  {shorten(line, LONGEST)}" for line in lines]
    return [*shown, *known]  # whole: a shortened line would end before the address of the thread


def _listed(noun: str, texts: list[str], most: int) -> Iterator[str]:
    for text in texts[:most]:
        yield f"{noun}: {text}"
    if len(texts) > most:
        yield f"  and {plural(len(texts) - most, noun)} more"


def _facts(facts: CellFacts, most: int, *, brief: bool) -> Iterator[str]:
    if facts.refusal is not None:
        yield from _refusal(facts.refusal)
    warned = [f"{one.category} at {one.place}: {one.message}" for one in facts.warnings]
    yield from _listed("warning", list(dict.fromkeys(warned)), most)
    yield from _graphs(facts, most)
    if not facts.uses_dynamo or (facts.refusal is not None and not facts.graphs):
        return  # nothing was captured that could break, or be compiled again
    if facts.breaks is None:
        yield f"graph breaks: {UNKNOWN}"
    else:
        yield f"graph breaks: {_distinct(facts)}"
        for found in list({(one.place, one.reason): one for one in facts.breaks}.values())[:most]:
            yield from _break(found)
    if facts.recompiles is None:
        yield f"recompilations: {UNKNOWN}"
    else:
        yield f"recompilations: {len(facts.recompiles)}"
        for again in facts.recompiles[:most]:
            yield f"  on {again.input}: {'; '.join(again.guards)}"
    if not brief:
        yield from _costs(facts)


def _distinct(facts: CellFacts) -> int:
    return len({(one.place, one.reason) for one in facts.breaks or ()})


def _refusal(refusal: RefusalFacts) -> Iterator[str]:
    lines = [line.strip() for line in refusal.message.splitlines() if line.strip()] or ["no message"]
    said = lines[-1] if lines[0].startswith("The following operation failed") else f"{refusal.type}: {lines[0]}"
    yield f"raised: {said}"
    if refusal.place is not None:
        yield f"  at {refusal.place}"
    yield from _said(refusal)


def _said(one: RefusalFacts | BreakFacts) -> Iterator[str]:
    if one.explanation:
        yield f"  torch: {one.explanation}" + (f" [{one.id}]" if one.id else "")
    for hint in one.hints[:3]:
        yield f"  torch suggests: {hint}"


def _break(found: BreakFacts) -> Iterator[str]:
    on = f" (on {found.input})" if found.input else ""
    yield f"  at {found.place or 'an unknown line'}{on}: {found.reason}"
    if found.explanation and found.explanation != found.reason:
        yield f"    torch: {found.explanation}" + (f" [{found.id}]" if found.id else "")
    for hint in found.hints[-1:]:
        yield f"    torch suggests: {hint}"


def _graphs(facts: CellFacts, most: int) -> Iterator[str]:
    if facts.graphs is None:
        yield "graphs: none was captured" + ("" if facts.refusal else ", or this compiler does not show it")
        return
    yield f"graphs: {len(facts.graphs)}"
    for number, graph in enumerate(facts.graphs[:most]):
        shown = ", ".join(f"{count} {name}" for name, count in list(graph.operators.items())[:MOST_OPERATORS])
        rest = len(graph.operators) - MOST_OPERATORS
        shown += f" and {rest} more" if rest > 0 else ""
        total = plural(sum(graph.operators.values()), "operator")
        on = f" on {graph.input}" if graph.input else ""
        yield f"  {number} by {graph.origin}{on}: {total}" + (f": {shown}" if shown else "")
    if len(facts.graphs) > most:
        yield f"  and {plural(len(facts.graphs) - most, 'graph')} more"


def _costs(facts: CellFacts) -> Iterator[str]:
    times = facts.seconds
    yield "compile time: " + (
        UNKNOWN if times is None else ", ".join(f"{name} {time_text(value)}" for name, value in times.items()) or "none"
    )
    caches = facts.caches
    off = "none used (caches of whole graphs are off in a cell)"
    yield "caches: " + (
        UNKNOWN if caches is None else ", ".join(f"{name} {number}" for name, number in caches.items()) or off
    )
    skips = facts.cudagraph_skips
    if skips is None or skips:
        yield "CUDA graphs skipped: " + (UNKNOWN if skips is None else "; ".join(skips))
