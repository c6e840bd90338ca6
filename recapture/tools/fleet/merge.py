"""Joins the parts of a run into one results directory, with the same bytes as a run on one machine.

A part is a results directory, finished or interrupted. What it says is not trusted: parts may come from other
machines, so they must agree on the installation and on the plan, and no link is followed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.base.locks import locked, refuse_irregular
from recapture.base.text import plural
from recapture.cases.compilers import EAGER
from recapture.machine.environment import ENVIRONMENT, Environment, Origin, differences, read_environment
from recapture.records.directories import (
    BEFORE,
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
from recapture.records.eager_file import CaseKey, EagerRow, eager_line
from recapture.records.record import CONFORMANCE, PARTIAL, TIMINGS, CellKey, Record, Timing, read_output
from recapture.records.shard_files import SHARD, ShardPlan, read_shard
from recapture.report.conformance_report import write_report
from recapture.run.attempts import ATTEMPTS, SHARDS, refuse_other_than_folders
from recapture.run.result_files import eager_rows, finish, rows_of
from recapture.tools.fleet.work import WORK, attempts_at, read_work, task_is_published

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recapture.machine.doctor import Check

MOST_NAMED = 5
"""Number of cells that a message names."""

SAME = ("lock_hash", "image_digest", "device")
"""Fields of an environment, beside packages, that all parts of a run share."""


@dataclass
class MergeOutcome:
    """What a merge did: a line for each results directory written, for each gap, and for each warning."""

    merged: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """One results directory of a run: its rows, its environment, and the plan of the whole run if it is a shard."""

    directory: Path
    environment: Environment
    records: dict[CellKey, Record]
    timings: dict[CellKey, Timing]
    output: dict[str, dict[str, str]]
    eager: dict[CaseKey, EagerRow]
    plan: ShardPlan | None

    @property
    def place(self) -> tuple[str, str]:
        """The image and the capability that the results are filed under."""
        return self.environment.image, self.environment.capability


@dataclass(frozen=True)
class Joined:
    """The parts of one image and capability, joined in memory.

    `missing` are the planned cells without a record, by the shard that has them (0 if the run was not divided);
    `uncounted` is the number of cells that an incomplete run without shards lacks, whose names are not known.
    """

    place: tuple[str, str]
    environment: Environment
    records: dict[CellKey, Record]
    timings: dict[CellKey, Timing]
    output: dict[str, dict[str, str]]
    eager: dict[CaseKey, EagerRow]
    missing: dict[int, list[CellKey]]
    shards: int
    uncounted: int

    @property
    def complete(self) -> bool:
        """Whether every planned cell has a record."""
        return not self.missing and not self.uncounted

    def gaps(self) -> list[str]:
        """Return a line for each shard with missing cells, and one for cells that no plan names."""
        image, capability = self.place
        lines = []
        for shard, keys in sorted(self.missing.items()):
            named = ", ".join(f"{case}::{compiler}" for case, compiler, _ in keys[:MOST_NAMED])
            more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
            lines.append(
                f"{image}/{capability}: shard {shard}/{self.shards} lacks {plural(len(keys), 'cell')}: {named}{more}"
            )
        if self.uncounted:
            lines.append(f"{image}/{capability}: {plural(self.uncounted, 'planned cell')} were not recorded")
        return lines


def merge_folders(folders: Sequence[Path], results: Path, *, incomplete: bool = False) -> MergeOutcome:
    """Merge what is below some folders into `results`, and write the reports.

    An image with missing cells is written only if `incomplete` is set. Raises UsageError, before anything is written,
    where parts disagree.
    """
    outcome = MergeOutcome()
    for folder in folders:
        if (folder / WORK).exists():
            for task in read_work(folder).tasks:
                if not task_is_published(folder, task):
                    attempts = "; ".join(map(str, attempts_at(folder, task))) or "no attempt has begun"
                    outcome.missing.append(f"shard {task.name}: {attempts}")
    parts = [read_part(path) for path in find_parts(folders)]
    outcome.warnings += _mixed_gpus(parts)
    for joined in join(parts):
        outcome.missing += joined.gaps()
        if not joined.complete and not incomplete:
            continue
        directory, warnings = write_joined(joined, results)
        outcome.warnings += warnings
        write_report(directory)
        number, planned = len(joined.records), joined.environment.planned
        outcome.merged.append(f"{directory}: {planned} planned, {number} recorded")
    return outcome


def find_parts(roots: Iterable[Path]) -> list[Path]:
    """Return the results directories at or below some folders, sorted; raises UsageError for a folder without any.

    Where shards were published, the attempts beside them do not count, nor do older results that a run moved away.
    Raises UsageError for a link, at or below a folder: it could lead to results that are of no part.
    """
    directories: set[Path] = set()
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"{root} is not a directory" if root.exists() else f"{root} does not exist")
        below = set(_results_below(root))
        if not below and not (root / WORK).exists():
            raise UsageError(f"no results in {root}")
        directories |= below
    return sorted(directories)


def _results_below(root: Path) -> Iterator[Path]:
    """Yield the results directories at or below a folder."""
    refuse_other_than_folders(root)
    for place, folders, files in os.walk(root):
        parent = Path(place)
        refuse_other_than_folders(*(parent / name for name in folders))
        if SHARDS in folders and ATTEMPTS in folders:
            folders.remove(ATTEMPTS)
        folders[:] = [name for name in folders if not name.startswith(BEFORE)]
        if CONFORMANCE in files or PARTIAL in files:
            yield parent


def read_part(directory: Path) -> Part:
    """Read one results directory, finished or interrupted.

    Raises UsageError, naming the file, if there is no environment or if this version does not understand a file.
    """
    names = [name for name in (ENVIRONMENT, PARTIAL_ENVIRONMENT) if (directory / name).exists()]
    if not names:
        raise UsageError(f"{directory} has no {ENVIRONMENT}: what it was recorded with is not known")
    output: dict[str, dict[str, str]] = {}
    for name in (OUTPUT, PARTIAL_OUTPUT):
        output |= read_output(directory / name)
    return Part(
        directory=directory,
        environment=read_environment(directory / names[-1]),
        records=rows_of(directory, Record, CONFORMANCE, PARTIAL),
        timings=rows_of(directory, Timing, TIMINGS, PARTIAL_TIMINGS),
        output=output,
        eager=eager_rows(directory),
        plan=read_shard(directory),
    )


def join(parts: Iterable[Part]) -> list[Joined]:
    """Join parts by image and capability, in that order.

    Raises UsageError for parts of different installations or of different runs, for a record of a cell that the run did
    not plan, and for two records of a cell that disagree.
    """
    groups: dict[tuple[str, str], list[Part]] = defaultdict(list)
    for part in parts:
        groups[part.place].append(part)
    return [_join(place, members) for place, members in sorted(groups.items())]


def _join(place: tuple[str, str], parts: Sequence[Part]) -> Joined:
    first = min(parts, key=lambda part: (part.plan is None, part.plan.number if part.plan else 0))
    for part in parts:
        if difference := differences(first.environment, part.environment):
            raise UsageError(f"{first.directory} and {part.directory} are of different installations: {difference}")
        for name in SAME:
            values = [getattr(environment, name) for environment in (first.environment, part.environment)]
            if values[0] != values[1]:
                raise UsageError(
                    f"{first.directory} and {part.directory} are of different installations: "
                    f"{name} {values[0]}, now {values[1]}"
                )
        _check_devices(part)
    _check_origins(parts)
    records = _agreeing(parts)
    plan = _one_plan(parts)
    missing: dict[int, list[CellKey]] = defaultdict(list)
    uncounted = 0
    if plan is not None:
        planned = {row.key: row for row in plan.cells}
        unplanned = sorted(records.keys() - planned.keys())
        if unplanned:
            case, compiler, _ = unplanned[0]
            raise UsageError(
                f"{plural(len(unplanned), 'record')} of cells that the shards did not plan, the first "
                f"{case}::{compiler}"
            )
        for key, row in planned.items():
            if key not in records:
                missing[row.shard].append(key)
            elif records[key].case_hash != row.case_hash:
                raise UsageError(
                    f"{records[key].cell} was recorded from another source than planned: case_hash "
                    f"{records[key].case_hash}, planned {row.case_hash}"
                )
    else:
        uncounted = sum(max(0, (part.environment.planned or len(part.records)) - len(part.records)) for part in parts)
    timings: dict[CellKey, Timing] = {}
    output: dict[str, dict[str, str]] = {}
    eager: dict[CaseKey, EagerRow] = {}
    for part in parts:  # what a part says of cells that others recorded does not count
        own_cells = {record.cell for record in part.records.values()}
        own_cases = {CaseKey(key.case, key.device) for key in part.records if key.compiler == EAGER}
        timings = {key: row for key, row in part.timings.items() if key in part.records} | timings
        output = {cell: text for cell, text in part.output.items() if cell in own_cells} | output
        eager = {key: row for key, row in part.eager.items() if key in own_cases} | eager
    total = len(plan.cells) if plan else len(records) + uncounted
    return Joined(
        place=place,
        environment=_environment(first, parts, plan, total),
        records=records,
        timings={key: row for key, row in timings.items() if key in records},
        output=output,
        eager=eager,
        missing=dict(missing),
        shards=plan.count if plan else 1,
        uncounted=uncounted,
    )


def _check_devices(part: Part) -> None:
    """Raise UsageError for a record of another device than the part was recorded on."""
    for record in part.records.values():
        if record.device != part.environment.device:
            raise UsageError(
                f"{part.directory}: {record.cell} is of device {record.device}, and the part of "
                f"{part.environment.device}"
            )


def _check_origins(parts: Sequence[Part]) -> None:
    """Raise UsageError where two parts describe one origin, by its id, in two ways."""
    described: dict[str, tuple[Origin, Part]] = {}
    for part in parts:
        for name, origin in part.environment.origins.items():
            facts = msgspec.structs.replace(origin, cells=0)
            known, first = described.setdefault(name, (facts, part))
            if known != facts:
                raise UsageError(f"{first.directory} and {part.directory} describe the origin {name} in two ways")


def _agreeing(parts: Sequence[Part]) -> dict[CellKey, Record]:
    """Return the records of all parts; raises UsageError where two of a cell disagree."""
    first_seen: dict[CellKey, tuple[Record, Part]] = {}
    for part in parts:
        for key, record in part.records.items():
            other, other_part = first_seen.setdefault(key, (record, part))
            if other != record:
                what = f"{other.verdict} and {record.verdict}" if other.verdict is not record.verdict else "in detail"
                raise UsageError(
                    f"{record.cell} differs between {other_part.directory} and {part.directory} ({what}): "
                    "keep one of them"
                )
    return {key: record for key, (record, _) in first_seen.items()}


def _one_plan(parts: Sequence[Part]) -> ShardPlan | None:
    """Return the plan that the shards among the parts share; raises UsageError if they are of different runs."""
    shards = [(part, part.plan) for part in parts if part.plan is not None]
    for part, plan in shards[1:]:
        first, first_plan = shards[0]
        if not plan.agrees_with(first_plan):
            raise UsageError(
                f"{first.directory} and {part.directory} are shards of different runs: "
                f"{_how_plans_differ(first_plan, plan)}"
            )
    return shards[0][1] if shards else None


def _how_plans_differ(first: ShardPlan, other: ShardPlan) -> str:
    if first.count != other.count:
        return f"{first.count} shards, and {other.count}"
    if first.selection != other.selection:
        return (
            f"they select {' '.join(first.selection) or 'everything'}, and {' '.join(other.selection) or 'everything'}"
        )
    differing = {(row.case, row.compiler, row.case_hash) for row in first.cells} ^ {
        (row.case, row.compiler, row.case_hash) for row in other.cells
    }
    if differing:
        case, compiler, _ = min(differing)
        return f"the suites differ, as in {case}::{compiler}"
    return "the cells were divided by other durations"


def _mixed_gpus(parts: Sequence[Part]) -> Iterator[str]:
    """Yield a warning for each image whose parts ran on different models of GPU with the same capability."""
    models: dict[tuple[str, str], set[str]] = defaultdict(set)
    for part in parts:
        if part.environment.gpu is not None:
            models[part.place].add(part.environment.gpu.name or "an unnamed one")
    for place, names in sorted(models.items()):
        if len(names) > 1:
            yield f"warning: {'/'.join(place)}: the parts ran on different GPUs: {', '.join(sorted(names))}"


def _environment(first: Part, parts: Sequence[Part], plan: ShardPlan | None, planned: int) -> Environment:
    """Return the environment of the whole: that of the first part, with the checks of all."""
    checks: dict[str, Check] = {}
    for part in (first, *parts):
        checks = {check.name: check for check in part.environment.doctor} | checks
    suites = {suite.name: suite for part in reversed((first, *parts)) for suite in part.environment.suites}
    order = [suite.name for suite in first.environment.suites]
    names = [*order, *sorted(suites.keys() - set(order))]
    if plan is not None:
        selection = plan.selection
    elif any(not part.environment.selection for part in parts):
        selection = []
    else:
        selection = list(dict.fromkeys(words for part in parts for words in part.environment.selection))
    return msgspec.structs.replace(
        first.environment,
        planned=planned,
        recorded=None,
        doctor=list(checks.values()),
        suites=[suites[name] for name in names],
        selection=selection,
        origins={name: origin for part in parts for name, origin in part.environment.origins.items()},
        judge=min(part.environment.judge_version for part in parts),
    )


def write_joined(joined: Joined, root: Path) -> tuple[Path, list[str]]:
    """Write joined results below `root` as a run would; return the directory, and warnings about older results there.

    A whole run replaces what is there; a selection replaces the cells that it has. Results of another installation are
    moved to a folder ``before-N``. Raises UsageError if a run there is unfinished.
    """
    directory = root / joined.place[0] / joined.place[1]
    refuse_other_than_folders(directory.parent, directory)
    warnings = []
    environment = joined.environment
    with locked(directory / LOCK, wait=False):
        refuse_irregular(directory / name for name in (*PARTIALS, *FINISHED, SHARD))
        if (directory / PARTIAL).exists():
            raise UsageError(f"a run in {directory} is unfinished: end it, or choose another folder with --results")
        described = read_environment(directory / ENVIRONMENT) if (directory / ENVIRONMENT).exists() else None
        if described is not None and (difference := differences(described, environment)):
            folder = set_aside(directory, FINISHED)
            warnings.append(
                f"warning: older results in {directory} are of another installation ({difference}); they were moved to "
                f"its folder {folder.name}"
            )
        records, timings = joined.records, joined.timings
        if environment.selection:
            earlier = rows_of(directory, Record, CONFORMANCE)
            records = earlier | records
            timings = rows_of(directory, Timing, TIMINGS) | timings
            planned = (environment.planned or 0) + len(earlier.keys() - joined.records.keys())
            environment = msgspec.structs.replace(environment, planned=planned)
        lines = [msgspec.json.encode(streams) + b"\n" for streams in joined.output.values()]
        write_atomically(directory / PARTIAL_OUTPUT, b"".join(lines))
        write_atomically(directory / PARTIAL_EAGER, b"".join(map(eager_line, joined.eager.values())))
        finish(directory, list(records.values()), list(timings.values()), environment)
        (directory / SHARD).unlink(missing_ok=True)
    return directory, warnings
