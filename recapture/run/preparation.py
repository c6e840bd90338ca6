"""The steps before a run's first cell: collecting suites, examining the machine, choosing what to preload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.errors import EnvironmentUnfitError
from recapture.cases.collection import DYNAMO, SuiteInfo
from recapture.cases.compiler import Family
from recapture.cases.compilers import builtin_compilers
from recapture.machine import doctor
from recapture.machine.environment import Environment
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import cause_of_death
from recapture.run import tasks
from recapture.run.shared_processes import compiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from recapture.cases.collection import SuiteFile
    from recapture.pool.worker_pool import WorkerPool
    from recapture.records.record import CellKey
    from recapture.run.plan import PlannedCell, RunOptions

IMPORTS = (tasks.__name__,)
"""Modules that every server of a run imports when it starts."""

AHEAD = "recapture.run.suites_ahead"
"""The module whose import compiles the suites that ship."""

MANY = 25
"""Number of cells from which their cheaper forks save more time than a server needs to prepare for them."""

MOST_COLD = 4
"""The most cells that each compile the C++ that a server could have compiled once."""

COLD_SECONDS = 120.0
"""A shorter deadline is not for a cell that compiles C++ which a server could have compiled before."""

COLLECT_SECONDS = 120.0
"""Seconds that the import of a suite may take."""

COLLECT_MEMORY = 8 << 30
"""Bytes of memory that the import of a suite may take."""

SURVEY_SECONDS = 180.0
"""Seconds that examining or describing the machine may take."""


def collect_suites(pool: WorkerPool, suites: tuple[SuiteFile, ...]) -> list[SuiteInfo]:
    """Collect suites, each in a separate process, because a suite file may do anything on import.

    They run in parallel on the pool's jobs. If that kills the server, they run one after the other, to find the suite
    at fault.
    """
    try:
        numbers = [
            pool.client.submit(tasks.COLLECT, _where(suite), timeout=COLLECT_SECONDS, memory=COLLECT_MEMORY)
            for suite in suites
        ]
        return [
            _info(suite, pool.client.result(number, SuiteInfo, timeout=COLLECT_SECONDS))
            for suite, number in zip(suites, numbers, strict=True)
        ]
    except ServerDiedError:
        pool.restart()
    collected = []
    for suite in suites:
        try:
            answer = pool.client.run(
                tasks.COLLECT, _where(suite), SuiteInfo, timeout=COLLECT_SECONDS, memory=COLLECT_MEMORY
            )
        except ServerDiedError:
            pool.restart()
            answer = SuiteInfo(suite.name, str(suite.path), error="killed the worker server on import")
        collected.append(_info(suite, answer))
    return collected


def _where(suite: SuiteFile) -> tuple[str, str]:
    return suite.name, str(suite.path)


def _info(suite: SuiteFile, answer: SuiteInfo | Ended) -> SuiteInfo:
    if isinstance(answer, Ended):
        return SuiteInfo(suite.name, str(suite.path), error=f"died on import: {cause_of_death(answer)}")
    return answer


def begin_survey(pool: WorkerPool) -> None:
    """Start the work of `survey` in the background, so that suites can be collected meanwhile."""
    for task in (tasks.SURVEY, tasks.CHECKS):
        pool.ask(task, pool.device, timeout=SURVEY_SECONDS)


class Checks:
    """The doctor's checks, which are made beside the first cells: on a GPU, they take as long as a start of torch.

    Iterating over them waits until they are made.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._made: list[doctor.Check] | None = None
        self._listener: Callable[[list[doctor.Check]], None] = lambda _: None

    def __iter__(self) -> Iterator[doctor.Check]:
        return iter(self.wait())

    def wait(self) -> list[doctor.Check]:
        """Return the checks, as soon as they are made."""
        if self._made is None:
            answer = self._pool.answer(tasks.CHECKS, self._pool.device, list[doctor.Check], timeout=SURVEY_SECONDS)
            if isinstance(answer, Ended):
                raise _unexamined(answer)
            self._made = answer
            self._listener(answer)
        return self._made

    def give_to(self, listener: Callable[[list[doctor.Check]], None]) -> None:
        """Call a function with the checks: now if they are made, otherwise as soon as they were read."""
        self._listener = listener
        if self._made is not None:
            listener(self._made)

    def read_if_made(self) -> None:
        """Read the checks if they were made meanwhile; this does not wait."""
        if self._made is None and self._pool.has_answer(tasks.CHECKS):
            self.wait()


