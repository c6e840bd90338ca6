"""One cell, inside its own process: eager twice, then the compiled callable on the example and every held-out input."""

from __future__ import annotations

import inspect
import sys
import warnings
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.exceptions import qualified, safe_text
from recapture.base.scrub import encodable, fingerprint, scrub
from recapture.base.torch_compat import is_capture_error, is_out_of_memory, seed_everything
from recapture.base.torch_watch import CaptureLog, watch_dynamo
from recapture.conformance.judge import Comparison, compare
from recapture.conformance.observe import Observation, Raised, map_tensors, observe_call, restored_torch_state
from recapture.conformance.padding import with_room
from recapture.declare.case import CASES_ATTRIBUTE, Case
from recapture.declare.collection import execute, unmet
from recapture.declare.compilers import builtin_compilers, compilers_of
from recapture.results.records import Difference, ErrorInfo, Phase
from recapture.results.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recapture.declare.compiler import Compiler

__all__ = ["CellSpec", "Findings", "examine"]


class CellSpec(msgspec.Struct, frozen=True):
    """Everything a child needs to run one cell. `compiler_file` is the suite file of a user's own compiler."""

    suite: str
    path: str
    case: str
    compiler: str
    device: str
    compiler_suite: str | None = None
    compiler_file: str | None = None


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a child reports of its cell; the host adds claims and hash and makes it a record."""

    verdict: Verdict
    phase: Phase | None = None
    input: str | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    break_reasons: tuple[str, ...] = ()


def examine(spec: CellSpec, enter: Callable[[Phase], None]) -> Findings:
    """Run one cell in this process; `enter` is told of each phase, so that a crash can be placed."""
    enter("reference")
    case = _load(spec)
    try:
        missing = _not_applicable(case, spec)
    except Exception as error:  # the compiler's own `unavailable`
        return _failed("capture", None, error)
    if missing is not None:
        return Findings(verdict=Verdict.NOT_APPLICABLE, reason=missing)
    eager = _Eager(spec)
    try:
        reference = eager.observe()
        again = eager.observe()
    except BaseException as error:  # its inputs or its module cannot be made: there is nothing to compare with
        return _failed("reference", None, error)
    raised = next((one.raised for one in reference if one.raised is not None), None)
    if raised is not None:  # of which the doctor may know that it is the machine's fault
        print(raised.traceback, file=sys.stderr)
    unstable = _disagreement(reference, again)
    if unstable is not None:
        return unstable
    if spec.compiler == "eager":
        return _judge_eager(case, spec, reference)
    compiler = _compiler(spec)
    return _judge(spec, compiler, reference, eager, enter)


def _load(spec: CellSpec) -> Case:
    module = execute(spec.suite, Path(spec.path))
    cases: list[Case] = getattr(module, CASES_ATTRIBUTE)
    return next(one for one in cases if one.name == spec.case)


def _compiler(spec: CellSpec) -> Compiler:
    if spec.compiler_file is None or spec.compiler_suite is None:
        return builtin_compilers()[spec.compiler]
    return compilers_of(execute(f"compilers_of_{spec.compiler_suite}", Path(spec.compiler_file)))[spec.compiler]


def _not_applicable(case: Case, spec: CellSpec) -> str | None:
    compiler = _compiler(spec)
    lacking = unmet("the case", case.since, case.requires) or unmet(spec.compiler, compiler.since, compiler.requires)
    if lacking is not None:
        return lacking
    if compiler.generates_code and case.codegen_on is not None and spec.device not in case.codegen_on:
        return f"the case generates code on {', '.join(case.codegen_on)} alone"
    reason = compiler.unavailable() if compiler.unavailable is not None else None
    return None if reason is None else encodable(reason)


class _Subject:
    """A freshly executed case: its function, or its module built under the seed, on the device."""

    def __init__(self, spec: CellSpec, *, double: bool = False, roomy: bool = False) -> None:
        self.case = _load(spec)
        self.spec = spec
        self.double = double
        self.roomy = roomy
        if self.case.is_module:
            seed_everything()
            self.target: Any = self.case.target().to(spec.device)
            if double:
                self.target = self.target.double()
            self.module: Any = self.target
        else:
            self.target, self.module = self.case.target, None

    def arguments(self, make: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
        """Wrap a factory: what it makes goes to the device (and, for the reference, to float64)."""

        def made() -> tuple[Any, ...]:
            # A tensor given twice stays one; the original is kept alive, so that its id stays its own.
            placed: dict[int, tuple[Any, Any]] = {}
            rooms: dict[int, Any] = {}

            def place(tensor: Any) -> Any:
                if id(tensor) not in placed:
                    there = self._place(tensor)
                    placed[id(tensor)] = (tensor, with_room(there, rooms) if self.roomy else there)
                return placed[id(tensor)][1]

            args: tuple[Any, ...] = map_tensors(make(), place)
            return args

        return made

    def _place(self, tensor: Any) -> Any:
        import torch

        placed = tensor.detach().to(self.spec.device) if tensor.device.type != self.spec.device else tensor
        if self.double and (placed.is_floating_point() or placed.is_complex()):
            placed = placed.detach().to(torch.complex128 if placed.is_complex() else torch.float64)
        if placed is tensor:
            return tensor
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(placed, requires_grad=tensor.requires_grad)
        return placed.requires_grad_(True) if tensor.requires_grad else placed

    def call(
        self, function: Callable[..., Any], label: str, make: Callable[[], tuple[Any, ...]], **more: Any
    ) -> Observation:
        """Observe one call of `function`, which is the target or what a compiler made of it."""
        case = self.case
        module = more.pop("module", self.module)
        return observe_call(
            function,
            label,
            self.arguments(make),
            module=module,
            watch=case.watch,
            capture_output=case.compare_output,
            device=self.spec.device,
        )


class _Eager:
    """The reference observations of a case, each time from a fresh execution of its file."""

    def __init__(self, spec: CellSpec) -> None:
        self.spec = spec
        self._exact: dict[str, Observation] | None = None

    def observe(
        self, *, double: bool = False, rewrite: bool = False, skip: frozenset[str] = frozenset()
    ) -> list[Observation]:
        """Call eager on every input in order, or on all but some."""
        subject = _Subject(self.spec, double=double)
        target = subject.case.rewrite_of if rewrite and subject.case.rewrite_of is not None else subject.target
        return [subject.call(target, label, make) for label, make in subject.case.inputs() if label not in skip]

    def exact(self, label: str, *, rewrite: bool = False) -> Observation | None:
        """The observation of one input with floating-point arguments and parameters in float64; None if that fails."""
        if self._exact is None:
            try:
                seen = self.observe(double=True, rewrite=rewrite)
                self._exact = {one.input: one for one in seen if one.raised is None}
            except Exception:  # a case that cannot run in float64 has no such reference
                self._exact = {}
        return self._exact.get(label)


def _disagreement(first: list[Observation], second: list[Observation]) -> Findings | None:
    """Eager against eager: what it cannot repeat is no compiler's fault."""
    for one, two in zip(first, second, strict=True):
        for raised in (one.raised, two.raised):
            if raised is not None and is_out_of_memory(raised.error):
                return Findings(verdict=Verdict.OOM, phase="reference", input=one.input, error=_error(raised))
        if (one.raised is None) != (two.raised is None) or (
            one.raised and two.raised and one.raised.type != two.raised.type
        ):
            return Findings(verdict=Verdict.UNSTABLE, input=one.input, reason="eager raises on one of two runs")
        comparison = compare(one, two, show_values=False)
        if comparison.differences:
            where = comparison.differences[0]
            reason = f"eager disagrees with itself: {where.where} ({where.kind})"
            return Findings(verdict=Verdict.UNSTABLE, input=one.input, reason=reason)
    return None


