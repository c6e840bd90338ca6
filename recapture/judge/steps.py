"""Carries out the steps of a cell: eager twice, the capture, the captured callable on every input, the original again.

A call that raises, a difference on one input and a warning of torch are facts of the cell, and the next step follows
all the same. What no later step can be compared with ends the cell: eager that cannot run, or a capture that raises.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from recapture.base.exceptions import qualified, safe_text
from recapture.base.scrub import encodable, scrub
from recapture.base.text import one_line, shorten
from recapture.judge.compare import Comparison, Rules, Sample, changing_entries, compare, compare_places
from recapture.judge.digest import eager_calls
from recapture.judge.fresh_case import FreshCase
from recapture.judge.large_tensors import sharing
from recapture.judge.later_calls import differs_beside_the_state, unseen
from recapture.judge.observe import ARGUMENTS_SEED, Observation, Raised, end_if_forked
from recapture.judge.recorded_output import add_to_log
from recapture.judge.reference import Eager, first_again
from recapture.judge.snapshot import Snapshot, TensorSnapshot, describe
from recapture.judge.torch_state import Flags, place_of, read_flags, restore_flags, setting_texts
from recapture.judge.verdict import Call, CellEvents, Failure, decide, failed_loudly
from recapture.judge.wording import short
from recapture.records.difference import Aspect, Difference, InputChange
from recapture.torch_api.compat import allow_recompilations, device_works, pytree, seed_everything
from recapture.torch_api.watch import CaptureLog, watch_dynamo

if TYPE_CHECKING:
    from recapture.cases.case import Case
    from recapture.cases.compiler import Compiler

CAPTURE_SEED = 1
"""Seed of the capture, other than that of any call: random numbers that it keeps differ from those of the calls."""


def carry_out(load: Callable[[], Case], compiler: Compiler, device: str, enter: Callable[[str], None]) -> CellEvents:
    """Carry out the steps of a cell until its verdict is decided.

    `load` executes the case's file as a new module and returns the case, so that eager and the compiler share no state.
    `enter` is called with the phase that begins after eager's two runs: ``capture``, or ``call`` and the input's name.
    """
    events = CellEvents()
    load = partial(_under_the_seed, load)
    eager = Eager(load, device)
    try:
        first, second = eager.observe(), eager.observe(again=True)
    except BaseException as error:  # the inputs or the module cannot be made: nothing to compare
        events.failure = Failure("reference", None, _brief(error))
        return events
    raised = next((observation.raised for observation in first if observation.raised is not None), None)
    if raised is not None:  # a check of the doctor may explain it
        add_to_log(sys.stderr, f"{raised.traceback}\n")
    events.repeated = _repeated(first, second, eager)
    if decide(events) is not None:
        events.eager = eager_calls(load, device, first, second) if compiler.is_reference else ()
        return events
    if first[0].raised is not None and load().made_by is not None:
        events.not_applicable = _cannot_run(first[0].raised)
        return events
    shapes = held_out_shapes(load()) if compiler.sees_held_out else ()
    subject = FreshCase(load(), device, roomy=not compiler.checks_inputs)
    if compiler.is_reference:  # eager has just been compared with itself: only a rewrite has another side
        events.calls = _against_rewrite(subject.case, first, eager)
        events.eager = eager_calls(load, device, first, second)
        return events
    events.may_refuse = subject.case.other_rank_inputs if compiler.fixed_ranks else frozenset()
    observed = _capture_and_call(subject, compiler, shapes, events, eager, first, enter)
    if observed is None:
        return events
    # Before the file is executed again for runs with noise, which ends the operators that this execution registered.
    again = _called_again(subject)
    subject.leave()  # so that these runs begin with what eager's first one began with
    events.calls = _compared(compiler, subject.case, first, observed, eager)
    events.note_what_nobody_sees()
    heeded = [call for call in events.calls if call.other.input not in events.may_refuse]
    usable = not any(failed_loudly(call.eager, call.other) for call in heeded)  # else a GPU may refuse everything
    sample = partial(eager.sample, first[0].input) if eager.rounds_anew else None
    # Only where eager itself works again after the state is restored.
    if usable and _disagreement(first[0], second[-1], sample) is None:
        events.original = _works_still(again, first[0], sample)
    return events


def _repeated(first: list[Observation], second: list[Observation], eager: Eager) -> list[Call]:
    """Compare eager's two runs, call by call.

    Noise comes in only where they differ by rounding alone: other runs with noise differ from each other in any case,
    so that anything would be taken for rounding.
    """
    quiet = Rules(repeated=True, show_values=False)
    pairs = list(zip(first, second, strict=False))
    unequal: list[int] = []  # runs with noise are asked for where bits differ, and there are none yet
    calls = [Call(before, after, compare(before, after, sample=unequal.append, rules=quiet)) for before, after in pairs]
    differ = bool(unequal) or any(call.comparison.differences for call in calls)
    if not differ or not eager.find_rounding(second):
        return calls
    quiet = Rules(show_values=False)
    return [
        Call(before, after, compare(before, after, sample=partial(eager.sample, before.input), rules=quiet))
        for before, after in pairs
    ]


def _under_the_seed(load: Callable[[], Case]) -> Case:
    """Execute the case's file: a module that it makes as a global has the same random parameters each time."""
    seed_everything()
    return load()


