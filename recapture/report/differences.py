"""What differs, in words: a cell's differences, how often each kind occurs, its guilty stage, and its notes."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from recapture.base.text import one_line, shorten
from recapture.records.difference import Difference
from recapture.records.directories import Results
from recapture.records.guilty_stage import STAGES, GuiltyStage
from recapture.records.kinds import KINDS
from recapture.records.record import Record

_PLACES = {"capture": "while capturing", "original": "on the original after capture"}
"""Words for the inputs that are no arguments."""

LARGE = 1_000_000
"""Smallest number of units in the last place that is shown as a power of ten."""


class KindCount(NamedTuple):
    """The numbers of silently wrong cells, and of their cases, that have a difference of one kind."""

    kind: str
    cells: int
    cases: int


def place(label: str) -> str:
    """Return the name of an input in words: ``on held_out[0]``, or ``while capturing``."""
    return _PLACES.get(label, f"on {label}")


def how_far(difference: Difference) -> str:
    """Return how far numbers differ, such as ``signed-zero, 3 of 25 elements, 4 ulp``; empty if it is not known.

    The elements are left out if the sentence names them already.
    """
    parts: list[str] = []
    if difference.bits not in (None, "value"):
        parts.append(str(difference.bits))
    if difference.elements is not None:
        # The sentence counts elements where it says which of them is the first that differs.
        parts += [] if difference.at else ["{} of {} elements".format(*difference.elements)]
    # No distance between values that differ: one of each two is infinite or NaN, and is not counted.
    if difference.ulps is not None and (difference.ulps or difference.bits != "value"):
        parts.append(f"{difference.ulps:.1e} ulp" if difference.ulps >= LARGE else f"{difference.ulps} ulp")
    return ", ".join(parts)


def describe_difference(difference: Difference) -> str:
    """Return a difference as one line, such as ``on example, result[0]: value (4 ulp): 3 of 25 elements differ``."""
    distance = f" ({distance})" if (distance := how_far(difference)) else ""
    detail = f": {difference.detail}" if difference.detail else ""
    return one_line(f"{place(difference.input)}, {difference.where}: {difference.kind}{distance}{detail}")


def describe_away_from_input(difference: Difference) -> str:
    """Return the place and detail of a difference as one line, for a group of inputs that share them.

    Figures that may differ from input to input are left out: the number of elements and the distance.
    """
    bits = f"{difference.bits}: " if difference.bits not in (None, "value") else ""
    return one_line(f"{difference.where}: {bits}{difference.detail}")


def kinds_of(differences: Iterable[Difference]) -> list[str]:
    """Return the kinds of differences, each once, in the order of `KINDS`."""
    kinds = {difference.kind for difference in differences}
    return [kind for kind in KINDS if kind in kinds]


def kinds_in_words(record: Record) -> str:
    """Return the kinds of a cell's silent differences, such as ``value, dtype``; empty if there is none."""
    return ", ".join(kinds_of(record.differences))


def has_kind(record: Record, kinds: Collection[str]) -> bool:
    """Whether a cell has a difference of one of these kinds, silent or noted, or a verdict that is among them."""
    return str(record.verdict) in kinds or any(
        difference.kind in kinds for difference in (*record.differences, *record.noted)
    )


def with_kinds(results: Results, kinds: Collection[str]) -> Results:
    """Return results with only the cells of these kinds of differences or verdicts; with all if none is given.

    Reports say how many of the recorded cells they show (see `environment_facts.accounting`).
    """
    if not kinds:
        return results
    return dataclasses.replace(results, records=tuple(record for record in results.records if has_kind(record, kinds)))


def silent_kinds(records: Iterable[Record]) -> list[KindCount]:
    """Return the cells with silent differences by kind, the kind with the most cells first.

    A cell with differences of several kinds counts for each of them.
    """
    cells_by_kind: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        for kind in kinds_of(record.differences):
            cells_by_kind[kind].append(record)
    counts = (
        KindCount(kind, len(cells), len({record.case for record in cells})) for kind, cells in cells_by_kind.items()
    )
    return sorted(counts, key=lambda count: (-count.cells, count.kind))


def noted_by_compiler(by_compiler: Mapping[str, Iterable[Record]]) -> dict[str, Counter[str]]:
    """Return the number of each compiler's cells with noted differences of each kind, without compilers that have none.

    `by_compiler` has the records of each compiler; the order is kept.
    """
    counted = {name: noted_numbers(records) for name, records in by_compiler.items()}
    return {name: numbers for name, numbers in counted.items() if numbers}


def noted_numbers(records: Iterable[Record]) -> Counter[str]:
    """Return the number of cells with noted differences of each kind, the largest first."""
    numbers = Counter(kind for record in records for kind in kinds_of(record.noted))
    return Counter({kind: numbers[kind] for kind in sorted(numbers, key=lambda kind: (-numbers[kind], kind))})


def commonest_difference(cells: Iterable[Record]) -> tuple[str, int]:
    """Return the most common difference of silently wrong cells, such as ``value on held_out[0]``.

    The second value is the number of other combinations of kind and input in these cells.
    """
    kinds: Counter[str] = Counter()
    for record in cells:
        places = [f"{difference.kind} {place(difference.input)}" for difference in record.differences]
        places = places or [record.reason or "no difference recorded"]
        kinds.update(list(dict.fromkeys(places)))  # a list: a Counter adds up a mapping's values
    return one_line(kinds.most_common(1)[0][0]), len(kinds) - 1


def identity(difference: Difference) -> tuple[str, str, str, str]:
    """Return what identifies a difference: not its figures, which change with every kernel."""
    return (difference.input, difference.where, difference.kind, difference.bits or "value")


def stage_of(record: Record) -> GuiltyStage | None:
    """Return the guilty stage that a record names, if it names one."""
    return None if record.stage is msgspec.UNSET else record.stage


def culprit(stage: GuiltyStage) -> str:
    """Return a stage and its part, such as ``Inductor, vectorization``."""
    return STAGES[stage.name] + (f", {stage.part}" if stage.part else "")


def stage_changed(old: Record | None, new: Record | None) -> str:
    """Return a note if both records name a guilty stage, and not the same; else an empty text."""
    before, after = (None if record is None else stage_of(record) for record in (old, new))
    if before is None or after is None or culprit(before) == culprit(after):
        return ""
    return f"guilty stage: {culprit(before)} → {culprit(after)}"


def notes_of(record: Record) -> dict[tuple[str, ...], str]:
    """Return what a record notes and no verdict depends on: differences by their identity, and remarks; with a text."""
    differences: dict[tuple[str, ...], str] = {
        identity(difference): describe_difference(difference) for difference in record.noted
    }
    return differences | {(remark,): one_line(remark) for remark in record.notes}


def changed_note(old: Record, new: Record, limit: int) -> str:
    """Return the first note that only one of two records has, in at most `limit` characters; empty if there is none."""
    before, after = notes_of(old), notes_of(new)
    come = [text for key, text in after.items() if key not in before]
    gone = [f"no longer: {text}" for key, text in before.items() if key not in after]
    return shorten(next(iter([*come, *gone, stage_changed(old, new)]), ""), limit)
