"""The private parts of torch that this project sets, warms up or reads, for every supported release.

Where a release lacks a part, setting it does nothing and reading it returns None. `watch` observes torch while it
compiles and runs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from recapture.base.exceptions import safe_text


def pytree() -> Any:
    """Return torch's module for nested containers, which has no public name in older releases."""
    from torch.utils import _pytree

    return _pytree


def tree_leaves(value: Any) -> list[Any]:
    """Return what is inside nested containers and is no container itself; `pytree` has this from torch 2.2 on."""
    leaves: list[Any] = pytree().tree_flatten(value)[0]
    return leaves


def release(version: str | None = None) -> tuple[int, ...]:
    """Return a torch release as integers, ``(2, 11, 0)`` for ``2.11.0+cu130``; by default that of the imported torch.

    It does not use `packaging`: scripts printed by `recapture repro` have this module and need torch alone.
    """
    if version is None:
        import torch

        version = str(torch.__version__)
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def installed_torch() -> str:
    """Return the version of the installed torch without importing it; raises PackageNotFoundError without one."""
    return importlib.metadata.version("torch")


def reset_dynamo() -> None:
    """Forget everything Dynamo compiled in this process; where nothing imported it, there is nothing to forget."""
    dynamo: Any = sys.modules.get("torch._dynamo")
    if hasattr(dynamo, "reset"):
        dynamo.reset()
        _remove_aliases()


def _remove_aliases() -> None:
    """Remove the names that Dynamo gave in this project's modules to modules of the code that they call.

    A process that cells share executes a suite for each of them. Dynamo asserts that the name stands for the module
    that it finds then: with torch 2.6, `export` in strict mode refuses all code after a cell of `export:dynamic`.
    Source: `import_source` in `torch/_dynamo/symbolic_convert.py`.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("recapture.") and isinstance(module, types.ModuleType):
            for alias in [key for key in vars(module) if key.startswith("__import_")]:
                delattr(module, alias)


def allow_recompilations(number: int) -> None:
    """Let Dynamo compile a function at least `number` times before it gives up and runs it in eager.

    The limit is 8 by default, which more inputs than that would reach, each of a shape or type of its own.
    """
    config: Any = importlib.import_module("torch._dynamo.config")
    for name in ("recompile_limit", "cache_size_limit"):  # the second until 2.5, and an alias since
        limit = getattr(config, name, None)
        if type(limit) is int and limit < number:
            _set_config("torch._dynamo.config", name, number)


CAPTURE_MODULES = ("torch._dynamo.", "torch._inductor.", "torch._export.", "torch.export", "torch._functorch.")


def skip_guard_timing() -> None:
    """Keep Dynamo, if imported, from timing the guards of every frame that it compiles (since about 2.7).

    To time them, Dynamo flushes the processor's caches, which takes 25 ms per frame or more, and logs the result.
    Nothing depends on it. Do not call this where compile time is measured.
    """
    guards: Any = sys.modules.get("torch._dynamo.guards")
    if hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = lambda *_: 0.0


def is_capture_error(error: BaseException) -> bool:
    """Whether torch raised this while capturing or compiling, even if that happened inside the first call."""
    kind = type(error)
    if kind.__name__ == "TorchRuntimeError":  # the user's own error, from running the operator on fake tensors
        return False
    return kind.__module__.startswith(CAPTURE_MODULES) or kind.__name__ in (
        "GuardOnDataDependentSymNode",
        "ConstraintViolationError",
        "DataDependentOutputException",
    )


OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|Unable to allocate|std::bad_alloc", re.IGNORECASE)


def device_works(device: str) -> bool:
    """Whether the device can still be used; after a failed assertion or a bad address, a GPU refuses everything."""
    if device == "cpu":
        return True
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:  # of another class on each release
        return False
    return True


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, on the host or the device."""
    if isinstance(error, MemoryError) or type(error).__name__ in ("OutOfMemoryError", "OutOfMemoryException"):
        return True
    try:
        return isinstance(error, RuntimeError) and bool(OUT_OF_MEMORY.search(str(error)))
    except Exception:  # an exception whose __str__ raises
        return False


ACCELERATORS = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/dri")))
"""Device files of GPUs: without any of them, no accelerator can be initialised in this process."""


@cache
def _may_have_accelerator() -> bool:
    return any(path.exists() for path in ACCELERATORS)


def seed_everything(seed: int = 0) -> None:
    """Seed torch (all devices), Python's random and, where it is installed, numpy."""
    import random

    import torch

    if _may_have_accelerator():
        torch.manual_seed(seed)
    else:  # for each device that may come, the former formats the stack, which takes longer than a short case
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if importlib.util.find_spec("numpy") is not None:
        import numpy as np

        np.random.seed(seed)  # noqa: NPY002 - cases use numpy's global stream