def _cannot_run(raised: Raised) -> str:
    """Return why a generated case says nothing about a compiler: eager raises on its example.

    An exception on the example can be the point of a case that somebody wrote. A generated one, such as a model of a
    library, was never seen to run; it may need another release of the library, or not work on a GPU.
    """
    return encodable(shorten(scrub(one_line(f"eager cannot run the example: {raised.type}: {raised.message}")), 200))


def _brief(error: BaseException) -> Raised:
    """Describe an exception outside the observed calls, without the stack inside torch."""
    kind, text = qualified(type(error)), safe_text(error)
    return Raised(kind, text, f"{kind}: {text}", error)


def _disagreement(first: Observation, again: Observation, sample: Sample | None) -> Comparison | None:
    """Compare two calls of eager on the same input with the same seed; None if they agree."""
    comparison = compare(first, again, sample=sample, rules=Rules(show_values=False))
    return comparison if comparison.differences or failed_loudly(first, again) else None


def _called_again(subject: FreshCase) -> Observation | BaseException:
    """Call the original after its capture; return what was observed, or why no input can be made."""
    try:
        return first_again(subject, subject.target)
    except BaseException as error:  # the compiler changed what makes the inputs
        return error


def _works_still(again: Observation | BaseException, first: Observation, sample: Sample | None) -> Comparison | None:
    """Return how the original differs from before its capture, as a difference of kind ``state``."""
    if isinstance(again, BaseException):
        unmade = Difference("original", "args", "state", unlike="inputs", other=qualified(type(again)))
        return Comparison([unmade], [])
    comparison = _disagreement(first, again, sample)
    if comparison is None:
        return None
    where = comparison.differences[0].where if comparison.differences else "result"
    if again.raised is not None and (first.raised is None or not comparison.differences):  # or raised another exception
        changed = Difference("original", where, "state", unlike="original_raises", other=again.raised.type)
    else:
        changed = Difference("original", where, "state", unlike="original", other=comparison.differences[0].kind)
    return Comparison([changed], [])


def _against_rewrite(case: Case, first: list[Observation], eager: Eager) -> list[Call]:
    """Compare a rewrite with its original function; other cases have nothing to compare."""
    if case.rewrite_of is None:
        return []
    original = Eager(eager.load, eager.device, rewrite=True)
    calls = original.observe()
    if eager.rounds_anew:
        original.find_rounding(original.observe())
    rules = Rules(strict=frozenset(case.strict), rewritten=True)
    return [
        Call(
            original_call,
            rewritten_call,
            compare(original_call, rewritten_call, sample=partial(original.sample, original_call.input), rules=rules),
        )
        for original_call, rewritten_call in zip(calls, first, strict=True)
    ]


