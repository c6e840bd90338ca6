"""TorchScript: by tracing and by compiling the source."""

from __future__ import annotations

from typing import Any

from recapture.cases.compiler import Family, compiler


@compiler(
    "jit.trace",
    family=Family.TRACE,
    also_called=("trace", "torch.jit.trace"),
    share_passing=0.32,
    run_by=("check", "pytest", "bench"),
)
def jit_trace(fn: Any, example: Any) -> Any:
    """`torch.jit.trace`: records the operators that one call runs."""
    import torch

    return torch.jit.trace(fn, example)


@compiler(
    "jit.script",
    family=Family.SCRIPT,
    also_called=("script", "torchscript", "torch.jit.script"),
    share_passing=0.46,
    run_by=("check", "pytest", "bench"),
)
def jit_script(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.jit.script`: compiles a subset of Python from its source."""
    import torch

    return torch.jit.script(fn)


@compiler(
    "jit.trace:frozen", family=Family.TRACE, run_by=("bench",), shares_state=False, inference_only=True, optional=True
)
def jit_trace_frozen(fn: Any, example: Any) -> Any:
    """`torch.jit.trace`, then `torch.jit.freeze`: parameters become constants, and operators are folded."""
    import torch

    traced = torch.jit.trace(fn, example)
    return torch.jit.freeze(traced) if isinstance(fn, torch.nn.Module) else traced  # a function has no parameters


@compiler(
    "jit.script:frozen", family=Family.SCRIPT, run_by=("bench",), shares_state=False, inference_only=True, optional=True
)
def jit_script_frozen(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.jit.script`, then `torch.jit.freeze`: parameters become constants, and operators are folded."""
    import torch

    scripted = torch.jit.script(fn)
    return torch.jit.freeze(scripted) if isinstance(fn, torch.nn.Module) else scripted
