"""The parts of a run that a merge joins: results directories, finished or interrupted, with the plan of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError
from recapture.machine.environment import ENVIRONMENT, read_environment
from recapture.records.directories import BEFORE, OUTPUT, PARTIAL_ENVIRONMENT, PARTIAL_OUTPUT, PARTIAL_TIMINGS
from recapture.records.record import CONFORMANCE, PARTIAL, TIMINGS, Record, Timing, read_output
from recapture.records.shard_files import read_shard
from recapture.run.result_files import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from recapture.machine.environment import Environment
    from recapture.records.shard_files import ShardPlan
    from recapture.run.plan import Key


@dataclass(frozen=True)
class Part:
    """One results directory of a run: its rows, its environment, and the plan of the whole run if it is a shard."""

    directory: Path
    environment: Environment
    records: dict[Key, Record]
    timings: dict[Key, Timing]
    output: dict[str, dict[str, str]]
    plan: ShardPlan | None

    @property
    def place(self) -> tuple[str, str]:
        """The image and the capability that the results are filed under."""
        return self.environment.image, self.environment.capability


def find_parts(roots: Iterable[Path]) -> list[Path]:
    """Return the results directories at or below some folders, sorted; raises UsageError for a folder without any.

    Of a folder with shards and attempts, such as `recapture matrix --via slurm` writes, the published shards count.
    """
    found: set[Path] = set()
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"{root} is not a directory" if root.exists() else f"{root} does not exist")
        below = root / "shards" if (root / "shards").is_dir() else root
        here = {path.parent for name in (CONFORMANCE, PARTIAL) for path in below.rglob(name)}
        here -= set(below.rglob(f"{BEFORE}*"))
        if not here and below == root:
            raise UsageError(f"no results in {root}")
        found |= here
    return sorted(found)


def read_part(directory: Path) -> Part:
    """Read one results directory, finished or interrupted.

    Raises UsageError, naming the file, if there is no environment or if this version does not understand a file.
    """
    names = [name for name in (ENVIRONMENT, PARTIAL_ENVIRONMENT) if (directory / name).exists()]
    if not names:
        raise UsageError(f"{directory} has no {ENVIRONMENT}: what it was recorded with is not known")
    said: dict[str, dict[str, str]] = {}
    for name in (OUTPUT, PARTIAL_OUTPUT):
        said |= read_output(directory / name)
    return Part(
        directory=directory,
        environment=read_environment(directory / names[-1]),
        records=rows_of(directory, Record, CONFORMANCE, PARTIAL),
        timings=rows_of(directory, Timing, TIMINGS, PARTIAL_TIMINGS),
        output=said,
        plan=read_shard(directory),
    )
