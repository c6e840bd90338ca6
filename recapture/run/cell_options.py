"""The options of every command that runs cells: which compilers, where, and within which limits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from recapture.base.option_fields import GIB, MOST_GIB, WEEK, known_device, option
from recapture.machine.hardware import cores


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """Which compilers run, and how each cell runs; `timeout` is in seconds and `memory` in bytes, both per cell."""

    compilers: tuple[str, ...] = option(
        "--compiler", default=(), metavar="NAME[,NAME]", commas=True, help="Only these compilers."
    )
    device: str = option("--device", default="cpu", metavar="cpu|cuda", parse=known_device, help="Device to run on.")
    jobs: int = option(
        "--jobs", default_factory=cores, between=(1, None), help="Cells at a time. [default: the number of cores]"
    )
    timeout: float = option("--timeout", default=300.0, between=(0.1, WEEK), help="Seconds per cell.")
    memory: int = option("--memory", default=8 * GIB, unit=GIB, between=(0.1, MOST_GIB), help="GiB per cell.")

    @property
    def for_cells(self) -> dict[str, Any]:
        """These options alone, as arguments for another command's."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(CellOptions)}
