"""Makes the programs of a generation, in children of the worker server, and adds them to its folder."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError, did_you_mean
from recapture.pool.driver import Driver, Request
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.tools.generate import tasks
from recapture.tools.generate.operator_programs import OperatorRequest
from recapture.tools.generate.python_programs import PythonRequest
from recapture.tools.generate.screening import AT_ONCE, next_task
from recapture.tools.generate.suite_files import GeneratedSuite

if TYPE_CHECKING:
    from recapture.tools.generate.folder import GeneratedFolder
    from recapture.tools.generate.generate_options import GenerateOptions

DATABASE = "recapture.tools.generate.operator_database"
"""The module that a server imports so that its children have torch's samples."""

IN_A_FILE = 10
"""Programs of Python in one file."""

NAMES_SECONDS = 180.0
"""Seconds that importing torch's samples may take."""

SuiteRequest: TypeAlias = "OperatorRequest | PythonRequest"
"""What is to be made of one file."""

SUITE_SECONDS = 120.0
"""Seconds that making the programs of an operator may take."""

SUITE_MEMORY = 8 << 30
"""Bytes of memory that making the programs of an operator may take."""

SUITES = 20
"""Files whose programs are made in one process: a fork takes longer than one of them."""


def make_python_programs(options: GenerateOptions, folder: GeneratedFolder, log: Callable[[str], None]) -> list[str]:
    """Make the programs of Python that the folder lacks; return the subjects of their files."""
    files = -(-options.programs // IN_A_FILE)
    requests = [PythonRequest(number, options.seed, IN_A_FILE, options.without) for number in range(files)]
    missing = [request for request in requests if request.subject not in folder.suites]
    if missing:
        log(f"making {len(missing)} files of {IN_A_FILE} programs")
        with WorkerPool(device="cpu", jobs=options.jobs, imports=(tasks.__name__,)) as pool:
            MakingPrograms(pool, missing, options.jobs, folder.add_suite).run()
    return [request.subject for request in requests]


def make_operator_programs(options: GenerateOptions, folder: GeneratedFolder, log: Callable[[str], None]) -> list[str]:
    """Make the programs of operators that the folder lacks; return the names of the operators.

    Raises UsageError for an operator without samples, EnvironmentUnfitError if torch's samples cannot be imported.
    """
    if options.operators and set(options.operators) <= folder.suites.keys():
        return list(dict.fromkeys(options.operators))
    with WorkerPool(device="cpu", jobs=options.jobs, imports=(tasks.__name__, DATABASE)) as pool:
        names = pool.client.run(tasks.NAMES, None, list[str], timeout=NAMES_SECONDS, memory=options.memory)
        if isinstance(names, Ended):
            raise EnvironmentUnfitError(f"torch's samples cannot be imported: {cause_of_death(names)}")
        for name in options.operators:
            if name not in names:
                raise UsageError(f"torch has no samples of an operator {name!r}{did_you_mean(name, names)}")
        chosen = list(dict.fromkeys(options.operators or names))
        settings = folder.settings
        requests: list[SuiteRequest] = [
            OperatorRequest(name, settings.device, settings.dtype, settings.seed, settings.samples, settings.forms)
            for name in chosen
            if name not in folder.suites
        ]
        if requests:
            log(f"making programs of {len(requests)} operators")
            MakingPrograms(pool, requests, options.jobs, folder.add_suite).run()
    return chosen


@dataclass(frozen=True)
class SuiteTask:
    """The programs of one file, to be made in a process of its group."""

    request: SuiteRequest
    group: str

    @property
    def key(self) -> Hashable:
        """What the programs are about."""
        return self.request.subject


class MakingPrograms:
    """Makes the programs of files (implements `recapture.pool.driver.Work`); `receive` gets those of each.

    What ends the process, or takes too long, has no programs.
    """

    def __init__(
        self, pool: WorkerPool, requests: Iterable[SuiteRequest], jobs: int, receive: Callable[[GeneratedSuite], None]
    ) -> None:
        self._queue = deque(SuiteTask(request, str(index // SUITES)) for index, request in enumerate(requests))
        self._at_once = AT_ONCE * jobs
        self._receive = receive
        self._driver: Driver[SuiteTask] = Driver(pool, self, timeout=SUITE_SECONDS, memory=SUITE_MEMORY)

    def run(self) -> None:
        """Make all programs."""
        self._driver.run()

    def next(self, running: Collection[SuiteTask]) -> SuiteTask | None:
        """Return the next file, until enough groups are submitted."""
        return next_task(self._queue, {task.group for task in running}, lambda task: task.group, self._at_once)

    def request(self, task: SuiteTask) -> Request:
        """Return the request that makes the programs of a file."""
        function = tasks.SUITE if isinstance(task.request, OperatorRequest) else tasks.PYTHON_SUITE
        return Request(function, task.request, group=task.group)

    def begun(self, task: SuiteTask) -> None:
        """Do nothing."""

    def ended(self, task: SuiteTask, ended: Ended) -> None:
        """Pass on the programs."""
        if ended.result is None or ended.status != 0:
            self.given_up(task, f"making its programs failed: {cause_of_death(ended)}")
        else:
            self._receive(msgspec.json.decode(ended.result, type=GeneratedSuite))

    def given_up(self, task: SuiteTask, reason: str) -> None:
        """Note that a file has no programs."""
        self._receive(GeneratedSuite(task.request.subject, task.request.name, lacking=reason))
