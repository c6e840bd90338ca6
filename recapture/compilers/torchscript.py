"""TorchScript: by tracing and by compiling the source."""

from __future__ import annotations

from typing import Any

from recapture.compilers.base import compiler


@compiler("jit.trace")
def jit_trace(fn: Any, example: Any) -> Any:
    """`torch.jit.trace`: records the operators that one call runs."""
    import torch

    return torch.jit.trace(fn, example)


@compiler("jit.script")
def jit_script(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.jit.script`: compiles a subset of Python from its source."""
    import torch

    return torch.jit.script(fn)
