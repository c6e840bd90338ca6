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
from recapture.records.record import CellKey
from recapture.records.shard_files import ShardCell, ShardPlan
from recapture.run.durations import usual_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    if not match or not 1 <= int(match[1]) <= int(match[2]) <= MOST_SHARDS:
        raise UsageError(f"no shard {text!r}: write I/N with I from 1 to N, as in 2/5")
    return Shard(int(match[1]), int(match[2]))


def divide(cells: Iterable[CellKey], count: int, seconds: Mapping[CellKey, float]) -> dict[CellKey, int]:
    """Return the shard of each cell, from 1 to `count`: the longest goes first, each to the shard with the least to do.

    On a GPU the cells of a case stay together, because several of them may share a process. Raises UsageError for more
    shards than there are cells, or cases on a GPU.
    """
    units: dict[tuple[str, ...], list[CellKey]] = defaultdict(list)
    for cell in cells:
        units[(cell.case, cell.device) if cell.device == "cuda" else cell].append(cell)

    def length(unit: tuple[str, ...]) -> float:
        return sum(seconds[cell] if cell in seconds else usual_seconds(cell, seconds) for cell in units[unit])

    if count > len(units):
        raise UsageError(f"{plural(count, 'shard')} of a run that can be divided into {len(units)} at most")
    loads = [(0.0, number) for number in range(1, count + 1)]
    shards: dict[CellKey, int] = {}
    for unit in sorted(units, key=lambda unit: (-length(unit), unit)):
        load, number = min(loads)
        # A cell that takes no time still counts, so that no shard stays empty.
        loads[number - 1] = (load + max(length(unit), 1e-3), number)
        shards |= dict.fromkeys(units[unit], number)
    return shards


def shard_plan(
    shard: Shard, hashes: Mapping[CellKey, str], seconds: Mapping[CellKey, float], selection: Sequence[str]
) -> ShardPlan:
    """Return the plan of the whole run, as a shard writes it beside its records; `hashes` are those of the cases."""
    shards = divide(hashes, shard.of, seconds)
    rows = [ShardCell(*cell, case_hash, shards[cell]) for cell, case_hash in hashes.items()]
    rows.sort(key=lambda row: row.key)
    return ShardPlan(number=shard.number, count=shard.of, selection=list(selection), cells=rows)
