"""The files of one results directory while a run writes them, and what becomes of a run that was interrupted."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, TextIO, TypeVar

import msgspec

from recapture.compilers import builtin_compilers
from recapture.environment import read_environment, write_environment
from recapture.errors import UsageError
from recapture.records import (
    CONFORMANCE,
    ENVIRONMENT,
    PARTIAL,
    TIMINGS,
    Record,
    Timing,
    append_record,
    read_jsonl,
    sort_key,
    write_atomically,
    write_jsonl,
)
from recapture.report.markdown import render_conformance

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.environment import Environment
    from recapture.plan import Key, Options, PlannedCell

__all__ = ["Ledger", "settle"]

OUTPUT = "output.jsonl"
REPORT = "conformance.md"
PARTIAL_TIMINGS = "timings.partial.jsonl"
PARTIAL_ENVIRONMENT = "environment.partial.json"
PARTIAL_OUTPUT = "output.partial.jsonl"
PARTIALS = (PARTIAL, PARTIAL_TIMINGS, PARTIAL_ENVIRONMENT, PARTIAL_OUTPUT)

Row = TypeVar("Row", Record, Timing)


class Ledger:
    """The files of one results directory: every planned cell ends here exactly once, whatever happens in between."""

    def __init__(self, directory: Path, options: Options, cells: list[PlannedCell], environment: Environment) -> None:
        self.directory = directory
        self.options = options
        self.environment = environment
        self.cells = {cell.key: cell for cell in cells}
        self.done: dict[Key, Record] = {}
        self.timings: dict[Key, Timing] = {}
        self.seconds = 0.0

    def __enter__(self) -> Ledger:
        with contextlib.ExitStack() as stack:  # what was opened is closed again when a later step refuses
            stack.callback(_locked(self.directory).close)
            self._read_before()
            self._partial = self._append_to(PARTIAL, stack)
            self._partial_timings = self._append_to(PARTIAL_TIMINGS, stack)
            self._partial_output = self._append_to(PARTIAL_OUTPUT, stack)
            kept = self._kept(self.before)
            self.environment = msgspec.structs.replace(self.environment, planned=len(kept.keys() | self.cells.keys()))
            if not self.options.whole:
                self.environment = self._joined(self.environment)
            write_environment(self.directory / PARTIAL_ENVIRONMENT, self.environment)
            self._files = stack.pop_all()
        return self

    def _read_before(self) -> None:
        self.before = _rows(self.directory, CONFORMANCE, PARTIAL, Record)
        self.timings_before = _rows(self.directory, TIMINGS, PARTIAL_TIMINGS, Timing)
        if self.options.resume:
            for key, cell in self.cells.items():
                row = self.before.get(key)
                if row is not None and row.case_hash == cell.info.hash:
                    self.done[key] = row
                    if key in self.timings_before:
                        self.timings[key] = self.timings_before[key]

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _append_to(self, name: str, stack: contextlib.ExitStack) -> int:
        """Open a file to append to, without the line that a killed run left half written."""
        path = self.directory / name
        try:
            if path.exists():
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise UsageError(f"cannot write results to {path}: {error.strerror}") from None
        stack.callback(os.close, handle)
        return handle

    def missing(self) -> list[PlannedCell]:
        """The planned cells that still have to run, long ones first: the last minute should not be one long cell."""
        todo = [cell for key, cell in self.cells.items() if key not in self.done]
        builtin = builtin_compilers()

        def cost(cell: PlannedCell) -> float:
            before = self.timings_before.get(cell.key)
            if before is not None:
                return before.seconds
            how = builtin.get(cell.spec.compiler)
            return 10.0 if how is not None and how.generates_code else 0.1

        return sorted(todo, key=cost, reverse=True)

    def estimate(self, cells: list[PlannedCell], jobs: int) -> float | None:
        """Seconds the cells took last time, divided by jobs; None when most were never run."""
        known = [self.timings_before[cell.key].seconds for cell in cells if cell.key in self.timings_before]
        return sum(known) / jobs if cells and len(known) > len(cells) / 2 else None

    def record(self, row: Record, timing: Timing, stdout: str, stderr: str) -> None:
        """Keep one finished cell, on disk at once."""
        key = (row.case, row.compiler, row.device)
        append_record(self._partial, row)
        append_record(self._partial_timings, timing)
        self.done[key] = row
        self.timings[key] = timing
        self.seconds += timing.seconds
        said = {"cell": row.cell, "stdout": stdout, "stderr": stderr}
        os.write(self._partial_output, msgspec.json.encode(said) + b"\n")

    def close(self) -> tuple[list[Record], Environment]:
        """Write the finished files: what ran, and the directory's other rows as far as they are kept."""
        absent = self.cells.keys() - self.done.keys()
        if absent:
            raise AssertionError(f"{len(absent)} planned cells have no record, the first {min(absent)}")
        planned = {key: self.done[key] for key in self.cells}
        records = list((self._kept(self.before) | planned).values())
        timings = list((self._kept(self.timings_before) | self.timings).values())
        return _finish(self.directory, records, timings, self.environment)

    def _kept(self, rows: dict[Key, Row]) -> dict[Key, Row]:
        """The rows that a selective run leaves alone, and a whole one too where their suite could not be collected."""
        broken = {suite.name for suite in self.environment.suites if suite.error is not None}
        return {key: row for key, row in rows.items() if not self.options.whole or key[0].split("::")[0] in broken}

    def _joined(self, environment: Environment) -> Environment:
        """Add to what the directory's other rows were selected by; none means that everything was run."""
        path = self.directory / ENVIRONMENT
        if not path.exists():
            return environment
        before = read_environment(path)
        suites = {one.name: one for one in [*before.suites, *environment.suites]}
        selection = [*before.selection, *environment.selection] if before.selection else []
        return msgspec.structs.replace(
            environment, suites=[suites[name] for name in sorted(suites)], selection=list(dict.fromkeys(selection))
        )


