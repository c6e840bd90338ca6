"""The rules that turn the events of a cell into its verdict.

`decide` has all rules, in order, for what a cell's own process can observe. The parent process adds the verdicts for a
process that ended without a result (``crash``, ``timeout``, ``oom``) or that failed because of a fault found by the
doctor (``environment``): see `recapture.run.runner`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from recapture.judge.compare import Comparison
from recapture.records.kinds import KINDS
from recapture.records.verdicts import Verdict
from recapture.torch_api.compat import is_capture_error, is_failed_assertion_on_gpu, is_out_of_memory

if TYPE_CHECKING:
    from recapture.judge.observe import Observation, Raised
    from recapture.records.difference import Difference, Unlike
    from recapture.records.eager_calls import EagerCall
    from recapture.records.record import Phase
    from recapture.torch_api.watch import CaptureLog

ENDED_BY_EAGER = "eager fails an assertion on the GPU, after which this process can no longer use it"
"""Reason of a cell whose eager run ends the process's use of the GPU."""

ON_EXAMPLE = ("example", "capture", "original")
"""Inputs of a difference that a program meets with the example alone."""


class Call(NamedTuple):
    """One input: eager's observation, the other side's, and how they compare."""

    eager: Observation
    other: Observation
    comparison: Comparison


class Failure(NamedTuple):
    """An exception that eager does not raise, and the step in which it was raised."""

    phase: Phase
    input: str | None
    raised: Raised


@dataclass
class CellEvents:
    """The events of a cell so far."""

    not_applicable: str | None = None
    """The reason why this compiler cannot be tried on this case here."""
    failure: Failure | None = None
    repeated: list[Call] = field(default_factory=list)
    """Comparisons of eager's first run with its second, one for each input."""
    may_refuse: frozenset[str] = frozenset()
    """The inputs that this compiler may refuse with an exception, because their tensors have other ranks."""
    calls: list[Call] | None = None
    """Comparisons of eager with the captured callable, one for each input; None if the cell ended before."""
    warnings: list[str] = field(default_factory=list)
    """Notes about warnings that only torch issues."""
    capture: Comparison | None = None
    """What capturing itself changed."""
    original: Comparison | None = None
    """How the original callable differs after the calls; None if it does not."""
    unseen: frozenset[tuple[str, Unlike | None]] = frozenset()
    """Differences in attributes of a module that nobody sees, each by its place and by what is unlike there."""
    log: CaptureLog | None = None
    """What Dynamo captured; None for compilers that do not use it."""
    eager: tuple[EagerCall, ...] = ()
    """Digests of what eager gave, where eager itself is what runs."""

    def note_what_nobody_sees(self) -> None:
        """Make notes of the differences in attributes that nobody sees."""
        for comparison in (self.capture, *(call.comparison for call in self.calls or ())):
            if comparison is not None:
                comparison.notes += filter(self._is_unseen, comparison.differences)
                comparison.differences = [item for item in comparison.differences if not self._is_unseen(item)]

    def _is_unseen(self, difference: Difference) -> bool:
        return difference.kind == "mutation" and (difference.where, difference.unlike) in self.unseen


@dataclass(frozen=True)
class Ruling:
    """A verdict with its evidence; `input` is the first input that shows it."""

    verdict: Verdict
    phase: Phase | None = None
    input: str | None = None
    raised: Raised | None = None
    reason: str | None = None
    differences: tuple[Difference, ...] = ()
    noted: tuple[Difference, ...] = ()
    refusals: tuple[Failure, ...] = ()
    """What the compiler may refuse, and does."""