def survey(pool: WorkerPool) -> tuple[Checks, Environment]:
    """Describe the machine, in a child process, because CUDA is initialised; return its checks, which may still run.

    Raises EnvironmentUnfitError if that fails, if the device is missing, or if the judge does not see differences
    between tensors of this torch; then nothing waits for the checks.
    """
    environment: Environment | str | Ended
    environment = pool.answer(tasks.SURVEY, pool.device, Environment | str, timeout=SURVEY_SECONDS)  # type: ignore[arg-type]
    if isinstance(environment, Ended):
        raise _unexamined(environment)
    if isinstance(environment, str):
        raise EnvironmentUnfitError(
            f"recapture cannot judge tensors of this torch: {environment}; this is its own fault, please report it"
        )
    if pool.device == "cuda" and environment.capability == "cpu":
        raise EnvironmentUnfitError("no CUDA device is visible to torch here; run with --device cpu")
    pool.device_works = environment.capability != "cpu"
    return Checks(pool), environment


def _unexamined(ended: Ended) -> EnvironmentUnfitError:
    last = (ended.stderr.strip().splitlines() or [cause_of_death(ended)])[-1]
    return EnvironmentUnfitError(f"this environment cannot be examined: {last}")


def preload_level(device: str, modules: list[str], compilers: set[str], *, compiles: bool) -> str:
    """Return the preload level for these compilers, and for suites that import these modules.

    Without `compiles`, no C++ is compiled beforehand, even if suites or compilers could generate code.
    """
    ours = {name: how for name, how in builtin_compilers().items() if name in compilers}
    if all(how.torch_alone for how in ours.values()) and DYNAMO not in modules:
        return "bare"
    compiles = compiles and (DYNAMO in modules or any(how.generates_code for how in ours.values()))
    packages = any(how.family == Family.AOTI for how in ours.values())
    if device != "cpu":
        return ("cuda_aoti" if packages else "cuda") if compiles else "light"
    if not compiles:
        return "capture"
    return "aoti" if packages else "codegen"


class TwoServers:
    """On the CPU, cells that generate no code run first, while a second server preloads what the others need.

    If at most `few` cells generate code, there is one stage, and no server compiles C++ for them: each does the same
    work itself, beside the others, in less time.
    """

    def __init__(self, device: str, suites: list[SuiteInfo], cells: list[PlannedCell], *, few: int = 0) -> None:
        self.cells = cells
        self._device = device
        self._modules = sorted({module for suite in suites for module in suite.imports})
        if len(cells) >= MANY:
            self._modules.append(AHEAD)
        compiling = [cell for cell in cells if compiles(cell)]
        self._two_stages = device == "cpu" and len(compiling) > few
        self._compiling = {cell.spec.compiler for cell in compiling} if device == "cpu" else set()
        self._all_compile = len(compiling) == len(cells)

    def launch_second_server(self, pool: WorkerPool) -> None:
        """Start the server of the second stage, if there are two stages."""
        if self._two_stages and not self._all_compile:
            pool.launch_successor(self._level(self._compiling, compiles=True), self._modules)

    def prepare_first_server(self, pool: WorkerPool) -> None:
        """Preload what the cells of the first stage need, or what all cells need if there is one stage."""
        compilers = {cell.spec.compiler for cell in self.cells}
        beforehand = self._all_compile if self._two_stages else self._device != "cpu"
        pool.prepare(self._level(compilers, compiles=beforehand), self._modules)

    def hand_over(self, pool: WorkerPool) -> None:
        """Continue with the server of the second stage, or with one that has preloaded what its cells need."""
        pool.hand_over(self._level(self._compiling, compiles=True), self._modules)

    def split(
        self, cells: list[PlannedCell], hanging: Collection[CellKey]
    ) -> tuple[list[PlannedCell], list[PlannedCell]]:
        """Return the cells of the first and the second stage, in order.

        A cell that is known to hang starts first in the second stage, where other cells run beside it. In the first
        stage it would delay everything, because that stage must end before the second can begin.
        """
        if not self._two_stages or not any(map(compiles, cells)):
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
