"""Functions that children of the pool run: name the operators, make the programs of one, screen a cell."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from recapture.judge.torch_state import read_flags
from recapture.pool.protocol import task_name
from recapture.pool.worker import Reusable
from recapture.run.cell import CellSpec, examine
from recapture.run.shared_processes import leaves_process_whole
from recapture.tools.generate.operator_programs import OperatorRequest, make_suite
from recapture.tools.generate.python_programs import PythonRequest, make_python_suite
from recapture.torch_api.compat import device_works, reset_dynamo, skip_guard_timing


def operator_names(_payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Return the names of torch's operators that have samples."""
    from recapture.tools.generate.operator_database import ENTRIES

    return msgspec.json.encode(list(ENTRIES))


def operator_suite(payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Make the programs of one operator: `OperatorRequest` → `GeneratedSuite`."""
    from recapture.tools.generate.operator_database import ENTRIES

    request = msgspec.json.decode(payload, type=OperatorRequest)
    return Reusable(msgspec.json.encode(make_suite(ENTRIES[request.operator], request)))


def python_suite(payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Make some programs of operators and Python: `PythonRequest` → `GeneratedSuite`."""
    return Reusable(msgspec.json.encode(make_python_suite(msgspec.json.decode(payload, type=PythonRequest))))


def screened_cell(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Run one cell: `CellSpec` → `CellResult`. The process can run another one, unless this one left it otherwise.

    Less is asked than for cells that share a process in a run, because what does not pass runs again in its own.
    """
    skip_guard_timing()
    spec = msgspec.json.decode(payload, type=CellSpec)
    limit = sys.getrecursionlimit()
    before = read_flags()
    cell_result = examine(spec, enter)
    result = msgspec.json.encode(cell_result)
    reset_dynamo()
    sys.setrecursionlimit(limit)  # Inductor raises it
    whole = leaves_process_whole(cell_result.verdict) and device_works(spec.device)
    return Reusable(result) if whole and read_flags() == before else result


NAMES = task_name(operator_names)
SUITE = task_name(operator_suite)
PYTHON_SUITE = task_name(python_suite)
SCREEN = task_name(screened_cell)