def _judge_eager(case: Case, spec: CellSpec, reference: list[Observation]) -> Findings:
    """Eager agrees with itself; a rewrite must also agree with what it was offered as equivalent to."""
    if case.rewrite_of is None:
        return Findings(verdict=Verdict.PASS)
    eager = _Eager(spec)
    original = eager.observe(rewrite=True)
    outcomes = [
        (one, two, compare(one, two, exact=partial(eager.exact, one.input, rewrite=True)))
        for one, two in zip(original, reference, strict=True)
    ]
    return _verdict(outcomes, CaptureLog(breaks_known=False), counted=False)


def _judge(
    spec: CellSpec,
    compiler: Compiler,
    reference: list[Observation],
    eager: _Eager,
    enter: Callable[[Phase], None],
) -> Findings:
    subject = _Subject(spec, roomy=not compiler.checks_inputs)
    warned: list[str] = []
    enter("capture")
    unwatched = nullcontext(CaptureLog(breaks_known=False))
    with watch_dynamo() if compiler.uses_dynamo else unwatched as log, _torch_warnings(warned):
        _, example = subject.case.inputs()[0]
        seed_everything()
        try:
            with restored_torch_state():  # what capturing leaks would pass for what the captured calls do
                captured = compiler.capture(
                    subject.target, subject.arguments(example)(), **_options(compiler, subject.case)
                )
        except BaseException as error:  # whatever a compiler raises is its outcome
            return _failed("capture", "example", error)
        enter("call")
        module = _stateful(captured, subject) if compiler.shares_state else None
        outcomes = []
        seen = [subject.call(captured, label, make, module=module) for label, make in subject.case.inputs()]
    outcomes = _outcomes(compiler, reference, seen, eager)
    return _verdict(outcomes, log, counted=compiler.uses_dynamo, warned=warned)


def _stateful(captured: Any, subject: _Subject) -> Any:
    """The module whose state the captured calls change: a scripted one sets its own attributes, not the original's."""
    import torch

    scripted = isinstance(captured, torch.jit.RecursiveScriptModule)
    return captured if scripted and subject.module is not None else subject.module


_Outcomes = list[tuple[Observation, Observation, Comparison]]


