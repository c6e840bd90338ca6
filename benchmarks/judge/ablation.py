"""What each kind of comparison finds that no other finds, counted over the records of a results directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tabulate import tabulate

from recapture.records.kinds import KINDS
from recapture.records.record import EXAMPLE, Record
from recapture.records.verdicts import SILENTLY_WRONG


@dataclasses.dataclass(frozen=True)
class Ablation:
    """Silently wrong cells by what found them.

    `found` counts, for every kind, the cells with a difference of that kind, and `alone` those with no other kind.
    `on_example` are the cells with any difference on the example, and `values_on_example` those that one call on the
    example shows when only values are compared.
    """

    silent: int
    found: dict[str, int]
    alone: dict[str, int]
    on_example: int
    values_on_example: int


def ablation(records: Sequence[Record]) -> Ablation:
    """Count the silently wrong cells of some records."""
    silent = [row for row in records if row.verdict in SILENTLY_WRONG]
    kinds = [{difference.kind for difference in row.differences} for row in silent]
    present = [kind for kind in KINDS if any(kind in cell_kinds for cell_kinds in kinds)]
    example = [[difference for difference in row.differences if difference.input == EXAMPLE] for row in silent]
    return Ablation(
        silent=len(silent),
        found={kind: sum(kind in cell_kinds for cell_kinds in kinds) for kind in present},
        alone={kind: sum(cell_kinds == {kind} for cell_kinds in kinds) for kind in present},
        on_example=sum(map(bool, example)),
        values_on_example=sum(
            any(difference.kind == "value" and difference.where.startswith("result") for difference in differences)
            for differences in example
        ),
    )


def ablation_table(counts: Ablation, form: str = "simple") -> str:
    """Return the counts as a table, with the shares of all silently wrong cells."""

    def share(number: int) -> str:
        return f"{number} ({number / counts.silent:.0%})" if counts.silent else str(number)

    body = [[kind, share(counts.found[kind]), share(counts.alone[kind])] for kind in counts.found]
    text = tabulate(body, ["comparison", "silent wrongs it finds", "that only it finds"], tablefmt=form)
    return (
        f"{text}\n\nSilently wrong cells: {counts.silent}. One call on the example finds {share(counts.on_example)}; "
        f"if it compares values alone, {share(counts.values_on_example)}."
    )
