"""What a worker server does once before it forks: imports, and first-time work of torch, by level."""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any

from recapture.base.paths import without_callers_directory
from recapture.torch_api.compat import quietly, release, reset_dynamo
from recapture.torch_api.kept_builds import keep_builds
from recapture.torch_api.wrapper import package_once, prepare_packaging

FIRST_CAPTURE = (
    "torch._dynamo.backends.debugging",
    "torch._inductor.compiler_bisector",
    "torch._subclasses.schema_check_mode",
    "torch.distributed.tensor.experimental._attention",
    "torch.export._trace",
    "torch.export._unlift",
    "torch.nn.attention.flex_attention",
)
"""Modules that the first capture imports; some register operators. Their import does not initialise CUDA."""


def _patch_as_dynamo() -> None:
    """Replace the functions of torch that Dynamo replaces in each process before its first capture."""
    importlib.import_module("torch._dynamo.eval_frame").TorchPatcher.patch()
    importlib.import_module("torch._dynamo.mutation_guard").install_generation_tagging_init()


def preload(level: str, modules: list[str]) -> None:
    """Import what cells need and do slow first-time work once, so that forked children need not repeat it.

    ``bare`` imports torch. For a GPU, ``light`` adds modules whose import does not initialise CUDA on any release,
    ``cuda`` adds Inductor, and ``cuda_aoti`` what AOTInductor examines. For the CPU, in a process that sees no GPU
    (`hide_gpus`), ``capture`` imports the same as ``cuda`` and also captures a graph, ``codegen`` also compiles C++,
    and ``aoti`` also packages it. Nothing here may start a thread, initialise CUDA or raise.
    """
    with without_callers_directory():
        _import_torch(level)
    for module in modules:
        quietly(partial(importlib.import_module, module))
    with without_callers_directory():
        _warm(level)


def _import_torch(level: str) -> None:
    import torch

    torch.set_num_threads(1)  # an OpenMP pool does not survive a fork
    needed: list[str] = []
    if level != "bare":
        if release() < (2, 1):
            quietly(_compile_in_one_process)
        needed += ["torch._dynamo", "torch.export", "torch._functorch.aot_autograd", "torch._inductor.codecache"]
    with_cuda = level in ("cuda", "cuda_aoti")
    if level in ("capture", "codegen", "aoti") or with_cuda:
        needed += ["torch._inductor.compile_fx", "torch._inductor.cpu_vec_isa", "torch._inductor.package"]
        needed += ["torch._inductor.debug", "torch._inductor.codegen.cpp_wrapper_cpu"]
        needed += ["torch.fx.experimental.proxy_tensor"]
    if with_cuda:
        needed += ["torch._inductor.select_algorithm", "torch._inductor.codegen.triton", "torch._inductor.scheduler"]
        needed += ["torch._dynamo.backends.inductor", "torch._dynamo.repro.after_dynamo", "torch.utils.cpp_extension"]
    if (level == "light" or with_cuda) and release() >= (2, 9):  # tested on no older release with a GPU
        needed += FIRST_CAPTURE
    for module in needed:
        quietly(partial(importlib.import_module, module))
    if level != "bare":
        quietly(keep_builds)


def _warm(level: str) -> None:
    if level in ("light", "cuda", "cuda_aoti"):
        quietly(_patch_as_dynamo)
    if level == "cuda_aoti":
        quietly(prepare_packaging)
    if level in ("capture", "codegen", "aoti"):
        quietly(partial(_warm_dynamo, "eager", "aot_eager"))
    if level in ("codegen", "aoti"):
        # This also makes Inductor detect the processor's instruction set and hash the headers it precompiles.
        quietly(partial(_warm_dynamo, "inductor"))
    if level == "aoti":
        quietly(package_once)
        reset_dynamo()


def _compile_in_one_process() -> None:
    """Keep Inductor from forking a pool of compilers when imported; torch 2.0 has no environment variable for that."""
    from torch._inductor import config

    config.compile_threads = 1


@cache
def _warm_dynamo(*backends: str) -> None:
    """Capture graphs that make Dynamo, AOTAutograd and export import the modules they otherwise import late.

    No gradients are computed: after autograd has run in a process, it cannot run in the forked children.
    """
    import torch

    def sample(x: Any, y: Any, sizes: Any) -> Any:
        z = torch.sin(x) + y.cos() * sizes[0]
        return {"z": torch.cat([z, z]).view(-1), "sizes": sizes}

    def breaks(x: Any) -> Any:
        if x.sum() > 0:
            return torch.sin(x)
        return x

    class Sample(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.linear(x))

    with torch.no_grad():
        for backend in backends:
            compiled = torch.compile(sample, backend=backend)
            for size in (3, 5):  # the second call compiles with dynamic shapes
                compiled(torch.ones(size), torch.ones(size), [size, 2])
            torch.compile(Sample(), backend=backend)(torch.ones(2, 3))
            if backend != "inductor":  # for Inductor these are two more ordinary graphs to compile
                torch.compile(breaks, backend=backend)(torch.ones(3))
            reset_dynamo()
        torch.export.export(Sample(), (torch.ones(2, 3),)).module()(torch.ones(2, 3))
        reset_dynamo()