def _outcomes(compiler: Compiler, reference: list[Observation], seen: list[Observation], eager: _Eager) -> _Outcomes:
    """Compare call by call. A call that failed loudly changed nothing that later calls should have seen.

    Where something differs after such a failure, eager runs again without the failed inputs: only what differs from
    that as well was silent.
    """

    def against(one: Observation, two: Observation) -> Comparison:
        sized = compiler.checks_inputs or one.input == "example"
        return compare(one, two, exact=lambda: eager.exact(one.input), show_values=sized)

    outcomes = [(one, two, against(one, two)) for one, two in zip(reference, seen, strict=True)]
    failed = frozenset(two.input for one, two, _ in outcomes if _is_failure(one, two))
    if not failed or not any(found.differences for _, two, found in outcomes if two.input not in failed):
        return outcomes
    without = {one.input: one for one in eager.observe(skip=failed)}
    for index, (_, two, found) in enumerate(outcomes):
        if two.input not in failed and found.differences:
            again = against(without[two.input], two)
            if not again.differences:
                outcomes[index] = (without[two.input], two, again)
    return outcomes


def _is_failure(eager: Observation, other: Observation) -> bool:
    """Whether a call raised what eager does not raise."""
    return other.raised is not None and (eager.raised is None or eager.raised.type != other.raised.type)


def _options(compiler: Compiler, case: Case) -> dict[str, Any]:
    """What a case says about its own capture, for a compiler that wants to know."""
    if "concrete_args" in inspect.signature(compiler.function).parameters:
        return {"concrete_args": case.concrete_args}
    return {}


def _verdict(
    outcomes: _Outcomes,
    log: CaptureLog,
    *,
    counted: bool,
    warned: list[str] | None = None,
) -> Findings:
    """The worst that happened decides; an error on the example outranks what held-out inputs show."""
    failures = {seen.input: seen.raised for eager, seen, _ in outcomes if _is_failure(eager, seen) and seen.raised}
    differences = tuple(one for _, seen, found in outcomes if seen.input not in failures for one in found.differences)
    notes = tuple(dict.fromkeys([*(warned or []), *(note for _, _, found in outcomes for note in found.notes)]))
    seen_of_capture: dict[str, Any] = {}
    if counted:
        reasons = tuple(dict.fromkeys(scrub(reason) for reason in log.break_reasons))
        seen_of_capture = {
            "graphs": log.graphs,
            "graph_breaks": log.graph_breaks,
            "recompiles": log.recompiles,
            "break_reasons": reasons,
        }
    shared = {**seen_of_capture, "differences": differences, "notes": notes}
    wrong_on_example = any(one.input == "example" for one in differences)
    if wrong_on_example or (differences and "example" not in failures):
        verdict = Verdict.WRONG if wrong_on_example else Verdict.SPECIALIZED
        return Findings(verdict=verdict, input=differences[0].input, **shared)
    if failures:
        label, raised = next(iter(failures.items()))
        return _failed("call", label, raised.error, raised, **shared)
    broken = counted and bool(log.break_reasons)
    return Findings(verdict=Verdict.PASS_WITH_BREAKS if broken else Verdict.PASS, **shared)


def _failed(
    phase: Phase, label: str | None, error: BaseException, raised: Raised | None = None, **shared: Any
) -> Findings:
    if phase == "call" and is_capture_error(error):
        phase = "capture"  # torch.compile captures during the first call
    print(raised.traceback if raised else f"{qualified(type(error))}: {safe_text(error)}", file=sys.stderr)
    verdict = Verdict.OOM if is_out_of_memory(error) else Verdict.ERROR
    info = _error(raised) if raised else _error_info(qualified(type(error)), safe_text(error))
    return Findings(verdict=verdict, phase=phase, input=label, error=info, **shared)


def _error(raised: Raised) -> ErrorInfo:
    return _error_info(raised.type, raised.message)


def _error_info(kind: str, message: str) -> ErrorInfo:
    return ErrorInfo(type=kind, message=scrub(message), fingerprint=fingerprint(kind, message))


def _torchs_warnings() -> list[type[Warning]]:
    """The categories of warnings that are torch's own, of those that there are by now."""
    found: list[type[Warning]] = []
    queue: list[type[Warning]] = [Warning]
    while queue:
        kinds = queue.pop().__subclasses__()
        queue += kinds
        found += [kind for kind in kinds if kind.__module__.startswith("torch")]
    return found


@contextmanager
def _torch_warnings(found: list[str]) -> Iterator[None]:
    """Note the kinds of warning that only torch gives (TracerWarning): a wrong warned of is not quite silent."""
    with warnings.catch_warnings():
        # For torch's own alone: what the suite's file turned into errors stays one, as it was for eager.
        for category in _torchs_warnings():
            warnings.simplefilter("default", category)
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category.__module__.startswith("torch") and f"warned: {category.__name__}" not in found:
                found.append(f"warned: {category.__name__}")
            show(message, category, *where, **more)

        warnings.showwarning = note
        yield
