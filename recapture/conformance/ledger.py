"""The files of one results directory while a run writes them, and what becomes of a run that was interrupted."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, TextIO, TypeVar

import msgspec

from recapture.base.errors import UsageError
from recapture.base.files import append_line, read_regular, write_atomically
from recapture.declare.compilers import builtin_compilers
from recapture.machine.environment import ENVIRONMENT, differences, read_environment, write_environment
from recapture.results.directories import BEFORE, REPORT
from recapture.results.records import (
    CONFORMANCE,
    MOST_OUTPUT,
    PARTIAL,
    TIMINGS,
    Record,
    Timing,
    append_record,
    read_jsonl,
    read_output,
    sort_key,
    write_jsonl,
)
from recapture.results.verdicts import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.conformance.plan import Key, Options, PlannedCell
    from recapture.machine.environment import Environment

__all__ = ["Ledger", "settle"]

OUTPUT = "output.jsonl"
PARTIAL_TIMINGS = "timings.partial.jsonl"
PARTIAL_ENVIRONMENT = "environment.partial.json"
PARTIAL_OUTPUT = "output.partial.jsonl"
FINISHED = (CONFORMANCE, TIMINGS, OUTPUT, REPORT, ENVIRONMENT)
PARTIALS = (PARTIAL, PARTIAL_TIMINGS, PARTIAL_OUTPUT, PARTIAL_ENVIRONMENT)

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
        self.warnings: list[str] = []
        """What became of older results, a line each."""

    def __enter__(self) -> Ledger:
        with contextlib.ExitStack() as stack:  # what was opened is closed again when a later step refuses
            stack.callback(_locked(self.directory).close)
            self._read_before(resumed=self._set_aside())
            self._partial = self._append_to(PARTIAL, stack)
            self._partial_timings = self._append_to(PARTIAL_TIMINGS, stack)
            self._partial_output = self._append_to(PARTIAL_OUTPUT, stack)
            kept = self._kept(self.before)
            self.environment = msgspec.structs.replace(self.environment, planned=len(kept.keys() | self.cells.keys()))
            write_environment(self.directory / PARTIAL_ENVIRONMENT, self.environment)
            self._files = stack.pop_all()
        return self

    def _set_aside(self) -> bool:
        """Keep what another installation left, or what this run starts anew, in a folder of its own.

        Return whether an unfinished whole run of this installation is on file that this one goes on with. Raises
        UsageError where this one would neither go on with it nor replace it.
        """
        unfinished = _environment(self.directory, PARTIAL_ENVIRONMENT)
        partial = differences(unfinished, self.environment) if unfinished else ""
        resumed = unfinished is not None and not unfinished.selection and not partial
        broken = any(suite.error is not None for suite in self.environment.suites)  # its rows are kept
        replaced = self.options.whole and not broken and (resumed or not self.options.resume)
        before = None if replaced else _environment(self.directory, ENVIRONMENT)
        finished = differences(before, self.environment) if before else ""
        if partial or finished:
            folder = _moved(self.directory, (*(FINISHED if finished else ()), *(PARTIALS if partial else ())))
            self.warnings.append(
                f"warning: older results in {self.directory} are of another installation ({finished or partial}); "
                f"they are in its {folder.name} now"
            )
        if resumed and not self.options.whole:
            raise UsageError(
                f"a run in {self.directory} is unfinished: go on with it by --resume and no selection, end it as it is "
                "by recapture report --interrupted, or name other --results"
            )
        if resumed and not self.options.resume:
            folder = _moved(self.directory, PARTIALS)
            self.warnings.append(
                f"warning: what an unfinished run had recorded in {self.directory} is in its {folder.name} now; with "
                "--resume it would have gone on"
            )
            return False
        return resumed

    def _read_before(self, *, resumed: bool) -> None:
        started = _rows(self.directory, Record, PARTIAL)
        self.before = _rows(self.directory, Record, CONFORMANCE) | started
        self.timings_before = _rows(self.directory, Timing, TIMINGS, PARTIAL_TIMINGS)
        # An unfinished whole run was to replace what is finished: what it had not reached still has to run.
        known = started if resumed or not self.options.resume else self.before
        hashes = {key: cell.info.hash for key, cell in self.cells.items()}
        same = {
            key: row
            for key, row in known.items()
            if row.case_hash == hashes.get(key) and row.verdict is not Verdict.ENVIRONMENT  # it may have been mended
        }
        if self.options.resume:
            self.done = same
            self.timings = {key: row for key, row in self.timings_before.items() if key in same}
        if self.options.whole:  # from here on its partial files hold all of it, and nothing else
            held = self._kept(self.before) | same
            timings = [row for key, row in self.timings_before.items() if key in held]
            try:
                write_jsonl(self.directory / PARTIAL, held.values())
                write_jsonl(self.directory / PARTIAL_TIMINGS, timings)
            except OSError as error:
                raise UsageError(f"cannot write results to {self.directory}: {error.strerror}") from None

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _append_to(self, name: str, stack: contextlib.ExitStack) -> int:
        """Open a file to append to, without the line that a killed run left half written."""
        path = self.directory / name
        try:
            if os.path.lexists(path):
                os.truncate(path, read_regular(path, most=MOST_OUTPUT).rfind(b"\n") + 1)
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
        append_line(self._partial_output, msgspec.json.encode(said) + b"\n")

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


def settle(directory: Path) -> bool:
    """Make finished files of what an interrupted run recorded there; False where no run was interrupted.

    The environment keeps how many cells had been planned, so that every report says what is missing. What a whole run
    was to replace is kept in a folder of its own.
    """
    if not (directory / PARTIAL).exists():
        return False
    with contextlib.closing(_locked(directory)):
        environment = _environment(directory, PARTIAL_ENVIRONMENT)
        whole = environment is not None and not environment.selection
        records = _rows(directory, Record, *(() if whole else (CONFORMANCE,)), PARTIAL)
        timings = _rows(directory, Timing, *(() if whole else (TIMINGS,)), PARTIAL_TIMINGS)
        if whole and (directory / CONFORMANCE).exists():
            _moved(directory, FINISHED)
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
        environment = msgspec.structs.replace(_joined(directory, environment), recorded=len(records))
        write_environment(directory / ENVIRONMENT, environment)
    for name in PARTIALS:
        (directory / name).unlink(missing_ok=True)
    return records, environment


def _joined(directory: Path, environment: Environment) -> Environment:
    """Add to a selective run what the directory's other rows were selected by; none means that everything was run."""
    before = _environment(directory, ENVIRONMENT)
    if before is None or not environment.selection:
        return environment
    suites = {one.name: one for one in [*before.suites, *environment.suites]}
    selection = [*before.selection, *environment.selection] if before.selection else []
    return msgspec.structs.replace(
        environment, suites=[suites[name] for name in sorted(suites)], selection=list(dict.fromkeys(selection))
    )


