"""Attempts at a shard: each writes to a folder of its own and is published by one rename when it is complete.

Below a folder that all machines see:

``attempts/<shard>.<number>``
    What one attempt writes. It stays there if the attempt does not publish it.
``shards/<shard>``
    The first attempt that was complete.

A machine can die at any moment, and a batch system can start a shard again while the first attempt is still alive on
a machine that no longer answers. So no attempt writes where another one does, and the rename fails if the shard is
published already. The files alone decide what is there: no batch system is asked.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from recapture.base.decode import Format
from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError, status_of
from recapture.base.files import read_regular, write_atomically
from recapture.base.text import plural
from recapture.records.record import CONFORMANCE, PARTIAL, Record
from recapture.records.shard_files import read_shard
from recapture.run.result_files import rows_of

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from recapture.run.shards import Shard

ATTEMPTS = "attempts"
SHARDS = "shards"

ATTEMPT = "attempt.json"
"""Name of the file that says which machine an attempt runs on, and with which status it ended."""

TOLD = "told"
"""Name of the file that an attempt writes when it is told to end."""

ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals by which a user or a batch system ends an attempt."""

COMPLETE = (0, 1, 2)
"""Exit statuses of runs that may be complete: 2 also means that a suite cannot be imported with this torch."""


class _AttemptFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``attempt.json``: `status` is null until the attempt ends."""

    schema: Literal[1] = 1
    task: str
    status: int | None = None
    node: str


_FORMAT: Format[_AttemptFile] = Format(_AttemptFile, "attempt", 1)


class Attempt(NamedTuple):
    """One attempt: its number, its exit status (None if it did not say), its machine, and the cells that it recorded.

    `told` means that it was told to end: by its user, its deadline, or a preemption.
    """

    number: int
    status: int | None
    node: str | None
    cells: int
    told: bool = False

    def __str__(self) -> str:
        """The attempt in a few words."""
        cells = plural(self.cells, "cell")
        place = f" on {self.node}" if self.node else ""
        if self.told and self.status is None:
            return f"attempt {self.number} was told to end and killed{place} after {cells}"
        ended = "died without a word" if self.status is None else f"ended with exit status {self.status}"
        return f"attempt {self.number} {ended}{place} after {cells}"


def shard_name(image: str, device: str, shard: Shard) -> str:
    """Return the name of the folder of a shard, such as ``torch2.11.0-cu130.cpu.2-of-8``."""
    return f"{image}.{device}.{shard.number}-of-{shard.of}"


def is_published(folder: Path, name: str) -> bool:
    """Whether an attempt at the shard `name` has published its results below `folder`.

    Raises UsageError if something else than a folder has the shard's name.
    """
    path = folder / SHARDS / name
    refuse_other_than_folders(folder / SHARDS, path)
    return path.is_dir()


def attempts_of(folder: Path, name: str) -> list[Attempt]:
    """Return the attempts at the shard `name` that published nothing, in the order in which they began."""
    attempts = []
    for path in (folder / ATTEMPTS).glob(f"{name}.*"):
        number = path.name[len(name) + 1 :]
        if not re.fullmatch(r"[0-9]{1,6}", number):
            continue
        cells = sum(map(_line_count, path.rglob(PARTIAL)))
        was_told = (path / TOLD).exists()
        try:
            content = _FORMAT.read(path / ATTEMPT)
        except UsageError:  # cut off by what killed the attempt
            attempts.append(Attempt(int(number), None, None, cells, was_told))
        else:
            attempts.append(Attempt(int(number), content.status, content.node, cells, was_told))
    return sorted(attempts)


def _line_count(path: Path) -> int:
    """Return the number of lines of a file that an attempt left; 0 if it cannot be read."""
    try:
        return read_regular(path).count(b"\n")
    except UsageError:
        return 0


def run_and_publish(
    folder: Path,
    name: str,
    shard: Shard,
    selection: Sequence[str],
    run: Callable[[Path], int],
    show: Callable[[str], object],
) -> int:
    """Make an attempt at a shard and publish it if it is complete; return the exit status.

    `run` runs the shard with a folder for its results and returns an exit status. The status is 0 if the shard is
    published, by this attempt or another one, whatever the compilers did: its records say that. Else it is what `run`
    returned or raised. `show` receives a line that says where the shard is published.

    Raises UsageError if a shard of this name with another selection is published, and EnvironmentUnfitError if a run
    ended well and not every planned cell of the shard is recorded.
    """
    destination = folder / SHARDS / name
    if is_published(folder, name):
        _refuse_other_selection(destination, selection)
        show(f"{name} is published already, in {destination}")
        return 0
    attempt = _new_attempt(folder, name)
    with _noting_termination(attempt):
        status: int | None = None
        try:
            status = run(attempt)
        except RecaptureError as error:
            status = error.exit_status
            raise
        except KeyboardInterrupt as error:
            status = status_of(error)
            raise
        finally:
            # Before the rename, so that a published shard says where it ran.
            _write_attempt(attempt, name, status)
        if status not in COMPLETE:
            return status
        missing = _missing(attempt, shard)
        if missing and status == UsageError.exit_status:
            return status
        if missing:
            raise EnvironmentUnfitError(f"{attempt} is not complete: {missing}")
    try:
        attempt.rename(destination)
    except OSError:
        if not is_published(folder, name):
            raise
        show(f"{name}: another attempt was published first, in {destination}")
    else:
        show(f"published: {destination}")
    return 0


def _new_attempt(folder: Path, name: str) -> Path:
    """Make the folder of a new attempt, whose number no other attempt at the shard has."""
    for path in (folder / ATTEMPTS, folder / SHARDS):
        refuse_other_than_folders(path)
        path.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        attempt = folder / ATTEMPTS / f"{name}.{number}"
        try:
            attempt.mkdir()  # one of two attempts that begin at the same time fails here and takes the next number
        except FileExistsError:
            number += 1
        else:
            _write_attempt(attempt, name, None)
            return attempt


def _write_attempt(attempt: Path, name: str, status: int | None) -> None:
    # Slurm's own name of a node: several of its daemons can run on one host.
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    content = _AttemptFile(task=name, status=status, node=node)
    write_atomically(attempt / ATTEMPT, msgspec.json.encode(content) + b"\n")


@contextlib.contextmanager
def _noting_termination(attempt: Path) -> Iterator[None]:
    """Leave a file in the attempt's folder when a signal tells it to end.

    Closing a run takes a while, and SIGKILL may come before it is done. The file then says that the end was wanted.
    """
    with contextlib.ExitStack() as stack:
        for ending in ENDING:
            _note_signal(ending, attempt / TOLD, stack)
        yield


def _note_signal(ending: signal.Signals, file: Path, stack: contextlib.ExitStack) -> None:
    """Make a signal create a file before its present handler is called; `stack` undoes this."""
    handler = signal.getsignal(ending)
    if not callable(handler):  # the signal is ignored, or ends this process at once
        return

    def note(number: int, frame: types.FrameType | None) -> None:
        with contextlib.suppress(OSError):
            file.touch()
        handler(number, frame)

    def restore() -> None:
        if signal.getsignal(ending) is note:  # while a run is closed, its command ignores further signals
            signal.signal(ending, handler)

    signal.signal(ending, note)
    stack.callback(restore)


def _missing(attempt: Path, shard: Shard) -> str:
    """Return why an attempt is not the whole shard; an empty string if it is."""
    directories = sorted({path.parent for path in attempt.rglob(CONFORMANCE)})
    if not directories:
        return "nothing was recorded"
    if any(True for _ in attempt.rglob(PARTIAL)):
        return "its run is unfinished"
    for directory in directories:
        plan = read_shard(directory)
        if plan is None or (plan.number, plan.count) != (shard.number, shard.of):
            return f"{directory} is not shard {shard}"
        recorded = rows_of(directory, Record, CONFORMANCE).keys()
        planned = {row.key for row in plan.cells if row.shard == plan.number}
        if absent := planned - recorded:
            return f"{plural(len(absent), 'planned cell')} without a record, the first {'::'.join(min(absent)[:2])}"
    return ""


def _refuse_other_selection(shard: Path, selection: Sequence[str]) -> None:
    """Raise UsageError if a published shard is of a run with another selection."""
    for path in sorted(shard.rglob(CONFORMANCE)):
        plan = read_shard(path.parent)
        if plan is not None and plan.selection != [*selection]:
            words = " ".join(plan.selection) or "everything"
            raise UsageError(f"{shard} is of another run, which selects {words}: choose another folder for --publish")


def refuse_other_than_folders(*paths: Path) -> None:
    """Raise UsageError where a path is a link or a file: what is written there would end up somewhere else."""
    for path in paths:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a file"
            raise UsageError(f"{path} is {kind}, not a folder: remove it, or choose another folder")