def _capture_and_call(
    subject: FreshCase,
    compiler: Compiler,
    shapes: tuple[tuple[Any, ...], ...],
    events: CellEvents,
    eager: Eager,
    first: list[Observation],
    enter: Callable[[str], None],
) -> list[Observation] | None:
    """Capture with the example and call on every input.

    If the capture raises, or a call leaves a GPU that refuses everything, this sets `events.failure` and returns None.
    """
    enter("capture")
    unwatched = nullcontext(CaptureLog(breaks_known=False))
    with watch_dynamo() if compiler.uses_dynamo else unwatched as log, torch_warnings(events.warnings):
        _, example = subject.case.inputs()[0]
        if compiler.uses_dynamo:
            # Else the last of many inputs would run in eager, and what was compiled would not be judged on them.
            allow_recompilations(len(subject.case.inputs()) + 1)
        seed_everything()
        arguments = subject.arguments(example)()
        before = _unread(arguments), subject.reachable.describe().snapshot, read_flags()
        seed_everything(CAPTURE_SEED)
        process = os.getpid()
        try:
            captured = compiler.function(subject.target, arguments, **_options(compiler, subject.case, shapes))
            end_if_forked(process)
        except BaseException as error:  # any exception of a compiler is its outcome
            end_if_forked(process)
            restore_flags(before[2])
            events.failure = Failure("capture", "example", _brief(error))
            return None
        events.capture = _effects_of_capture(before, arguments, subject, first[0])
        # A capture may run the code. What that changed is reported once, and is no part of the first call.
        subject.start_again()
        module = _own_state(captured, compiler)
        observed = []
        for (label, make), reference in zip(subject.case.inputs(), first, strict=True):
            if label in subject.case.refused_inputs and not compiler.checks_inputs:
                observed.append(reference)  # what checks nothing may end the process here, where eager merely raises
                continue
            enter(f"call {label}")
            raises = label in subject.case.refused_inputs
            with log.unheeded() if raises and compiler.uses_dynamo else nullcontext():
                observation = subject.call(captured, label, make, module=module, backward=not compiler.inference_only)
                if observation.raised is not None and not device_works(subject.device):
                    events.failure = Failure(
                        "call", label, observation.raised
                    )  # with what is left, nothing can be compared
                    return None
                observed.append(sharing(observation, reference, observed[-1] if observed else None))
    events.log = log if compiler.uses_dynamo else None
    differences = _differences_of_state(events, first, observed)
    failed = {actual.input for expected, actual in zip(first, observed, strict=True) if failed_loudly(expected, actual)}
    failed |= set(subject.case.refused_inputs)
    if differences:
        pairs = zip(first, observed, strict=True)
        unlike = {actual.input for expected, actual in pairs if differs_beside_the_state(expected, actual)}
        events.unseen = unseen(differences, subject, captured, module, eager, frozenset(failed), frozenset(unlike))
    return observed


def _differences_of_state(
    events: CellEvents, first: list[Observation], observed: list[Observation]
) -> list[Difference]:
    """Return how the state differs after the capture and after each call."""
    differences = list(events.capture.differences) if events.capture is not None else []
    for expected, actual in zip(first, observed, strict=True):
        as_state = Observation(expected.input, state=expected.state), Observation(actual.input, state=actual.state)
        differences += compare(*as_state).differences
    return differences


def _effects_of_capture(
    before: tuple[Snapshot, Snapshot, Flags], arguments: tuple[Any, ...], subject: FreshCase, first: Observation
) -> Comparison:
    """Return what capturing changed.

    Where a plain call changes something too, that is a note: tracing runs the code.
    """
    args, state, flags = before
    after_flags = read_flags()  # before anything below runs under settings that the compiler left behind
    restore_flags(flags, after_flags)
    changed_args = compare_places("capture", _as_places(args), _as_places(_unread(arguments)))
    also = {
        (difference.where, difference.kind)
        for difference in compare_places("", _as_places(args), _as_places(first.args)).differences
    }
    changed = compare_places("capture", state, subject.reachable.describe().snapshot)
    also |= {(difference.where, difference.kind) for difference in compare_places("", state, first.state).differences}
    unchanged, changed_settings = setting_texts(flags, flags), setting_texts(flags, after_flags)
    # By what is told, not by the values: a compiler changes some for itself, such as the limit of recursion.
    settings = [name for name, text in changed_settings.items() if text != unchanged.get(name, text)]
    also |= {(place_of(name), "state") for name, value in first.flags.items() if unchanged.get(name) != value}
    effects = [(difference.where, difference.kind) for difference in (*changed_args.differences, *changed.differences)]
    effects += [(place_of(name), "state") for name in settings]
    differences: list[Difference] = []
    notes: list[Difference] = []
    for where, kind in effects:
        # A call that changes a parameter's values does not freeze it.
        plain = (where, kind) in also if kind == "metadata" else any(where == place for place, _ in also)
        same_value = kind == "metadata" and where.startswith("state.")  # an attribute that has the value it had
        effect = Difference(
            "capture",
            where,
            "state" if kind == "state" else "mutation",
            unlike="capture",
            eager="changed" if plain else None,
            other="changed",
        )
        (notes if plain or same_value else differences).append(effect)
    return Comparison(differences, notes)


