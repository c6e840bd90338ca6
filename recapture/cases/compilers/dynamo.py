"""`torch.compile`, by mode and by backend."""

from __future__ import annotations

from typing import Any

from recapture.cases.compiler import Family, compiler


@compiler(
    "compile",
    family=Family.DYNAMO,
    also_called=("inductor", "torch.compile", "compile:inductor"),
    run_by=("check", "pytest", "bench"),
    uses_dynamo=True,
    generates_code=True,
)
def compile_default(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile` as it comes: Dynamo and Inductor, graph breaks allowed."""
    import torch

    return torch.compile(fn)


@compiler(
    "compile:fullgraph", family=Family.DYNAMO, arguments={"fullgraph": True}, uses_dynamo=True, generates_code=True
)
def compile_fullgraph(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(fullgraph=True)`: a graph break is an error."""
    import torch

    return torch.compile(fn, fullgraph=True)


@compiler(
    "compile:dynamic",
    family=Family.DYNAMO,
    arguments={"dynamic": True},
    run_by=("check",),
    uses_dynamo=True,
    generates_code=True,
)
def compile_dynamic(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(dynamic=True)`: sizes are symbols from the first call on."""
    import torch

    return torch.compile(fn, dynamic=True)


@compiler(
    "compile:reduce-overhead",
    family=Family.DYNAMO,
    arguments={"mode": "reduce-overhead"},
    run_by=("bench",),
    uses_dynamo=True,
    generates_code=True,
)
def compile_reduce_overhead(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(mode="reduce-overhead")`: CUDA graphs on a GPU."""
    import torch

    return torch.compile(fn, mode="reduce-overhead")


@compiler(
    "compile:max-autotune",
    family=Family.DYNAMO,
    arguments={"mode": "max-autotune"},
    run_by=("bench",),
    uses_dynamo=True,
    generates_code=True,
)
def compile_max_autotune(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(mode="max-autotune")`: kernels chosen by timing, CUDA graphs on a GPU."""
    import torch

    return torch.compile(fn, mode="max-autotune")


@compiler(
    "compile:max-autotune-no-cudagraphs",
    family=Family.DYNAMO,
    arguments={"mode": "max-autotune-no-cudagraphs"},
    run_by=("bench",),
    uses_dynamo=True,
    generates_code=True,
    optional=True,
)
def compile_max_autotune_no_cudagraphs(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.compile(mode="max-autotune-no-cudagraphs")`: kernels chosen by timing, launched one by one."""
    import torch

    return torch.compile(fn, mode="max-autotune-no-cudagraphs")


@compiler(
    "compile:eager",
    family=Family.DYNAMO,
    also_called=("dynamo",),
    share_passing=0.92,
    last_stage="dynamo",
    arguments={"backend": "eager"},
    run_by=("check", "pytest"),
    uses_dynamo=True,
)
def compile_eager(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Dynamo alone: its graphs run eagerly, so that a difference is the capture's."""
    import torch

    return torch.compile(fn, backend="eager")


@compiler(
    "compile:aot_eager",
    family=Family.DYNAMO,
    also_called=("aot_eager", "aot_autograd"),
    share_passing=0.91,
    last_stage="aot_autograd",
    arguments={"backend": "aot_eager"},
    run_by=("check", "pytest", "generate"),
    uses_dynamo=True,
)
def compile_aot_eager(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """Dynamo and AOTAutograd without Inductor: a difference is theirs."""
    import torch

    return torch.compile(fn, backend="aot_eager")
