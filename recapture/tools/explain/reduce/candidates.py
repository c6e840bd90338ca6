"""Runs candidates on the worker server, several at a time, and says which is the first that shows the fault."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recapture.pool.driver import Driver, Request
from recapture.run.cell import CellResult, CellSpec, Variation
from recapture.run.outcomes import OutcomeReader
from recapture.tools.explain.reduce.attempt import ATTEMPT, Candidate
from recapture.tools.explain.reduce.faults import Fault, fault_of, same_fault
from recapture.tools.explain.reduce.program import text_of

if TYPE_CHECKING:
    import ast

    from recapture.pool.protocol import Ended
    from recapture.pool.worker_pool import WorkerPool


class TryPlace(NamedTuple):
    """Where candidates run: the cell they are tried as, the suite's folder, and the reduction's own folder."""

    spec: CellSpec
    imports: Path
    folder: Path


class Condition(NamedTuple):
    """A condition on a candidate: the cell's compiler shows the fault, or with a backend in its place does not."""

    fault: Fault
    backend: str | None = None
    shows: bool = True

    def holds(self, result: CellResult) -> bool:
        """Whether a result meets the condition."""
        return same_fault(self.fault, fault_of(result)) is self.shows


class Try(NamedTuple):
    """A candidate that runs: its number in its batch, its text's file, and which check it is at."""

    number: int
    key: str
    path: str
    step: int


class CandidateRunner:
    """Tries candidates against `checks`, all of which must hold; remembers every text that was tried.

    `timeout` (seconds) and `memory` (bytes) limit each process. After `deadline`, on the clock of `time.monotonic`, no
    other candidate begins.
    """

    def __init__(self, pool: WorkerPool, place: TryPlace, *, timeout: float, memory: int, deadline: float) -> None:
        self.pool = pool
        self.place = place
        self.timeout = timeout
        self.memory = memory
        self.deadline = deadline
        self.checks: tuple[Condition, ...] = ()
        self.tries = 0
        self.seconds = 0.0
        """Seconds in which candidates ran."""
        self._known: dict[str, bool] = {}
        self._files = 0

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.deadline

    def expect(self, checks: tuple[Condition, ...]) -> None:
        """Set what candidates must show from now on."""
        self.checks = checks
        self._known.clear()

    def result(self, text: str, backend: str | None = None) -> tuple[CellResult, float]:
        """Run a program once; return what it shows, and the seconds of its process."""
        path = self.write(text)
        try:
            return self.run_file(path, backend)
        finally:
            self.remove(path)

    def run_file(self, path: str, backend: str | None = None) -> tuple[CellResult, float]:
        """Run a program's file once, as `result` does."""
        run = _Single(self, path, backend)
        Driver(self.pool, run, timeout=self.timeout, memory=self.memory).run()
        return run.result, run.seconds

    def first(self, candidates: Iterable[ast.Module | None]) -> tuple[int, ast.Module] | None:
        """Return the first candidate that meets every check, with its number; None if none does before the deadline."""
        batch = _Batch(self, iter(candidates))
        begin = time.monotonic()
        try:
            Driver(self.pool, batch, timeout=self.timeout, memory=self.memory).run()
        finally:
            self.seconds += time.monotonic() - begin
        return None if batch.best is None else (batch.best, batch.trees[batch.best])

    def write(self, text: str) -> str:
        """Write a program to a file of its own: Python caches what it compiled by the file's name and time."""
        self._files += 1
        folder = self.place.folder / f"{self._files:06}"
        folder.mkdir()
        path = folder / f"{self.place.spec.suite}.py"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return str(path)

    def remove(self, path: str) -> None:
        """Remove a program's file."""
        folder = self.place.folder / path.split("/")[-2]
        with contextlib.suppress(OSError):
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()

    def request(self, path: str, backend: str | None) -> Request:
        """Return the request that runs a program's file with the cell's compiler, or with a backend in its place."""
        how = None if backend is None else Variation(backend=backend)
        cell = msgspec.structs.replace(self.place.spec, path=path, varied=how)
        writable = (str(self.pool.home.path),)
        return Request(ATTEMPT, Candidate(cell, str(self.place.imports), writable))

    def outcome(self, ended: Ended) -> CellResult:
        """Return what a program showed."""
        reader = OutcomeReader(
            CellResult, timeout=self.timeout, memory=self.memory, checks=(), explainable=lambda _: False
        )
        return reader.read(ended)

    def known(self, text: str) -> bool | None:
        """Whether a program meets the checks; None if it was not tried."""
        return self._known.get(text)

    def remember(self, text: str, *, holds: bool) -> None:
        """Keep the result of a try."""
        self._known[text] = holds


