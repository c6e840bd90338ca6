"""The order of a benchmark's processes: which may run beside which."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from recapture.bench.compilations import Compilations
from recapture.bench.rows import PlannedProcess, PlannedRow
from recapture.declare.compilers import builtin_compilers
from recapture.results.speedups import EAGER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["Schedule"]


class Schedule:
    """The processes of rows, in the order in which they start.

    Where a compiler generates code, a first process compiles; then timed ones follow, one at a time.
    With one GPU, or on the CPU, nothing compiles while something is timed. With several GPUs the first one times while
    the others compile.
    """

    def __init__(self, rows: Iterable[PlannedRow], *, compile_jobs: int, gpus: int) -> None:
        self._compile_jobs = compile_jobs
        self._gpus = gpus
        rows = list(rows)
        # One row after the other, so that an interruption loses one. But where several compile at a time, all do first:
        # the more rows wait, the more that saves.
        together = compile_jobs > 1 or gpus > 1
        self._groups = deque([rows] if together else [[row] for row in rows])
        self._cold = self._compilations([])
        self._timing: deque[PlannedRow] = deque()

    def next(self, running: Collection[PlannedProcess]) -> PlannedProcess | None:
        """Return the process that starts next beside the running ones; None when there is none for now."""
        if not (self._cold or self._timing or running) and self._groups:
            group = self._groups.popleft()
            self._cold = self._compilations(row for row in group if self._compiles(row))
            self._timing.extend(row for row in group if not self._compiles(row))
        timed = any(process.timing for process in running)
        compiling = [process.row for process in running if not process.timing]
        if self._gpus > 1 or not timed:
            row = self._cold.next(compiling)
            if row is not None:
                return PlannedProcess(row, timing=False, gpu=self._gpu_to_compile_on(running))
        if timed or not self._timing or (self._gpus == 1 and (self._cold or compiling)):
            return None
        return PlannedProcess(self._timing.popleft(), timing=True, gpu=0 if self._gpus > 1 else None)

    def again(self, row: PlannedRow) -> None:
        """Let another timed process of a row follow; the rest of a row that was begun comes first."""
        if row.processes:
            self._timing.appendleft(row)
        else:
            self._timing.append(row)

    def compiling_beside(self, row: PlannedRow) -> int:
        """Return the number of rows that compile at a time while this one does, itself included."""
        return 1 if row.compiles_alone else self._compile_jobs

    def _compilations(self, rows: Iterable[PlannedRow]) -> Compilations[PlannedRow]:
        return Compilations(rows, most=self._compile_jobs, alone=lambda row: row.compiles_alone)

    def _compiles(self, row: PlannedRow) -> bool:
        """Whether a row begins with a process that compiles and checks, and times nothing.

        With a GPU to compile on, every compiler does: one that hangs must not keep the other GPU from timing.
        """
        if row.configuration.compiler == EAGER:
            return False
        compiler = builtin_compilers().get(row.configuration.compiler)
        return self._gpus > 1 or compiler is None or compiler.generates_code

    def _gpu_to_compile_on(self, running: Collection[PlannedProcess]) -> int | None:
        """Return the GPU on which the fewest rows compile, other than the first; None with one GPU."""
        if self._gpus == 1:
            return None
        busy = Counter(process.gpu for process in running if not process.timing)
        return min(range(1, self._gpus), key=lambda gpu: busy[gpu])
