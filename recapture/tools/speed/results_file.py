"""The results file of a benchmark: locked while written, moved away if from another machine or installation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.base.locks import locked
from recapture.machine.environment import Environment, differences
from recapture.records.directories import set_aside
from recapture.tools.speed.report import render_speedups
from recapture.tools.speed.rows import PlannedRow
from recapture.tools.speed.speedups import Speedups, read_speedups, write_speedups

LOCK = ".speedups.lock"

Method = dict[str, "str | int | float"]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the lock of a file that another benchmark or a report may also write.

    Raises UsageError if the file's folder cannot be created or written to.
    """
    with locked(path.parent / LOCK, wait=True):
        try:
            yield
        except OSError as error:
            raise UsageError(f"cannot write results to {path.parent}: {error.strerror}") from None


def set_aside_others(path: Path, environment: Environment) -> tuple[Path, str] | None:
    """Move a file from another machine or installation, and its report, into a folder ``before-N`` beside it.

    Return that folder and a description of the difference; None if there is no such file.
    """
    if not path.is_file():
        return None
    before = read_speedups(path).environment
    difference = ", ".join(filter(None, (_hardware(before, environment), differences(before, environment))))
    if not difference:
        return None
    return set_aside(path.parent, (path.name, path.with_suffix(".md").name)), difference


def _hardware(before: Environment, now: Environment) -> str:
    """Return the differences of two machines that forbid one table for both; empty if there are none."""
    changed = [
        f"{was} became {has}"
        for was, has in (
            (before.cpu.model, now.cpu.model),
            (f"{before.cpu.cores} cores", f"{now.cpu.cores} cores"),
            (f"driver {before.gpu and before.gpu.driver}", f"driver {now.gpu and now.gpu.driver}"),
        )
        if was != has
    ]
    return ", ".join(changed)


class SpeedupsFile:
    """The results file of a benchmark, which also keeps rows of other runs.

    With `resume`, rows on file are kept if they are finished and their workload was not edited since. With
    `keep_timed`, those of them that were timed are kept in any case.
    """

    def __init__(
        self,
        path: Path,
        environment: Environment,
        method: Method,
        rows: list[PlannedRow],
        *,
        resume: bool,
        keep_timed: bool = False,
    ) -> None:
        self.path = path
        self.environment = environment
        self.method = method
        self.rows = rows
        self.resume = resume
        on_file = self._on_file() if resume or keep_timed else None
        done = {
            row.key: row
            for row in (on_file.rows if on_file else ())
            # A row marked `again` is older than the run that is resumed.
            if not row.again and (resume or row.measured is not None)
        }
        for planned in rows:
            row = done.get(planned.key)
            if row is not None and row.hash in (None, planned.hash):  # otherwise edited since
                planned.row = row

    def speedups(self) -> Speedups:
        """Return all rows so far. An earlier row stays until it has been measured again."""
        on_file = self._on_file()
        planned = {row.key for row in self.rows}
        done = {planned.key: planned.row for planned in self.rows if planned.row is not None}
        # Rows on file stay, because another benchmark may have written them meanwhile.
        before = {
            row.key: msgspec.structs.replace(row, again=row.again or row.key in planned)
            for row in (on_file.rows if on_file else ())
            if row.key not in done
        }
        rows = {**before, **done}
        return Speedups(
            environment=self.environment,
            method=_joined(on_file.method if on_file and (before or self.resume) else {}, self.method),
            planned=len(rows.keys() | planned),
            rows=tuple(rows[key] for key in sorted(rows)),
        )

    def write(self) -> None:
        """Write all rows so far, and their report."""
        with writing(self.path):
            speedups = self.speedups()
            write_speedups(self.path, speedups)
            write_atomically(self.path.with_suffix(".md"), render_speedups(speedups).encode())

    def _on_file(self) -> Speedups | None:
        return read_speedups(self.path) if self.path.is_file() else None


def _joined(before: Method, now: Method) -> Method:
    """Return how rows of several runs were measured: each setting with all its values, joined by "and"."""
    values = {
        name: dict.fromkeys([*str(before[name]).split(" and "), str(now[name])]) for name in before if name in now
    }
    return now | {name: " and ".join(choices) for name, choices in values.items() if len(choices) > 1}
