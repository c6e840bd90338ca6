"""The folder that `recapture explain --debug` leaves: graphs, IR, generated code and the structured trace of a cell."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recapture.base.escape import markdown_code
from recapture.records.artifact_folders import INDEX, TRACE
from recapture.torch_api.compat import release
from recapture.torch_api.graphs import graph_text, texts_of
from recapture.torch_api.reports import debug_folder
from recapture.torch_api.trace import hear_trace, trace_file

if TYPE_CHECKING:
    from typing_extensions import Self

    from recapture.cases.compiler import Compiler
    from recapture.judge.verdict import Ruling
    from recapture.run.cell import CellResult
    from recapture.tools.explain.capture_recorder import CaptureRecorder

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


class ArtifactFolder:
    """A folder for one cell's artifacts; an older one at this place is replaced. Use it as a context manager."""

    def __init__(self, path: Path, title: str) -> None:
        self.path = path
        self.title = title
        self._numbers: dict[str, int] = {}
        self._has_trace = False

    def __enter__(self) -> Self:
        if self.path.is_symlink() or (self.path.exists() and not (self.path / INDEX).is_file()):
            raise FileExistsError(f"{self.path} is no folder of artifacts")
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
