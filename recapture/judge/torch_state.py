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
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from recapture.torch_api.compat import default_device
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
        # The default device comes first: while it is wrong, others cannot be read.
        "default_device": _Setting(default_device, torch.set_default_device),
        "grad_enabled": _Setting(torch.is_grad_enabled, torch.set_grad_enabled),
        "default_dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
        "deterministic_algorithms": _Setting(_deterministic, _set_deterministic),
        "float32_matmul_precision": _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "autocast_cpu": _Setting(partial(_autocast, "cpu"), partial(_set_autocast, "cpu")),
        "autocast_cuda": _Setting(partial(_autocast, "cuda"), partial(_set_autocast, "cuda")),
        "anomaly_detection": _Setting(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    }
    for name in ("allow_tf32", "benchmark", "deterministic", "enabled"):
        settings[f"backends.cudnn.{name}"] = _attribute(torch.backends.cudnn, name)
    settings["backends.mkldnn.enabled"] = _attribute(torch.backends.mkldnn, "enabled")
    return settings | {
        "inference_mode": _Setting(torch.is_inference_mode_enabled),
        "threads": _Setting(torch.get_num_threads),
        "registrations": _Setting(registrations),
        "environment": _Setting(_environment_of_cells),
        "recursion_limit": _Setting(sys.getrecursionlimit),
        "hooks": _Setting(_hooks),
        "warning_filters": _Setting(lambda: list(warnings.filters)),
        "threads_of_python": _Setting(_threads),
    }


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


def _deterministic() -> tuple[bool, bool]:
    import torch

    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(value: tuple[bool, bool]) -> None:
    import torch

    torch.use_deterministic_algorithms(value[0], warn_only=value[1])