def decide(events: CellEvents) -> Ruling | None:
    """Return the verdict, or None if the events so far do not decide it, so that the cell continues.

    1. ``not_applicable``: this installation lacks something that the compiler or the case needs, eager cannot run the
       example of a generated case, or eager itself ends the process's use of the GPU.
    2. ``error`` or ``oom``: the inputs or the module cannot be made, or the capture raised.
    3. ``oom`` or ``unstable``: eager runs out of memory, or its two runs disagree. No compiler is at fault.
    4. ``wrong``: a silent difference on the example, from capturing itself, or in the original callable afterwards.
    5. ``specialized``: a silent difference on a held-out input, unless the example failed.
    6. ``error`` or ``oom``: a call or its backward raised an exception that eager's does not. Other silent differences
       are kept. Where the compiler may refuse an input, its exception is none of these.
    7. ``pass_with_breaks`` if Dynamo broke the graph, else ``pass``.
    """
    if events.not_applicable is not None:
        return Ruling(Verdict.NOT_APPLICABLE, reason=events.not_applicable)
    if events.failure is not None:
        return _failed(*events.failure)
    for call in events.repeated:
        unstable = _unstable(call)
        if unstable is not None:
            return unstable
    if events.calls is None:
        return None
    failures = [failure for call in events.calls for failure in _failures(call)]
    failed_calls = {failure.input for failure in failures if failure.phase == "call"}
    refusals = [failure for failure in failures if _may_be(failure, events)]
    failures = [failure for failure in failures if not _may_be(failure, events)]
    comparisons = [call.comparison for call in events.calls if call.other.input not in failed_calls]
    comparisons = [
        comparison for comparison in (events.capture, *comparisons, events.original) if comparison is not None
    ]
    differences = tuple(difference for part in comparisons for difference in part.differences)
    decisive = _judged(events, failures, differences)
    # What matters most comes first: the first difference is the headline of the record. It is one of the example where
    # that decides the verdict.
    wrong = decisive.verdict is Verdict.WRONG
    ordered = tuple(
        sorted(
            decisive.differences,
            key=lambda difference: (wrong and difference.input not in ON_EXAMPLE, KINDS[difference.kind].rank),
        )
    )
    noted = tuple(dict.fromkeys(difference for part in comparisons for difference in part.notes))
    return replace(decisive, differences=ordered, noted=noted, refusals=tuple(refusals))


def _judged(events: CellEvents, failures: list[Failure], differences: tuple[Difference, ...]) -> Ruling:
    """Return the verdict of the events of a cell whose calls were made: rules 4 to 7 of `decide`."""
    wrong = next((difference for difference in differences if difference.input in ON_EXAMPLE), None)
    if wrong is not None:
        return Ruling(Verdict.WRONG, input=wrong.input, differences=differences)
    if differences and "example" not in {failure.input for failure in failures}:
        return Ruling(Verdict.SPECIALIZED, input=differences[0].input, differences=differences)
    for phase, label, raised in failures:
        return _failed(phase, label, raised, differences)
    broken = events.log is not None and bool(events.log.break_reasons)
    return Ruling(Verdict.PASS_WITH_BREAKS if broken else Verdict.PASS)


def failed_loudly(eager: Observation, other: Observation) -> bool:
    """Whether a call raised an exception that ``except`` for eager's would not catch."""
    return other.raised is not None and (eager.raised is None or not other.raised.is_a(eager.raised))


def _failures(call: Call) -> list[Failure]:
    """Return the failure of a call, or of the backward after it."""
    eager, other, _ = call
    if other.raised is not None and failed_loudly(eager, other):
        return [Failure("call", other.input, other.raised)]
    if other.backward is not None and (eager.backward is None or not other.backward.is_a(eager.backward)):
        return [Failure("backward", other.input, other.backward)]
    return []


def _may_be(failure: Failure, events: CellEvents) -> bool:
    """Whether a failure is a refusal of an input that this compiler need not take."""
    return failure.input in events.may_refuse and failure.phase == "call" and not is_out_of_memory(failure.raised.error)


def _unstable(call: Call) -> Ruling | None:
    """Return a ruling if eager itself fails or is unstable on one input."""
    first, second, comparison = call
    for raised in (first.raised, second.raised):
        if raised is not None and is_out_of_memory(raised.error):
            return Ruling(Verdict.OOM, "reference", first.input, raised)
        if raised is not None and is_failed_assertion_on_gpu(raised.error):
            return Ruling(Verdict.NOT_APPLICABLE, "reference", first.input, reason=ENDED_BY_EAGER)
    if (first.raised and first.raised.type) != (second.raised and second.raised.type):
        return Ruling(Verdict.UNSTABLE, input=first.input, reason="eager raises on one of two runs")
    if comparison.differences:
        where = comparison.differences[0]
        reason = f"eager disagrees with itself: {where.where} ({where.kind})"
        return Ruling(Verdict.UNSTABLE, input=first.input, reason=reason)
    return None


def _failed(
    phase: Phase,
    label: str | None,
    raised: Raised,
    differences: tuple[Difference, ...] = (),
) -> Ruling:
    if phase == "reference" and is_failed_assertion_on_gpu(raised.error):
        return Ruling(Verdict.NOT_APPLICABLE, phase, label, reason=ENDED_BY_EAGER)
    if phase == "call" and is_capture_error(raised.error):
        phase = "capture"  # torch.compile captures during the first call
    verdict = Verdict.OOM if is_out_of_memory(raised.error) else Verdict.ERROR
    return Ruling(verdict, phase, label, raised, differences=differences)
