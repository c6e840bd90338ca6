"""Reads and restores the global state of torch and of the process that a call can leave changed.

`_settings` is the one list of settings: a cell records which of those it can restore a call changed, and a process runs
another cell only if all of them are as before.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import threading
import warnings
from functools import cache, partial
from typing import Any

from recapture.judge.namespaces import Setting, patched, public_namespaces_of_torch
from recapture.judge.process_state import PROCESS, leave_alone, process_settings
from recapture.torch_api.compat import default_device, print_options, set_print_options
from recapture.torch_api.modes import (
    autograd_multithreading,
    dispatch_modes,
    forward_mode_level,
    function_modes,
    leave_dispatch_modes,
    leave_forward_mode,
    leave_function_modes,
    leave_saved_tensors_hooks,
    profiles,
    saved_tensors_hooks,
    set_autograd_multithreading,
    set_inference_mode,
    stop_profiling,
)
from recapture.torch_api.watch import registrations

Flags = dict[str, Any]
"""Values of torch's global settings, by name."""

SET_BY_TORCH = frozenset(
    {
        "CUDA_HOME",
        "CUDA_MODULE_LOADING",
        "DISABLE_CUPTI_LAZY_REINIT",
        "KMP_DUPLICATE_LIB_OK",
        "TEARDOWN_CUPTI",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "TRITON_LIBDEVICE_PATH",
        "TRITON_PTXAS_PATH",
        "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
    }
)
"""Environment variables that torch sets, once in a process, for its own profiler, CUDA and code generators."""


def read_settings() -> dict[str, Any]:
    """Return all settings of torch and of this process, by name."""
    return {name: setting.read() for name, setting in _settings().items()}


def read_flags() -> Flags:
    """Return torch's global settings; those that this release does not have are None."""
    return {name: setting.read() for name, setting in _settings().items() if setting.write is not None}


def restore_flags(flags: Flags, now: Flags | None = None) -> frozenset[str]:
    """Set every setting that differs from `flags` back, and return the names of these.

    `now` are the present ones, if they were just read.
    """
    if now is not None and all(value == flags.get(name, value) for name, value in now.items()):
        return frozenset()
    different = set()
    for name, setting in _settings().items():
        if setting.write is not None and name in flags and setting.read() != flags[name]:
            different.add(name)
            setting.write(flags[name])
    return frozenset(different)


def setting_texts(before: Flags, after: Flags) -> dict[str, str]:
    """Return what a record says of each setting after a call, given all of them before and after."""
    settings = _settings()
    return {name: settings[name].tell(before.get(name, value), value) for name, value in after.items()}


def place_of(name: str) -> str:
    """Return the place of a setting in a record: torch's, or the process's."""
    return f"process.{name}" if name in PROCESS else f"torch.{name}"


def random_states() -> dict[str, str]:
    """Return a digest of each random number generator's state: torch's on the CPU and GPU, Python's and numpy's."""
    import torch

    # Without numpy: a torch that was built against another major version of numpy works but for its conversions.
    states = {"torch": bytes(torch.get_rng_state().tolist()), "random": repr(random.getstate()).encode()}
    if torch.cuda.is_initialized():
        states["torch.cuda"] = bytes(torch.cuda.get_rng_state().tolist())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _, keys, *others = numpy.random.get_state()
        states["numpy.random"] = repr(others).encode() + keys.tobytes()
    return {name: hashlib.sha256(state).hexdigest() for name, state in states.items()}


def environment() -> dict[str, str]:
    """Return the environment variables, without those that torch sets for itself."""
    return {name: value for name, value in os.environ.items() if name not in SET_BY_TORCH}


def _settings() -> dict[str, Setting]:
    """Return the settings by name; some exist only once Python has imported a module."""
    return _settings_with(*(name in sys.modules for name in ("numpy", "socket")))