WHOLE_GRAPH_CACHES = ("TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE")
OWN_VARIABLES = frozenset(
    {
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_COMPILE_THREADS",
        "PYTORCH_NVML_BASED_CUDA_CHECK",
        *WHOLE_GRAPH_CACHES,
    }
)
"""Environment variables that a benchmark sets itself, overriding the user's."""

OTHER_CACHES = {"TORCH_EXTENSIONS_DIR": "extensions", "PYTORCH_KERNEL_CACHE_PATH": "kernels"}
"""Environment variables for torch's other caches of compiled code, each with its folder below the cache directory."""


def isolate_caches(
    cache_dir: str, temporary: str, environment: MutableMapping[str, str], *, whole_graphs: bool = False
) -> None:
    """Set an environment so that every compile cache of a process started with it is in one directory of its user.

    Code from a cache is executed, so no other user may write there. Temporary files go to `temporary`: Inductor keeps
    precompiled headers below the temporary directory and ignores the variable for its cache.

    Cells share compiled kernels by content. Caches of whole graphs are off, so that each cell compiles for itself and
    no cell can influence another's verdict. With `whole_graphs`, for a process that then calls `keep_caches`, these
    caches keep torch's defaults and AOTInductor optimises the code around its kernels as usual.
    """
    environment["TMPDIR"] = temporary
    environment["TORCHINDUCTOR_CACHE_DIR"] = cache_dir
    environment["TRITON_CACHE_DIR"] = os.path.join(cache_dir, "triton")  # noqa: PTH118 - an environment variable
    for name, folder in OTHER_CACHES.items():
        environment[name] = os.path.join(cache_dir, folder)  # noqa: PTH118 - an environment variable
    environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if whole_graphs:
        for name in WHOLE_GRAPH_CACHES:  # these variables override torch's own settings
            environment.pop(name, None)
    else:
        environment.update(dict.fromkeys(WHOLE_GRAPH_CACHES, "0"))
        # The code around AOTInductor's kernels takes the longest to compile and affects no verdict.
        environment.setdefault("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")
    # Importing Inductor asks whether there is a GPU; asking NVML leaves CUDA untouched, so that children can use it.
    environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"


GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Environment variables that name the GPUs which a process may use."""


def hide_gpus(environment: MutableMapping[str, str]) -> None:
    """Set an environment so that a process started with it, and those that it forks, see no GPU.

    For work on the CPU. Dynamo saves the random state of every GPU that it sees; a process that has done so, as the
    first capture of `torch_preload.preload` does, cannot have children that use CUDA: capture fails in all of them.
    """
    environment.update(dict.fromkeys(GPU_VARIABLES, ""))


def quietly(step: Callable[[], object]) -> None:
    """Call a step that may fail in any way: a cell that needs it fails, too, and reports the reason."""
    try:
        step()
    except BaseException as error:  # a library may even exit
        logging.getLogger(__name__).debug("skipped: %r", error)


def keep_caches(cache_dir: str, threads: int) -> None:
    """Make this process compile as a user's process does: with torch's caches on, in one directory, on `threads`.

    The process must have been started with ``isolate_caches(whole_graphs=True)``.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache_dir
    os.environ["TRITON_CACHE_DIR"] = os.path.join(cache_dir, "triton")  # noqa: PTH118 - an environment variable
    os.environ.pop("TORCHINDUCTOR_COMPILE_THREADS", None)
    quietly(partial(_set_config, "torch._inductor.config", "compile_threads", threads))


def make_shapes_dynamic() -> None:
    """Make `torch.compile` use dynamic shapes from the first call on, as its argument ``dynamic=True`` does."""
    _set_config("torch._dynamo.config", "assume_static_by_default", False)


def _set_config(module: str, name: str, value: object) -> None:
    config = importlib.import_module(module)
    if hasattr(config, name.split(".", maxsplit=1)[0]):
        *path, last = name.split(".")
        for part in path:
            config = getattr(config, part)
        if hasattr(config, last):
            setattr(config, last, value)


FAILED_ASSERTION = re.compile(r"(CUDA|HIP) error: device-side assert triggered")


def is_failed_assertion_on_gpu(error: BaseException) -> bool:
    """Whether an exception means that a kernel failed an assertion: the process can no longer use the GPU."""
    return isinstance(error, RuntimeError) and bool(FAILED_ASSERTION.search(safe_text(error)))


def ignoring_subclasses() -> AbstractContextManager[Any]:
    """Treat tensors of subclasses as ordinary tensors inside the block: ``__torch_function__`` is not called."""
    import torch

    context: AbstractContextManager[Any] = torch._C.DisableTorchFunctionSubclass()  # noqa: SLF001
    return context


