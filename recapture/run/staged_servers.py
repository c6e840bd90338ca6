"""The two servers of a run on the CPU: one for cells that generate no code, and one that preloads for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.run.preparation import preload_level
from recapture.run.shared_processes import compiles

if TYPE_CHECKING:
    from collections.abc import Collection

    from recapture.cases.collection import SuiteInfo
    from recapture.pool.worker_pool import WorkerPool
    from recapture.run.plan import Key, PlannedCell, RunOptions

MOST_COLD = 4
"""The most cells that each compile the C++ that a server could have compiled once."""

COLD_SECONDS = 120.0
"""A shorter deadline is not for a cell that compiles C++ which a server could have compiled before."""


class TwoServers:
    """On the CPU, cells that generate no code run first, while a second server preloads what the others need.

    If at most `few` cells generate code, there is one stage, and no server compiles C++ for them: each does the same
    work itself, beside the others, in less time.
    """

    def __init__(self, device: str, suites: list[SuiteInfo], cells: list[PlannedCell], *, few: int = 0) -> None:
        self.cells = cells
        self._device = device
        self._modules = sorted({module for suite in suites for module in suite.imports})
        compiling = [cell for cell in cells if compiles(cell)]
        self._staged = device == "cpu" and len(compiling) > few
        self._compiling = {cell.spec.compiler for cell in compiling} if device == "cpu" else set()
        self._all_compile = len(compiling) == len(cells)

    def launch_second_server(self, pool: WorkerPool) -> None:
        """Start the server of the second stage, if there are two stages."""
        if self._staged and not self._all_compile:
            pool.launch_successor(self._level(self._compiling, compiles=True), self._modules)

    def prepare_first_server(self, pool: WorkerPool) -> None:
        """Preload what the cells of the first stage need, or what all cells need if there is one stage."""
        wanted = {cell.spec.compiler for cell in self.cells}
        beforehand = self._all_compile if self._staged else self._device != "cpu"
        pool.prepare(self._level(wanted, compiles=beforehand), self._modules)

    def hand_over(self, pool: WorkerPool) -> None:
        """Continue with the server of the second stage, or with one that has preloaded what its cells need."""
        pool.hand_over(self._level(self._compiling, compiles=True), self._modules)

    def split(self, cells: list[PlannedCell], hanging: Collection[Key]) -> tuple[list[PlannedCell], list[PlannedCell]]:
        """Return the cells of the first and the second stage, in order.

        A cell that is known to hang starts first in the second stage, where other cells run beside it. In the first
        stage it would delay everything, because that stage must end before the second can begin.
        """
        if not self._staged or not any(map(compiles, cells)):
            return cells, []
        first = [cell for cell in cells if not compiles(cell) and cell.key not in hanging]
        return first, [cell for cell in cells if compiles(cell) or cell.key in hanging]

    def _level(self, compilers: set[str], *, compiles: bool) -> str:
        return preload_level(self._device, self._modules, compilers, compiles=compiles)


def few_cells(options: RunOptions, *, again: bool) -> int:
    """Return the number of cells that generate code up to which no server compiles C++ for them.

    There is no such number where cells run `again`: each would compile the C++ anew.
    """
    return 0 if again or options.timeout < COLD_SECONDS else min(options.jobs, MOST_COLD)
