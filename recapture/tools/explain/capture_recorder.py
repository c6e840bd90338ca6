"""Collects what torch reports while a cell runs: graphs, breaks, recompilations, warnings, and where it refused."""

from __future__ import annotations

import json
import linecache
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recapture.base.scrub import encodable, scrub
from recapture.base.source_lines import source_line
from recapture.base.text import shorten
from recapture.records.cell_facts import (
    BreakFacts,
    CellFacts,
    GraphFacts,
    RecompileFacts,
    RefusalFacts,
    SourcePlace,
    WarningFacts,
)
from recapture.torch_api import reports as torch_reports
from recapture.torch_api.compat import release
from recapture.torch_api.graphs import exports, graphs_of_dynamo, operators_of
from recapture.torch_api.trace import hear_trace
from recapture.torch_api.watch import watch_cudagraphs

if TYPE_CHECKING:
    from recapture.cases.compiler import Compiler
    from recapture.judge.verdict import CellEvents, Ruling

MOST_TEXT = 400
"""Characters kept of one message."""

MOST_FACTS = 200
"""The most graphs, breaks, recompilations and warnings that are kept of each."""

_SUGGESTION = re.compile(
    r"^\s*(?:Hint: )?((?:[Cc]onsider|Use|Try|It may be possible|Please (?:use|register)) .*)", re.MULTILINE
)
"""Lines of a message that suggest something."""


