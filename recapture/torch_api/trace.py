"""Torch's structured trace: the events behind `TORCH_TRACE`, for those who watch captures.

The events that are used, and the releases that have them (run on 2.0.1, 2.3.1, 2.6.0, 2.11.0 and 2.15.0):

- from 2.6: the artifacts ``dynamo_graph_break_reason`` and ``recompile_reasons``;
- from about 2.4: ``dynamo_output_graph``, ``aot_*_graph``, ``inductor_*_graph``, ``inductor_output_code``.

2.0 to 2.2 have no trace; nothing is heard then.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def hear_trace(hear: Callable[[str, dict[str, Any], str], None]) -> Iterator[bool]:
    """Call `hear` with the name, metadata and payload of each event; yields whether this release has a trace.

    The name of an artifact is its own, such as ``recompile_reasons``.
    """

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            metadata = getattr(record, "metadata", None) or {}
            if metadata:
                name, about = next(iter(metadata.items()))
                about = about if isinstance(about, dict) else {}
                known = about.get("name") if name == "artifact" else name
                hear(str(known), about, str(getattr(record, "payload", "") or ""))

    with _listening(Listener(logging.DEBUG)) as heard:
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
def _listening(listener: logging.Handler) -> Iterator[bool]:
    """Attach a handler to the trace, and make torch write the trace; nothing else changes."""
    try:
        trace_log: Any = importlib.import_module("torch._logging._internal").trace_log
    except (ImportError, AttributeError):
        yield False
        return
    level, propagate, disabled = trace_log.level, trace_log.propagate, trace_log.disabled
    asked = vars(trace_log).get("isEnabledFor")
    trace_log.addHandler(listener)
    trace_log.setLevel(logging.DEBUG)
    trace_log.propagate = False
    trace_log.disabled = False
    # The events must be heard even if a case calls logging.disable().
    trace_log.isEnabledFor = lambda _level: True
    try:
        yield True
    finally:
        if asked is None:
            vars(trace_log).pop("isEnabledFor", None)
        else:
            trace_log.isEnabledFor = asked
        trace_log.removeHandler(listener)
        trace_log.setLevel(level)
        trace_log.propagate = propagate
        trace_log.disabled = disabled
