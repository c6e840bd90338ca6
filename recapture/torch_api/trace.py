"""Torch's structured trace: the events behind `TORCH_TRACE`, for those who watch captures.

The events that are used, and the releases that have them (run on 2.0.1, 2.3.1, 2.6.0, 2.11.0 and 2.15.0):

- from 2.6: the artifacts ``dynamo_graph_break_reason`` and ``recompile_reasons``;
- from about 2.4: ``dynamo_output_graph``, ``aot_*_graph``, ``inductor_*_graph``, ``inductor_output_code``.

2.0 to 2.2 have no trace; nothing is heard then.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARTIFACT = "artifact"
"""Name of the events that have a name of their own in their metadata."""


class _HandlersOfArtifacts(list[logging.Handler]):
    """Handlers that look absent to `trace_structured` for every event but some artifacts.

    Torch writes an event only if the trace has handlers. To write one it prints graphs and configurations and hashes
    them, which takes about a tenth of a compilation.
    """

    def __init__(self, handlers: list[logging.Handler], names: Collection[str]) -> None:
        super().__init__(handlers)
        self.names = names

    def __bool__(self) -> bool:
        if not len(self):
            return False
        frame = sys._getframe(1)  # noqa: SLF001 - the event is only known to the function that asks
        if frame.f_code.co_name != "trace_structured":
            return True
        event = frame.f_locals
        if event.get("name") != ARTIFACT:
            return False
        try:
            return event["metadata_fn"]().get("name") in self.names
        except Exception:  # torch meets the same, or knows the metadata by another name
            return True


@contextmanager
def hear_trace(
    hear: Callable[[str, dict[str, Any], str], None], artifacts: Collection[str] | None = None
) -> Iterator[bool]:
    """Call `hear` with the name, metadata and payload of each event; yields whether this release has a trace.

    The name of an artifact is its own, such as ``recompile_reasons``. With `artifacts`, torch makes no other events
    than these.
    """

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            metadata = getattr(record, "metadata", None) or {}
            if metadata:
                name, about = next(iter(metadata.items()))
                about = about if isinstance(about, dict) else {}
                known = about.get("name") if name == ARTIFACT else name
                hear(str(known), about, str(getattr(record, "payload", "") or ""))

    with _listening(Listener(logging.DEBUG), artifacts) as heard:
        yield heard


@contextmanager
def trace_file(path: Path) -> Iterator[bool]:
    """Write the trace to a file in the form that tlparse reads; yields whether this release has one."""
    try:
        internal: Any = importlib.import_module("torch._logging._internal")
        formatter = internal.TorchLogsFormatter(trace=True)
    except (ImportError, AttributeError, TypeError):  # 2.0 to 2.2
        yield False
        return
    try:  # names that were written before stand for themselves no longer: write them again
        importlib.import_module("torch._logging.structured").INTERN_TABLE.clear()
    except (ImportError, AttributeError):
        pass
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(formatter)
    handler.setLevel(logging.DEBUG)
    try:
        with _listening(handler) as heard:
            yield heard
    finally:
        handler.close()


@contextmanager
def _listening(listener: logging.Handler, artifacts: Collection[str] | None = None) -> Iterator[bool]:
    """Attach a handler to the trace, and make torch write the trace, or some artifacts; nothing else changes."""
    try:
        trace_log: Any = importlib.import_module("torch._logging._internal").trace_log
    except (ImportError, AttributeError):
        yield False
        return
    level, propagate, disabled = trace_log.level, trace_log.propagate, trace_log.disabled
    original = vars(trace_log).get("isEnabledFor")
    before = trace_log.handlers
    trace_log.addHandler(listener)
    # Where somebody else listens, nothing may be missing.
    if artifacts is not None and len(trace_log.handlers) == 1:
        trace_log.handlers = _HandlersOfArtifacts(trace_log.handlers, artifacts)
    trace_log.setLevel(logging.DEBUG)
    trace_log.propagate = False
    trace_log.disabled = False
    # The events must be heard even if a case calls logging.disable().
    trace_log.isEnabledFor = lambda _level: True
    try:
        yield True
    finally:
        if original is None:
            vars(trace_log).pop("isEnabledFor", None)
        else:
            trace_log.isEnabledFor = original
        trace_log.handlers = before if type(trace_log.handlers) is _HandlersOfArtifacts else trace_log.handlers
        trace_log.removeHandler(listener)
        trace_log.setLevel(level)
        trace_log.propagate = propagate
        trace_log.disabled = disabled
