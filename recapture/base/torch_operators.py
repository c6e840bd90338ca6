"""The private parts of torch that intercept operators, for every supported release."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["dispatch_mode", "operator_schema"]


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
