"""Cells in which a compiler that should change nothing does change something, each looked at by hand."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.judge.groups import Outcome
from recapture.known.issues import ISSUES
from recapture.records.record import Record
from recapture.records.verdicts import NOT_RUN, RIGHT, SILENTLY_WRONG
from recapture.report.findings import known_lines
from recapture.report.reasons.reason import reasons

GENUINE: dict[str, str] = {
    "forms::generator::compile:eager": "Dynamo returns a tuple_iterator for a generator.",
    "forms::numpy_results::compile:eager": "Dynamo returns an array without dimensions for a numpy scalar.",
    "state::counts_in_a_class::compile:eager": "Dynamo writes the same number to a class attribute in every call.",
    "objects::own_classes::compile:eager": "Dynamo raises InternalTorchDynamoError for an object of an own class.",
    "contents::random_of_python::compile:eager": "Dynamo does not advance a random.Random in later calls.",
    "contents::cached_buffer::compile:eager": "Dynamo goes past functools.cache: nothing is kept.",
    "contents::cached_dict::compile:eager": "Dynamo goes past functools.cache: nothing is kept.",
    "contents::attribute_of_a_member::compile:eager": "Dynamo writes the same number to a member of an enum each time.",
    "contents::read_only_array::compile:eager": "Dynamo raises TorchRuntimeError where an array is made read-only.",
    "contents::rate_of_an_optimizer::compile:eager": "Dynamo adds an item to the parameter groups of an optimizer.",
    "hidden::makes_a_function_attribute::compile:eager": "Dynamo writes the same number to a function each time.",
    "hidden::takes_generators::compile:eager": "Dynamo draws the same number of a random.Random in later calls.",
    "returned::own_set::compile:eager": "Dynamo returns an empty set for one of an own class.",
    "returned::generator::compile:eager": "Dynamo returns a tuple_iterator for a generator.",
    "returned::numpy_records::compile:eager": "Dynamo raises TorchRuntimeError for an array of records.",
    "known_torchscript::divides_by_an_int::compile:eager": "Dynamo raises TorchRuntimeError for a ZeroDivisionError.",
    "strict::nan_payload::equal:rounded-once": "A conversion to a wider dtype and back sets a bit of a NaN.",
    "numerics::variance_and_deviation::equal:rounded-once": "The variance of huge numbers overflows in float32 alone.",
    **{
        f"higher_order::{case}::{compiler}": "`cond` and `while_loop` refuse a dispatch mode, with which this is done."
        for case in ("cond_on_data", "cond_as_a_rewrite", "while_loop_as_a_rewrite")
        for compiler in (
            "equal:reversed-sums",
            "equal:blocked-sums",
            "equal:rounded-once",
            "equal:reciprocals",
            "equal:folded-norms",
            "equal:dense-and-dequantized",
            "equal:biases-apart",
        )
    },
}
"""Addresses of cells, each with what the compiler really does there."""

COMPILER = "compile:eager"
"""The compiler of torch that should change nothing."""


def genuine(outcomes: Iterable[Outcome], records: Iterable[Record]) -> dict[str, str]:
    """Return the cells in which a compiler does change something, each with what it does.

    Beside `GENUINE` these are cells of `compile:eager` in shipped suites, which have the verdict of `records` here too:
    those that fail loudly, and silently wrong ones whose cause was looked at by hand or is a public issue. Cases of
    known issues are recorded with the compilers of their issue alone, so any silently wrong verdict is the issue's.
    """
    records = list(records)
    why = reasons(records)
    recorded = {}
    for record in records:
        if record.compiler != COMPILER or record.verdict in (*RIGHT, *NOT_RUN):
            continue
        silent = record.verdict in SILENTLY_WRONG
        lines = known_lines(record) if silent else [str(why[record.key])]
        if lines:
            recorded[f"{record.case}::{record.compiler}"] = (str(record.verdict), lines[0])
    verdicts: dict[str, set[str]] = {}
    for outcome in outcomes:
        verdicts.setdefault(outcome.cell, set()).add(outcome.verdict)
    same = {cell: line for cell, (verdict, line) in recorded.items() if verdicts.get(cell) == {verdict}}
    issues = {cell: line for cell, line in _issues().items() if verdicts.get(cell, {""}) <= set(SILENTLY_WRONG)}
    return {cell: line for cell, line in GENUINE.items() if cell in verdicts} | issues | same


def _issues() -> dict[str, str]:
    """Return the cells of `COMPILER` whose case shows a known issue under another mode of `torch.compile`."""
    lines = {}
    for issue in ISSUES.shipped.values():
        for case, _, compiler in (cell.rpartition("::") for cell in issue.shown_by):
            if compiler.partition(":")[0] == COMPILER.partition(":")[0]:
                lines[f"{case}::{COMPILER}"] = f"{issue.what} ({issue.link})"
    return lines
