"""Runs the processes of a benchmark's rows, and writes each row as soon as it is finished, even if they fail."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from recapture.pool.driver import Driver, Request
from recapture.records.verdicts import RIGHT, Verdict
from recapture.run.outcomes import OutcomeReader
from recapture.tools.speed.job import Job, Outcome
from recapture.tools.speed.rows import PlannedProcess, PlannedRow, make_row
from recapture.tools.speed.schedule import Schedule
from recapture.tools.speed.tasks import MEASURE

if TYPE_CHECKING:
    from collections.abc import Collection

    from recapture.machine import doctor
    from recapture.pool.protocol import Ended
    from recapture.pool.worker_pool import WorkerPool
    from recapture.tools.speed.conditions import GpuSampler
    from recapture.tools.speed.filing import SpeedupsFile
    from recapture.tools.speed.selection import BenchOptions
    from recapture.tools.speed.speedups import Row


def explainable(found: Outcome) -> bool:
    """Whether a fault of the machine can be what ended a row, whose verdict then becomes ``environment``."""
    return found.verdict in (Verdict.ERROR, Verdict.CRASH)


class RowProgress(Protocol):
    """Receives the progress of a benchmark."""

    def start(self, rows: int) -> None:
        """Receive the number of rows to measure."""

    def doing(self, what: dict[int, str]) -> None:
        """Receive the running processes, one line for each."""

    def finished(self, row: Row) -> None:
        """Receive a finished row."""


class RowExecution:
    """Runs the processes of rows (implements `recapture.pool.driver.Work`)."""

    def __init__(
        self,
        pool: WorkerPool,
        options: BenchOptions,
        checks: list[doctor.Check],
        sampler: GpuSampler,
        file: SpeedupsFile,
        progress: RowProgress,
    ) -> None:
        self.options = options
        self.sampler = sampler
        self.file = file
        self.progress = progress
        self.schedule = Schedule(
            (row for row in file.rows if row.row is None), compile_jobs=options.compile_jobs, gpus=options.gpus
        )
        self.driver = Driver(pool, self, timeout=options.timeout, memory=options.memory)
        self.outcomes = OutcomeReader(
            Outcome, timeout=options.timeout, memory=options.memory, checks=checks, explainable=explainable
        )

    def run(self) -> None:
        """Run all rows that are not on file yet."""
        self.file.write()  # detects a results directory that cannot be written before measuring
        self.progress.start(sum(row.row is None for row in self.file.rows))
        self.driver.run()

    def next(self, running: Collection[PlannedProcess]) -> PlannedProcess | None:
        """Return the process that starts next beside the running ones."""
        return self.schedule.next(running)

    def request(self, task: PlannedProcess) -> Request:
        """Return the request to run a process of a row."""
        row, timing, gpu = task
        options = self.options
        number = len(row.processes)
        folder = None
        if options.profile and timing and number == 0:
            folder = self._profiles(row)
            folder.mkdir(parents=True, exist_ok=True)
        cores = len(os.sched_getaffinity(0))
        beside = 1 if timing else self.schedule.compiling_beside(row)
        job = Job(
            model=row.info.spec,
            configuration=row.configuration,
            device=options.device,
            timing=timing,
            seconds=options.seconds,
            seed=number,
            cache=row.cache,
            # Twice the number of available cores, because compiling processes do not use all cores all the time.
            compile_threads=max(1, min(cores, 2 * cores // beside)),
            cpu_threads=options.threads,
            gpu=gpu,
            # A process that only compiles uses all cores, as a user's does.
            steady=timing and options.device == "cpu" and options.cpu_settings == "set",
            profile=None if folder is None else str(folder.resolve()),
        )
        return Request(MEASURE, job, timed=True)

    def begun(self, task: PlannedProcess) -> None:  # noqa: ARG002 - shows all running tasks
        """Report the running processes."""
        self._show()

    def ended(self, task: PlannedProcess, ended: Ended) -> None:
        """Handle the end of a process: the row needs another one, or is finished."""
        self._show()
        row = task.row
        outcome = self.outcomes.read(ended)
        if outcome.verdict is Verdict.TIMEOUT:
            outcome = msgspec.structs.replace(outcome, reason=f"{outcome.reason}{last_seen(ended.stderr)}")
        if task.timing:
            row.processes.append(outcome)
        else:
            row.cold = outcome
        if outcome.verdict not in RIGHT or len(row.processes) == self.options.processes:
            self._finish(row, outcome)
        else:
            self.schedule.again(row)

    def given_up(self, task: PlannedProcess, reason: str) -> None:
        """Write a row whose process will not run again."""
        self._finish(task.row, self.outcomes.crash(reason))

    def _show(self) -> None:
        self.progress.doing(
            {
                number: f"{'timing' if timing else 'compiling'} {row}"
                + (f" ({len(row.processes) + 1}/{self.options.processes})" if timing else "")
                for number, (row, timing, _) in self.driver.running.items()
            }
        )

    def _finish(self, planned: PlannedRow, outcome: Outcome) -> None:
        jobs = self.schedule.compiling_beside(planned)
        planned.row = make_row(planned, outcome, self.sampler, compile_jobs=jobs)
        shutil.rmtree(planned.cache, ignore_errors=True)
        self.file.write()
        if planned.processes and planned.processes[0].operators is not None:
            self.file.publisher.operators(self._profiles(planned), str(planned), planned.processes[0].operators)
        self.progress.finished(planned.row)

    def _profiles(self, row: PlannedRow) -> Path:
        """Return the folder of a row's operator tables and traces."""
        return self.file.path.parent / "profiles" / re.sub(r"[^\w.-]+", "-", str(row))


def last_seen(stderr: str) -> str:
    """Return where a process was at its deadline, from the stacks written to stderr shortly before it.

    The main thread's stack is the last. Empty if stderr has no stack.
    """
    stack = stderr.rpartition("(most recent call first):")[2]
    frame = re.match(r'\s+File "([^"]+)", line (\d+) in (\S+)', stack)
    return f", in {frame[3]} ({Path(frame[1]).name}:{frame[2]})" if frame else ""
