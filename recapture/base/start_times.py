"""Seconds from the start of a command's process to the end of each stage of its startup."""

from __future__ import annotations

import os
import time
from pathlib import Path

_NOTED: dict[str, float] = {}


def note(stage: str) -> None:
    """Record that a stage has ended; later calls for the same stage are ignored."""
    _NOTED.setdefault(stage, _age())


def noted() -> dict[str, float]:
    """Return the seconds from the start of the process to the end of each stage, in order."""
    return dict(_NOTED)


def described() -> str:
    """Return one line with the seconds of each stage and their total."""
    before, parts = 0.0, []
    for stage, seconds in _NOTED.items():
        parts.append(f"{stage} {seconds - before:.2f}")
        before = seconds
    return f"start: {before:.2f} s ({', '.join(parts)})"


def _age() -> float:
    """Return the age of this process in seconds, or the time since this module's import where that is unknown."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return time.monotonic() - _IMPORTED


_IMPORTED = time.monotonic()
