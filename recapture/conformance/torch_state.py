"""Reads and restores the global state of torch and of the process that a call can leave changed."""

from __future__ import annotations

import hashlib
import os
import random
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from recapture.base.torch_settings import default_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Flags", "environment", "random_states", "read_flags", "restore_flags", "restored_flags"]

Flags = dict[str, Any]
"""Values of torch's global settings, by name."""


def read_flags() -> Flags:
    """Return torch's global settings; those that this release does not have are left out."""
    return {name: read() for name, (read, _) in _settings().items()}


def restore_flags(flags: Flags) -> None:
    """Set every setting that differs from `flags` back."""
    for name, (read, write) in _settings().items():
        if name in flags and read() != flags[name]:
            write(flags[name])


@contextmanager
def restored_flags() -> Iterator[None]:
    """Restore torch's global settings afterwards."""
    before = read_flags()
    try:
        yield
    finally:
        restore_flags(before)


def random_states() -> dict[str, str]:
    """Return a digest of each random number generator's state: torch's on the CPU and GPU, Python's and numpy's."""
    import torch

    states = {"torch": torch.get_rng_state().numpy().tobytes(), "random": repr(random.getstate()).encode()}
    if torch.cuda.is_initialized():
        states["torch.cuda"] = bytes(torch.cuda.get_rng_state().tolist())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy.random"] = repr(numpy.random.get_state()[1:]).encode() + numpy.random.get_state()[1].tobytes()
    return {name: hashlib.sha256(state).hexdigest() for name, state in states.items()}


def environment() -> dict[str, str]:
    """Return a copy of the environment variables."""
    return dict(os.environ)


def _settings() -> dict[str, tuple[Callable[[], Any], Callable[[Any], None]]]:
    """Return how each setting is read and written."""
    import torch

    found: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        # The default device comes first: while it is wrong, others cannot be read.
        "default_device": (default_device, torch.set_default_device),
        "grad_enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
        "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "deterministic_algorithms": (_deterministic, _set_deterministic),
        "float32_matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "autocast_cpu": (partial(_autocast, "cpu"), partial(_set_autocast, "cpu")),
        "autocast_cuda": (partial(_autocast, "cuda"), partial(_set_autocast, "cuda")),
        "anomaly_detection": (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    }
    for name in ("allow_tf32", "benchmark", "deterministic", "enabled"):
        found[f"backends.cudnn.{name}"] = _attribute(torch.backends.cudnn, name)
    found["backends.mkldnn.enabled"] = _attribute(torch.backends.mkldnn, "enabled")
    return found


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def read() -> Any:
        try:
            return getattr(owner, name, None)
        except RuntimeError:  # torch refuses to read an older setting after its successor was set
            return None

    return read, partial(setattr, owner, name)


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
