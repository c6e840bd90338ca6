"""Tries one compiler on one case: eager twice, then the captured callable on the example and every held-out input."""

from __future__ import annotations

import inspect
import sys
import warnings
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from recapture.base.exceptions import qualified, safe_text
from recapture.base.torch_compat import seed_everything
from recapture.base.torch_watch import CaptureLog, watch_dynamo
from recapture.conformance.judge import compare
from recapture.conformance.observe import Raised, observe_call, restored_torch_state
from recapture.conformance.placement import arguments
from recapture.conformance.tensors_inside import map_tensors
from recapture.conformance.verdict import Call, Failure, Trial, decide, failed_loudly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recapture.conformance.judge import Comparison
    from recapture.conformance.observe import Observation
    from recapture.declare.case import Case
    from recapture.declare.compiler import Compiler

__all__ = ["carry_out"]


def carry_out(load: Callable[[], Case], compiler: Compiler, device: str, enter: Callable[[str], None]) -> Trial:
    """Carry out the steps of a cell until its verdict is decided.

    `load` executes the case's file as a new module and returns the case, so that eager and the compiler share no state.
    `enter` is called with the phase that begins after eager's two runs, ``capture`` or ``call``.
    """
    trial = Trial()
    eager = _Eager(load, device)
    try:
        first, second = eager.observe(), eager.observe()
    except BaseException as error:  # the inputs or the module cannot be made: nothing to compare
        trial.failure = Failure("reference", None, _brief(error))
        return trial
    raised = next((one.raised for one in first if one.raised is not None), None)
    if raised is not None:  # a check of the doctor may explain it
        print(raised.traceback, file=sys.stderr)
    trial.repeated = [
        Call(one, two, compare(one, two, show_values=False)) for one, two in zip(first, second, strict=True)
    ]
    if decide(trial) is not None:
        return trial
    if compiler.name == "eager":
        trial.calls = _against_rewrite(load(), first, eager)
        return trial
    subject = FreshCase(load(), device, roomy=not compiler.checks_inputs)
    seen = _capture_and_call(subject, compiler, trial, enter)
    if seen is not None:
        trial.calls = _compared(compiler, first, seen, eager)
    return trial


def _brief(error: BaseException) -> Raised:
    """Describe an exception outside the observed calls, without the stack inside torch."""
    kind, text = qualified(type(error)), safe_text(error)
    return Raised(kind, text, f"{kind}: {text}", error)


