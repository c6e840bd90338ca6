"""`torch.compile`, by mode and by backend."""

from __future__ import annotations

from typing import Any

from recapture.cases.compiler import compiler


@compiler("compile", uses_dynamo=True, generates_code=True)
def compile_default(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile` as it comes: Dynamo and Inductor, graph breaks allowed."""
    import torch

    return torch.compile(fn)


@compiler("compile:fullgraph", uses_dynamo=True, generates_code=True)
def compile_fullgraph(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(fullgraph=True)`: a graph break is an error."""
    import torch

    return torch.compile(fn, fullgraph=True)


@compiler("compile:dynamic", uses_dynamo=True, generates_code=True)
def compile_dynamic(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(dynamic=True)`: sizes are symbols from the first call on."""
    import torch

    return torch.compile(fn, dynamic=True)


@compiler("compile:reduce-overhead", uses_dynamo=True, generates_code=True)
def compile_reduce_overhead(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(mode="reduce-overhead")`: CUDA graphs on a GPU."""
    import torch

    return torch.compile(fn, mode="reduce-overhead")


@compiler("compile:max-autotune", uses_dynamo=True, generates_code=True)
def compile_max_autotune(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(mode="max-autotune")`: kernels chosen by timing, CUDA graphs on a GPU."""
    import torch

    return torch.compile(fn, mode="max-autotune")


@compiler("compile:max-autotune-no-cudagraphs", uses_dynamo=True, generates_code=True, optional=True)
def compile_max_autotune_no_cudagraphs(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(mode="max-autotune-no-cudagraphs")`: kernels chosen by timing, launched one by one."""
    import torch

    return torch.compile(fn, mode="max-autotune-no-cudagraphs")


@compiler("compile:eager", uses_dynamo=True)
def compile_eager(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Dynamo alone: its graphs run eagerly, so that a difference is the capture's."""
    import torch

    return torch.compile(fn, backend="eager")


@compiler("compile:aot_eager", uses_dynamo=True)
def compile_aot_eager(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Dynamo and AOTAutograd without Inductor: a difference is theirs."""
    import torch

    return torch.compile(fn, backend="aot_eager")
