"""The reference: eager PyTorch, given as a compiler that changes nothing."""

from __future__ import annotations

from typing import Any

from recapture.cases.compiler import compiler


@compiler("eager")
def eager(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Eager PyTorch, run twice: it must agree with itself before anything is held against a compiler."""
    return fn
