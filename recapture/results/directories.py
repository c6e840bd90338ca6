"""One results directory, ``results/<image>/<capability>``, read whole; and finding such directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.text import plural
from recapture.machine.environment import ENVIRONMENT, read_environment
from recapture.results.records import CONFORMANCE, PARTIAL, read_conformance

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.machine.environment import Environment
    from recapture.results.records import Record

__all__ = ["BEFORE", "REPORT", "Results", "find_results", "find_speedups", "holds_results", "read_results"]

REPORT = "conformance.md"
"""The rendered report beside the records; nothing reads it back."""

BEFORE = "before-"
"""How the folders begin in which a results directory keeps what is no longer its own: whoever wants one names it."""


@dataclass(frozen=True)
class Results:
    """The verdicts of one environment; `environment` is None where it was not recorded."""

    directory: Path
    records: tuple[Record, ...]
    environment: Environment | None

    @property
    def image(self) -> str:
        """The name under which the results are filed, such as ``torch2.11.0-cu130`` or ``bare-torch2.11.0-cu130``."""
        return self.directory.resolve().parent.name

    @property
    def capability(self) -> str:
        """The directory's own name: ``cpu``, or a compute capability such as ``sm_90``."""
        return self.directory.resolve().name


def holds_results(directory: Path) -> bool:
    """Whether a directory is one of results, finished or interrupted."""
    return (directory / CONFORMANCE).is_file() or (directory / PARTIAL).is_file()


def find_speedups(root: Path) -> list[Path]:
    """Return the files of `recapture bench` at or below a directory, by name, but for those that were set aside."""
    aside = set(root.rglob(f"{BEFORE}*"))
    return sorted(path for path in root.rglob("speedups-*.json") if path.parent not in aside)


def find_results(root: Path, *, needed: bool = True) -> list[Path]:
    """Return the results directories at or below a directory, by name.

    Raises UsageError when the directory does not exist (naming the nearest one that does) or, where they are `needed`,
    holds none.
    """
    if not root.is_dir():
        if root.exists():
            raise UsageError(f"{root} is not a directory")
        beside = root.parent.iterdir() if root.parent.is_dir() else ()
        near = did_you_mean(root.name, [entry.name for entry in beside if entry.is_dir()])
        raise UsageError(f"{root} does not exist{near}")
    found = sorted({path.parent for path in root.rglob(CONFORMANCE)} - set(root.rglob(f"{BEFORE}*")))
    if needed and not found:
        interrupted = any(True for _ in root.rglob(PARTIAL))
        hint = " (a run there was interrupted: finish it with --resume)" if interrupted else ""
        raise UsageError(f"no {CONFORMANCE} in {root}{hint}")
    return found


def read_results(directory: Path) -> Results:
    """Read one results directory.

    Raises UsageError, naming the file, for a directory without records, for files this version does not understand, and
    where there are not as many records as its environment says.
    """
    records = read_conformance(directory)
    environment = read_environment(directory) if (directory / ENVIRONMENT).is_file() else None
    recorded = environment.recorded if environment else None
    if recorded not in (None, len(records)):
        path = directory / CONFORMANCE
        raise UsageError(f"{path} has {plural(len(records), 'record')}, but {ENVIRONMENT} beside it says {recorded}")
    return Results(directory, tuple(records), environment)
