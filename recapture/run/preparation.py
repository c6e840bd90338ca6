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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recapture.cases.collection import SuiteFile
    from recapture.pool.worker_pool import WorkerPool

IMPORTS = (tasks.__name__,)
"""Modules that every server of a run imports when it starts."""

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
    found = []
    for suite in suites:
        try:
            answer = pool.client.run(
                tasks.COLLECT, _where(suite), SuiteInfo, timeout=COLLECT_SECONDS, memory=COLLECT_MEMORY
            )
        except ServerDiedError:
            pool.restart()
            answer = SuiteInfo(suite.name, str(suite.path), error="killed the worker server on import")
        found.append(_info(suite, answer))
    return found


def _where(suite: SuiteFile) -> tuple[str, str]:
    return suite.name, str(suite.path)


def _info(suite: SuiteFile, answer: SuiteInfo | Ended) -> SuiteInfo:
    if isinstance(answer, Ended):
        return SuiteInfo(suite.name, str(suite.path), error=f"died on import: {cause_of_death(answer)}")
    return answer


def begin_survey(pool: WorkerPool) -> None:
    """Start the work of `survey` in the background, so that suites can be collected meanwhile."""
    for task in (tasks.ENVIRONMENT, tasks.CHECKS):
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
        if self._made is None:
            made = self._pool.answer(tasks.CHECKS, self._pool.device, list[doctor.Check], timeout=SURVEY_SECONDS)
            if isinstance(made, Ended):
                raise _unexamined(made)
            self._made = made
            self._listener(made)
        return iter(self._made)

    def give_to(self, listener: Callable[[list[doctor.Check]], None]) -> None:
        """Call a function with the checks: now if they are made, otherwise as soon as they were read."""
        self._listener = listener
        if self._made is not None:
            listener(self._made)

    def read_if_made(self) -> None:
        """Read the checks if they were made meanwhile; this does not wait."""
        if self._made is None and self._pool.has_answer(tasks.CHECKS):
            iter(self)


def survey(pool: WorkerPool) -> tuple[Checks, Environment]:
    """Describe the machine, in a child process, because CUDA is initialised; return its checks, which may still run.

    Raises EnvironmentUnfitError if that fails, or if the device is missing; then nothing waits for the checks.
    """
    environment = pool.answer(tasks.ENVIRONMENT, pool.device, Environment, timeout=SURVEY_SECONDS)
    if isinstance(environment, Ended):
        raise _unexamined(environment)
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
