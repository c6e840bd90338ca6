"""The verdict of a cell: what happened, step by step, → one verdict, and what shows it.

`decide` holds every rule, in order. It judges what a cell's own process can see. The parent process adds the verdicts
of a cell whose process ended without an answer (``crash``, ``timeout``, ``oom``) or that met a fault of the machine
which the doctor knows (``environment``): see `recapture.conformance.runner`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from recapture.base.torch_compat import is_capture_error, is_out_of_memory
from recapture.results.verdicts import Verdict

if TYPE_CHECKING:
    from recapture.base.torch_watch import CaptureLog
    from recapture.conformance.judge import Comparison, Difference
    from recapture.conformance.observe import Observation, Raised

__all__ = ["Call", "Failure", "Ruling", "Trial", "decide", "failed_loudly"]


class Call(NamedTuple):
    """One input: eager's observation, the other side's, and how they compare."""

    eager: Observation
    other: Observation
    found: Comparison


class Failure(NamedTuple):
    """What ended a cell outside the observed calls: an exception while eager was prepared, or in the capture."""

    phase: Literal["reference", "capture"]
    input: str | None
    raised: Raised


@dataclass
class Trial:
    """What happened in a cell, as far as it got."""

    not_applicable: str | None = None
    """Why this compiler cannot be tried on this case here."""
    failure: Failure | None = None
    repeated: list[Call] = field(default_factory=list)
    """Eager's first run against its second, one call for each input."""
    calls: list[Call] | None = None
    """Eager against what was captured, one call for each input; None where it did not get that far."""
    warnings: list[str] = field(default_factory=list)
    """Notes about warnings that only torch gives."""
    log: CaptureLog | None = None
    """What Dynamo captured; None for compilers that do not use it."""


@dataclass(frozen=True)
class Ruling:
    """A verdict with what shows it; `input` is the first input that shows it."""

    verdict: Verdict
    phase: Literal["reference", "capture", "call"] | None = None
    input: str | None = None
    raised: Raised | None = None
    reason: str | None = None
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()


def decide(trial: Trial) -> Ruling | None:
    """Return the verdict; None while nothing that happened so far decides it, so that the cell goes on.

    1. ``not_applicable``: this installation lacks what the compiler or the case needs.
    2. ``error`` or ``oom``: the inputs or the module cannot be made, or the capture raised.
    3. ``oom`` or ``unstable``: eager runs out of memory, or its two runs disagree. No compiler is blamed.
    4. ``wrong``: a silent difference on the example.
    5. ``specialized``: a silent difference on a held-out input, unless the example failed.
    6. ``error`` or ``oom``: a call raised what eager does not raise. Silent differences elsewhere are kept.
    7. ``pass_with_breaks`` where Dynamo broke the graph, else ``pass``.
    """
    if trial.not_applicable is not None:
        return Ruling(Verdict.NOT_APPLICABLE, reason=trial.not_applicable)
    if trial.failure is not None:
        return _failed(*trial.failure)
    for call in trial.repeated:
        unstable = _unstable(call)
        if unstable is not None:
            return unstable
    if trial.calls is None:
        return None
    failures = {call.other.input: call.other.raised for call in trial.calls if failed_loudly(call.eager, call.other)}
    differences = tuple(
        one for call in trial.calls if call.other.input not in failures for one in call.found.differences
    )
    notes = tuple(dict.fromkeys([*trial.warnings, *(note for call in trial.calls for note in call.found.notes)]))
    if any(one.input == "example" for one in differences):
        return Ruling(Verdict.WRONG, input=differences[0].input, differences=differences, notes=notes)
    if differences and "example" not in failures:
        return Ruling(Verdict.SPECIALIZED, input=differences[0].input, differences=differences, notes=notes)
    for label, raised in failures.items():
        if raised is not None:
            return _failed("call", label, raised, differences, notes)
    broken = trial.log is not None and bool(trial.log.break_reasons)
    return Ruling(Verdict.PASS_WITH_BREAKS if broken else Verdict.PASS, notes=notes)


def failed_loudly(eager: Observation, other: Observation) -> bool:
    """Whether a call raised what eager does not raise: nothing, or an exception of another type."""
    return other.raised is not None and (eager.raised is None or eager.raised.type != other.raised.type)


def _unstable(call: Call) -> Ruling | None:
    """What is wrong with eager itself on one input."""
    first, second, found = call
    for raised in (first.raised, second.raised):
        if raised is not None and is_out_of_memory(raised.error):
            return Ruling(Verdict.OOM, "reference", first.input, raised)
    if (first.raised and first.raised.type) != (second.raised and second.raised.type):
        return Ruling(Verdict.UNSTABLE, input=first.input, reason="eager raises on one of two runs")
    if found.differences:
        where = found.differences[0]
        reason = f"eager disagrees with itself: {where.where} ({where.kind})"
        return Ruling(Verdict.UNSTABLE, input=first.input, reason=reason)
    return None


def _failed(
    phase: Literal["reference", "capture", "call"],
    label: str | None,
    raised: Raised,
    differences: tuple[Difference, ...] = (),
    notes: tuple[str, ...] = (),
) -> Ruling:
    if phase == "call" and is_capture_error(raised.error):
        phase = "capture"  # torch.compile captures during the first call
    verdict = Verdict.OOM if is_out_of_memory(raised.error) else Verdict.ERROR
    return Ruling(verdict, phase, label, raised, differences=differences, notes=notes)
