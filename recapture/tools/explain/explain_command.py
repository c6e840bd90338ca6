"""``recapture explain``: says why a cell has its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recapture.base.text import plural, shorten, time_text
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import console, require_torch, takes
from recapture.command.output import echo, print_json
from recapture.records.verdicts import RIGHT
from recapture.report.differences import describe_difference
from recapture.tools.explain.explain_cells import ExplainOptions, explain_cells, recorded_beside

if TYPE_CHECKING:
    from recapture.records.cell_facts import BreakFacts, CellFacts, RefusalFacts
    from recapture.tools.explain.explain_cells import Explanation


TLPARSE_SECONDS = 120.0
"""Seconds that tlparse may take for one trace."""

MOST = 6
"""Lines of each kind of fact."""

MOST_BRIEF = 2
"""Lines of each kind of fact if several cells are explained."""

LONGEST = 200
"""Characters of a line."""

UNKNOWN = "unknown on this release"

MOST_OPERATORS = 12
"""Operators of one graph that are shown."""


@click.command("explain")
@takes(options=ExplainOptions, where=ImageOptions)
@click.option("--json", "as_json", is_flag=True, help="Print the explanations as JSON.")
@click.pass_context
def explain_command(context: click.Context, options: ExplainOptions, where: ImageOptions, *, as_json: bool) -> int:
    """Run cells and say why each has its verdict: graphs, breaks, recompilations, refusals, with the user's lines.

    CELL is SUITE::CASE::COMPILER, such as control_flow::branch_on_sum::jit.trace; SUITE::CASE means all compilers of a
    case, SUITE all cells of a suite. Nothing is recorded. With --debug, the graphs, the generated code and torch's
    trace are left in results/IMAGE/CAPABILITY/debug/, which the report links. Without torch, it prints what was
    recorded of the cell on each release.
    """
    from recapture.report.run_progress import RunProgress
    from recapture.report.terminal_writer import SafeConsole
    from recapture.tools.explain.explain_cells import explanation_of

    if where.images:
        return run_in_images(context, where, results=options.results, device=options.device)
    cells = ["::".join(filter(None, address)) for address in options.selection.addresses]
    if find_spec("torch") is None and cells and _explain_from_data(cells, as_json=as_json):
        return 0
    require_torch()
    with RunProgress(SafeConsole(stderr=True)) as progress:
        summary, folders = explain_cells(options, progress, lambda text: echo(f"recapture: {text}", err=True))
    for folder in folders.values():
        _parse_trace(folder)
    beside = [*summary.selected, *recorded_beside(options, summary)]
    environment = summary.environment
    explanations = [
        explanation_of(
            record,
            summary.facts.get(record.cell),
            torch=environment.torch.version,
            image=environment.image,
            beside=[other for other in beside if other.case == record.case],
            folder=str(folders[record.cell]) if record.cell in folders else None,
        )
        for record in summary.selected
    ]
    if as_json:
        print_json(explanations)
        return 0
    for number, explanation in enumerate(explanations):
        if number:
            echo("")
        _print_lines(explanation_lines(explanation, brief=len(explanations) > 1))
    return 0


def _print_lines(lines: list[str]) -> None:
    """Print lines, the first one bold; where lines have a width, the rest of a long one is indented further."""
    from recapture.report.terminal_writer import say_wrapped

    output = console()
    for number, line in enumerate(lines):
        words = line.lstrip(" ")
        say_wrapped(output, words, style="" if number else "bold", indent=len(line) - len(words))


def _explain_from_data(addresses: list[str], *, as_json: bool) -> bool:
    """Print what is recorded of some cells, where there is no torch to run them; False if there are no data."""
    from recapture import data
    from recapture.report import data_history
    from recapture.report.terminal_writer import print_document

    if data.find() is None:
        return False
    content = data.load()
    cells = [cell for address in addresses for cell in data_history.cells_in(content, address)]
    echo("recapture: torch is not installed: this is what was recorded; with torch, the cell is run", err=True)
    if as_json:
        print_json({"data": content.version, "cells": cells})
    else:
        print_document(console(), [*data_history.blocks(content, cells)])
    return True


def _parse_trace(folder: Path) -> None:
    """Make tlparse's page of a trace, where tlparse is installed; a trace that it cannot read stays as it is."""
    import shutil
    import subprocess
    import sys
    from pathlib import Path

    from recapture.records.artifact_folders import TRACE

    trace = folder / TRACE
    # It is often installed into this environment alone, whose programs need not be on PATH.
    beside_python = Path(sys.executable).with_name("tlparse")
    program = str(beside_python) if beside_python.is_file() else shutil.which("tlparse")
    if program is None or not trace.is_file() or not trace.stat().st_size:
        return
    try:
        done = subprocess.run(
            [program, str(trace), "--no-browser", "-o", str(folder / "tlparse")],
            capture_output=True,
            timeout=TLPARSE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode:
        echo(f"recapture: tlparse could not read {trace}", err=True)


def explanation_lines(explanation: Explanation, *, brief: bool = False) -> list[str]:
    """Return the lines of one explained cell; `brief` for one of several."""
    record = explanation.record
    head = f"{explanation.cell} on torch {explanation.torch}: {record.verdict}"
    head += f" ({record.phase})" if record.phase and record.verdict not in RIGHT else ""
    head += f" on {record.input}" if record.input and record.verdict not in RIGHT else ""
    lines = [head]
    if explanation.why:
        lines.append(f"why: {explanation.why}")
    known = [f"known: {line}" for line in explanation.known]
    most = MOST_BRIEF if brief else MOST
    lines += _listed("difference", [describe_difference(difference) for difference in record.differences], most)
    if explanation.facts is not None:
        lines += _facts(explanation.facts, most, brief=brief)
    elif record.reason:
        lines.append(f"reason: {record.reason}")
    if explanation.folder:
        lines.append(f"artifacts: {explanation.folder}")
    shortened = [
        shorten(line, LONGEST) if not line.startswith(" ") else f"  {shorten(line, LONGEST)}" for line in lines
    ]
    return [*shortened, *known]  # whole: a shortened line would end before the address of the thread


def _listed(noun: str, texts: list[str], most: int) -> Iterator[str]:
    for text in texts[:most]:
        yield f"{noun}: {text}"
    if len(texts) > most:
        yield f"  and {plural(len(texts) - most, noun)} more"


def _facts(facts: CellFacts, most: int, *, brief: bool) -> Iterator[str]:
    if facts.refusal is not None:
        yield from _refusal(facts.refusal)
    warned = [f"{warning.category} at {warning.place}: {warning.message}" for warning in facts.warnings]
    yield from _listed("warning", list(dict.fromkeys(warned)), most)
    yield from _graphs(facts, most)
    if not facts.uses_dynamo or (facts.refusal is not None and not facts.graphs):
        return  # nothing was captured that could break, or be compiled again
    if facts.breaks is None:
        yield f"graph breaks: {UNKNOWN}"
    else:
        yield f"graph breaks: {_distinct(facts)}"
        for graph_break in list({(fact.place, fact.reason): fact for fact in facts.breaks}.values())[:most]:
            yield from _break(graph_break)
    if facts.recompiles is None:
        yield f"recompilations: {UNKNOWN}"
    else:
        yield f"recompilations: {len(facts.recompiles)}"
        for again in facts.recompiles[:most]:
            yield f"  on {again.input}: {'; '.join(again.guards)}"
    if not brief:
        yield from _costs(facts)


def _distinct(facts: CellFacts) -> int:
    return len({(graph_break.place, graph_break.reason) for graph_break in facts.breaks or ()})


def _refusal(refusal: RefusalFacts) -> Iterator[str]:
    lines = [line.strip() for line in refusal.message.splitlines() if line.strip()] or ["no message"]
    message = lines[-1] if lines[0].startswith("The following operation failed") else f"{refusal.type}: {lines[0]}"
    yield f"raised: {message}"
    if refusal.place is not None:
        yield f"  at {refusal.place}"
    yield from _said(refusal)


def _said(facts: RefusalFacts | BreakFacts) -> Iterator[str]:
    if facts.explanation:
        yield f"  torch: {facts.explanation}" + (f" [{facts.id}]" if facts.id else "")
    for hint in facts.hints[:3]:
        yield f"  torch suggests: {hint}"


def _break(graph_break: BreakFacts) -> Iterator[str]:
    on = f" (on {graph_break.input})" if graph_break.input else ""
    yield f"  at {graph_break.place or 'an unknown line'}{on}: {graph_break.reason}"
    if graph_break.explanation and graph_break.explanation != graph_break.reason:
        yield f"    torch: {graph_break.explanation}" + (f" [{graph_break.id}]" if graph_break.id else "")
    for hint in graph_break.hints[-1:]:
        yield f"    torch suggests: {hint}"


def _graphs(facts: CellFacts, most: int) -> Iterator[str]:
    if facts.graphs is None:
        yield "graphs: none was captured" + ("" if facts.refusal else ", or this compiler does not show it")
        return
    yield f"graphs: {len(facts.graphs)}"
    for number, graph in enumerate(facts.graphs[:most]):
        names = ", ".join(f"{count} {name}" for name, count in list(graph.operators.items())[:MOST_OPERATORS])
        remaining = len(graph.operators) - MOST_OPERATORS
        names += f" and {remaining} more" if remaining > 0 else ""
        total = plural(sum(graph.operators.values()), "operator")
        on = f" on {graph.input}" if graph.input else ""
        yield f"  graph {number}, from {graph.origin}{on}: {total}" + (f": {names}" if names else "")
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
