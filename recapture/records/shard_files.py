"""``shard.json``: which cells a shard of a run has, and the plan of the whole run, for the merge.

History of the file format, newest first (``SCHEMA_VERSION``):

1. first version.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Literal

import msgspec

from recapture.base.decode import Format
from recapture.base.files import write_atomically
from recapture.records.record import CellKey

if TYPE_CHECKING:
    from pathlib import Path

SHARD = "shard.json"
"""Name of the file, beside the records of a shard."""

SCHEMA_VERSION: Literal[1] = 1


class ShardCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """One cell of the whole run: its case, compiler and device, the hash of the case's source, and its shard."""

    case: str
    compiler: str
    device: str
    case_hash: str
    shard: int

    @property
    def key(self) -> CellKey:
        """What identifies the cell."""
        return CellKey(self.case, self.compiler, self.device)


class ShardPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shard ``number`` of ``count``, counted from 1, of a run with this selection (empty: everything).

    `cells` are all cells of the run, those of the other shards, too.
    """

    schema: Literal[1] = SCHEMA_VERSION
    number: int
    count: int
    selection: list[str] = []
    cells: list[ShardCell] = []

    def agrees_with(self, other: ShardPlan) -> bool:
        """Whether both are shards of one run: the same selection, the same cells, divided in the same way."""
        return (self.count, self.selection, self.cells) == (other.count, other.selection, other.cells)


def _check(plan: ShardPlan) -> None:
    """Raise ValueError, naming the field, for a shard that is no part of the whole, or a cell that is there twice."""
    if not 1 <= plan.number <= plan.count:
        raise ValueError(f"`number` is {plan.number} of {plan.count}")
    for row in plan.cells:
        if not 1 <= row.shard <= plan.count:
            raise ValueError(f"`cells` has one of shard {row.shard} of {plan.count}")
    keys = [row.key for row in plan.cells]
    if len(set(keys)) < len(keys):
        case, compiler, device = next(key for key, number in Counter(keys).items() if number > 1)
        raise ValueError(f"`cells` has {case}::{compiler} on {device} twice")


_FORMAT: Format[ShardPlan] = Format(ShardPlan, "shard", SCHEMA_VERSION, _check)


def write_shard(directory: Path, plan: ShardPlan) -> None:
    """Write the plan beside the records of a shard, atomically."""
    write_atomically(directory / SHARD, msgspec.json.encode(plan) + b"\n")


def read_shard(directory: Path) -> ShardPlan | None:
    """Return the plan of a shard; None if the directory is not that of a shard.

    Raises UsageError, naming the file and the field, if this version does not understand it.
    """
    path = directory / SHARD
    return _FORMAT.read(path) if os.path.lexists(path) else None
