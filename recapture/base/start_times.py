"""How long a command took until each stage of its start was done, counted from the start of its process."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["described", "note", "noted"]

_NOTED: dict[str, float] = {}


def note(stage: str) -> None:
    """Note that a stage is done; only the first time counts."""
    _NOTED.setdefault(stage, _age())


def noted() -> dict[str, float]:
    """Return the seconds from the start of the process to the end of each stage, in order."""
    return dict(_NOTED)


def described() -> str:
    """Return in one line how many seconds each stage took and all took together."""
    before, parts = 0.0, []
    for stage, seconds in _NOTED.items():
        parts.append(f"{stage} {seconds - before:.2f}")
        before = seconds
    return f"start: {before:.2f} s ({', '.join(parts)})"


def _age() -> float:
    """Return for how many seconds this process has run; since this module was imported where the system tells less."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return time.monotonic() - _IMPORTED


_IMPORTED = time.monotonic()