class FreshCase:
    """A newly executed case: its function, or its module built under the seed, on the device.

    `double` converts every floating-point argument and parameter to float64; `roomy` adds zeros behind every argument.
    """

    def __init__(self, case: Case, device: str, *, double: bool = False, roomy: bool = False) -> None:
        self.case = case
        self.device = device
        self.double = double
        self.roomy = roomy
        self.target: Any = case.target
        self.module: Any = None
        if case.is_module:
            seed_everything()
            self.target = case.target().to(device)
            if double:
                self.target = self.target.double()
            self.module = self.target

    def arguments(self, make: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
        """Wrap a factory: its tensors are moved to the device (and, for the reference, converted to float64)."""

        def made() -> tuple[Any, ...]:
            args = arguments(make, self.device, roomy=self.roomy)
            return map_tensors(args, _in_float64) if self.double else args

        return made

    def call(
        self, function: Callable[..., Any], label: str, make: Callable[[], tuple[Any, ...]], module: Any
    ) -> Observation:
        """Observe one call of `function`, which is the target or a compiler's result."""
        return observe_call(
            function,
            label,
            self.arguments(make),
            module=module,
            watch=self.case.watch,
            capture_output=self.case.compare_output,
            device=self.device,
        )


def _in_float64(tensor: Any) -> Any:
    """Convert a floating-point tensor; a tensor that was computed from others becomes a leaf."""
    import torch

    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    double = tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(double, requires_grad=tensor.requires_grad)
    return double.requires_grad_(tensor.requires_grad)


class _Eager:
    """The reference observations of a case, each from a new execution of its file."""

    def __init__(self, load: Callable[[], Case], device: str) -> None:
        self.load = load
        self.device = device
        self._exact: dict[str, Observation] | None = None

    def observe(
        self, *, double: bool = False, rewrite: bool = False, skip: frozenset[str] = frozenset()
    ) -> list[Observation]:
        """Call eager on every input in order, except those in `skip`."""
        subject = FreshCase(self.load(), self.device, double=double)
        case = subject.case
        target = case.rewrite_of if rewrite and case.rewrite_of is not None else subject.target
        return [subject.call(target, label, make, subject.module) for label, make in case.inputs() if label not in skip]

    def exact(self, label: str, *, rewrite: bool = False) -> Observation | None:
        """Return the observation of one input with floating-point values in float64; None if that fails."""
        if self._exact is None:
            try:
                seen = self.observe(double=True, rewrite=rewrite)
                self._exact = {one.input: one for one in seen if one.raised is None}
            except Exception:  # a case that cannot run in float64 has no reference
                self._exact = {}
        return self._exact.get(label)


def _against_rewrite(case: Case, first: list[Observation], eager: _Eager) -> list[Call]:
    """Compare a rewrite with its original function; other cases have nothing to compare."""
    if case.rewrite_of is None:
        return []
    original = _Eager(eager.load, eager.device)
    return [
        Call(one, two, compare(one, two, exact=partial(original.exact, one.input, rewrite=True)))
        for one, two in zip(original.observe(rewrite=True), first, strict=True)
    ]


def _capture_and_call(
    subject: FreshCase, compiler: Compiler, trial: Trial, enter: Callable[[str], None]
) -> list[Observation] | None:
    """Capture with the example and call on every input; if the capture raises, set `trial.failure`, return None."""
    enter("capture")
    unwatched = nullcontext(CaptureLog(breaks_known=False))
    with watch_dynamo() if compiler.uses_dynamo else unwatched as log, torch_warnings(trial.warnings):
        _, example = subject.case.inputs()[0]
        seed_everything()
        try:
            with restored_torch_state():  # leaks of the capture are not effects of the calls
                captured = compiler.function(
                    subject.target, subject.arguments(example)(), **_options(compiler, subject.case)
                )
        except BaseException as error:  # any exception of a compiler is its outcome
            trial.failure = Failure("capture", "example", _brief(error))
            return None
        enter("call")
        module = _stateful(captured, subject) if compiler.shares_state else None
        seen = [subject.call(captured, label, make, module) for label, make in subject.case.inputs()]
    trial.log = log if compiler.uses_dynamo else None
    return seen


def _stateful(captured: Any, subject: FreshCase) -> Any:
    """Return the module whose state the captured calls change; a scripted module has its own attributes."""
    import torch

    scripted = isinstance(captured, torch.jit.RecursiveScriptModule)
    return captured if scripted and subject.module is not None else subject.module


def _options(compiler: Compiler, case: Case) -> dict[str, Any]:
    """Return a case's capture options that the compiler accepts as arguments."""
    if "concrete_args" in inspect.signature(compiler.function).parameters:
        return {"concrete_args": case.concrete_args}
    return {}


def _compared(compiler: Compiler, first: list[Observation], seen: list[Observation], eager: _Eager) -> list[Call]:
    """Compare call by call. A call that failed visibly must not affect the comparison of later calls.

    If something differs after such a failure, eager runs again without the failed inputs. Only a difference from that
    run as well is a silent difference.
    """

    def against(one: Observation, two: Observation) -> Comparison:
        owns_memory = compiler.checks_inputs or one.input == "example"
        return compare(one, two, exact=lambda: eager.exact(one.input), show_values=owns_memory)

    calls = [Call(one, two, against(one, two)) for one, two in zip(first, seen, strict=True)]
    failed = frozenset(call.other.input for call in calls if failed_loudly(call.eager, call.other))
    if not failed or not any(call.found.differences for call in calls if call.other.input not in failed):
        return calls
    without = {one.input: one for one in eager.observe(skip=failed)}
    for index, (_, two, found) in enumerate(calls):
        if two.input not in failed and found.differences:
            again = against(without[two.input], two)
            if not again.differences:
                calls[index] = Call(without[two.input], two, again)
    return calls


def _categories_of_torch() -> list[type[Warning]]:
    """Return the categories of warnings that the imported parts of torch define."""
    found: list[type[Warning]] = []
    queue: list[type[Warning]] = [Warning]
    while queue:
        kinds = queue.pop().__subclasses__()
        queue += kinds
        found += [kind for kind in kinds if kind.__module__.startswith("torch")]
    return found


@contextmanager
def torch_warnings(found: list[str]) -> Iterator[None]:
    """Append a note for each kind of warning that only torch issues (TracerWarning)."""
    with warnings.catch_warnings():
        # Only for torch's categories: a suite's own filters, such as warnings as errors, must apply as for eager.
        for category in _categories_of_torch():
            warnings.simplefilter("default", category)
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category.__module__.startswith("torch") and f"warned: {category.__name__}" not in found:
                found.append(f"warned: {category.__name__}")
            show(message, category, *where, **more)

        warnings.showwarning = note
        yield
