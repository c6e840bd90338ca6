"""Runs a cell as a run does, keeps what torch reports meanwhile, and writes that in a few short lines.

The lines are recorded, so they are the same on every run: without times, addresses and paths.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.escape import markdown_code
from recapture.base.text import in_a_row, plural, shorten
from recapture.records.artifact_folders import INDEX, TRACE
from recapture.run.cell import CellResult, CellSpec, result_of, rule
from recapture.tools.explain.capture_recorder import CaptureRecorder
from recapture.torch_api.compat import release
from recapture.torch_api.graphs import graph_text, texts_of
from recapture.torch_api.reports import debug_folder
from recapture.torch_api.trace import hear_trace, trace_file

if TYPE_CHECKING:
    from typing_extensions import Self

    from recapture.cases.compiler import Compiler
    from recapture.judge.verdict import Ruling
    from recapture.records.cell_facts import CellFacts
    from recapture.run.cell import CellResult
    from recapture.tools.explain.capture_recorder import CaptureRecorder


MOST_LINES = 6
"""Lines of the recorded explanation."""

MOST_OF_A_KIND = 2
"""Breaks, recompilations and warnings of which each has a line; the others are counted."""

LONGEST = 240
"""Characters of a line."""

MOST_OPERATORS = 8
"""Names of operators in a line."""

WORKING = ".inductor"
"""Folder in which Inductor writes during the run."""

MEANINGS = {
    "dynamo_graph": "the FX graph as Dynamo captured it",
    "aot_": "the graph after AOTAutograd: functional, in ATen operators",
    "pre_grad": "the graph before Inductor's passes",
    "fx_graph_runnable": "the graph that Inductor was given, as a script that runs by itself",
    "fx_graph_readable": "the graph that Inductor was given",
    "fx_graph_transformed": "the graph after Inductor's passes",
    "inductor_provenance": "which node each kernel comes from",
    "ir_pre_fusion": "Inductor's IR before fusion",
    "ir_post_fusion": "Inductor's IR after fusion",
    "output_code": "the generated code",
    "exported_program": "the exported program",
    "torchscript_graph": "TorchScript's graph",
    "torchscript_code": "TorchScript's code",
    "fx_code": "the captured graph as Python",
    "fx_graph": "the captured graph, node by node",
    "trace.log": "torch's structured trace, for tlparse",
    "error.txt": "the exception with its whole stack",
    "tlparse": "tlparse's page of the trace: open index.html",
}
"""What the files are, by the beginning of a part of their names; the first that fits counts."""

TRACED = re.compile(r"aot_\w*graph$|inductor_pre_grad_graph$")
"""Events of the trace whose payload is kept as a file; Inductor leaves the later graphs itself."""


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
            left = stack.enter_context(ArtifactFolder(Path(spec.artifacts), spec.key.case))
        ruling, events = rule(spec, entering, watched)
        result = result_of(ruling, events)
        facts = recorder.facts(ruling, events)
        if left is not None:
            left.finish(spec.address, result, ruling)
            facts = msgspec.structs.replace(facts, artifacts=left.files())
    return msgspec.structs.replace(result, explanation=short_lines(facts), facts=facts)


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
    numbers = in_a_row([str(size) for size in sizes])
    operators = "1 operator" if sizes == [1] else f"{numbers} operators"
    return f"{plural(len(graphs), 'graph')} of {operators}" + (f": {first_names}" if first_names else "")


class ArtifactFolder:
    """A folder for one cell's artifacts; an older one at this place is replaced. Use it as a context manager."""

    def __init__(self, path: Path, title: str) -> None:
        self.path = path
        self.title = title
        self._numbers: dict[str, int] = {}
        self._has_trace = False

    def __enter__(self) -> Self:
        if self.path.is_symlink() or (self.path.exists() and not (self.path / INDEX).is_file()):
            raise FileExistsError(f"{self.path} is not a folder of artifacts")
        if self.path.exists():
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True)
        self._write(INDEX, f"# {self.title}\n\nThe process ended before everything was written.\n")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._collect()

    @contextmanager
    def receiving(self, recorder: CaptureRecorder, compiler: Compiler) -> Iterator[None]:
        """Keep what torch leaves from here on."""
        recorder.on_graph = self._graph
        with ExitStack() as stack:
            if compiler.uses_dynamo or compiler.generates_code:
                debug_folder(self.path / WORKING)
                stack.enter_context(hear_trace(self._event))
                self._has_trace = stack.enter_context(trace_file(self.path / TRACE))
            yield

    def _graph(self, origin: str, captured: Any) -> None:
        if origin == "Dynamo":
            self._numbered("dynamo_graph", ".py", graph_text(captured))
            return
        for name, text in texts_of(captured).items():
            stem, _, suffix = name.rpartition(".")
            self._numbered(stem, f".{suffix}", text)

    def _event(self, name: str, _about: dict[str, Any], payload: str) -> None:
        if TRACED.search(name) and payload:
            self._numbered(name, ".py", payload)

    def _numbered(self, stem: str, suffix: str, text: str) -> None:
        number = self._numbers[stem] = self._numbers.get(stem, -1) + 1
        self._write(f"{stem}_{number}{suffix}", text)

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8", errors="backslashreplace")

    def _collect(self) -> None:
        """Move what Inductor left to ``inductor/``, a folder for each graph."""
        work = self.path / WORKING
        for file in sorted(work.glob("*/torchinductor/*")):
            if file.is_dir() and not file.is_symlink():
                place = self.path / "inductor" / file.name
                place.parent.mkdir(exist_ok=True)
                if not place.exists():
                    file.rename(place)
        shutil.rmtree(work, ignore_errors=True)

    def finish(self, cell: str, result: CellResult, ruling: Ruling) -> None:
        """Write the exception, and the list of what is here."""
        if ruling.raised is not None:
            self._write("error.txt", ruling.raised.traceback)
        self._collect()
        lines = [f"- {markdown_code(name)}: {meaning(name)}" for name in self.files()]
        missing = [] if self._has_trace or release() >= (2, 4) else ["", "This release writes no structured trace."]
        head = f"# {markdown_code(cell)}\n\nVerdict: {result.verdict}. Left by `recapture explain --debug`.\n"
        self._write(INDEX, "\n".join([head, *lines, *missing, ""]))

    def files(self) -> tuple[str, ...]:
        """Return the artifacts, by name, relative to the folder."""
        paths = (path for path in self.path.rglob("*") if path.is_file() and WORKING not in path.parts)
        names = (path.relative_to(self.path).as_posix() for path in paths)
        return tuple(sorted(name for name in names if name != INDEX))


def meaning(name: str) -> str:
    """Return what an artifact is, from its name."""
    return next((words for part, words in MEANINGS.items() if part in name), "left by Inductor")
