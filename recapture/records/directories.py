"""Finds and reads results directories, ``results/<image>/<capability>``, and sets older files in them aside."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.paths import CHECKOUT
from recapture.base.text import plural
from recapture.machine.environment import ENVIRONMENT, read_environment
from recapture.records.eager_file import read_eager
from recapture.records.record import CONFORMANCE, PARTIAL, TIMINGS, read_conformance

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from recapture.machine.environment import Environment
    from recapture.records.eager_file import CaseKey, EagerRow
    from recapture.records.record import Record

RESULTS = "results"
"""Name of the folder of results, where no other is named."""

REPORT = "conformance.md"
"""Name of the rendered report beside the records; the program never reads it."""

OUTPUT = "output.jsonl"
"""Name of the file with what each cell printed."""

EAGER_FILE = "eager.jsonl"
"""Name of the file with digests of what eager itself gave; `recapture.records.eager_file` reads it."""

PARTIAL_TIMINGS = "timings.partial.jsonl"
PARTIAL_ENVIRONMENT = "environment.partial.json"
PARTIAL_OUTPUT = "output.partial.jsonl"
PARTIAL_EAGER = "eager.partial.jsonl"

FINISHED = (CONFORMANCE, TIMINGS, EAGER_FILE, OUTPUT, REPORT, ENVIRONMENT)
"""Names of the files of a finished run."""

PARTIALS = (PARTIAL, PARTIAL_TIMINGS, PARTIAL_EAGER, PARTIAL_OUTPUT, PARTIAL_ENVIRONMENT)
"""Names of the files of a run that is not finished. An interruption can then lose no finished result: a row is appended
to them when its cell ends, and the files of `FINISHED` are replaced only when every cell has its row."""

LOCK = ".lock"
"""Name of the file that a run locks, so that no second run writes to the directory."""

BEFORE = "before-"
"""Prefix of the names of folders with older results, which are read only if named explicitly."""


@dataclass(frozen=True)
class Results:
    """The records of one environment; `environment` is None if it was not recorded.

    `joined` are other directories whose records are among these.
    """

    directory: Path
    records: tuple[Record, ...]
    environment: Environment | None
    joined: tuple[Path, ...] = ()

    @property
    def image(self) -> str:
        """The name under which the results are filed, such as ``torch2.11.0-cu130`` or ``bare-torch2.11.0-cu130``."""
        return self.directory.resolve().parent.name

    @property
    def capability(self) -> str:
        """The directory's own name: ``cpu``, or a compute capability such as ``sm_90``."""
        return self.directory.resolve().name

    def eager(self) -> dict[CaseKey, EagerRow]:
        """Read what eager itself gave for each case; nothing of results of earlier versions."""
        rows: dict[CaseKey, EagerRow] = {}
        for directory in (*self.joined, self.directory):
            rows |= read_eager(directory / EAGER_FILE)
        return rows

    @property
    def misfiled(self) -> str:
        """A message if the environment beside the records belongs to another image; otherwise empty.

        A copy of results may have any name, so only the name of an image, with a torch release in it, is compared.
        """
        environment = self.environment
        if environment is None or not re.search(r"torch\d", self.image):
            return ""
        recorded = (environment.image, environment.capability)
        if recorded == (self.image, self.capability):
            return ""
        return f"{ENVIRONMENT} is of {'/'.join(recorded)}, and is filed as {self.image}/{self.capability}"


def holds_results(directory: Path) -> bool:
    """Whether a directory contains results, finished or interrupted."""
    return any(os.path.lexists(directory / name) for name in (CONFORMANCE, PARTIAL))


def find_results(root: Path, *, needed: bool = True) -> list[Path]:
    """Return the results directories at or below a directory, sorted by name.

    Raises UsageError if the directory does not exist, naming its nearest existing parent, or if it contains no results
    and `needed` is True.
    """
    if not root.is_dir():
        if root.exists():
            raise UsageError(f"{root} is not a directory")
        beside = root.parent.iterdir() if root.parent.is_dir() else ()
        near = did_you_mean(root.name, [entry.name for entry in beside if entry.is_dir()])
        raise UsageError(f"{root} does not exist{near}{_where_recorded(str(root))}")
    folders = sorted({path.parent for path in root.rglob(CONFORMANCE)} - set(root.rglob(f"{BEFORE}*")))
    if needed and not folders:
        interrupted = any(True for _ in root.rglob(PARTIAL))
        hint = " (a run there was interrupted: finish it with --resume)" if interrupted else ""
        raise UsageError(f"no {CONFORMANCE} in {root}{hint}")
    return folders


def _where_recorded(root: str) -> str:
    """Say where the committed results are, for the default folder: it is found in a checkout alone."""
    if root != RESULTS:
        return ""
    checkout = CHECKOUT / RESULTS
    if checkout.is_dir():
        return f": the committed results are in {checkout}"
    return ": the installed package has no results; they are in that folder of a checkout of its repository"


def read_results(directory: Path, known: dict[bytes, Record] | None = None) -> Results:
    """Read one results directory. `records.read_jsonl` explains `known`, which makes it faster to read several.

    Raises UsageError, naming the file, if there are no records, if this version does not understand a file, or if the
    number of records differs from the one in the environment.
    """
    records = read_conformance(directory, known)
    environment = read_environment(directory / ENVIRONMENT) if os.path.lexists(directory / ENVIRONMENT) else None
    recorded = environment.recorded if environment else None
    if recorded not in (None, len(records)):
        path = directory / CONFORMANCE
        raise UsageError(f"{path} has {plural(len(records), 'record')}, but {ENVIRONMENT} beside it says {recorded}")
    return Results(directory, tuple(records), environment)


def set_aside(directory: Path, names: Iterable[str]) -> Path:
    """Move the named files of a results directory that a run does not continue into a new folder in it; return that.

    Raises UsageError if the folder cannot be created or a file cannot be moved.
    """
    folder = _new_folder(directory)
    try:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (directory / name).rename(folder / name)
    except OSError as error:
        raise UsageError(f"cannot write results to {folder}: {error.strerror}") from None
    return folder


def _new_folder(directory: Path) -> Path:
    number = 1
    while True:
        folder = directory / f"{BEFORE}{number}"
        try:
            folder.mkdir()
        except FileExistsError:  # also raised for a broken link
            number += 1
        except OSError as error:
            raise UsageError(f"cannot write results to {folder}: {error.strerror}") from None
        else:
            return folder
