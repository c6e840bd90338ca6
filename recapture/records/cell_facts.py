"""What `recapture explain` finds out about a cell beside its record: graphs, breaks, recompilations, refusals, times.

Nothing of this is recorded, so that it may have times and paths. None means that this release does not report it.
"""

from __future__ import annotations

import msgspec


class SourcePlace(msgspec.Struct, frozen=True):
    """A line of source: the file's name, the line's number and its text."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} `{self.text}`" if self.text else f"{self.file}:{self.line}"


class GraphFacts(msgspec.Struct, frozen=True):
    """A captured graph: who made it, the input during which it was captured, and its operators with their numbers."""

    origin: str
    operators: dict[str, int]
    input: str | None = None


class BreakFacts(msgspec.Struct, frozen=True):
    """A graph break: the reason, the user's line, torch's explanation and hints, and its id in torch's registry."""

    reason: str
    place: SourcePlace | None = None
    explanation: str | None = None
    hints: tuple[str, ...] = ()
    id: str | None = None
    input: str | None = None


class RecompileFacts(msgspec.Struct, frozen=True):
    """A compilation of code that was compiled before: the guards that failed, and the input on which they did."""

    guards: tuple[str, ...]
    input: str | None = None


class RefusalFacts(msgspec.Struct, frozen=True):
    """The exception that ended the cell: the user's line, and torch's explanation and suggestions."""

    type: str
    message: str
    place: SourcePlace | None = None
    explanation: str | None = None
    hints: tuple[str, ...] = ()
    id: str | None = None


class WarningFacts(msgspec.Struct, frozen=True):
    """A warning of torch about the captured code, such as a TracerWarning."""

    category: str
    message: str
    place: SourcePlace | None = None


class CellFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found out about one cell.

    `seconds` is the compile time by phase. `caches` counts hits, misses and bypasses of torch's caches of graphs.
    `cudagraph_skips` are the reasons why CUDA graphs were not used. Without Dynamo there are no breaks and no
    recompilations to report. `graphs` is None where nothing shows its graph. `artifacts` are the files left in
    their folder, by relative name.
    """

    uses_dynamo: bool = False
    graphs: tuple[GraphFacts, ...] | None = None
    breaks: tuple[BreakFacts, ...] | None = None
    recompiles: tuple[RecompileFacts, ...] | None = None
    warnings: tuple[WarningFacts, ...] = ()
    refusal: RefusalFacts | None = None
    seconds: dict[str, float] | None = None
    caches: dict[str, int] | None = None
    cudagraph_skips: tuple[str, ...] | None = None
    artifacts: tuple[str, ...] = ()
