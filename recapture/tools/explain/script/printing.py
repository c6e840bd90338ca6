"""Prints a cell as a script. A child of the pool executes the suite, not this process."""

from __future__ import annotations

from pathlib import Path

from recapture.base.errors import UsageError
from recapture.cases.collection import SuiteFile, find_suites
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended, task_name
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.run.preparation import COLLECT_MEMORY, COLLECT_SECONDS, IMPORTS
from recapture.tools.explain.script.repro import CellToPrint, Printed, print_task

PRINT = task_name(print_task)
"""The task that prints a cell."""


def script(address: str, device: str, results: Path = Path("results")) -> str:
    """Return the source of a stand-alone script for the cell ``suite::case::compiler``.

    The script's header shows the records of the cell with this torch below `results`. Raises UsageError, naming the
    cause, if the cell does not exist or cannot be printed.
    """
    parts = address.split("::")
    if len(parts) != 3:
        raise UsageError(f"{address!r} is not a cell: write suite::case::compiler")
    suites = find_suites((f"{parts[0]}::{parts[1]}",)).suites
    if len(suites) > 1:
        raise UsageError(f"{parts[0]!r} is a folder of several suites: name one of its files")
    suite = suites[0]
    cell = CellToPrint(suite.name, str(suite.path), parts[1], parts[2], device, str(results.absolute()))
    with WorkerPool(device="cpu", jobs=1, imports=(*IMPORTS, print_task.__module__)) as pool:
        return printed(pool, cell)


def printed(pool: WorkerPool, cell: CellToPrint) -> str:
    """Return the script of a cell, made by a child of an open pool. Raises UsageError if there can be none."""
    try:
        answer = pool.client.run(PRINT, cell, Printed, timeout=COLLECT_SECONDS, memory=COLLECT_MEMORY)
    except ServerDiedError:
        raise UsageError(f"suite {cell.suite!r} killed the worker server on import") from None
    if isinstance(answer, Ended):
        raise UsageError(f"suite {cell.suite!r} died on import: {cause_of_death(answer)}")
    if answer.error is not None:
        raise UsageError(answer.error)
    return answer.text


def script_of_cell(pool: WorkerPool, suite: SuiteFile, case: str, compiler: str, device: str, results: Path) -> str:
    """Return the script of a cell for another tool, as `printed` does."""
    return printed(pool, CellToPrint(suite.name, str(suite.path), case, compiler, device, str(results.absolute())))
