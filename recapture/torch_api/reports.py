"""What torch reports about a capture beside its graphs: explanations of failures, times, caches, CUDA graphs."""

from __future__ import annotations

import importlib
import json
import re
import traceback
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from recapture.torch_api.compat import release
from recapture.torch_api.watch import compile_seconds


class GraphBreakText(NamedTuple):
    """What torch says about something that Dynamo cannot trace.

    `id` is that of torch's registry (from 2.8), such as ``GB0170``. Ids change between releases; the reason stays.
    """

    reason: str
    explanation: str | None
    hints: tuple[str, ...]
    context: str | None
    id: str | None


def graph_break_text(message: str) -> GraphBreakText:
    """Return the parts of a message of Dynamo about what it cannot trace.

    From 2.7 messages have an explanation and hints. The reason is the first line that is not about the place.
    """
    reason = _field(r"Graph Break Reason:[ \t]*(.*)", message) or _field(r"^Reason:[ \t]*(.*)", message)
    body = message
    if reason is None:
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        reason = lines[0] if lines else ""
    elif reason.startswith(("Encountered graph break", "Failed to handle graph break gracefully")):
        # The cause is in the next paragraph.
        body = message[message.index(reason) + len(reason) :]
        reason = next((line.strip() for line in body.splitlines() if line.strip()), reason)
    kind = reason.removeprefix("Unsupported: ").strip()
    explanation = _field(r"^\s*Explanation:[ \t]*(.*)", body)
    hints = tuple(dict.fromkeys(hint.strip() for hint in re.findall(r"(?m)^\s*Hint:[ \t]*(.*)", body)))
    entry = _registry().get(kind)
    if entry is not None and explanation is None:
        explanation, hints = entry.explanation, hints or entry.hints
    number = _field(r"/gb/(gb\d+)\.html", message)
    known = number.upper() if number else (entry.id if entry else None)
    return GraphBreakText(kind, explanation, hints, _field(r"Developer debug context:[ \t]*(.*)", body), known)


def _field(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1].strip() if match and match[1].strip() else None


@cache
def _registry() -> dict[str, GraphBreakText]:
    """Return torch's registry of graph breaks by type (from 2.8); empty where there is none."""
    try:
        package: Any = importlib.import_module("torch._dynamo")
        path = Path(package.__path__[0]) / "graph_break_registry.json"
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {
            version["Gb_type"]: GraphBreakText(
                version["Gb_type"], version.get("Explanation") or None, tuple(version.get("Hints") or ()), None, name
            )
            for name, versions in entries.items()
            for version in reversed(versions)  # the latest wording is the first
        }
    except Exception:  # no such file, or one of another form
        return {}


def stack_of(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an exception, outermost first, and below them those of the code that Dynamo traced."""
    frames: list[traceback.FrameSummary] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        frames += traceback.extract_tb(cause.__traceback__)
        real = getattr(cause, "real_stack", None)  # what Dynamo was tracing
        frames += [frame for frame in real or () if isinstance(frame, traceback.FrameSummary)]
        cause = cause.__cause__
    return frames


def clear_counts() -> None:
    """Forget what Dynamo and Inductor counted, and the metrics of earlier compilations."""
    try:
        utils: Any = importlib.import_module("torch._dynamo.utils")
        utils.counters.clear()
        if hasattr(utils, "clear_compilation_metrics"):
            utils.clear_compilation_metrics()
        if hasattr(utils, "compilation_time_metrics"):
            utils.compilation_time_metrics.clear()
    except Exception:  # torch._dynamo cannot be imported: nothing was counted
        return


def phase_seconds() -> dict[str, float] | None:
    """Return the seconds of compilation since `clear_counts` by phase; None if nothing is known.

    From 2.6 these are the stages of `compile_seconds`. Before, they are torch's own functions, as
    ``torch._dynamo.utils.compile_times`` sums them up; a function's time includes what it calls.
    """
    if release() >= (2, 6):
        return compile_seconds()
    try:
        utils: Any = importlib.import_module("torch._dynamo.utils")
        names, seconds = utils.compile_times(repr="csv", aggregate=True)
        return {
            str(name): round(float(value), 3)
            for name, value in zip(names, seconds, strict=True)
            if float(value) >= 0.001
        } or None
    except Exception:
        return None


def cache_counts() -> dict[str, int] | None:
    """Return hits, misses and bypasses of the caches of graphs, None before 2.4.

    In a cell these caches are switched off, so that no cell can influence another.
    """
    if release() < (2, 4):
        return None
    counters = _counters()
    return {
        f"{name}": int(number)
        for group in ("inductor", "aot_autograd")
        for name, number in sorted(counters.get(group, {}).items())
        if re.search(r"cache_(?:hit|miss|bypass)$", name)
    }


def cudagraph_skips() -> int | None:
    """Return how often CUDA graphs were skipped, None before 2.4."""
    return None if release() < (2, 4) else int(_counters().get("inductor", {}).get("cudagraph_skips", 0))


def _counters() -> Any:
    try:
        return importlib.import_module("torch._dynamo.utils").counters
    except Exception:
        return {}


def debug_folder(folder: Path) -> bool:
    """Make Inductor leave its graphs, its IR and its code below a folder, as TORCH_COMPILE_DEBUG=1 does.

    Returns False where Inductor cannot be imported. Graphs from caches would leave nothing; a cell has no such caches.
    """
    try:
        inductor: Any = importlib.import_module("torch._inductor.config")
        dynamo: Any = importlib.import_module("torch._dynamo.config")
    except Exception:
        return False
    inductor.trace.enabled = True
    for name in ("debug_log", "graph_diagram"):  # a log of seconds, and a picture that needs graphviz
        if hasattr(inductor.trace, name):
            setattr(inductor.trace, name, False)
    dynamo.debug_dir_root = str(folder)
    return True