def settle(directory: Path) -> bool:
    """Make finished files of what an interrupted run recorded there; False where no run was interrupted.

    The environment keeps how many cells had been planned, so that every report says what is missing.
    """
    if not (directory / PARTIAL).exists():
        return False
    with contextlib.closing(_locked(directory)):
        records = _rows(directory, CONFORMANCE, PARTIAL, Record)
        timings = _rows(directory, TIMINGS, PARTIAL_TIMINGS, Timing)
        path = directory / PARTIAL_ENVIRONMENT
        environment = read_environment(path) if path.exists() else None
        _finish(directory, list(records.values()), list(timings.values()), environment)
    return True


E = TypeVar("E", "Environment", "Environment | None")


def _finish(directory: Path, records: list[Record], timings: list[Timing], environment: E) -> tuple[list[Record], E]:
    """Write the finished files, the records first, and remove what was kept for resuming."""
    records = sorted(records, key=sort_key)
    write_jsonl(directory / CONFORMANCE, records)
    write_jsonl(directory / TIMINGS, timings)
    said = _said(directory)
    kept = [said[row.cell] for row in records if said.get(row.cell, {}).keys() - {"cell"}]
    write_atomically(directory / OUTPUT, b"".join(msgspec.json.encode(one) + b"\n" for one in kept))
    if environment is not None:
        environment = msgspec.structs.replace(environment, recorded=len(records))
        write_environment(directory / ENVIRONMENT, environment)
    write_atomically(directory / REPORT, render_conformance(records, environment).encode())
    for name in PARTIALS:
        (directory / name).unlink(missing_ok=True)
    return records, environment


def _locked(directory: Path) -> TextIO:
    """Open the directory's lock; closing it lets the next run in."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as error:
        raise UsageError(f"cannot write results to {directory}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise UsageError(f"another run is writing to {directory}") from None
    return lock


def _said(directory: Path) -> dict[str, dict[str, str]]:
    """What every cell printed last, without what is empty; lines that cannot be read are passed over."""
    said: dict[str, dict[str, str]] = {}
    for name in (OUTPUT, PARTIAL_OUTPUT):
        path = directory / name
        for line in path.read_bytes().splitlines() if path.exists() else []:
            with contextlib.suppress(msgspec.DecodeError):
                row = msgspec.json.decode(line, type=dict[str, str])
                said[row["cell"]] = {"cell": row["cell"]} | {key: text for key, text in row.items() if text}
    return said


def _rows(directory: Path, whole: str, partial: str, kind: type[Row]) -> dict[Key, Row]:
    """The rows of a finished file and of an interrupted run after it; the later row of a cell counts."""
    rows: list[Row] = []
    for name in (whole, partial):
        path = directory / name
        if path.exists():
            rows += read_jsonl(path, kind, tolerate_torn_tail=name == partial)
    return {(row.case, row.compiler, row.device): row for row in rows}