@cache
def _settings_with(*_imported: bool) -> dict[str, Setting]:
    import torch

    settings = {
        # Modes come first, because they see what is called to set the others.
        "dispatch_modes": Setting(dispatch_modes, leave_dispatch_modes),
        "function_modes": Setting(function_modes, leave_function_modes),
        # Then the default device: while it is wrong, others cannot be read.
        "default_device": Setting(default_device, torch.set_default_device),
        "inference_mode": Setting(torch.is_inference_mode_enabled, set_inference_mode),
        "grad_enabled": Setting(torch.is_grad_enabled, torch.set_grad_enabled),
        "default_dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
        "deterministic_algorithms": Setting(_deterministic, _set_deterministic),
        "float32_matmul_precision": Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "autocast_cpu": Setting(partial(_autocast, "cpu"), partial(_set_autocast, "cpu")),
        "autocast_cuda": Setting(partial(_autocast, "cuda"), partial(_set_autocast, "cuda")),
        "autocast_dtype_cpu": Setting(partial(_autocast_dtype, "cpu"), partial(_set_autocast_dtype, "cpu")),
        "autocast_dtype_cuda": Setting(partial(_autocast_dtype, "cuda"), partial(_set_autocast_dtype, "cuda")),
        "autocast_cache": Setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        "anomaly_detection": Setting(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
        "warn_always": Setting(torch.is_warn_always_enabled, torch.set_warn_always),
        "fill_uninitialized_memory": _attribute(
            getattr(torch.utils, "deterministic", None), "fill_uninitialized_memory"
        ),
        "saved_tensors_hooks": Setting(saved_tensors_hooks, leave_saved_tensors_hooks),
        "flush_denormal": Setting(_flushes_denormals, torch.set_flush_denormal),
        "threads": Setting(torch.get_num_threads, torch.set_num_threads),
        "autograd_multithreading": Setting(autograd_multithreading, set_autograd_multithreading),
        "profiler": Setting(profiles, stop_profiling),
        "forward_mode_level": Setting(forward_mode_level, leave_forward_mode),
        "check_sparse": Setting(_checks_sparse, _set_checks_sparse),
        "print_options": Setting(print_options, set_print_options),
        # Their numbers count the hooks of the whole process.
        "module_hooks": Setting(
            _module_hooks, _set_module_hooks, lambda _, after: str([len(hooks) for hooks in after])
        ),
    }
    settings |= _backends()
    settings["functions"] = patched(
        "torch", torch, torch.Tensor, torch.nn.functional, torch.nn.Module, torch.linalg, torch.autograd.Function
    )
    settings["namespaces_of_torch"] = patched("replaced", *public_namespaces_of_torch(), full_names=True)
    return (
        settings
        | process_settings()
        | {
            "registrations": Setting(registrations),
            "environment": Setting(_environment_of_cells),
            "all_warning_filters": Setting(lambda: list(warnings.filters)),
            "finders_of_modules": Setting(lambda: len(sys.meta_path)),
            "threads_of_python": Setting(_threads),
        }
    )


def _flushes_denormals() -> bool:
    """Whether the processor takes the smallest numbers for zeros; torch has no function that tells."""
    smallest = sys.float_info.min
    return smallest / 2 == 0.0


def _backends() -> dict[str, Setting]:
    """Return the settings of torch's backends by name."""
    import torch

    attention = getattr(torch.backends, "mha", None)  # this and the next one are missing in some releases
    settings = {
        "backends.mha.fastpath": Setting(
            getattr(attention, "get_fastpath_enabled", _none), getattr(attention, "set_fastpath_enabled", leave_alone)
        ),
        "backends.opt_einsum.enabled": _attribute(getattr(torch.backends, "opt_einsum", None), "enabled"),
        "backends.quantized.engine": _attribute(torch.backends.quantized, "engine"),
    }
    for kind in ("flash", "mem_efficient", "math"):
        settings[f"backends.cuda.{kind}_sdp"] = Setting(
            getattr(torch.backends.cuda, f"{kind}_sdp_enabled"), getattr(torch.backends.cuda, f"enable_{kind}_sdp")
        )
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        settings[f"backends.cuda.matmul.{name}"] = _attribute(torch.backends.cuda.matmul, name)
    for name in ("allow_tf32", "benchmark", "deterministic", "enabled"):
        settings[f"backends.cudnn.{name}"] = _attribute(torch.backends.cudnn, name)
    settings["backends.mkldnn.enabled"] = _attribute(torch.backends.mkldnn, "enabled")
    return settings


def _none() -> None:
    """Take the place of what this release of torch cannot be asked."""


def _checks_sparse() -> bool:
    import torch

    return bool(torch.sparse.check_sparse_tensor_invariants.is_enabled())


def _set_checks_sparse(value: bool) -> None:
    import torch

    checks = torch.sparse.check_sparse_tensor_invariants
    (checks.enable if value else checks.disable)()


_HOOKS_OF_MODULES = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")


def _module_hooks() -> list[list[int]]:
    """Return the numbers of the hooks that every module calls."""
    from torch.nn.modules import module

    return [list(getattr(module, name)) for name in _HOOKS_OF_MODULES]


def _set_module_hooks(before: list[list[int]]) -> None:
    """Remove the hooks that were added since; those that were removed cannot be added again."""
    from torch.nn.modules import module

    for name, numbers in zip(_HOOKS_OF_MODULES, before, strict=True):
        hooks = getattr(module, name)
        for number in set(hooks) - set(numbers):
            del hooks[number]


def _environment_of_cells() -> dict[str, str]:
    """Return the environment variables, except the directory for temporary files, which each cell has for itself."""
    return {name: value for name, value in environment().items() if name != "TMPDIR"}


def _threads() -> int:
    """Return the number of Python's threads, without the one of tqdm, which torch uses where it is installed."""
    return sum(type(thread).__module__ != "tqdm._monitor" for thread in threading.enumerate())


def _attribute(owner: Any, name: str) -> Setting:
    def read() -> Any:
        try:
            return getattr(owner, name, None)
        except RuntimeError:  # torch refuses to read an older setting after its successor was set
            return None

    return Setting(read, partial(setattr, owner, name))


def _autocast(device: str) -> bool:
    import torch

    try:
        return bool(torch.is_autocast_enabled(device))
    except TypeError:  # before 2.4: a function for each device
        return bool(torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled())


def _set_autocast(device: str, value: bool) -> None:
    import torch

    try:
        torch.set_autocast_enabled(device, value)
    except TypeError:  # before 2.4
        (torch.set_autocast_cpu_enabled if device == "cpu" else torch.set_autocast_enabled)(value)


def _autocast_dtype(device: str) -> Any:
    import torch

    try:
        return torch.get_autocast_dtype(device)
    except AttributeError:  # before 2.4: a function for each device
        return torch.get_autocast_cpu_dtype() if device == "cpu" else torch.get_autocast_gpu_dtype()


def _set_autocast_dtype(device: str, value: Any) -> None:
    import torch

    try:
        torch.set_autocast_dtype(device, value)
    except AttributeError:  # before 2.4
        (torch.set_autocast_cpu_dtype if device == "cpu" else torch.set_autocast_gpu_dtype)(value)


def _deterministic() -> tuple[bool, bool]:
    import torch

    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(value: tuple[bool, bool]) -> None:
    import torch

    torch.use_deterministic_algorithms(value[0], warn_only=value[1])
