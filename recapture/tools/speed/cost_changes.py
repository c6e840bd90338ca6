"""How the costs of a configuration changed between two benchmarks: what it saves, and what compiling it takes.

Counts are the same whenever a benchmark is repeated, so that any difference is real. Two figures are no counts and have
a margin: the CPU time of compiling, where a machine does not count instructions, and the instructions themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from recapture.tools.speed.speedups import Row

CostChange = dict[str, Any]
"""The fields of a `recapture.tools.compare.changes.CostChange`."""


class Cost(NamedTuple):
    """A cost that is compared: its name, and the categories of more and of less of it.

    A change counts if it is larger than `margin`, as a share of the smaller side.
    """

    name: str
    more: str
    less: str
    margin: float = 0.0


COSTS = (
    Cost("saved", "hungrier", "less_hungry", 0.01),
    Cost("memory", "hungrier", "less_hungry", 0.05),
    Cost("instructions", "longer_to_compile", "shorter_to_compile", 0.05),
    Cost("compile_cpu", "longer_to_compile", "shorter_to_compile", 0.3),
    Cost("graphs", "differs", "differs"),
    Cost("breaks", "differs", "differs"),
    Cost("recompiles", "differs", "differs"),
    Cost("kernels", "differs", "differs"),
    Cost("code", "differs", "differs", 0.1),
)
"""The costs that are compared, in the order in which they are shown."""


def values(row: Row, device: str) -> dict[str, float]:
    """Return the known costs of a row by name. The peak memory of a process on the CPU is no count, and left out."""
    known: dict[str, float] = {}
    if row.costs is not None:
        for cost in COSTS:
            value = getattr(row.costs, cost.name, None)
            if value is not None:
                known[cost.name] = value
    if device != "cpu" and row.measured is not None and row.measured.memory is not None:
        known["memory"] = row.measured.memory
    return known


def cost_changes(old: Row, new: Row, *, device: str, same_processor: bool) -> list[CostChange]:
    """Return the costs that both rows know and that differ.

    CPU time is compared only on the `same_processor`, and only where instructions were not counted.
    """
    before, after = values(old, device), values(new, device)
    common = before.keys() & after.keys()
    if "instructions" in common or not same_processor:
        common -= {"compile_cpu"}
    changes = []
    for cost in COSTS:
        if cost.name in common:
            category = _category(cost, before[cost.name], after[cost.name])
            if category is not None:
                was, now = before[cost.name], after[cost.name]
                changes.append({"cost": cost.name, "category": category, "old": was, "new": now})
    return changes


def _category(cost: Cost, old: float, new: float) -> str | None:
    if abs(new - old) <= cost.margin * min(old, new):
        return None
    return cost.more if new > old else cost.less
