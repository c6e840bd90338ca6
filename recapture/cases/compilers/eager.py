"""The reference: eager PyTorch, given as a compiler that changes nothing."""

from __future__ import annotations

from typing import Any

from recapture.cases.compiler import Family, compiler


@compiler("eager", family=Family.REFERENCE, share_passing=0.99, run_by=("bench",))
def eager(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Eager PyTorch, run twice: it must agree with itself before anything is held against a compiler."""
    return fn
