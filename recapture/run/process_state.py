"""Compares the state of this process before and after a cell, to decide whether another cell may run in it."""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from typing import Any

from recapture.judge.torch_state import read_settings

CHANGING = ("torch._dynamo", "torch._inductor", "torch._logging", "torch._guards", "torch.compiler")
"""Packages whose own functions replace parts of them while they work."""

PYTHON = ("builtins", "copy", "functools", "math", "numpy", "operator", "os", "random", "sys", "time")
"""Modules other than torch's whose functions are compared."""


LIBRARY = sysconfig.get_path("stdlib")
"""The folder of Python's own modules."""

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Environment variables with the directories from which torch imports the modules that it generates."""

SIZED = (list, dict, set)
"""Types of containers whose size is compared."""


class ProcessState:
    """The state of this process that a cell could change: torch's settings, the environment, functions of torch.

    It errs on the safe side: if anything was changed, even without effect, `is_unchanged` is False, and the next cell
    gets a new process.
    """

    def __init__(self) -> None:
        self._settings = read_settings()
        self._names = {name: dict(vars(owner)) for name, owner in _owners().items()}
        self._own = _own_modules()

    def is_unchanged(self) -> bool:
        """Whether the state is as it was when this object was made, as far as it can be seen."""
        owners = _owners()
        if read_settings() != self._settings or any(
            name not in owners or _was_patched(before, vars(owners[name])) for name, before in self._names.items()
        ):
            return False
        return _own_modules() == self._own  # a module that was imported meanwhile may have been changed since


def _owners() -> dict[str, Any]:
    """Return the modules, and the classes that cases and compilers derive from, whose functions are compared."""
    import torch

    modules = {
        name: module
        for name, module in list(sys.modules.items())
        if (name in PYTHON or name.partition(".")[0] == "torch")
        and isinstance(module, types.ModuleType)
        and not name.startswith(CHANGING)
    }
    kinds = (torch.Tensor, torch.nn.Module, torch.nn.Parameter, torch.autograd.Function, torch.fx.Tracer)
    return modules | {kind.__qualname__: kind for kind in kinds}


def _own_modules() -> dict[str, dict[str, tuple[int, int]]]:
    """Return what the modules that a suite imports from its user's files hold: identities and sizes of the values."""
    return {
        name: {key: (id(value), len(value) if isinstance(value, SIZED) else 0) for key, value in vars(module).items()}
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType) and _is_users(name, getattr(module, "__file__", None))
    }


def _is_users(name: str, file: str | None) -> bool:
    """Whether a module is none of a library, of this project, or of generated code.

    Nor is it a suite, which every cell executes again. Generated code is named by its content.
    """
    if file is None or name in ("__main__", "__mp_main__") or name.startswith(("recapture", "torch.")):
        return False
    generated = tuple(os.environ[name] + os.sep for name in CACHES if os.environ.get(name))
    return "site-packages" not in file and not file.startswith((LIBRARY, *generated))


def _was_patched(before: dict[str, Any], after: Any) -> bool:
    """Whether a function or class was replaced or removed, or something was added under a new name.

    Modules that are imported late, and values that are no functions, are no patches.
    """
    if any(callable(value) and after.get(name, before) is not value for name, value in before.items()):
        return True
    return any(
        not name.startswith("__") and not isinstance(after[name], types.ModuleType)
        for name in after.keys() - before.keys()
    )
