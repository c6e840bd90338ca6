"""Divides the cells of a run into shards that take about as long as each other by recorded durations.

Every shard of a run computes the same division, on its own machine. So it depends only on the planned cells and on
durations that no shard changes: the committed ones of the checkout, or those in a file that all shards read
(``--durations``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.errors import UsageError
from recapture.base.text import plural
from recapture.cases.compilers import builtin_compilers, plain_name
from recapture.records.shard_files import ShardCell, ShardPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recapture.run.plan import Key, PlannedCell

CODEGEN_SECONDS = 10.0
"""Expected seconds of a cell that generates code, where nothing like it was run."""

CAPTURE_SECONDS = 0.1
"""Expected seconds of any other cell, where nothing like it was run."""

MOST_SHARDS = 10_000
"""Largest number of shards of a run."""


class Shard(NamedTuple):
    """One part of a run: its number, counted from 1, and the number of parts."""

    number: int
    of: int

    def __str__(self) -> str:
        """The shard as on the command line: ``2/5``."""
        return f"{self.number}/{self.of}"


def parse_shard(text: str) -> Shard:
    """Return the shard that ``I/N`` names; raises UsageError unless 1 ≤ I ≤ N."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    if not found or not 1 <= int(found[1]) <= int(found[2]) <= MOST_SHARDS:
        raise UsageError(f"no shard {text!r}: write I/N with I from 1 to N, as in 2/5")
    return Shard(int(found[1]), int(found[2]))


def usual_seconds(key: Key, seconds: Mapping[Key, float]) -> float:
    """Return the expected seconds of a cell that was never run.

    `aoti:dynamic` is expected to take what `aoti` took in `seconds` for the case, if both generate code or neither.
    """
    case, compiler, device = key
    plain = plain_name(compiler)
    if (case, plain, device) in seconds and _generates_code(compiler) == _generates_code(plain):
        return seconds[case, plain, device]
    return CODEGEN_SECONDS if _generates_code(compiler) else CAPTURE_SECONDS


def _generates_code(compiler: str) -> bool:
    how = builtin_compilers().get(compiler)
    return how is not None and how.generates_code


def divide(cells: Sequence[PlannedCell], count: int, seconds: Mapping[Key, float]) -> dict[Key, int]:
    """Return the shard of each cell, from 1 to `count`: the longest goes first, each to the shard with the least to do.

    On a GPU the cells of a case stay together, because several of them may share a process.
    """
    units: dict[tuple[str, ...], list[PlannedCell]] = defaultdict(list)
    for cell in cells:
        case, compiler, device = cell.key
        units[(case, device) if device == "cuda" else (case, compiler, device)].append(cell)

    def length(name: tuple[str, ...]) -> float:
        keys = [cell.key for cell in units[name]]
        return sum(seconds[key] if key in seconds else usual_seconds(key, seconds) for key in keys)

    if count > len(units):
        raise UsageError(f"{plural(count, 'shard')} of a run that can be divided into {len(units)} at most")
    loads = [(0.0, number) for number in range(1, count + 1)]
    found: dict[Key, int] = {}
    for name in sorted(units, key=lambda name: (-length(name), name)):
        load, number = min(loads)
        # A cell that takes no time still counts, so that no shard stays empty.
        loads[number - 1] = (load + max(length(name), 1e-3), number)
        found |= {cell.key: number for cell in units[name]}
    return found


def shard_plan(
    shard: Shard, cells: Sequence[PlannedCell], seconds: Mapping[Key, float], selection: Sequence[str]
) -> ShardPlan:
    """Return the plan of the whole run, as a shard writes it beside its records."""
    shards = divide(cells, shard.of, seconds)
    rows = [ShardCell(*cell.key, cell.info.hash, shards[cell.key]) for cell in cells]
    rows.sort(key=lambda row: (row.case, row.compiler, row.device))
    return ShardPlan(number=shard.number, count=shard.of, selection=list(selection), cells=rows)
