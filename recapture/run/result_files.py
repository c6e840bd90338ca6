"""The files of one results directory while a run writes them; continues or closes interrupted runs."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from typing import TYPE_CHECKING, TypeVar

import msgspec

from recapture.base.errors import UsageError
from recapture.base.files import append_line, remove_unfinished, write_atomically
from recapture.base.locks import locked, open_to_append, refuse_irregular
from recapture.base.scrub import without_secrets
from recapture.judge.version import JUDGE_VERSION
from recapture.machine.environment import (
    ENVIRONMENT,
    counted,
    differences,
    id_of,
    only_volatile_differ,
    origin_of,
    read_environment,
    without_private_paths,
    write_environment,
)
from recapture.records.directories import (
    EAGER_FILE,
    FINISHED,
    LOCK,
    OUTPUT,
    PARTIAL_EAGER,
    PARTIAL_ENVIRONMENT,
    PARTIAL_OUTPUT,
    PARTIAL_TIMINGS,
    PARTIALS,
    set_aside,
)
from recapture.records.eager_file import CaseKey, EagerRow, eager_line, read_eager
from recapture.records.record import (
    CONFORMANCE,
    PARTIAL,
    SCHEMA_VERSION,
    TIMINGS,
    CellKey,
    Record,
    Timing,
    append_record,
    key_of,
    read_jsonl,
    read_output,
    write_jsonl,
)
from recapture.records.verdicts import Verdict
from recapture.run.durations import earlier_runs, usual_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.machine.doctor import Check
    from recapture.machine.environment import Environment, Origin
    from recapture.records.eager_calls import EagerCall
    from recapture.run.durations import Expected
    from recapture.run.plan import PlannedCell, RunOptions

Row = TypeVar("Row", Record, Timing)


class ResultFiles:
    """The files of one results directory: every planned cell is recorded exactly once, even after interruptions."""

    def __init__(
        self, directory: Path, options: RunOptions, cells: list[PlannedCell], environment: Environment
    ) -> None:
        self.directory = directory
        self.options = options
        self.environment = environment
        self.origin_id = id_of(origin_of(environment))
        self.cells = {cell.key: cell for cell in cells}
        self.done: dict[CellKey, Record] = {}
        self.timings: dict[CellKey, Timing] = {}
        self.warnings: list[str] = []
        """Messages about older results, one line each."""

    def __enter__(self) -> ResultFiles:
        with contextlib.ExitStack() as stack:  # closes what was opened if a later step fails
            stack.enter_context(locked(self.directory / LOCK, wait=False))
            refuse_irregular(self.directory / name for name in (*PARTIALS, *FINISHED))
            remove_unfinished(self.directory, (*PARTIALS, *FINISHED))
            resumed = self._set_aside()
            self._read_before(resumed=resumed)
            # What the five finished files will hold, each in a file of its own to which a finished cell only appends:
            # a run that is killed then loses no cell that ended, and leaves the finished files of an earlier run whole.
            self._partial = self._append_to(PARTIAL, stack)
            self._partial_timings = self._append_to(PARTIAL_TIMINGS, stack)
            self._partial_output = self._append_to(PARTIAL_OUTPUT, stack)
            self._partial_eager = self._append_to(PARTIAL_EAGER, stack)
            rows_to_keep = self._kept(self.before)
            self.environment = msgspec.structs.replace(
                self.environment,
                planned=len(rows_to_keep.keys() | self.cells.keys()),
                origins=self._origins_before() | {self.origin_id: origin_of(self.environment)},
                judge=self._oldest_judge(resumed=resumed) if rows_to_keep or self.done else JUDGE_VERSION,
            )
            write_environment(self.directory / PARTIAL_ENVIRONMENT, self.environment)
            self._files = stack.pop_all()
        return self

    def _set_aside(self) -> bool:
        """Move results of another installation, or results that this run replaces, into a new folder.

        Return whether this run continues an unfinished whole run of the same installation. Raises UsageError if there
        is an unfinished whole run that this one would neither continue nor replace.
        """
        try:
            unfinished = _environment(self.directory, PARTIAL_ENVIRONMENT)
        except UsageError as error:
            raise UsageError(f"{error}; remove this file and continue with --resume: the records stay") from None
        partial = differences(unfinished, self.environment) if unfinished else ""
        resumed = unfinished is not None and not unfinished.selection and not partial
        broken = any(suite.error is not None for suite in self.environment.suites)  # its rows are kept
        replaced = self.options.whole and not broken and (resumed or not self.options.resume)
        before = None if replaced else _environment(self.directory, ENVIRONMENT)
        finished = differences(before, self.environment) if before else ""
        if partial or finished:
            folder = set_aside(self.directory, (*(FINISHED if finished else ()), *(PARTIALS if partial else ())))
            self.warnings.append(
                f"warning: older results in {self.directory} are of another installation ({finished or partial}); "
                f"they were moved to its folder {folder.name}"
            )
        if resumed and not self.options.whole:
            raise UsageError(
                f"a run in {self.directory} is unfinished: continue it with --resume and no selection, end it with "
                "recapture report --interrupted, or choose another folder with --results"
            )
        if resumed and not self.options.resume:
            folder = set_aside(self.directory, PARTIALS)
            self.warnings.append(
                f"warning: the records of an unfinished run in {self.directory} were moved to its folder "
                f"{folder.name}; to continue a run, use --resume"
            )
            return False
        return resumed

    def _read_before(self, *, resumed: bool) -> None:
        started = rows_of(self.directory, Record, PARTIAL)
        self.before = rows_of(self.directory, Record, CONFORMANCE) | started
        try:
            self.timings_before = rows_of(self.directory, Timing, TIMINGS, PARTIAL_TIMINGS)
        except UsageError as error:
            raise UsageError(f"{error}; remove this file: only the durations of cells are in it") from None
        self.eager = eager_rows(self.directory)
        # An unfinished whole run replaces the finished results, so cells that it did not reach must still run.
        known = started if resumed or not self.options.resume else self.before
        hashes = {key: cell.info.hash for key, cell in self.cells.items()}
        same = {
            key: row
            for key, row in known.items()
            if row.case_hash == hashes.get(key)
            and row.verdict is not Verdict.ENVIRONMENT  # may be fixed now
            and row.schema == SCHEMA_VERSION  # others were judged by other rules
        }
        if self.options.resume:
            self.done = same
            self.timings = {key: row for key, row in self.timings_before.items() if key in same}
        if self.options.whole:  # from now on, the partial files contain only this run's rows
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
        handle = open_to_append(self.directory / name)
        stack.callback(os.close, handle)
        return handle

    def add_checks(self, checks: list[Check]) -> None:
        """Add the doctor's checks to the environment."""
        self.environment = msgspec.structs.replace(self.environment, doctor=checks)
        write_environment(self.directory / PARTIAL_ENVIRONMENT, self.environment)

    def missing(self) -> list[PlannedCell]:
        """Return the planned cells that still have to run, long ones first, so that a run does not end with one.

        Cells that exceeded their deadline before, here or in the results of another environment, come first.
        """
        todo = [cell for key, cell in self.cells.items() if key not in self.done]
        return sorted(todo, key=self.expected_seconds, reverse=True)

    @functools.cached_property
    def hanging(self) -> set[CellKey]:
        """Return the planned cells that exceeded their deadline before, here or in another environment's results."""
        timed_out = {key for key, row in self.before.items() if row.verdict is Verdict.TIMEOUT}
        elsewhere = {key for key, expected in self._earlier.items() if expected.hangs and key not in self.before}
        return self.cells.keys() & (timed_out | elsewhere)

    def verdicts_before(self, key: CellKey) -> set[str]:
        """Return the verdicts of a cell in earlier runs: here or, if it never ran here, in other environments."""
        if key in self.before:
            return {str(self.before[key].verdict)}
        return self._earlier[key].verdicts if key in self._earlier else set()

    def expected_seconds(self, cell: PlannedCell) -> float:
        """Return the seconds that a cell is expected to take; infinity if it is expected to hang."""
        if cell.key in self.hanging:
            return math.inf
        before = self.timings_before.get(cell.key)
        if before is not None:
            return before.seconds
        if cell.key in self._earlier:
            return self._earlier[cell.key].seconds
        return usual_seconds(cell.key, self._earlier_seconds)

    @functools.cached_property
    def _earlier(self) -> dict[CellKey, Expected]:
        return earlier_runs(self.options.results, self.options.device, self.environment.image)

    @functools.cached_property
    def _earlier_seconds(self) -> dict[CellKey, float]:
        return {key: expected.seconds for key, expected in self._earlier.items()}

    def likely_seconds(self, cells: list[PlannedCell]) -> dict[str, float]:
        """Return the seconds that each cell is likely to take, by address, and at most its deadline.

        Unlike `expected_seconds`, which decides what starts first, this is no upper bound.
        """
        return {cell.address: min(self._likely(cell), cell.limit(self.options.timeout)) for cell in cells}

    def _likely(self, cell: PlannedCell) -> float:
        before = self.timings_before.get(cell.key)
        if before is not None:
            return before.seconds
        earlier = self._earlier.get(cell.key)
        if earlier is not None and earlier.likely is not None:
            return earlier.likely
        return self.expected_seconds(cell)

    def mostly_guessed(self, cells: list[PlannedCell]) -> bool:
        """Whether no results have durations of most of the cells."""
        known = [cell for cell in cells if cell.key in self.timings_before or cell.key in self._earlier]
        return len(known) <= len(cells) / 2

    def record(
        self, row: Record, timing: Timing, stdout: str, stderr: str, *, eager: tuple[EagerCall, ...] | None = None
    ) -> None:
        """Write one finished cell to disk at once; `eager` is what eager gave, where eager itself ran.

        Raises OSError, naming the directory, if the disk is full.
        """
        key = row.key
        timing = msgspec.structs.replace(timing, origin=self.origin_id)
        output = {"cell": row.cell, "stdout": without_secrets(stdout), "stderr": without_secrets(stderr)}
        try:
            append_record(self._partial_timings, timing)  # first: a record without it would have no origin
            if eager is not None:
                digests = EagerRow(case=row.case, device=row.device, case_hash=row.case_hash, calls=eager)
                append_line(self._partial_eager, eager_line(digests))
                self.eager[digests.key] = digests
            append_record(self._partial, row)
            append_line(self._partial_output, msgspec.json.encode(output) + b"\n")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.directory)) from None
        self.done[key] = row
        self.timings[key] = timing

    def amend(self, row: Record) -> None:
        """Write the record of a finished cell again, with more in it."""
        append_record(self._partial, row)
        self.done[row.key] = row

    def close(self) -> tuple[list[Record], Environment]:
        """Write the finished files: the planned cells, and the other rows of the directory that are kept."""
        absent = self.cells.keys() - self.done.keys()
        if absent:
            raise AssertionError(f"{len(absent)} planned cells have no record, the first {min(absent)}")
        planned = {key: self.done[key] for key in self.cells}
        records = list((self._kept(self.before) | planned).values())
        timings = list((self._kept(self.timings_before) | self.timings).values())
        return finish(self.directory, records, timings, self.environment, self.eager)

    def _oldest_judge(self, *, resumed: bool) -> int:
        """Return the version of the judge that the rows have at least: some of them are of earlier runs.

        A run that continues an unfinished whole one has no rows of the finished results that it replaces.
        """
        names = (PARTIAL_ENVIRONMENT,) if resumed else (ENVIRONMENT, PARTIAL_ENVIRONMENT)
        before = [_environment(self.directory, name) for name in names]
        versions = [environment.judge_version for environment in before if environment is not None]
        return min(JUDGE_VERSION, *versions) if versions else 1  # what was removed could be of the first one

    def _origins_before(self) -> dict[str, Origin]:
        """Return the origins of the rows that are in the directory."""
        before = [_environment(self.directory, name) for name in (ENVIRONMENT, PARTIAL_ENVIRONMENT)]
        return {
            name: origin
            for environment in before
            if environment is not None
            for name, origin in environment.origins.items()
        }

    def _kept(self, rows: dict[CellKey, Row]) -> dict[CellKey, Row]:
        """Return the rows to keep: all if this run has a selection, else those of suites that failed to import."""
        broken = {suite.name for suite in self.environment.suites if suite.error is not None}
        return {key: row for key, row in rows.items() if not self.options.whole or key[0].split("::")[0] in broken}


