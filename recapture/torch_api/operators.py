"""The private parts of torch that intercept operators, for every supported release."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def compiled_code_off() -> Iterator[None]:
    """Run functions that `torch.compile` returned as they were before: their operators are to be intercepted.

    From torch 2.6 on, compiled code is not run where a mode intercepts operators; on older releases it is.
    """
    frames = sys.modules.get("torch._dynamo.eval_frame")
    set_callback = getattr(frames, "set_eval_frame", None)
    if set_callback is None:  # nothing was compiled
        yield
        return
    frames.set_eval_frame = lambda _: set_callback(None)  # type: ignore[union-attr]
    try:
        yield
    finally:
        frames.set_eval_frame = set_callback  # type: ignore[union-attr]


def dispatch_mode() -> Any:
    """Return a base class of modes that intercept every operator.

    Torch keeps Dynamo from tracing the methods of a mode, and imports Dynamo for that. This class does not import it.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return "torch._dynamo" in sys.modules

    return Mode


def operator_schema(operator: Any) -> Any:
    """Return the schema of an operator that a mode intercepted; None for one that calls functions, such as cond."""
    return getattr(operator, "_schema", None)
