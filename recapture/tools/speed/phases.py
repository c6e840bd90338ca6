"""The finished phases of a benchmark's unfinished rows, in a file beside the results, so that none is repeated.

A phase is a process: the one that compiles with empty caches and checks the values, and each timed one. A line is
written as soon as a phase has ended. When a row is finished, its line in the results has all of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from recapture.base.cache_folder import private_folder
from recapture.base.files import write_atomically
from recapture.base.locks import open_to_append
from recapture.machine.describe import variables
from recapture.machine.environment import Environment
from recapture.tools.speed.job import Compiled, Outcome
from recapture.tools.speed.rows import COMPILER_VARIABLES, PlannedRow
from recapture.tools.speed.speedups import Configuration

CACHES = "bench"
"""Name of the folder, below the cache folder, with the compile caches of unfinished rows."""

FORGOTTEN_SECONDS = 7 * 24 * 3600.0
"""Seconds after which the caches of an interrupted benchmark are removed by the next one."""


class FinishedPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One phase that has ended: its row, whether it timed, what it found, and the seconds that it took.

    `identity` is that of what was measured (`identity_of`): a phase of another installation or an edited workload is
    not used.
    """

    workload: str
    configuration: Configuration
    identity: str
    timing: bool
    seconds: float
    outcome: Outcome

    @property
    def key(self) -> tuple[str, Configuration]:
        """The key of the phase's row."""
        return self.workload, self.configuration


class RestoredPhase(NamedTuple):
    """A phase of an interrupted benchmark that counts: its row, whether it timed, and its seconds."""

    row: PlannedRow
    timing: bool
    seconds: float


def identity_of(row: PlannedRow, environment: Environment, settings: Sequence[object]) -> str:
    """Return a text that differs if a phase of a row would: the machine, the packages, the workload, the settings."""
    facts = (
        environment.torch,
        sorted(environment.packages.items()),
        environment.python,
        environment.cpu.model,
        environment.cpu.cores,
        environment.gpu.name if environment.gpu else None,
        sorted(variables(COMPILER_VARIABLES).items()),
        str(row),
        row.hash,
        *settings,
    )
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def forget_old_caches(root: Path) -> None:
    """Remove the caches of benchmarks that were interrupted a week ago."""
    for folder in root.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - folder.lstat().st_mtime > FORGOTTEN_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def caches_folder() -> Path:
    """Return the folder of the caches of unfinished rows; raises EnvironmentUnfitError if it is not to be trusted."""
    root = private_folder(CACHES)
    forget_old_caches(root)
    return root


def _lines(phases: Iterable[FinishedPhase]) -> bytes:
    return b"".join(msgspec.json.encode(phase) + b"\n" for phase in phases)


class PhaseFile:
    """The phases of the unfinished rows in `results`, a file of a benchmark.

    Another benchmark that writes there at the same time holds the file; then phases are not kept (`held` is False).
    """

    def __init__(self, results: Path, rows: Sequence[PlannedRow]) -> None:
        self.path = results.with_name(f".{results.stem}.phases.jsonl")
        self.rows = rows
        self._handle = open_to_append(self.path)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.held = True
        except OSError:
            self.held = False

    def restore(self) -> list[RestoredPhase]:
        """Give the rows without figures the phases that have ended, and return those phases."""
        waiting = {row.key: row for row in self.rows if row.row is None}
        restored = []
        for phase in self._phases():
            row = waiting.get(phase.key)
            if row is None or phase.identity != row.identity:
                continue
            if phase.timing:
                row.processes.append(phase.outcome)
            elif Compiled.read(row.cache) is None:  # its caches are gone: timed processes would compile anew
                continue
            else:
                row.cold = phase.outcome
            restored.append(RestoredPhase(row, phase.timing, phase.seconds))
        return restored

    def add(self, row: PlannedRow, outcome: Outcome, *, timing: bool, seconds: float) -> None:
        """Write a phase that has ended."""
        if self.held:
            phase = FinishedPhase(
                workload=row.key[0],
                configuration=row.key[1],
                identity=row.identity,
                timing=timing,
                seconds=seconds,
                outcome=outcome,
            )
            os.write(self._handle, msgspec.json.encode(phase) + b"\n")

    def close(self) -> None:
        """Drop the phases of finished rows; without any other, remove the file."""
        if self.held:
            finished = {row.key for row in self.rows if row.row is not None}
            phases = list(self._phases())
            unfinished = [phase for phase in phases if phase.key not in finished]
            if not unfinished:
                self.path.unlink(missing_ok=True)
            elif len(unfinished) < len(phases):
                write_atomically(self.path, _lines(unfinished))
        os.close(self._handle)

    def clear(self) -> None:
        """Forget the phases of these rows: they are measured anew."""
        if self.held:
            keys = {row.key for row in self.rows}
            others = _lines(phase for phase in self._phases() if phase.key not in keys)
            os.ftruncate(self._handle, 0)
            os.write(self._handle, others)

    def _phases(self) -> Iterator[FinishedPhase]:
        """Yield the phases on file; a line that this version does not understand is none."""
        if not self.held:
            return
        with contextlib.suppress(OSError):
            for line in self.path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError):
                    yield msgspec.json.decode(line, type=FinishedPhase)