def _environment(directory: Path, name: str) -> Environment | None:
    path = directory / name
    return read_environment(path) if path.exists() else None


def _moved(directory: Path, names: tuple[str, ...]) -> Path:
    """Move files to a new folder of their directory; return it."""
    number = 1
    while (folder := directory / f"{BEFORE}{number}").exists():
        number += 1
    try:
        folder.mkdir()
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (directory / name).rename(folder / name)
    except OSError as error:
        raise UsageError(f"cannot write results to {folder}: {error.strerror}") from None
    return folder


def _locked(directory: Path) -> TextIO:
    """Open the directory's lock; closing it lets the next run in."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as error:
        raise UsageError(f"cannot write results to {directory}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise UsageError(f"another run is writing to {directory}") from None
    except OSError as error:  # a file system without locks
        lock.close()
        raise UsageError(f"cannot lock {directory}: {error.strerror}") from None
    return lock


def _said(directory: Path) -> dict[str, dict[str, str]]:
    """What every cell printed last, without what is empty; lines that cannot be read are passed over."""
    said: dict[str, dict[str, str]] = {}
    for name in (OUTPUT, PARTIAL_OUTPUT):
        said |= read_output(directory / name)
    return said


def _rows(directory: Path, kind: type[Row], *names: str) -> dict[Key, Row]:
    """The rows of some files, those of an interrupted run after the finished ones; the later row of a cell counts."""
    rows: list[Row] = []
    for name in names:
        path = directory / name
        if path.exists():
            rows += read_jsonl(path, kind, tolerate_torn_tail=name in PARTIALS)
    return {(row.case, row.compiler, row.device): row for row in rows}
