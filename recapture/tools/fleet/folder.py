"""The folder that the shards of a matrix are written to, by attempts that may die, on machines that share it.

``plan.json`` is the work, ``durations.jsonl`` the durations that divide it. Every attempt writes to a folder of its
own, ``attempts/<task>.<id>``, and becomes ``shards/<task>`` by one rename, which fails if there is one already: the
first attempt that ends wins. What other attempts left stays where it is. The files alone decide what is
there; the batch system is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from recapture.base.decode import Format
from recapture.base.errors import UsageError
from recapture.base.files import read_regular, write_atomically
from recapture.base.text import plural
from recapture.records.record import PARTIAL
from recapture.report.markdown import write_report
from recapture.run.durations import committed_results, frozen_seconds
from recapture.tools.fleet.joining import join, write_joined
from recapture.tools.fleet.parts import find_parts, read_part
from recapture.tools.fleet.work import WORK, read_work

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from recapture.tools.fleet.work import MatrixWork, WorkTask

DURATIONS = "durations.jsonl"
ATTEMPTS = "attempts"
SHARDS = "shards"
LOGS = "logs"
ATTEMPT = "attempt.json"
"""Name of the file that an attempt writes when its command has ended."""

TOLD = "told"
"""Name of the file that an attempt writes when it is told to end."""


class _End(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an attempt says at its end."""

    schema: Literal[1] = 1
    task: str
    status: int
    node: str


_END: Format[_End] = Format(_End, "attempt", 1, lambda _: None)


class Attempt(NamedTuple):
    """One attempt: its id, the exit status and machine it ended with (None: it did not say), and its cells.

    `told` means that it was told to end: by its user, its deadline, or a preemption, after which Slurm starts it anew.
    """

    name: str
    status: int | None
    node: str | None
    cells: int
    told: bool = False

    def __str__(self) -> str:
        """The attempt in a few words."""
        if self.told and self.status is None:
            return f"{self.name} was told to end and killed after {plural(self.cells, 'cell')}"
        ended = "died without a word" if self.status is None else f"ended with exit status {self.status} on {self.node}"
        return f"{self.name} {ended} after {plural(self.cells, 'cell')}"


@dataclass
class MergeOutcome:
    """What a merge did: a line for each results directory written, for each gap, and for each warning."""

    merged: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def prepare(folder: Path, work: MatrixWork) -> bool:
    """Make the folder for some work; return False if it is that of the same work already.

    Raises UsageError if it is that of other work.
    """
    if (folder / WORK).exists():
        before = read_work(folder)
        if _identity(before) != _identity(work):
            raise UsageError(f"{folder} has other work (see its {WORK}): choose another folder, or remove it")
        return False
    for name in (ATTEMPTS, SHARDS, LOGS):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write_atomically(folder / DURATIONS, frozen_seconds(committed_results(), work.device))
    write_atomically(folder / WORK, msgspec.json.format(msgspec.json.encode(work), indent=2) + b"\n")
    return True


def _identity(work: MatrixWork) -> tuple[object, ...]:
    """Return what distinguishes work: not what earlier runs lead to expect of it."""
    locks = {image.name: image.lock for image in work.images}
    return work.device, work.via, work.arguments, locks, [task.name for task in work.tasks]


def published(folder: Path, task: WorkTask) -> bool:
    """Whether an attempt of this task has published its results."""
    return (folder / SHARDS / task.name).is_dir()


def attempts_of(folder: Path, task: WorkTask) -> list[Attempt]:
    """Return the attempts of a task that published nothing, by id."""
    found = []
    for path in sorted((folder / ATTEMPTS).glob(f"{task.name}.*")):
        name = path.name[len(task.name) + 1 :]
        cells = sum(map(_lines, path.rglob(PARTIAL)))
        told = (path / TOLD).exists()
        try:
            end = _END.read(path / ATTEMPT)
        except UsageError:  # none, or cut off by what killed the attempt
            found.append(Attempt(name, None, None, cells, told))
        else:
            found.append(Attempt(name, end.status, end.node, cells, told))
    return found


def _lines(path: Path) -> int:
    """Return the number of lines of a file that an attempt left; 0 if it cannot be read."""
    try:
        return read_regular(path).count(b"\n")
    except UsageError:
        return 0


def merge_folders(folders: Sequence[Path], results: Path, *, incomplete: bool = False) -> MergeOutcome:
    """Merge what is below some folders into `results`, and write the reports.

    An image with missing cells is written only if `incomplete` is set. Raises UsageError, before anything is written,
    where parts disagree.
    """
    outcome = MergeOutcome()
    for folder in folders:
        if (folder / WORK).exists():
            for task in read_work(folder).tasks:
                if not published(folder, task):
                    said = "; ".join(map(str, attempts_of(folder, task))) or "no attempt has begun"
                    outcome.missing.append(f"shard {task.name}: {said}")
    for joined in join([read_part(path) for path in find_parts(folders)]):
        outcome.missing += joined.gaps()
        if not joined.complete and not incomplete:
            continue
        directory, warnings = write_joined(joined, results)
        outcome.warnings += warnings
        write_report(directory)
        number, planned = len(joined.records), joined.environment.planned
        outcome.merged.append(f"{directory}: {planned} planned, {number} recorded")
    return outcome
