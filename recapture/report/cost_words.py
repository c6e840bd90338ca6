"""The costs of a compiled configuration in words: their names, their values, and how they changed."""

from __future__ import annotations

from recapture.base.option_fields import GIB
from recapture.base.text import time_text

COSTS = {
    "saved": "saved for backward",
    "memory": "of peak memory",
    "instructions": "instructions of compiling",
    "compile_cpu": "of CPU time for compiling",
    "graphs": "graphs",
    "breaks": "graph breaks",
    "recompiles": "recompiles",
    "kernels": "kernels",
    "code": "characters of generated code",
}
"""What stands after the value of each cost, in the order in which they are shown."""

CATEGORIES = {
    "hungrier": "hungrier",
    "longer_to_compile": "longer to compile",
    "less_hungry": "less hungry",
    "shorter_to_compile": "shorter to compile",
    "differs": "compiled otherwise",
}
"""Categories of changed costs, worst first, in words."""


def value_text(name: str, value: float) -> str:
    """Return the value of a cost with its unit."""
    if name in ("saved", "memory"):
        return bytes_text(value)
    return time_text(value) if name == "compile_cpu" else f"{value:,.0f}"


def bytes_text(value: float) -> str:
    """Return bytes in GiB, MiB or bytes."""
    if value >= GIB:
        return f"{value / GIB:.2f} GiB"
    return f"{value / (1 << 20):.1f} MiB" if value >= 1 << 20 else f"{value:,.0f} bytes"


def change_text(name: str, category: str, old: float, new: float) -> str:
    """Return how a cost changed: ``hungrier: 14.50 GiB saved for backward, 11.00 GiB before (1.32×)``."""
    ratio = f" ({new / old:.2f}×)" if old else ""
    return f"{CATEGORIES[category]}: {value_text(name, new)} {COSTS[name]}, {value_text(name, old)} before{ratio}"