def base_of(tensor: Any) -> Any:
    """Return the tensor of which another one is a view; None for a tensor that is no view."""
    return tensor._base if tensor._is_view() else None  # noqa: SLF001 - torch has no public names for them


def hooks_of(tensor: Any) -> list[Any]:
    """Return the hooks that were registered on a tensor, in order."""
    return list((tensor._backward_hooks or {}).values())  # noqa: SLF001 - torch only has a public way to add one


def changes_of(tensor: Any) -> int | None:
    """Return how often a tensor was changed, as autograd counts; None where nobody counts."""
    try:
        return int(tensor._version)  # noqa: SLF001 - torch has no other name for it
    except (AttributeError, RuntimeError):  # an array of numpy; a tensor of inference mode
        return None


def stored_values(tensor: Any) -> Any:
    """Return the numbers that a sparse tensor stores, as one strided tensor in the same memory."""
    import torch

    # The public name refuses a tensor that stores a place more than once.
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()  # noqa: SLF001


def with_stored_values(tensor: Any, values: Any) -> Any:
    """Return a sparse tensor in the COO layout with the places of another and with other numbers."""
    import torch

    new = torch.sparse_coo_tensor(tensor._indices(), values, tuple(tensor.shape))  # noqa: SLF001 - as above
    return new._coalesced_(tensor.is_coalesced())


def leaf_of_type(kind: type, plain: Any, *, requires_grad: bool) -> Any:
    """Return a leaf of the class `kind` on the memory of an ordinary tensor, without running the class's own code."""
    import torch

    return torch.Tensor._make_subclass(kind, plain, requires_grad)  # noqa: SLF001


def with_bits_of(original: Any, tensor: Any) -> Any:
    """Return a tensor, or a view of it, with the conjugate and negative bits of the original."""
    import torch

    if tensor.is_conj() != original.is_conj():
        tensor = tensor.conj()
    return torch._neg_view(tensor) if tensor.is_neg() != original.is_neg() else tensor  # noqa: SLF001


def default_device() -> str | None:
    """Return the default device that was set, else None; `torch.get_default_device` does not tell "cpu" from unset."""
    import torch

    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    context = getattr(context, "device_context", context)  # torch 2.0 has one context, not one for each thread
    device = getattr(context, "device", None)
    return None if device is None else str(device)


def print_options() -> dict[str, Any]:
    """Return the options with which torch prints tensors; no function of torch returns them."""
    import torch

    return dict(vars(torch._tensor_str.PRINT_OPTS))  # noqa: SLF001


def set_print_options(options: dict[str, Any]) -> None:
    """Set the options that `print_options` returned; `torch.set_printoptions` takes them under other names."""
    import torch

    vars(torch._tensor_str.PRINT_OPTS).update(options)  # noqa: SLF001


def float32_flags() -> tuple[str, bool, bool]:
    """Return the precision of float32 matrix products, whether cuDNN may use TF32, and whether it autotunes."""
    import torch

    cudnn = torch.backends.cudnn
    return str(torch.get_float32_matmul_precision()), bool(cudnn.allow_tf32), bool(cudnn.benchmark)


def set_float32_flags(dtype: str | tuple[str, bool, bool]) -> None:
    """Set those flags for one of `recapture.cases.workload.DTYPES`, or to the values that `float32_flags` returned.

    The others get torch's defaults on every release: TF32 off in matrix products and on in cuDNN, no autotuning.
    """
    import torch

    if isinstance(dtype, str):
        dtype = {"tf32": ("high", True, False), "fp32-strict": ("highest", False, False)}.get(
            dtype, ("highest", True, False)
        )
    if dtype != float32_flags():  # setting a flag clears torch's caches
        torch.set_float32_matmul_precision(dtype[0])
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = dtype[1:]


@contextmanager
def compiled_code_off() -> Iterator[None]:
    """Run functions that `torch.compile` returned as they were before: their operators are to be intercepted.

    From torch 2.6 on, compiled code is not run where a mode intercepts operators; on older releases it is.
    """
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    set_callback = getattr(frames, "set_eval_frame", None)
    if set_callback is None:  # nothing was compiled
        yield
        return
    frames.set_eval_frame = lambda _: set_callback(None)
    try:
        yield
    finally:
        frames.set_eval_frame = set_callback


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


def has_names(tensor: Any) -> bool:
    """Return whether the dimensions of a tensor have names. From torch 2.13 on no tensor has them."""
    method = getattr(tensor, "has_names", None)
    return method is not None and bool(method())


def zeros_without_memory(tensor: Any) -> bool:
    """Whether a tensor is one of zeros that have no memory, as autograd makes where nothing flows."""
    return bool(tensor._is_zerotensor())  # noqa: SLF001 - no public name
