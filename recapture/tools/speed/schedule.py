"""The order of a benchmark's processes, and which may run at the same time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, TypeVar

from recapture.cases.compilers import EAGER, builtin_compilers
from recapture.tools.speed.rows import PlannedProcess, PlannedRow

T = TypeVar("T")


class Compilations(Generic[T]):
    """Rows that wait to compile, `most` at a time; rows that must compile `alone` come last, one at a time.

    Autotuning times kernels. Other work at the same time could change the choice, and several rows that tune at the
    same time may never finish.
    """

    def __init__(self, rows: Iterable[T], *, most: int, alone: Callable[[T], bool]) -> None:
        self._most = most
        self._alone = alone
        self._waiting = deque(sorted(rows, key=alone))  # the sort is stable

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self, running: Sequence[T]) -> T | None:
        """Take a row that may start beside those that are compiling; None if there is none at the moment."""
        if not self._waiting:
            return None
        most = 1 if any(map(self._alone, [self._waiting[0], *running])) else self._most
        return self._waiting.popleft() if len(running) < most else None


class Schedule:
    """The processes of rows, in their order of start.

    If a compiler generates code, a first process compiles; then timed processes follow, one at a time. With one GPU, or
    on the CPU, nothing compiles during timing. With several GPUs, the first is used for timing and the others for
    compiling.
    """

    def __init__(self, rows: Iterable[PlannedRow], *, compile_jobs: int, gpus: int) -> None:
        self._compile_jobs = compile_jobs
        self._gpus = gpus
        rows = list(rows)
        # By default one row after the other, so that an interruption loses only one. If several may compile at the same
        # time, all compile first, which saves the most time.
        together = compile_jobs > 1 or gpus > 1
        self._groups = deque([rows] if together else [[row] for row in rows])
        self._cold = self._compilations([])
        self._timing: deque[PlannedRow] = deque()

    def next(self, running: Collection[PlannedProcess]) -> PlannedProcess | None:
        """Return the process that starts next beside the running ones; None if there is none at the moment."""
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
        """Schedule another timed process of a row; rows that have begun come first."""
        if row.processes:
            self._timing.appendleft(row)
        else:
            self._timing.append(row)

    def compiling_beside(self, row: PlannedRow) -> int:
        """Return the number of rows that compile at the same time as this one, including itself."""
        return 1 if row.compiles_alone else self._compile_jobs

    def _compilations(self, rows: Iterable[PlannedRow]) -> Compilations[PlannedRow]:
        return Compilations(rows, most=self._compile_jobs, alone=lambda row: row.compiles_alone)

    def _compiles(self, row: PlannedRow) -> bool:
        """Whether a row begins with a process that only compiles and checks, without timing.

        With a separate GPU for compiling, this holds for every compiler, so that a hanging compiler does not block the
        timing GPU.
        """
        if row.configuration.compiler == EAGER:
            return False
        compiler = builtin_compilers().get(row.configuration.compiler)
        return self._gpus > 1 or compiler is None or compiler.generates_code

    def _gpu_to_compile_on(self, running: Collection[PlannedProcess]) -> int | None:
        """Return the GPU, other than the first, on which the fewest rows compile; None with one GPU."""
        if self._gpus == 1:
            return None
        busy = Counter(process.gpu for process in running if not process.timing)
        return min(range(1, self._gpus), key=lambda gpu: busy[gpu])