def settle(directory: Path) -> bool:
    """Turn the records of an interrupted run into finished files; return False if there is no interrupted run.

    The environment keeps the number of planned cells, so that every report shows what is missing. Finished results that
    the unfinished whole run would have replaced are moved to a folder ``before-N``.
    """
    if not (directory / PARTIAL).exists():
        return False
    with locked(directory / LOCK, wait=False):
        refuse_irregular(directory / name for name in (*PARTIALS, *FINISHED))
        remove_unfinished(directory, (*PARTIALS, *FINISHED))
        environment = _environment(directory, PARTIAL_ENVIRONMENT)
        whole = environment is not None and not environment.selection
        records = rows_of(directory, Record, *(() if whole else (CONFORMANCE,)), PARTIAL)
        timings = rows_of(directory, Timing, *(() if whole else (TIMINGS,)), PARTIAL_TIMINGS)
        if whole and (directory / CONFORMANCE).exists():
            set_aside(directory, FINISHED)
        finish(directory, list(records.values()), list(timings.values()), environment)
    return True


E = TypeVar("E", "Environment", "Environment | None")


def finish(
    directory: Path,
    records: list[Record],
    timings: list[Timing],
    environment: E,
    eager: dict[CaseKey, EagerRow] | None = None,
) -> tuple[list[Record], E]:
    """Write the finished files, starting with the records, and remove the files for resuming.

    A run passes what `eager` gave, because a hostile case can write into the unfinished file; without it, the file is
    read.
    """
    records = sorted(records, key=key_of)
    directory.mkdir(parents=True, exist_ok=True)  # a cell may have removed it; what was measured is in memory
    finished = directory / CONFORMANCE
    before = finished.read_bytes() if finished.exists() else None
    write_jsonl(finished, records)
    same = before == finished.read_bytes()
    outputs = _outputs(directory)
    rows = [outputs[row.cell] for row in records if outputs.get(row.cell, {}).keys() - {"cell"}]
    write_atomically(directory / OUTPUT, b"".join(msgspec.json.encode(output) + b"\n" for output in rows))
    _write_eager(directory, records, eager_rows(directory) if eager is None else eager)
    if environment is not None:
        described = _environment(directory, ENVIRONMENT)
        known = environment.origins | (described.origins if described is not None else {})
        environment = msgspec.structs.replace(
            _joined(directory, environment),
            recorded=len(records),
            origins=counted(known, (row.origin for row in timings)),
        )
        # So a committed run that is repeated on another machine shows no change in git.
        if same and described is not None and only_volatile_differ(described, environment):
            environment, timings = described, []  # nothing new: keep the timings of the described machine
        else:
            write_environment(directory / ENVIRONMENT, environment)
    if timings or not (directory / TIMINGS).exists():
        write_jsonl(directory / TIMINGS, timings)
    for name in PARTIALS:
        (directory / name).unlink(missing_ok=True)
    return records, environment