def _unread(arguments: tuple[Any, ...]) -> Snapshot:
    """Describe arguments without reading iterators, which are the compiler's to read."""
    return describe(arguments, consume=False, positions=False).snapshot


def _as_places(args: Snapshot) -> Snapshot:
    """Return described arguments with a place for each: ``args[0]``, ``args[1]``, …"""
    return Snapshot("state", children=tuple((f"args{key}", child) for key, child in args.children or ()))


def _own_state(captured: Any, compiler: Compiler) -> Any:
    """Return the module whose tensors the captured calls change, if that is not the target."""
    import torch

    scripted = isinstance(captured, torch.jit.RecursiveScriptModule)
    return captured if scripted or not compiler.shares_state else None


def _options(compiler: Compiler, case: Case, shapes: tuple[tuple[Any, ...], ...]) -> dict[str, Any]:
    """Return the capture options that the compiler accepts: a case's own, and the shapes of its held-out inputs."""
    options: dict[str, Any] = {"held_out": shapes} if compiler.sees_held_out else {}
    if "concrete_args" in inspect.signature(compiler.function).parameters:
        options["concrete_args"] = case.concrete_args
    return options


def _compared(
    compiler: Compiler, case: Case, first: list[Observation], observed: list[Observation], eager: Eager
) -> list[Call]:
    """Compare call by call. A call that failed visibly must not affect the comparison of later calls.

    If something differs after such a failure, eager runs again without the failed inputs. Only a difference from that
    run as well is a silent difference.
    """
    changing = changing_entries(first)

    def against(expected: Observation, actual: Observation) -> Comparison:
        example = first[0].args
        changes = () if compiler.checks_inputs else unlike_example(example, expected.args)
        rules = Rules(
            strict=frozenset(case.strict),
            inference_only=compiler.inference_only,
            changing=changing,
            # What a callable reads past the end of its inputs has random values.
            show_values=compiler.checks_inputs or stays_inside(example, expected.args),
            changes=changes,
        )
        return compare(expected, actual, sample=partial(eager.sample, expected.input), rules=rules)

    # Where eager refuses an input, any exception is right, and no document says what it leaves changed, but for torch's
    # own settings: a context that was entered has to be left.
    both_raise = {
        expected.input
        for expected, actual in zip(first, observed, strict=True)
        if expected.input in case.refused_inputs and expected.raised is not None and actual.raised is not None
    }
    observed = [
        replace(expected, flags=actual.flags) if expected.input in both_raise else actual
        for expected, actual in zip(first, observed, strict=True)
    ]
    eager.needed = partial(_unequal, first, observed, compiler)
    calls = [
        Call(expected, actual, against(expected, actual)) for expected, actual in zip(first, observed, strict=True)
    ]
    failed = frozenset(call.other.input for call in calls if failed_loudly(call.eager, call.other))
    if not failed or not any(call.comparison.differences for call in calls if call.other.input not in failed):
        return calls
    without = {observation.input: observation for observation in eager.observe(skip=failed)}
    eager.keep_all()  # what differs from this run is not what differs from the first
    for index, (_, actual, comparison) in enumerate(calls):
        if actual.input not in failed and comparison.differences:
            again = against(without[actual.input], actual)
            if not again.differences:
                calls[index] = Call(without[actual.input], actual, again)
    return calls


def _unequal(first: list[Observation], observed: list[Observation], compiler: Compiler) -> dict[str, Observation]:
    """Return the observations with other numbers than eager's, by input: their runs with noise are asked for."""
    rules = Rules(inference_only=compiler.inference_only, show_values=False)
    unequal = {}
    for expected, actual in zip(first, observed, strict=True):
        requested_runs: list[int] = []
        compare(expected, actual, sample=requested_runs.append, rules=rules)
        if requested_runs:
            unequal[expected.input] = actual
    return unequal


