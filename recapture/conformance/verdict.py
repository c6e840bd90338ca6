"""The rules that turn the events of a cell into its verdict.

`decide` has all rules, in order, for what a cell's own process can observe. The parent process adds the verdicts for a
process that ended without a result (``crash``, ``timeout``, ``oom``) or that failed because of a fault found by the
doctor (``environment``): see `recapture.conformance.runner`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from recapture.base.torch_compat import is_capture_error, is_out_of_memory
from recapture.results.verdicts import Verdict

if TYPE_CHECKING:
    from recapture.base.torch_watch import CaptureLog
    from recapture.conformance.judge import Comparison
    from recapture.conformance.observe import Observation, Raised
    from recapture.results.records import Difference

__all__ = ["Call", "Failure", "Ruling", "Trial", "decide", "failed_loudly"]


class Call(NamedTuple):
    """One input: eager's observation, the other side's, and how they compare."""

    eager: Observation
    other: Observation
    found: Comparison


class Failure(NamedTuple):
    """An exception outside the observed calls, while preparing eager or during the capture, which ended a cell."""

    phase: Literal["reference", "capture"]
    input: str | None
    raised: Raised


@dataclass
class Trial:
    """The events of a cell so far."""

    not_applicable: str | None = None
    """The reason why this compiler cannot be tried on this case here."""
    failure: Failure | None = None
    repeated: list[Call] = field(default_factory=list)
    """Comparisons of eager's first run with its second, one for each input."""
    calls: list[Call] | None = None
    """Comparisons of eager with the captured callable, one for each input; None if the cell ended before."""
    warnings: list[str] = field(default_factory=list)
    """Notes about warnings that only torch issues."""
    log: CaptureLog | None = None
    """What Dynamo captured; None for compilers that do not use it."""


@dataclass(frozen=True)
class Ruling:
    """A verdict with its evidence; `input` is the first input that shows it."""

    verdict: Verdict
    phase: Literal["reference", "capture", "call"] | None = None
    input: str | None = None
    raised: Raised | None = None
    reason: str | None = None
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()


def decide(trial: Trial) -> Ruling | None:
    """Return the verdict, or None if the events so far do not decide it, so that the cell continues.

    1. ``not_applicable``: this installation lacks something that the compiler or the case needs.
    2. ``error`` or ``oom``: the inputs or the module cannot be made, or the capture raised.
    3. ``oom`` or ``unstable``: eager runs out of memory, or its two runs disagree. No compiler is at fault.
    4. ``wrong``: a silent difference on the example.
    5. ``specialized``: a silent difference on a held-out input, unless the example failed.
    6. ``error`` or ``oom``: a call raised an exception that eager does not raise. Other silent differences are kept.
    7. ``pass_with_breaks`` if Dynamo broke the graph, else ``pass``.
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
    """Whether a call raised an exception where eager raised none or one of another type."""
    return other.raised is not None and (eager.raised is None or eager.raised.type != other.raised.type)


def _unstable(call: Call) -> Ruling | None:
    """Return a ruling if eager itself fails or is unstable on one input."""
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