class _Single:
    """One run of one program (implements `recapture.pool.driver.Work`)."""

    def __init__(self, runner: CandidateRunner, path: str, backend: str | None) -> None:
        self.runner = runner
        self.backend = backend
        self.seconds = 0.0
        self.result: CellResult
        self._waiting = [Try(0, "", path, 0)]

    def next(self, running: Collection[Try]) -> Try | None:  # noqa: ARG002
        """Return the run, once."""
        return self._waiting.pop() if self._waiting else None

    def request(self, task: Try) -> Request:
        """Return the request of the run."""
        return self.runner.request(task.path, self.backend)

    def begun(self, task: Try) -> None:
        """Ignore the start."""

    def ended(self, task: Try, ended: Ended) -> None:  # noqa: ARG002
        """Keep the result."""
        self.result, self.seconds = self.runner.outcome(ended), ended.seconds

    def given_up(self, task: Try, reason: str) -> None:  # noqa: ARG002
        """Keep that the program killed its server."""
        reader = OutcomeReader(CellResult, timeout=0.0, memory=0, checks=(), explainable=lambda _: False)
        self.result = reader.crash(reason)


class _Batch:
    """Candidates in order, until one meets every check (implements `recapture.pool.driver.Work`).

    While a candidate runs, the next ones run beside it, as far as there are processes. The result is the same as if
    they ran one after the other.
    """

    def __init__(self, runner: CandidateRunner, candidates: Iterator[ast.Module | None]) -> None:
        self.runner = runner
        self.candidates = enumerate(candidates)
        self.best: int | None = None
        self.trees: dict[int, ast.Module] = {}
        self._again: deque[Try] = deque()

    def next(self, running: Collection[Try]) -> Try | None:
        """Return the next process to start; None if enough are running, or if the first good candidate is known."""
        if self._again:
            return self._again.popleft()
        if len(running) >= self.runner.pool.jobs or self.runner.is_over:
            return None
        while self.best is None:
            following = next(self.candidates, None)
            if following is None:
                return None
            number, tree = following
            if tree is None:  # its edit does not apply
                continue
            self.trees[number] = tree
            text = text_of(tree)
            known = self.runner.known(text)
            if known is None:
                return Try(number, text, self.runner.write(text), 0)
            if known:
                self.best = number
        return None

    def request(self, task: Try) -> Request:
        """Return the request of a candidate's present check."""
        return self.runner.request(task.path, self.runner.checks[task.step].backend)

    def begun(self, task: Try) -> None:  # noqa: ARG002
        """Count a process."""
        self.runner.tries += 1

    def ended(self, task: Try, ended: Ended) -> None:
        """Go on with a candidate's next check, or keep what is known about it now."""
        holds = self.runner.checks[task.step].holds(self.runner.outcome(ended))
        following = task._replace(step=task.step + 1)
        if holds and following.step < len(self.runner.checks) and (self.best is None or task.number < self.best):
            self._again.append(following)
            return
        done = following.step == len(self.runner.checks)
        if done or not holds:
            self.runner.remember(task.key, holds=holds)
        if holds and done and (self.best is None or task.number < self.best):
            self.best = task.number
        self.runner.remove(task.path)

    def given_up(self, task: Try, reason: str) -> None:  # noqa: ARG002
        """Keep that a candidate kills its server."""
        self.runner.remember(task.key, holds=False)
        self.runner.remove(task.path)
