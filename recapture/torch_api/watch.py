"""What torch reports while it compiles and runs; where a release does not report it, the value is None (unknown).

Which source is reliable on which release (tested on 2.0.1 … 2.15.0):

- graphs: ``counters["stats"]["unique_graphs"]``, on every release.
- graph breaks, from 2.6: the ``dynamo_graph_break_reason`` artifact of the structured trace log, data-dependent jumps
  and skipped frames included. Before 2.6: the reason passed to each partial ``OutputGraph.compile_subgraph``, plus the
  frames that were skipped because of a break (``SkipFrame``, or an ``Unsupported`` that left the frame).
  ``counters["graph_break"]`` omits jumps on every release, and ``explain`` follows one path only: neither is used.
- recompiles, from 2.6: the ``recompile_reasons`` artifact; before, unknown (``guard_failures`` stays empty on 2.1).
- compile time by stage, from 2.6: the ``…_us`` fields of ``utils.get_compilation_metrics()``, the last 64 events.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from recapture.torch_api.compat import pytree, release
from recapture.torch_api.trace import hear_trace


@dataclass
class CaptureLog:
    """What torch reported about graph capture while it was watched; None where this release does not report it."""

    graphs: int | None = None
    break_reasons: list[str] = field(default_factory=list)
    breaks_known: bool = True
    recompile_reasons: list[str] | None = None
    unheeded_frames: int = 0
    """Frames that Dynamo left in blocks that do not count."""

    @contextmanager
    def unheeded(self) -> Iterator[None]:
        """Leave out the graph breaks of a block: where eager raises, they say nothing about the code."""
        known, before = len(self.break_reasons), _frames_left()
        try:
            yield
        finally:
            del self.break_reasons[known:]
            self.unheeded_frames += _frames_left() - before

    @property
    def graph_breaks(self) -> int | None:
        """Number of distinct places at which a graph was broken."""
        return len(dict.fromkeys(self.break_reasons)) if self.breaks_known else None

    @property
    def recompiles(self) -> int | None:
        """Number of times a frame was compiled again because its guards failed."""
        return None if self.recompile_reasons is None else len(self.recompile_reasons)


def _frames_left() -> int:
    """Return the number of frames that Dynamo began to capture and left."""
    try:
        from torch._dynamo.utils import counters
    except Exception:  # a package is missing
        return 0
    return int(counters["frames"]["total"] - counters["frames"]["ok"])


@contextmanager
def watch_dynamo() -> Iterator[CaptureLog]:
    """Record what Dynamo captures inside the block; the log is complete when the block ends."""
    log = CaptureLog()
    try:
        import torch._dynamo as dynamo
        from torch._dynamo.utils import counters
    except Exception:  # torch._dynamo cannot be imported (a package is missing): the cell reports that itself
        log.breaks_known = False
        yield log
        return
    counters.clear()
    with ExitStack() as stack:
        if release() >= (2, 6):
            stack.enter_context(_watch_trace_log(log))
        else:
            stack.enter_context(_watch_subgraphs(log, dynamo))
        yield log
    log.graphs = int(counters["stats"]["unique_graphs"])
    if _frames_left() > log.unheeded_frames and not log.break_reasons:
        # An Unsupported left the frame, which then ran eagerly; before 2.9, nothing else reports this.
        log.break_reasons += [f"frame skipped: {str(key).strip().splitlines()[0]}" for key in counters["unimplemented"]]


@contextmanager
def _watch_trace_log(log: CaptureLog) -> Iterator[None]:
    """Listen to the stream behind TORCH_TRACE."""
    log.recompile_reasons = recompiles = []

    def hear(name: str, _about: dict[str, Any], payload: str) -> None:
        if name == "dynamo_graph_break_reason":
            log.break_reasons.append(_brief(payload))
        elif name == "recompile_reasons":
            recompiles.append(payload)

    with hear_trace(hear, artifacts=("dynamo_graph_break_reason", "recompile_reasons")):
        yield


def _brief(payload: str) -> str:
    """Say what broke the graph and where, without the stack of the callers, which differs between ways of running."""
    place = re.search(r"Graph break in user code at (\S+)", payload)
    reason = re.search(r"Reason:\s*(.*)", payload)
    text = reason[1].strip() if reason else payload.strip().split("\n")[0]
    if text.startswith("Failed to handle graph break gracefully"):  # since 2.9: the cause is in the next paragraph
        cause = [line.strip() for line in payload[reason.end() if reason else 0 :].splitlines() if line.strip()]
        text = f"frame skipped: {cause[0] if cause else text}"
    context = re.search(r"Developer debug context: (.*)", payload)
    detail = f" ({context[1].strip()})" if context and context[1].strip() else ""
    return f"{text}{detail}" + (f" at {place[1]}" if place else "")


@contextmanager
def _watch_subgraphs(log: CaptureLog, dynamo: Any) -> Iterator[None]:
    """Record the reason that Dynamo gives each time it ends a graph early."""
    exc = dynamo.exc
    output_graph = importlib.import_module("torch._dynamo.output_graph")
    compile_subgraph = output_graph.OutputGraph.compile_subgraph
    skip_init = exc.SkipFrame.__init__

    def compile_and_tell(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        reason = kwargs.get("reason") or next((arg for arg in args if hasattr(arg, "user_stack")), None)
        # 2.0 has no graph_break flag; an ordinary return is recognised by its reason.
        broke = getattr(reason, "graph_break", getattr(reason, "reason", "") != "return_value")
        if reason is not None and broke:
            frame = reason.user_stack[-1] if reason.user_stack else None
            where = f" at {frame.filename}:{frame.lineno}" if frame else ""
            log.break_reasons.append(f"{reason.reason}{where}")
        return compile_subgraph(self, tx, *args, **kwargs)

    def skip_and_tell(self: Any, *args: Any) -> None:
        if args and "graph break" in str(args[0]):
            log.break_reasons.append(str(args[0]))
        skip_init(self, *args)

    output_graph.OutputGraph.compile_subgraph = compile_and_tell
    exc.SkipFrame.__init__ = skip_and_tell
    try:
        yield
    finally:
        output_graph.OutputGraph.compile_subgraph = compile_subgraph
        exc.SkipFrame.__init__ = skip_init


def compile_seconds() -> dict[str, float] | None:
    """Return the seconds of each compilation stage since the last call, as reported by torch; None before 2.6.

    The stages do not overlap; those of 0 seconds are left out. ``kernels`` is the wait for C++ and Triton,
    ``autotuning`` the choice among candidates, including at run time, and ``CUDA graphs`` their recording.
    """
    try:
        from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics
    except ImportError:
        return None
    events = get_compilation_metrics()
    clear_compilation_metrics()
    if not events or not hasattr(events[0], "inductor_cumulative_compile_time_us"):
        return None

    def total(*names: str) -> float:
        return sum(getattr(event, f"{name}_time_us", None) or 0 for event in events for name in names) / 1e6

    frames, backends = total("dynamo_cumulative_compile"), total("aot_autograd_cumulative_compile")
    backwards, inductor = total("backward_cumulative_compile"), total("inductor_cumulative_compile")
    kernels, choosing = total("triton_compile"), total("compile_time_autotune")
    stages = {  # torch's time of a stage includes the stages it calls: subtract them
        "Dynamo": frames - backends,
        "AOTAutograd": backends + backwards - inductor,
        "Inductor": inductor - kernels - choosing,
        "kernels": kernels,
        "autotuning": choosing + total("runtime_triton_autotune"),
        "CUDA graphs": total("runtime_cudagraphify"),
    }
    return {name: round(seconds, 3) for name, seconds in stages.items() if seconds >= 0.001}


@contextmanager
def watch_cudagraphs() -> Iterator[list[str]]:
    """Collect the reasons why CUDA graphs were not used or are slow, from torch's warnings and log."""
    import warnings

    reasons: list[str] = []

    def keep(text: str) -> None:
        text = " ".join(text.split())
        if re.search(r"cuda ?graph", text, re.IGNORECASE) and text not in reasons:
            reasons.append(text)

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            keep(record.getMessage())

    listener = Listener(logging.WARNING)
    loggers = [
        logging.getLogger(name)
        for name in ("torch._inductor.cudagraph_utils", "torch._inductor.cudagraph_trees", "torch._inductor.compile_fx")
    ]
    loggers += [
        logging.getLogger(f"{logger.name}.__{kind}") for logger in loggers for kind in ("cudagraphs", "perf_hints")
    ]
    show = warnings.showwarning

    def keep_warning(message: Warning | str, *where: Any, **more: Any) -> None:
        keep(str(message))
        show(message, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = keep_warning
        for logger in loggers:
            logger.addHandler(listener)
        try:
            yield reasons
        finally:
            for logger in loggers:
                logger.removeHandler(listener)


def recorded_cudagraphs() -> int | None:
    """Return the number of CUDA graphs recorded in this process so far; None if this release does not report it."""
    try:
        trees = importlib.import_module("torch._inductor.cudagraph_trees")
        manager = trees.get_manager(0, create_if_none_exists=False)
        return 0 if manager is None else int(re.findall(r"\d+", repr(manager.graph_counter))[0])
    except Exception:  # no CUDA, or a release that keeps it elsewhere
        return None


def registrations() -> tuple[int, int]:
    """Return the numbers of operators and of container types that are registered in this process."""
    import torch

    return len(torch._C._dispatch_get_all_op_names()), len(registered_containers())  # noqa: SLF001


def registered_containers() -> list[type]:
    """Return the types of containers that are registered in this process, in torch's own order."""
    return list(pytree().SUPPORTED_NODES)
