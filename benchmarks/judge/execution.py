"""Runs groups of cells on the isolated pool, several at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from benchmarks.judge import groups
from benchmarks.judge.groups import GROUP, Group, Outcome
from recapture.base.errors import UsageError
from recapture.cases.collection import find_suites, shipped_suites
from recapture.pool.driver import Driver, Request
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.run.preparation import IMPORTS, collect_suites

HERE = Path(__file__).parent

TIMEOUT = 3600.0
"""Seconds that the cells of one group may take."""

MEMORY = 16 << 30
"""Bytes of memory that a group may take."""

GENERATES_CODE = ("basic_use::DecoratorForm",)
"""Cases that call Inductor themselves: their processes fork from one that has found out how to compile C++."""


class Finished:
    """A file of finished groups, a line each, so that an interrupted benchmark goes on; without a file, nothing."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self._outcomes: dict[Group, list[Outcome]] = {}
        if file is not None and file.exists():
            for line in file.read_bytes().splitlines():
                group, outcomes = msgspec.json.decode(line, type=tuple[Group, list[Outcome]])
                self._outcomes[_placeless(group)] = outcomes

    def split(self, groups: Iterable[Group]) -> tuple[list[Outcome], list[Group]]:
        """Return the outcomes of the groups that are finished, and the groups that are left."""
        known: list[Outcome] = []
        left = []
        for group in groups:
            outcomes = self._outcomes.get(_placeless(group))
            if outcomes is None:
                left.append(group)
            else:
                known += outcomes
        return known, left

    def add(self, group: Group, outcomes: list[Outcome]) -> None:
        """Add the outcomes of a group to the file."""
        if self.file is not None:
            with self.file.open("ab") as stream:
                stream.write(msgspec.json.encode((group, outcomes)) + b"\n")


def _placeless(group: Group) -> Group:
    """Return a group without the folders of its files: the records of another machine are good here too."""
    compilers = tuple((name, file and Path(file).name) for name, file in group.compilers)
    return msgspec.structs.replace(group, path=Path(group.path).name, compilers=compilers)


class _Execution:
    """Gives the groups to the driver and keeps what comes back (implements `recapture.pool.driver.Work`)."""

    def __init__(self, groups: Iterable[Group], jobs: int, progress: Callable[[str], None], finished: Finished) -> None:
        self.queue = deque(groups)
        self.jobs = jobs
        self.progress = progress
        self.finished = finished
        self.outcomes: list[Outcome] = []
        self.problems: list[str] = []

    def next(self, running: Collection[Group]) -> Group | None:
        return self.queue.popleft() if self.queue and len(running) < self.jobs else None

    def request(self, task: Group) -> Request:
        return Request(GROUP, task)

    def begun(self, task: Group) -> None:
        pass

    def ended(self, task: Group, ended: Ended) -> None:
        if ended.result is None:
            self.given_up(task, f"{cause_of_death(ended)}: {ended.stderr[-1000:]}")
            return
        outcomes = msgspec.json.decode(ended.result, type=list[Outcome])
        self.outcomes += outcomes
        self.finished.add(task, outcomes)
        self.progress(f"{task.suite}::{task.case} ({ended.seconds:.1f} s), {len(self.queue)} left")

    def given_up(self, task: Group, reason: str) -> None:
        self.problems.append(f"the cells of {task.suite}::{task.case} could not be run: {reason}")
        self.progress(self.problems[-1])


def _level(group: Group) -> str:
    """Return what the process that a group is forked from has loaded."""
    if f"{group.suite}::{group.case}" in GENERATES_CODE and group.device == "cpu":
        return "codegen"
    return "light" if group.dynamo else "bare"


def collected(pool: WorkerPool, *, shipped: bool = True) -> list[tuple[str, str, str]]:
    """Return suite, file and name of every case of this benchmark and, with `shipped`, of the shipped suites."""
    own = find_suites((str(HERE / "cases"),)).suites
    infos = collect_suites(pool, (*own, *(shipped_suites() if shipped else ())))
    broken = [f"{suite.name}: {suite.error}" for suite in infos if suite.error]
    broken += [f"{suite.name}: {refused}" for suite in infos for refused in suite.refused]
    if broken:
        raise UsageError(f"suites cannot be collected: {'; '.join(broken)}")
    return [(suite.name, suite.path, case.name) for suite in infos for case in suite.cases]


def run_groups(
    plan: Callable[[list[tuple[str, str, str]]], list[Group]],
    *,
    device: str,
    jobs: int,
    progress: Callable[[str], None],
    finished: Path | None = None,
) -> tuple[list[Outcome], list[str]]:
    """Collect the cases, and run the groups that `plan` makes of them.

    Groups in the file `finished` do not run again, and those that run are added to it. Returns the outcome of every
    cell, and a text for every group that could not be run. Ctrl-C ends it with what was finished.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    with WorkerPool(device=device, jobs=jobs, imports=(*IMPORTS, groups.__name__)) as pool:
        done = Finished(finished)
        outcomes, remaining = done.split(plan(collected(pool)))
        modules = ["benchmarks.judge.planting", "benchmarks.judge.condition", "torch._dynamo"]
        problems: list[str] = []
        for level in ("bare", "light", "codegen"):  # a process forks faster without what Dynamo needs to compile
            stage = [group for group in remaining if _level(group) == level]
            if stage:
                pool.prepare(level, modules)
                work = _Execution(stage, jobs, progress, done)
                try:
                    Driver(pool, work, timeout=TIMEOUT, memory=MEMORY).run()
                except KeyboardInterrupt:
                    why = "interrupted: the tables hold only what was finished"
                    return outcomes + work.outcomes, [*problems, *work.problems, why]
                outcomes += work.outcomes
                problems += work.problems
        return outcomes, problems
