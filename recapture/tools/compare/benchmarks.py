"""The benchmarks of two results directories, which the tool that measures speed finds and compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from recapture.command.command_table import of_tools
from recapture.tools.compare.changes import SpeedChange

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.machine.environment import Environment


def folders_with_benchmarks(root: Path) -> set[Path]:
    """Return the directories at or below a directory that have a benchmark."""
    return {folder for tool in of_tools("speeds to compare") for folder in tool.folders_below(root)}


def has_benchmark(directory: Path) -> bool:
    """Whether a results directory has a benchmark."""
    return any(tool.speedups_of(directory) for tool in of_tools("speeds to compare"))


def environment_of_benchmark(directory: Path) -> Environment | None:
    """Return the environment in which a directory's benchmark was measured; None if it has none."""
    for tool in of_tools("speeds to compare"):
        for path in tool.speedups_of(directory).values():
            environment: Environment = tool.environment_of(path)
            return environment
    return None


def diff_speeds(old: Path, new: Path) -> tuple[tuple[SpeedChange, ...], tuple[str, ...]]:
    """Compare the benchmarks of two results directories; return the changes and warnings.

    Without a tool that measures speed, there are none. Raises UsageError if reading them fails.
    """
    changes: list[SpeedChange] = []
    notes: list[str] = []
    for tool in of_tools("speeds to compare"):
        fields, warnings = tool.diff_speeds(old, new)
        changes += msgspec.convert(fields, list[SpeedChange])
        notes += warnings
    return tuple(changes), tuple(notes)
