"""What this tool adds to `recapture report`: the reports of measured speedups, and their JSON for other tools."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from recapture.base.errors import UsageError
from recapture.base.option_fields import option
from recapture.command.options import output_file
from recapture.command.output import write_beside, write_file
from recapture.command.report_addition import ReportAddition

if TYPE_CHECKING:
    from rich.console import Console

    from recapture.tools.speed.speedups import Speedups


@dataclass(frozen=True, kw_only=True)
class BenchmarkFile:
    """The options that write measured speedups for another tool, which stores benchmarks."""

    benchmark_file: Path | None = option(
        "--benchmark-json",
        default=None,
        parse=output_file,
        help="Write the measured speedups to this file as JSON.",
    )
    benchmark_format: Literal["pytorch", "github-action-benchmark"] = option(
        "--benchmark-format",
        default="pytorch",
        help="Whose JSON --benchmark-json writes: that of PyTorch's benchmark database, v3, or of "
        "github-action-benchmark.",
    )

    def write(self, benchmarks: list[Speedups]) -> None:
        """Write the file, if one is named.

        Raises UsageError if there is nothing to write, or if it cannot be written.
        """
        from recapture.tools.speed.benchmark_json import benchmark_json

        if self.benchmark_file is None:
            return
        if not benchmarks:
            raise UsageError("--benchmark-json: there are no measured speedups in these results")
        write_file(self.benchmark_file, benchmark_json(benchmarks, self.benchmark_format))


@dataclass(frozen=True, kw_only=True)
class SpeedReports(BenchmarkFile, ReportAddition):
    """Renders the files of `recapture bench`; their ratios are computed again from the samples."""

    key = "speedups"

    claim_plots: Path | None = option(
        "--claim-plots",
        default=None,
        metavar="FOLDER",
        help="Write a plot (SVG) of each published speedup through the releases to this folder, and a page of them.",
    )

    def find(self, root: Path) -> list[Path]:
        """Return the files of `recapture bench` at or below a directory."""
        from recapture.tools.speed.speedups import find_speedups

        return find_speedups(root)

    def render(self, path: Path, out: Console | None) -> Speedups:
        """Write the report beside some speedups, print their tables, and return them."""
        from recapture.tools.speed.report import print_speedups, render_speedups

        speedups = _derived(path)
        write_beside(path.with_suffix(".md"), render_speedups(speedups))
        if out is not None:
            out.print()
            print_speedups(out, speedups)
        return speedups

    def finish(self, rendered: list[Speedups]) -> None:
        """Write the file for another tool, and the plots of the claims."""
        self.write(rendered)
        if self.claim_plots is not None:
            _write_claims(self.claim_plots, rendered)


def _write_claims(folder: Path, benchmarks: list[Speedups]) -> None:
    """Write a page and a plot for each claim. Raises UsageError if no benchmark checks a claim."""
    from recapture.tools.speed.claim_plots import claim_histories, claim_page, claim_svg, file_name

    histories = claim_histories(benchmarks)
    if not histories:
        raise UsageError("--claim-plots: no measured speedup in these results checks a published claim")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from None
    write_file(folder / "index.md", claim_page(histories))
    for history in histories:
        write_file(folder / file_name(history), claim_svg(history))


def _derived(path: Path) -> Speedups:
    """Read measured speedups; if this version computes other statistics from the samples, update the file."""
    from recapture.tools.speed.figures import derive
    from recapture.tools.speed.results_file import writing
    from recapture.tools.speed.speedups import read_speedups, write_speedups

    def derived(speedups: Speedups) -> Speedups:
        return msgspec.structs.replace(speedups, rows=tuple(map(derive, speedups.rows)))

    on_file = read_speedups(path)
    if importlib.util.find_spec("scipy") is None:  # only read
        return on_file
    speedups = derived(on_file)
    if speedups == on_file:
        return on_file
    with writing(path):
        now = read_speedups(path)
        if now != on_file:  # another process changed it
            speedups = derived(now)
        write_speedups(path, speedups)
    return speedups
