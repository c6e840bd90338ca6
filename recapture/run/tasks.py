"""Functions that children of the pool run: run a cell, collect a suite, describe the machine.

Each task receives its payload as JSON and returns its result as JSON (see `recapture.pool.worker.run_task`). A server
imports this module when it starts, so that its children need not import anything.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import sysconfig
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.by_name import load
from recapture.base.exceptions import SUITE_MODULES
from recapture.cases.collection import collect_suite, execute
from recapture.cases.compilers import builtin_compilers
from recapture.judge.process_state import is_generated
from recapture.judge.readiness import blind_to
from recapture.judge.torch_state import read_settings
from recapture.pool.protocol import task_name
from recapture.pool.worker import Reusable
from recapture.run.cell import CellResult, CellSpec
from recapture.run.shared_processes import leaves_process_whole, passes
from recapture.torch_api.compat import device_works, reset_dynamo, seed_everything, skip_guard_timing
from recapture.torch_api.watch import registered_containers

if TYPE_CHECKING:
    from collections.abc import Callable


CHANGING = ("torch._dynamo", "torch._inductor", "torch._logging", "torch._guards", "torch.compiler")
"""Packages whose own functions replace parts of them while they work."""

PYTHON = ("builtins", "copy", "functools", "math", "numpy", "operator", "os", "random", "sys", "time")
"""Modules other than torch's whose functions are compared."""


LIBRARY = sysconfig.get_path("stdlib")
"""The folder of Python's own modules."""

SIZED = (list, dict, set)
"""Types of containers whose size is compared."""

builtin_compilers()  # imports their modules once, in the server


def cell(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Run one cell: `CellSpec` → `CellResult`."""
    skip_guard_timing()
    return msgspec.json.encode(_examined(msgspec.json.decode(payload, type=CellSpec), enter))


def _examined(spec: CellSpec, enter: Callable[[str], None]) -> CellResult:
    result: CellResult = load(spec.examiner)(spec, enter)
    return result


def shared_cell(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Run one cell as `cell` does; the process can run another one if this one passed and left nothing behind."""
    return _shared(payload, enter, lambda result: passes(result.verdict, result.phase))


def known_cell(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Run one cell as `cell` does; the process can run another one if this one ended in order, left nothing behind.

    For cells whose ends are known: the host compares them with what this process gives.
    """
    return _shared(payload, enter, lambda result: leaves_process_whole(result.verdict))


def _shared(payload: bytes, enter: Callable[[str], None], usable: Callable[[CellResult], bool]) -> bytes:
    import torch

    skip_guard_timing()
    spec = msgspec.json.decode(payload, type=CellSpec)
    enter("reference")
    with contextlib.suppress(Exception):  # the cell fails for the same reason, and reports it
        seed_everything()
        torch.ones(1, device=spec.device)  # the first use of a device changes torch
    with contextlib.suppress(Exception, SystemExit):  # likewise
        execute(spec.suite, Path(spec.path))  # the first execution registers the suite's operators, and others do not
    before = ProcessState()
    limit = sys.getrecursionlimit()
    cell_result = _examined(spec, enter)
    result = msgspec.json.encode(cell_result)
    reset_dynamo()
    sys.setrecursionlimit(limit)  # Inductor raises it
    gc.collect()  # so that this cell's tensors do not count towards the memory of the next
    return Reusable(result) if usable(cell_result) and before.is_unchanged() and device_works(spec.device) else result


def collect(payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Collect one suite: its name and path → `SuiteInfo`."""
    suite, path = msgspec.json.decode(payload, type=tuple[str, str])
    return msgspec.json.encode(collect_suite(suite, Path(path)))


def checks(payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Run the doctor's checks: the device → a list of `Check`."""
    from recapture.machine import doctor

    return msgspec.json.encode(doctor.examine(msgspec.json.decode(payload, type=str)))


def environment(payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Describe the machine and installation: the device → `Environment`."""
    from recapture.machine.describe import describe

    return msgspec.json.encode(describe(msgspec.json.decode(payload, type=str)))


def survey(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Describe the machine as `environment` does, or return a text: what the judge does not see here."""
    return environment(payload, enter) if (blind := blind_to()) is None else msgspec.json.encode(blind)


class ProcessState:
    """The state of this process that a cell could change: torch's settings, the environment, functions of torch.

    It errs on the safe side: if anything was changed, even without effect, `is_unchanged` is False, and the next cell
    gets a new process.
    """

    def __init__(self) -> None:
        self._settings = _settings()
        self._names = {name: dict(vars(owner)) for name, owner in _owners().items()}
        self._own = _own_modules()
        self._descriptors = _open_descriptors()

    def is_unchanged(self) -> bool:
        """Whether the state is as it was when this object was made, as far as it can be seen."""
        owners = _owners()
        if _settings() != self._settings or any(
            name not in owners or _was_patched(before, vars(owners[name])) for name, before in self._names.items()
        ):
            return False
        if not self._descriptors <= _open_descriptors():
            return False
        return _own_modules() == self._own  # a module that was imported meanwhile may have been changed since


def _settings() -> dict[str, Any]:
    """Return all settings; of the registered containers only those that are no class of a suite.

    Every cell executes the suite again, which registers a new class, and no cell has an object of an older one. A class
    that a call makes counts: the suite alone does not register it.
    """
    settings = read_settings()
    operators, containers = settings["registrations"]
    suites = sum(
        str(kind.__module__).startswith(SUITE_MODULES) and "<locals>" not in str(kind.__qualname__)
        for kind in registered_containers()
    )
    return settings | {"registrations": (operators, containers - suites)}


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


def _open_descriptors() -> set[str]:
    """Return the numbers of the open descriptors. Libraries open some and keep them; none of them closes another's."""
    folder = "/proc/self/fd"
    with contextlib.suppress(OSError):
        # The listing's own descriptor is closed when it is looked for.
        return {number for number in os.listdir(folder) if os.path.lexists(f"{folder}/{number}")}  # noqa: PTH208
    return set()


def _own_modules() -> dict[str, dict[str, tuple[int, int]]]:
    """Return what the modules that a suite imports from its user's files hold: identities and sizes of the values."""
    return {
        name: {key: (id(value), len(value) if isinstance(value, SIZED) else 0) for key, value in vars(module).items()}
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType) and _is_users(name, module)
    }


def _is_users(name: str, module: types.ModuleType) -> bool:
    """Whether a module is none of a library, of this project, or of generated code.

    Nor is it a suite, which every cell executes again.
    """
    file = getattr(module, "__file__", None)
    if file is None or name in ("__main__", "__mp_main__") or name.startswith(("recapture", "torch.")):
        return False
    return "site-packages" not in file and not file.startswith(LIBRARY) and not is_generated(module)


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


CELL = task_name(cell)
SHARED_CELL = task_name(shared_cell)
KNOWN_CELL = task_name(known_cell)
COLLECT = task_name(collect)
CHECKS = task_name(checks)
ENVIRONMENT = task_name(environment)
SURVEY = task_name(survey)
