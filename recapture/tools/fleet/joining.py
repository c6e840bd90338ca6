"""Joins the parts of a run into one results directory, with the same bytes as a run on one machine."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.base.locks import locked, refuse_irregular
from recapture.base.text import plural
from recapture.machine.environment import ENVIRONMENT, differences, read_environment
from recapture.records.archive import set_aside
from recapture.records.directories import FINISHED, LOCK, PARTIAL_OUTPUT, PARTIALS
from recapture.records.record import CONFORMANCE, PARTIAL, TIMINGS, Record, Timing
from recapture.records.shard_files import SHARD
from recapture.run.result_files import finish, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from recapture.machine.doctor import Check
    from recapture.machine.environment import Environment
    from recapture.records.shard_files import ShardPlan
    from recapture.run.plan import Key
    from recapture.tools.fleet.parts import Part

MOST_NAMED = 5
"""Number of cells that a message names."""


@dataclass(frozen=True)
class Joined:
    """The parts of one image and capability, joined in memory.

    `missing` are the planned cells without a record, by the shard that has them (0 if the run was not divided);
    `uncounted` is the number of cells that an incomplete run without shards lacks, whose names are not known.
    """

    place: tuple[str, str]
    environment: Environment
    records: dict[Key, Record]
    timings: dict[Key, Timing]
    output: dict[str, dict[str, str]]
    missing: dict[int, list[Key]]
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
        if differs := differences(first.environment, part.environment):
            raise UsageError(f"{first.directory} and {part.directory} are of different installations: {differs}")
    records = _agreeing(parts)
    plan = _one_plan(parts)
    missing: dict[int, list[Key]] = defaultdict(list)
    uncounted = 0
    if plan is not None:
        planned = {(row.case, row.compiler, row.device): row for row in plan.cells}
        strange = sorted(records.keys() - planned.keys())
        if strange:
            case, compiler, _ = strange[0]
            raise UsageError(
                f"{plural(len(strange), 'record')} of cells that the shards did not plan, the first {case}::{compiler}"
            )
        for key, row in planned.items():
            if key not in records:
                missing[row.shard].append(key)
    else:
        uncounted = sum(max(0, (part.environment.planned or len(part.records)) - len(part.records)) for part in parts)
    timings: dict[Key, Timing] = {}
    output: dict[str, dict[str, str]] = {}
    for part in parts:
        timings = part.timings | timings
        output = part.output | output
    total = len(plan.cells) if plan else len(records) + uncounted
    return Joined(
        place=place,
        environment=_environment(first, parts, plan, total),
        records=records,
        timings={key: row for key, row in timings.items() if key in records},
        output=output,
        missing=dict(missing),
        shards=plan.count if plan else 1,
        uncounted=uncounted,
    )


def _agreeing(parts: Sequence[Part]) -> dict[Key, Record]:
    """Return the records of all parts; raises UsageError where two of a cell disagree."""
    found: dict[Key, tuple[Record, Part]] = {}
    for part in parts:
        for key, record in part.records.items():
            other, theirs = found.setdefault(key, (record, part))
            if other != record:
                what = f"{other.verdict} and {record.verdict}" if other.verdict is not record.verdict else "in detail"
                raise UsageError(
                    f"{record.cell} differs between {theirs.directory} and {part.directory} ({what}): keep one of them"
                )
    return {key: record for key, (record, _) in found.items()}


def _one_plan(parts: Sequence[Part]) -> ShardPlan | None:
    """Return the plan that the shards among the parts share; raises UsageError if they are of different runs."""
    shards = [(part, part.plan) for part in parts if part.plan is not None]
    for part, plan in shards[1:]:
        first, begun = shards[0]
        if not plan.agrees_with(begun):
            raise UsageError(
                f"{first.directory} and {part.directory} are shards of different runs: {_how(begun, plan)}"
            )
    return shards[0][1] if shards else None


def _how(one: ShardPlan, other: ShardPlan) -> str:
    if one.count != other.count:
        return f"{one.count} shards, and {other.count}"
    if one.selection != other.selection:
        return f"they select {' '.join(one.selection) or 'everything'}, and {' '.join(other.selection) or 'everything'}"
    mine, theirs = set(one.cells), set(other.cells)
    differ = {(row.case, row.compiler, row.case_hash) for row in mine} ^ {
        (row.case, row.compiler, row.case_hash) for row in theirs
    }
    if differ:
        case, compiler, _ = min(differ)
        return f"the suites differ, as in {case}::{compiler}"
    return "the cells were divided by other durations"


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
    )


def write_joined(joined: Joined, root: Path, *, into: Path | None = None) -> tuple[Path, list[str]]:
    """Write joined results below `root` as a run would; return the directory, and warnings about older results there.

    A whole run replaces what is there; a selection replaces the cells that it has. Results of another installation are
    moved to a folder ``before-N``. Raises UsageError if a run there is unfinished.
    """
    directory = into or root / joined.place[0] / joined.place[1]
    warnings = []
    environment = joined.environment
    with locked(directory / LOCK, wait=False):
        refuse_irregular(directory / name for name in (*PARTIALS, *FINISHED, SHARD))
        if (directory / PARTIAL).exists():
            raise UsageError(f"a run in {directory} is unfinished: end it, or choose another folder with --results")
        described = read_environment(directory / ENVIRONMENT) if (directory / ENVIRONMENT).exists() else None
        if described is not None and (differs := differences(described, environment)):
            folder = set_aside(directory, FINISHED)
            warnings.append(
                f"warning: older results in {directory} are of another installation ({differs}); they were moved to "
                f"its folder {folder.name}"
            )
        records, timings = joined.records, joined.timings
        if environment.selection:
            kept = rows_of(directory, Record, CONFORMANCE)
            records = kept | records
            timings = rows_of(directory, Timing, TIMINGS) | timings
            planned = (environment.planned or 0) + len(kept.keys() - joined.records.keys())
            environment = msgspec.structs.replace(environment, planned=planned)
        lines = [msgspec.json.encode(one) + b"\n" for one in joined.output.values()]
        write_atomically(directory / PARTIAL_OUTPUT, b"".join(lines))
        finish(directory, list(records.values()), list(timings.values()), environment)
        (directory / SHARD).unlink(missing_ok=True)
    return directory, warnings
