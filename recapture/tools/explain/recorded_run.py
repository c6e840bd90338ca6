"""Runs a cell as a run does, keeps what torch reports meanwhile, and writes that in a few short lines.

The lines are recorded, so they are the same on every run: without times, addresses and paths.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.text import plural, shorten
from recapture.run.cell import CellResult, CellSpec, result_of, rule
from recapture.tools.explain.artifacts import ArtifactFolder
from recapture.tools.explain.capture_recorder import CaptureRecorder

if TYPE_CHECKING:
    from recapture.cases.compiler import Compiler
    from recapture.records.cell_facts import CellFacts


def explain(spec: CellSpec, enter: Callable[[str], None]) -> CellResult:
    """Run one cell in this process; return its result with what torch reported.

    With `CellSpec.artifacts`, its graphs and generated code are left in that folder.
    """
    recorder = CaptureRecorder(Path(spec.path))
    left: ArtifactFolder | None = None

    def entering(phase: str) -> None:
        recorder.enter(phase)
        enter(phase)

    def watched(compiler: Compiler) -> Compiler:
        """Return the compiler, with its captured callable shown to the recorder, and to the folder of artifacts."""
        stack.enter_context(recorder.watching(compiler))
        if left is not None:
            stack.enter_context(left.receiving(recorder, compiler))

        @functools.wraps(compiler.function)
        def capture(*args: Any, **options: Any) -> Any:
            captured = compiler.function(*args, **options)
            recorder.captured(captured, compiler)
            return captured

        return dataclasses.replace(compiler, function=capture)

    with ExitStack() as stack:
        if spec.artifacts is not None:
            left = stack.enter_context(ArtifactFolder(Path(spec.artifacts), f"{spec.suite}::{spec.case}"))
        ruling, events = rule(spec, entering, watched)
        result = result_of(ruling, events)
        facts = recorder.facts(ruling, events)
        if left is not None:
            left.finish(f"{spec.suite}::{spec.case}::{spec.compiler}", result, ruling)
            facts = msgspec.structs.replace(facts, artifacts=left.files())
    return msgspec.structs.replace(result, explanation=short_lines(facts), facts=facts)


MOST_LINES = 6
"""Lines of the recorded explanation."""

MOST_OF_A_KIND = 2
"""Breaks, recompilations and warnings of which each has a line; the others are counted."""

LONGEST = 240
"""Characters of a line."""

MOST_OPERATORS = 8
"""Names of operators in a line."""


def short_lines(facts: CellFacts) -> tuple[str, ...]:
    """Return a few short lines without times, addresses and paths; the first says most."""
    shortened = [shorten(line, LONGEST) for line in _lines(facts)]
    return tuple(dict.fromkeys(line for line in shortened if line))[:MOST_LINES]


def _lines(facts: CellFacts) -> Iterator[str]:
    refusal = facts.refusal
    if refusal is not None and refusal.place is not None:
        yield f"stopped at {refusal.place}"
    if refusal is not None and refusal.hints:
        yield f"torch suggests: {refusal.hints[-1]}"
    warned = [f"{warning.category} at {warning.place}: {warning.message}" for warning in facts.warnings]
    yield from _some(warned, "warning")
    breaks = [f"graph broken at {fact.place or 'an unknown line'}: {fact.reason}" for fact in facts.breaks or ()]
    yield from _some(breaks, "graph break")
    again = [f"compiled again on {fact.input}: {'; '.join(fact.guards)}" for fact in facts.recompiles or ()]
    yield from _some(again, "recompilation")
    if facts.graphs:
        yield graphs_in_words(facts)


def _some(lines: Sequence[str], noun: str) -> list[str]:
    """Return the first lines, and how many more there are."""
    lines = list(dict.fromkeys(lines))
    remaining = len(lines) - MOST_OF_A_KIND
    more = (
        [f"and {plural(remaining, noun)} more" if remaining == 1 else f"and {remaining} more {noun}s"]
        if remaining > 0
        else []
    )
    return [*lines[:MOST_OF_A_KIND], *more]


def graphs_in_words(facts: CellFacts) -> str:
    """Return the graphs with the numbers of their operators: ``2 graphs of 3 and 1 operators: add, mul, sin, sum``."""
    graphs = facts.graphs or ()
    sizes = [sum(graph.operators.values()) for graph in graphs]
    names = sorted({name for graph in graphs for name in graph.operators})
    first_names = ", ".join(names[:MOST_OPERATORS]) + (
        f" and {len(names) - MOST_OPERATORS} more" if names[MOST_OPERATORS:] else ""
    )
    numbers = " and ".join(filter(None, (", ".join(map(str, sizes[:-1])), str(sizes[-1])))) if sizes else ""
    operators = "1 operator" if sizes == [1] else f"{numbers} operators"
    return f"{plural(len(graphs), 'graph')} of {operators}" + (f": {first_names}" if first_names else "")