def _categories_of_torch() -> list[type[Warning]]:
    """Return the categories of warnings that the imported parts of torch define."""
    categories: list[type[Warning]] = []
    queue: list[type[Warning]] = [Warning]
    while queue:
        kinds = queue.pop().__subclasses__()
        queue += kinds
        categories += [kind for kind in kinds if kind.__module__.startswith("torch")]
    return categories


@contextmanager
def torch_warnings(notes: list[str]) -> Iterator[None]:
    """Append a note for each kind of warning that only torch issues (TracerWarning)."""
    with warnings.catch_warnings():
        # Only for torch's categories: a suite's own filters, such as warnings as errors, must apply as for eager.
        for category in _categories_of_torch():
            warnings.simplefilter("default", category)
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category.__module__.startswith("torch") and f"warned: {category.__name__}" not in notes:
                notes.append(f"warned: {category.__name__}")
            show(message, category, *where, **more)

        warnings.showwarning = note
        yield


def held_out_shapes(case: Case) -> tuple[tuple[Any, ...], ...]:
    """Return the arguments of each held-out input that eager takes, with every tensor replaced by one on ``meta``.

    The factories run under the fixed seed, as for a call. Use a case that is executed for this alone: a factory may
    change what it is made from. Containers are made again, because they may belong to a module that all executions
    share; an object that torch does not know as a container is returned as it is. A tensor without sizes, as a nested
    one, has no elements here.
    """
    inputs: list[tuple[Any, ...]] = []
    for label, make in case.inputs()[1:]:
        if label in case.refused_inputs:
            continue
        seed_everything(ARGUMENTS_SEED)
        inputs.append(pytree().tree_map(_without_values, make()))
    return tuple(inputs)


def _without_values(leaf: Any) -> Any:
    import torch

    if not isinstance(leaf, torch.Tensor):
        return leaf
    sizes = (0,) if leaf.is_nested else tuple(leaf.shape)
    return torch.empty(sizes, dtype=leaf.dtype, device="meta")


ITEM_BYTES = {"64": 8, "32": 4, "16": 2, "complex128": 16, "complex64": 8, "complex32": 4}
"""Bytes of an element by the dtype's name or its last two digits; other dtypes have one byte."""


def unlike_example(example: Snapshot, other: Snapshot) -> tuple[InputChange, ...]:
    """Return in what described arguments differ in form or plain value from the example's.

    It depends on the two sets of arguments alone, not on what a callable reads.
    """
    return tuple(_unlike("args", example, other))


def stays_inside(example: Snapshot, other: Snapshot) -> bool:
    """Whether a callable that takes each tensor for the example's reads no memory behind a tensor that it is given."""
    if example.tensor is not None:
        return other.tensor is not None and _span(example.tensor) <= _span(other.tensor)
    children, other_children = dict(example.children or ()), dict(other.children or ())
    return all(key in other_children and stays_inside(child, other_children[key]) for key, child in children.items())


def _unlike(where: str, example: Snapshot, other: Snapshot) -> Iterator[InputChange]:
    if example.type != other.type:
        yield _change(where, "type", other.type, example.type)
    elif example.tensor is not None and other.tensor is not None:
        for name in ("dtype", "shape", "stride"):
            example_form, other_form = getattr(example.tensor, name), getattr(other.tensor, name)
            if example_form != other_form:
                yield _change(where, name, str(other_form), str(example_form))
                return
    elif example.children is not None and other.children is not None:
        children, other_children = dict(example.children), dict(other.children)
        if list(children) != list(other_children):
            yield _change(where, "items", str(len(other_children)), str(len(children)))
            return
        for key, child in children.items():
            yield from _unlike(f"{where}{key}", child, other_children[key])
    elif example.scalar != other.scalar:
        yield _change(where, "value", short(other.scalar), short(example.scalar))


def _change(where: str, what: Aspect, value: str, example: str) -> InputChange:
    return InputChange(encodable(where), what, encodable(value), encodable(example))


def _span(tensor: TensorSnapshot) -> int:
    """Return the bytes from a tensor's first to the end of its last element."""
    if 0 in tensor.shape:
        return 0
    dtype = tensor.dtype.rpartition(".")[2]
    last = sum((size - 1) * abs(step) for size, step in zip(tensor.shape, tensor.stride or (), strict=False))
    return (last + 1) * ITEM_BYTES.get(dtype, ITEM_BYTES.get(dtype[-2:], 1))
