"""What this tool adds to `recapture report`: what becomes of the recorded cases that leave one compiler for another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.option_fields import option
from recapture.command.output import echo, echo_error, print_json
from recapture.command.report_addition import ReportAddition

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.records.directories import Results
    from recapture.report.cell_filter import CellFilter


def _check_recorded(compilers: tuple[str, ...], every: list[Results]) -> None:
    """Raise UsageError, with the most similar name, for a compiler that no results have."""
    known = {record.compiler for results in every for record in results.records}
    for name in compilers:
        if name not in known:
            raise UsageError(f"no record of compiler {name!r}{did_you_mean(name, sorted(known))}")


@dataclass(frozen=True, kw_only=True)
class MovesReport(ReportAddition):
    """Prints what becomes of cases that move from one compiler to another, instead of writing reports."""

    before: str | None = option(
        "--from",
        default=None,
        metavar="COMPILER",
        help="With --to: what becomes of code that leaves this compiler.",
    )
    after: str | None = option(
        "--to", default=None, metavar="COMPILER", help="With --from: the compiler that the code goes to."
    )

    def print_instead(self, roots: tuple[Path, ...], cells: CellFilter, *, as_json: bool) -> bool:
        """Print the moves in each results directory, if both compilers are named."""
        from recapture.records.releases import read_by_age
        from recapture.tools.check.migration import moves, moves_counts, moves_text

        before, after = self.before, self.after
        if before is None and after is None:
            return False
        if before is None or after is None:
            raise UsageError("--from and --to belong together")
        every = list({results.directory: results for root in roots for results in read_by_age(root)}.values())
        cells.check(every)
        _check_recorded((before, after), every)
        compared, left_out = [], []
        for results in every:
            try:
                compared.append(moves(cells.applied(results).records, before, after, str(results.directory)))
            except UsageError:
                if len(every) == 1:
                    raise
                left_out.append(str(results.directory))
        if not compared:
            raise UsageError(f"no results have both {before!r} and {after!r}")
        if left_out:
            echo_error(f"left out, without a record of {before} or {after}: {', '.join(left_out)}")
        if as_json:
            print_json(compared)
        else:
            echo(moves_text(compared[0]) if len(compared) == 1 else "\n".join(map(moves_counts, compared)))
        return True
