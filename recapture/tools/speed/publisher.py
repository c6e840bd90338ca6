"""Writes the reports of a benchmark beside its rows while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.files import write_atomically
from recapture.tools.speed.operator_table import write_profile
from recapture.tools.speed.operator_times import OperatorTimes
from recapture.tools.speed.probes import ITERATIONS
from recapture.tools.speed.report import render_speedups

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from recapture.tools.speed.job import Operator
    from recapture.tools.speed.speedups import Speedups


class FilePublisher:
    """Writes ``speedups-<gpu>.md`` and operator tables (implements `recapture.tools.speed.filing.Publisher`)."""

    def __init__(self) -> None:
        self.profiles: list[tuple[str, Path, OperatorTimes]] = []
        """The title, folder and operators of each profiled row."""

    def speedups(self, path: Path, speedups: Speedups) -> None:
        """Write the report of the rows in `path`, beside it."""
        write_atomically(path.with_suffix(".md"), render_speedups(speedups).encode())

    def operators(self, folder: Path, title: str, operators: tuple[Sequence[Operator], Sequence[Operator]]) -> None:
        """Write the operator table of a row into its folder of profiles."""
        times = OperatorTimes(*operators, ITERATIONS)
        self.profiles.append((title, folder, times))
        write_profile(folder, title, times)
