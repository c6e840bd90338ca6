"""Runs cells again, each in a process of its own, because the cells before them may be why they do not pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from recapture.cases.collection import Selection, SuiteFile, SuiteInfo
from recapture.records.verdicts import RIGHT
from recapture.run.plan import RunOptions
from recapture.run.runner import run_cells
from recapture.tools.generate.families import FamilyKey, family_of
from recapture.tools.generate.folder import RECORDS, GeneratedFolder
from recapture.tools.generate.suspects import suspects

if TYPE_CHECKING:
    from recapture.records.record import CellKey, Record
    from recapture.tools.generate.generate_options import GenerateOptions

MOST_ROUNDS = 4
"""How often further members of a family run alone if the first ones pass then."""


def run_alone(
    options: GenerateOptions,
    folder: GeneratedFolder,
    planned: set[CellKey],
    own: SuiteInfo | None,
    log: Callable[[str], None],
) -> None:
    """Run some members of each family again, as a run does, and record them.

    Where those pass, the cells before them in the same process were the cause, and other members follow.
    """
    paths = {suite.name: folder.suite_path(suite) for suite in folder.suites.values()}
    declaring = () if own is None else (SuiteFile(own.name, Path(own.path)),)
    for _ in range(MOST_ROUNDS):
        chosen = _next_members(folder, planned, options.alone)
        if not chosen:
            return
        log(f"running {len(chosen)} cells alone")
        addresses = tuple(
            (suite, case, key.compiler) for key in chosen for suite, _, case in [key.case.partition("::")]
        )
        files = [SuiteFile(suite, paths[suite]) for suite in dict.fromkeys(suite for suite, _, _ in addresses)]
        run = RunOptions(
            selection=Selection((*files, *declaring), addresses, frozenset()),
            results=options.results / RECORDS,
            device=options.device,
            jobs=options.jobs,
            timeout=options.timeout,
            memory=options.memory,
            resume=True,
        )
        run_cells(run, NoProgress(), log)


def _next_members(folder: GeneratedFolder, planned: set[CellKey], number: int) -> list[CellKey]:
    """Return the cells that shall run alone: as many as are missing to `number` of each family and compiler."""
    alone = folder.alone()
    suspected = suspects(folder.suites.values(), folder.screened.values())
    members: dict[tuple[FamilyKey, str], list[CellKey]] = defaultdict(list)
    for key, record in folder.screened.items():
        if key in planned and record.verdict not in RIGHT:
            members[family_of(record, suspected[record.case]), key.compiler].append(key)
    chosen: list[CellKey] = []
    for keys in members.values():
        failing = [key for key in keys if key in alone and alone[key].verdict not in RIGHT]
        missing = [key for key in keys if key not in alone]
        chosen += missing[: max(number - len(failing), 0)]
    return chosen


class NoProgress:
    """Receives the progress of a run and says nothing (implements `recapture.run.runner.CellProgress`)."""

    def start(self, likely: Mapping[str, float], jobs: int, *, guessed: bool) -> None:
        """Do nothing."""

    def cell_started(self, cell: str) -> None:
        """Do nothing."""

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Do nothing."""