class CaptureRecorder:
    """What was reported about one cell; `suite` is the file of its case. `enter` says which phase begins."""

    def __init__(self, suite: Path) -> None:
        self.suite = suite
        self._phase = "reference"
        self._uses_dynamo = False
        self._graphs: list[GraphFacts] = []
        self._breaks: list[BreakFacts] = []
        self._recompiles: list[RecompileFacts] = []
        self._warnings: list[WarningFacts] = []
        self._cudagraphs: list[str] = []
        self._listens = False
        self.on_graph: Callable[[str, Any], None] = lambda _origin, _graph: None
        """Is called with each graph that is captured, and where it comes from."""

    def enter(self, phase: str) -> None:
        """Note the phase that begins: ``capture``, or ``call`` with the name of its input."""
        if phase == "capture" and self._listens:
            torch_reports.clear_counts()  # eager may have compiled something too
        self._phase = phase

    @property
    def _input(self) -> str | None:
        """The input that is being captured or called."""
        return self._phase.partition(" ")[2] or ("example" if self._phase == "capture" else None)

    @contextmanager
    def watching(self, compiler: Compiler) -> Iterator[None]:
        """Listen to torch from here on."""
        self._uses_dynamo = compiler.uses_dynamo
        self._listens = compiler.uses_dynamo or compiler.generates_code or "torch._dynamo" in sys.modules
        with ExitStack() as stack:
            stack.enter_context(self._hearing_warnings())
            stack.enter_context(exports(lambda program: self._graph("torch.export", program)))
            if self._listens:
                stack.enter_context(hear_trace(self._event))
                stack.enter_context(graphs_of_dynamo(lambda graph: self._graph("Dynamo", graph)))
                self._cudagraphs = stack.enter_context(watch_cudagraphs())
            yield

    @contextmanager
    def _hearing_warnings(self) -> Iterator[None]:
        show: Any = warnings.showwarning

        def keep(message: Warning | str, category: type[Warning], name: str, line: int, *more: Any) -> None:
            # Eager warns too, and so may the case: neither says anything about the capture.
            if category.__module__.startswith("torch") and self._phase != "reference":
                text = shorten(re.split(r"(?<=[a-z])\. ", scrub(str(message)), maxsplit=1)[0], MOST_TEXT)
                self._keep(self._warnings, WarningFacts(category.__name__, text, self.place(name, line)))
            show(message, category, name, line, *more)

        replaced: Any = keep
        warnings.showwarning = replaced
        try:
            yield
        finally:
            # The case may have put a function of its own there meanwhile, which stays.
            if warnings.showwarning is replaced:
                warnings.showwarning = show

    def captured(self, captured: Any, compiler: Compiler) -> None:
        """Note the callable that a compiler returned, if it shows its graph."""
        # A program of torch.export was noted when it was made; what the compiler returns has the same graph.
        if not any(graph.origin == "torch.export" for graph in self._graphs):
            self._graph(compiler.name, captured)

    def _graph(self, origin: str, captured: Any) -> bool:
        """Note a graph; returns whether it could be read."""
        if self._phase == "reference":
            return False
        try:
            operators = operators_of(captured)
        except Exception:  # an object of the case's own
            operators = None
        if operators is not None:
            self._keep(self._graphs, GraphFacts(origin, operators, self._input))
            self.on_graph(origin, captured)
        return operators is not None

    @staticmethod
    def _keep(facts: list[Any], fact: Any) -> None:
        # A case that compiles in a loop would report without end, mostly the same thing.
        if len(facts) < MOST_FACTS and fact not in facts[-1:]:
            facts.append(fact)

    def _event(self, name: str, _about: dict[str, Any], payload: str) -> None:
        if self._phase == "reference":
            return
        if name == "dynamo_graph_break_reason":
            self._keep(self._breaks, self._break(payload, self._input))
        elif name == "recompile_reasons":
            self._keep(self._recompiles, RecompileFacts(guards(payload), self._input))

    def _break(self, payload: str, label: str | None) -> BreakFacts:
        """Return a graph break from the text of the trace, or from a reason that ends in ``at FILE:LINE``."""
        text = torch_reports.graph_break_text(payload)
        match = re.search(r"Graph break in user code at (\S+):(\d+)", payload) or re.search(
            r" at (\S+):(\d+)$", payload
        )
        reason = re.sub(r" at \S+:\d+$", "", text.reason)
        return BreakFacts(
            reason=shorten(scrub(reason), MOST_TEXT),
            place=self.place(match[1], int(match[2])) if match else None,
            explanation=None if text.explanation is None else shorten(scrub(text.explanation), MOST_TEXT),
            hints=_texts(text.hints),
            id=text.id,
            input=label,
        )

    def place(self, name: str, line: int, text: str = "") -> SourcePlace:
        """Return a line of source; a package's file keeps its folders, any other file has its name alone."""
        folders, separator, inner = name.rpartition("-packages/")
        short = inner if separator and folders.endswith(("site", "dist")) else name.rpartition("/")[2]
        return SourcePlace(encodable(short), line, shorten(text or linecache.getline(name, line), 200))

    def facts(self, ruling: Ruling, events: CellEvents) -> CellFacts:
        """Return everything that was collected about the cell."""
        breaks: tuple[BreakFacts, ...] | None = tuple(self._breaks)
        recompiles: tuple[RecompileFacts, ...] | None = tuple(self._recompiles)
        # The trace of older releases has neither event. The log that counts breaks may have their reasons; nothing has
        # those of recompilations.
        if self._uses_dynamo and release() < (2, 6):
            known = events.log is not None and events.log.breaks_known
            reasons = events.log.break_reasons if events.log is not None else []
            breaks = tuple(self._break(reason, None) for reason in reasons) if known else None
            recompiles = None
        skips = torch_reports.cudagraph_skips() if self._uses_dynamo else 0
        return CellFacts(
            uses_dynamo=self._uses_dynamo,
            graphs=tuple(self._graphs) or None,
            breaks=breaks,
            recompiles=recompiles,
            warnings=tuple(self._warnings),
            refusal=self._refusal(ruling),
            seconds=torch_reports.phase_seconds() if self._uses_dynamo else None,
            caches=torch_reports.cache_counts() if self._uses_dynamo else None,
            cudagraph_skips=None if skips is None else tuple(map(encodable, self._cudagraphs)),
        )

    def _refusal(self, ruling: Ruling) -> RefusalFacts | None:
        raised = ruling.raised
        if raised is None:
            return None
        message = scrub(raised.message)
        text = torch_reports.graph_break_text(raised.message)
        suggested = [*text.hints, *_SUGGESTION.findall(message)]
        return RefusalFacts(
            type=raised.type,
            message=message,
            place=self._place_of(raised.error, raised.message),
            explanation=None if text.explanation is None else shorten(scrub(text.explanation), MOST_TEXT),
            hints=_texts(suggested),
            id=text.id,
        )

    def _place_of(self, error: BaseException, message: str) -> SourcePlace | None:
        """Return the user's line that an exception is about: in the case's file if possible, else the innermost."""
        try:
            frames = torch_reports.stack_of(error)
        except Exception:  # an exception of the case's own
            frames = []
        # The line that a user can change is the deepest one in the file of the case. Frames below are in libraries.
        own = [frame for frame in frames if frame.filename == str(self.suite)]
        if own and own[-1].lineno:
            return self.place(own[-1].filename, own[-1].lineno)
        named = source_line(scrub(message))
        if named is not None:
            return SourcePlace(named.file, named.line, named.text)
        return None


BESIDE_A_GUARD = r"^\d+/\d+: | \(user code shown.*| \([\w/]+\.py:\d+ in \w+\)|;?\s*User stack trace:.*"
"""What torch writes beside a guard: the compilation's number, its own notation explained, and the stack of the user."""


def guards(payload: str) -> tuple[str, ...]:
    """Return the guards that failed, without what torch writes beside them."""
    try:
        data = json.loads(payload)
    except ValueError:
        data = payload.splitlines()
    texts = data if isinstance(data, list) else [data]
    return _texts(re.sub(BESIDE_A_GUARD, "", str(text), flags=re.DOTALL) for text in texts)


def _texts(texts: Any) -> tuple[str, ...]:
    """Return texts on one line each, scrubbed, without repetitions."""
    return tuple(dict.fromkeys(shorten(scrub(str(text)), MOST_TEXT) for text in texts if str(text).strip()))
