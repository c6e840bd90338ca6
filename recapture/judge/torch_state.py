"""Reads and restores the global state of torch and of the process that a call can leave changed.

`_settings` is the one list of settings: a cell records which of those it can restore a call changed, and a process runs
another cell only if all of them are as before.
"""

from __future__ import annotations

import decimal
import gc
import hashlib
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from recapture.torch_api.compat import default_device, print_options, set_print_options
from recapture.torch_api.modes import (
    dispatch_modes,
    function_modes,
    leave_dispatch_modes,
    leave_function_modes,
    leave_saved_tensors_hooks,
    saved_tensors_hooks,
    set_inference_mode,
)
from recapture.torch_api.watch import registrations

Flags = dict[str, Any]
"""Values of torch's global settings, by name."""

SET_BY_TORCH = frozenset(
    {"DISABLE_CUPTI_LAZY_REINIT", "TEARDOWN_CUPTI", "TRITON_PTXAS_PATH", "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"}
)
"""Environment variables that torch sets, once in a process, for its own profiler and code generators."""


class _Setting(NamedTuple):
    """How a setting is read and written."""

    read: Callable[[], Any]
    write: Callable[[Any], None] | None = None
    """None for what cannot be restored, or is not torch's: it tells whether another cell may run in a process."""


def read_settings() -> dict[str, Any]:
    """Return all settings of torch and of this process, by name."""
    return {name: setting.read() for name, setting in _settings().items()}


def read_flags() -> Flags:
    """Return torch's global settings; those that this release does not have are None."""
    return {name: setting.read() for name, setting in _settings().items() if setting.write is not None}


def restore_flags(flags: Flags) -> None:
    """Set every setting that differs from `flags` back."""
    for name, setting in _settings().items():
        if setting.write is not None and name in flags and setting.read() != flags[name]:
            setting.write(flags[name])


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


def _settings() -> dict[str, _Setting]:
    """Return the settings by name."""
    import torch

    settings = {
        # Modes come first, because they see what is called to set the others.
        "dispatch_modes": _Setting(dispatch_modes, leave_dispatch_modes),
        "function_modes": _Setting(function_modes, leave_function_modes),
        # Then the default device: while it is wrong, others cannot be read.
        "default_device": _Setting(default_device, torch.set_default_device),
        "inference_mode": _Setting(torch.is_inference_mode_enabled, set_inference_mode),
        "grad_enabled": _Setting(torch.is_grad_enabled, torch.set_grad_enabled),
        "default_dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
        "deterministic_algorithms": _Setting(_deterministic, _set_deterministic),
        "float32_matmul_precision": _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "autocast_cpu": _Setting(partial(_autocast, "cpu"), partial(_set_autocast, "cpu")),
        "autocast_cuda": _Setting(partial(_autocast, "cuda"), partial(_set_autocast, "cuda")),
        "autocast_dtype_cpu": _Setting(partial(_autocast_dtype, "cpu"), partial(_set_autocast_dtype, "cpu")),
        "autocast_dtype_cuda": _Setting(partial(_autocast_dtype, "cuda"), partial(_set_autocast_dtype, "cuda")),
        "autocast_cache": _Setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        "anomaly_detection": _Setting(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
        "warn_always": _Setting(torch.is_warn_always_enabled, torch.set_warn_always),
        "fill_uninitialized_memory": _attribute(
            getattr(torch.utils, "deterministic", None), "fill_uninitialized_memory"
        ),
        "saved_tensors_hooks": _Setting(saved_tensors_hooks, leave_saved_tensors_hooks),
        "flush_denormal": _Setting(_flushes_denormals, torch.set_flush_denormal),
        "threads": _Setting(torch.get_num_threads, torch.set_num_threads),
        "print_options": _Setting(print_options, set_print_options),
        "module_hooks": _Setting(_module_hooks, _set_module_hooks),
        "working_directory": _Setting(_working_directory, _return_to),
        "garbage_collection": _Setting(gc.isenabled, lambda value: gc.enable() if value else gc.disable()),
        "decimal_precision": _Setting(lambda: decimal.getcontext().prec, _set_decimal_precision),
    }
    for kind in ("flash", "mem_efficient", "math"):
        settings[f"backends.cuda.{kind}_sdp"] = _Setting(
            getattr(torch.backends.cuda, f"{kind}_sdp_enabled"), getattr(torch.backends.cuda, f"enable_{kind}_sdp")
        )
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        settings[f"backends.cuda.matmul.{name}"] = _attribute(torch.backends.cuda.matmul, name)
    if "numpy" in sys.modules:
        settings["numpy_errors"] = _Setting(
            sys.modules["numpy"].geterr, lambda value: sys.modules["numpy"].seterr(**value)
        )
    for name in ("allow_tf32", "benchmark", "deterministic", "enabled"):
        settings[f"backends.cudnn.{name}"] = _attribute(torch.backends.cudnn, name)
    settings["backends.mkldnn.enabled"] = _attribute(torch.backends.mkldnn, "enabled")
    return settings | {
        "registrations": _Setting(registrations),
        "environment": _Setting(_environment_of_cells),
        "hooks": _Setting(_hooks),
        "warning_filters": _Setting(lambda: list(warnings.filters)),
        "threads_of_python": _Setting(_threads),
    }


def _flushes_denormals() -> bool:
    """Whether the processor takes the smallest numbers for zeros; torch has no function that tells."""
    smallest = sys.float_info.min
    return smallest / 2 == 0.0


def _set_decimal_precision(value: int) -> None:
    decimal.getcontext().prec = value


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


def _working_directory() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return None


def _return_to(directory: str | None) -> None:
    """Make a directory the working directory again, if it is still there."""
    if directory is not None:
        with suppress(OSError):
            os.chdir(directory)


def _environment_of_cells() -> dict[str, str]:
    """Return the environment variables, except the directory for temporary files, which each cell has for itself."""
    return {name: value for name, value in environment().items() if name != "TMPDIR"}


def _threads() -> int:
    """Return the number of Python's threads, without the one of tqdm, which torch uses where it is installed."""
    return sum(type(thread).__module__ != "tqdm._monitor" for thread in threading.enumerate())


def _hooks() -> tuple[Any, ...]:
    return sys.displayhook, sys.excepthook, sys.gettrace(), sys.getprofile(), len(sys.meta_path)


def _attribute(owner: Any, name: str) -> _Setting:
    def read() -> Any:
        try:
            return getattr(owner, name, None)
        except RuntimeError:  # torch refuses to read an older setting after its successor was set
            return None

    return _Setting(read, partial(setattr, owner, name))


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