def eager_rows(directory: Path) -> dict[CaseKey, EagerRow]:
    """Return the newest digests of eager of every case in the finished and unfinished file."""
    return read_eager(directory / EAGER_FILE) | read_eager(directory / PARTIAL_EAGER, tolerate_torn_tail=True)


def _write_eager(directory: Path, records: list[Record], eager: dict[CaseKey, EagerRow]) -> None:
    """Write what eager gave for the cases of the records, sorted; nothing where no run has noted it."""
    hashes = {CaseKey(record.case, record.device): record.case_hash for record in records}
    rows = [row for key, row in sorted(eager.items()) if hashes.get(key) == row.case_hash]
    if rows or (directory / EAGER_FILE).exists():
        write_atomically(directory / EAGER_FILE, b"".join(map(eager_line, rows)))


def _joined(directory: Path, environment: Environment) -> Environment:
    """Add the suites and selections of the directory's other rows; an empty selection means that everything was run."""
    before = _environment(directory, ENVIRONMENT)
    if before is None or not environment.selection:
        return environment
    environment = without_private_paths(environment)  # as on file, to recognise an equal selection
    suites = {suite.name: suite for suite in [*before.suites, *environment.suites]}
    selection = [*before.selection, *environment.selection] if before.selection else []
    return msgspec.structs.replace(
        environment, suites=[suites[name] for name in sorted(suites)], selection=list(dict.fromkeys(selection))
    )


def _environment(directory: Path, name: str) -> Environment | None:
    path = directory / name
    return read_environment(path) if path.exists() else None


def _outputs(directory: Path) -> dict[str, dict[str, str]]:
    """Return the last output of every cell, without empty streams; unreadable lines are ignored."""
    outputs: dict[str, dict[str, str]] = {}
    for name in (OUTPUT, PARTIAL_OUTPUT):
        outputs |= read_output(directory / name)
    return outputs


def rows_of(directory: Path, kind: type[Row], *names: str) -> dict[CellKey, Row]:
    """Return the rows of files, given from oldest to newest; the newest row of each cell is kept."""
    rows: list[Row] = []
    for name in names:
        path = directory / name
        if path.exists():
            rows += read_jsonl(path, kind, tolerate_torn_tail=name in PARTIALS)
    return {row.key: row for row in rows}
