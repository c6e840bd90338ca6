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
    kinds = [{one.kind for one in row.differences} for row in silent]
    shown = [kind for kind in KINDS if any(kind in found for found in kinds)]
    example = [[one for one in row.differences if one.input == EXAMPLE] for row in silent]
    return Ablation(
        silent=len(silent),
        found={kind: sum(kind in found for found in kinds) for kind in shown},
        alone={kind: sum(found == {kind} for found in kinds) for kind in shown},
        on_example=sum(map(bool, example)),
        values_on_example=sum(
            any(one.kind == "value" and one.where.startswith("result") for one in found) for found in example
        ),
    )


def ablation_table(found: Ablation, form: str = "simple") -> str:
    """Return the counts as a table, with the shares of all silently wrong cells."""

    def share(number: int) -> str:
        return f"{number} ({number / found.silent:.0%})" if found.silent else str(number)

    body = [[kind, share(found.found[kind]), share(found.alone[kind])] for kind in found.found]
    text = tabulate(body, ["comparison", "silent wrongs it finds", "that only it finds"], tablefmt=form)
    return (
        f"{text}\n\nSilently wrong cells: {found.silent}. One call on the example finds {share(found.on_example)}; "
        f"if it compares values alone, {share(found.values_on_example)}."
    )
