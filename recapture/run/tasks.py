"""Functions that children of the pool run: run a cell, collect a suite, describe the machine.

Each task receives its payload as JSON and returns its result as JSON (see `recapture.pool.worker.run_task`). A server
imports this module when it starts, so that its children need not import anything.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from recapture.base.by_name import load
from recapture.cases.collection import collect_suite
from recapture.cases.compilers import builtin_compilers
from recapture.pool.protocol import task_name
from recapture.pool.worker import Reusable
from recapture.run.cell import CellResult, CellSpec
from recapture.run.process_state import ProcessState
from recapture.run.shared_processes import leaves_process_whole, passes
from recapture.torch_api.compat import device_works, reset_dynamo, seed_everything, skip_guard_timing

if TYPE_CHECKING:
    from collections.abc import Callable


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
    return _shared(payload, enter, lambda found: passes(found.verdict, found.phase))


def known_cell(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Run one cell as `cell` does; the process can run another one if this one ended in order, left nothing behind.

    For cells whose ends are known: the host compares them with what this process gives.
    """
    return _shared(payload, enter, lambda found: leaves_process_whole(found.verdict))


def _shared(payload: bytes, enter: Callable[[str], None], usable: Callable[[CellResult], bool]) -> bytes:
    import torch

    skip_guard_timing()
    spec = msgspec.json.decode(payload, type=CellSpec)
    enter("reference")
    with contextlib.suppress(Exception):  # the cell fails for the same reason, and reports it
        seed_everything()
        torch.ones(1, device=spec.device)  # the first use of a device changes torch
    before = ProcessState()
    limit = sys.getrecursionlimit()
    found = _examined(spec, enter)
    result = msgspec.json.encode(found)
    reset_dynamo()
    sys.setrecursionlimit(limit)  # Inductor raises it
    gc.collect()  # so that this cell's tensors do not count towards the memory of the next
    return Reusable(result) if usable(found) and before.is_unchanged() and device_works(spec.device) else result


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


CELL = task_name(cell)
SHARED_CELL = task_name(shared_cell)
KNOWN_CELL = task_name(known_cell)
COLLECT = task_name(collect)
CHECKS = task_name(checks)
ENVIRONMENT = task_name(environment)
