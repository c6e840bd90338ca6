"""Compares a call with eager's: which differences are silently wrong, and which are only noted.

Equality is defined here (types, structure, dtypes, shapes, side effects) and in `recapture.judge.rounding`
(values). `recapture.records.kinds` lists the kinds of differences and those that a case may ask to be strict about.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recapture.base.scrub import encodable, scrub
from recapture.judge.contents import CACHE
from recapture.judge.rounding import distance, explained, repeats, same_bits
from recapture.judge.snapshot import COALESCED, Snapshot, deep_calls
from recapture.judge.torch_state import place_of
from recapture.judge.wording import far_apart, first_unequal, listed, parts, short, sides, two_digits
from recapture.records.difference import Difference, InputChange, Unlike

if TYPE_CHECKING:
    from recapture.judge.observe import Observation


MOST_NAMED = 3
"""Largest number of arguments that a difference names as unlike the example's."""


@dataclass
class Comparison:
    """What differs between eager and a compiled callable on one input."""

    differences: list[Difference]
    """Silent differences, which decide the verdict."""
    notes: list[Difference]
    """Differences that do not decide it."""


Sample = Callable[[int], "Observation | None"]
"""A function that returns the same observation from eager's k-th run with rounding noise, or None if that fails."""


@dataclass(frozen=True)
class Rules:
    """How a comparison is made.

    `strict` names what the case asks to be judged strictly. With `inference_only`, gradients and requires_grad are
    noted only. With `repeated`, the other side is eager, too: what is no rounding then is also said of numbers that are
    nearly equal. Without `show_values`, differences contain no numbers: for callables that may read memory that they do
    not own. `changes` are recorded with each value that differs: in what the input is unlike the example.
    `changing` are entries of caches that eager itself changes from call to call. With `rewritten`, the other side runs
    other code, so that the functions that a call defines have other names and lines.
    """

    strict: frozenset[str] = frozenset()
    inference_only: bool = False
    repeated: bool = False
    show_values: bool = True
    changes: tuple[InputChange, ...] = ()
    changing: frozenset[str] = frozenset()
    rewritten: bool = False


@deep_calls()
def compare(
    eager: Observation, other: Observation, *, sample: Sample | None = None, rules: Rules | None = None
) -> Comparison:
    """Compare a call with eager's on the same input.

    Exceptions on both sides are no silent difference here (`recapture.judge.verdict` compares their types).
    Returning where eager raises is a difference. Types, structure, dtypes, shapes and integers must be exactly equal,
    other numbers equal within what rounding explains. `sample` is called only where values differ.
    """
    comparer = _Comparer(eager.input, rules or Rules(), sample)
    if eager.raised is not None and other.raised is None:
        comparer.differ("result", "exception", "raises", eager.raised.type)
    elif eager.raised is not None and other.raised is not None:
        comparer.exceptions(eager, other)
    elif eager.result is not None and other.result is not None:
        comparer.values("result", eager.result, other.result, lambda observation: observation.result)
        # Memory is compared by the paths of results: unlike results have other paths, or are no longer the same thing.
        if not comparer.differences:
            comparer.aliases(eager, other)
        comparer.gradients(eager, other)
    comparer.kind = "mutation"  # in whatever way an argument or the state differs, the call has changed it
    comparer.values("args", eager.args, other.args, lambda observation: observation.args)
    comparer.outside(eager, other)
    comparer.earlier(eager, other)
    comparer.places(eager.state, other.state, lambda observation: observation.state)
    if eager.watched is not None and other.watched is not None:
        comparer.values("watched", eager.watched, other.watched, lambda observation: observation.watched)
    comparer.kind = None
    comparer.memory(eager, other)
    comparer.output(eager, other)
    comparer.settings(eager, other)
    return Comparison(comparer.differences, comparer.notes)


@deep_calls()
def compare_form(where: str, eager: Snapshot, other: Snapshot) -> Difference | None:
    """Return the first difference in type, structure, dtype, shape, device or plain value, or None.

    Tensors described with `snapshot_form` are compared without their elements, for callers with their own rule.
    """
    comparer = _Comparer("", Rules(), None)
    comparer.values(where, eager, other, lambda _: None)
    return comparer.differences[0] if comparer.differences else None


@deep_calls()
def compare_places(label: str, eager: Snapshot | None, other: Snapshot | None) -> Comparison:
    """Compare a described state with a later one, to the bit, each a Snapshot with a child for each place."""
    comparer = _Comparer(label, Rules(), None, exact=True)
    comparer.places(eager, other, lambda _: None)
    return Comparison(comparer.differences, comparer.notes)


def changing_entries(calls: Sequence[Observation]) -> frozenset[str]:
    """Return the places of the entries of caches whose content changes from one call to a later one."""
    places: set[str] = set()
    for call, later in itertools.pairwise(calls):
        for path, cache in _caches(call.state):
            after = dict(_caches(later.state)).get(path)
            entries_after = dict(after.children or ()) if after is not None else {}
            for key, entry in cache.children or ():
                before, now = (
                    Snapshot("state", children=((path + key, value),))
                    for value in (entry, entries_after.get(key, entry))
                )
                if compare_places("", before, now).differences:
                    places.add(path + key)
    return frozenset(places)


def _caches(state: Snapshot | None) -> list[tuple[str, Snapshot]]:
    return [(path, child) for path, child in (state.children or () if state else ()) if child.type == CACHE]


Part = Callable[["Observation"], "Snapshot | None"]
"""A function that returns one part of an observation, such as its result."""


class _Comparer:
    def __init__(self, label: str, rules: Rules, sample: Sample | None, *, exact: bool = False) -> None:
        self.label = label
        self.exact = exact
        self.rules = rules
        self.sample = sample
        self.part: Part = lambda _: None
        self.kind: str | None = None
        self.differences: list[Difference] = []
        self.notes: list[Difference] = []

    def differ(
        self, where: str, kind: str, unlike: Unlike, eager: object = None, other: object = None, **numbers: Any
    ) -> None:
        """Add a silent difference; a side that is None has nothing of the kind."""
        self.differences.append(self._difference(where, kind, unlike, eager, other, **numbers))

    def note(
        self,
        where: str,
        kind: str,
        strict: str | None,
        unlike: Unlike,
        eager: object = None,
        other: object = None,
        **numbers: Any,
    ) -> None:
        """Add a note, or a silent difference if the case is strict about it."""
        difference = self._difference(where, kind, unlike, eager, other, **numbers)
        (self.differences if strict in self.rules.strict else self.notes).append(difference)

    def _difference(
        self, where: str, kind: str, unlike: Unlike, eager: object, other: object, **numbers: Any
    ) -> Difference:
        return Difference(
            self.label,
            encodable(where),
            self.kind or kind,
            unlike=unlike,
            eager=None if eager is None else encodable(str(eager)),
            other=None if other is None else encodable(str(other)),
            **numbers,
        )

    def for_training(self, where: str, kind: str, unlike: Unlike, eager: object = None, other: object = None) -> None:
        """Add a difference that concerns autograd: a note if the compiler is for inference only."""
        if self.rules.inference_only:
            self.note(where, kind, None, unlike, eager, other)
        else:
            self.differ(where, kind, unlike, eager, other)

    def values(self, where: str, eager: Snapshot, other: Snapshot, part: Part) -> None:
        self.part = part
        self._values(where, eager, other, ())

    def _values(self, where: str, eager: Snapshot, other: Snapshot, path: tuple[str, ...]) -> None:
        place = where + "".join(path)
        if eager.type != other.type:
            # This includes tensor subclasses: Parameter and Tensor are different Python types.
            self.differ(place, "type", "type", eager.type, other.type)
            return
        if eager.cut is not None or other.cut is not None:
            self.note(place, "value", None, "cut", None, eager.cut or other.cut)
        if (eager.tensor is None) != (other.tensor is None):  # only one side could be described
            self.differ(place, "type", "structure", parts(eager), parts(other))
            return
        if eager.tensor is not None and other.tensor is not None:
            if self._tensors(place, path, eager, other):
                self._properties(where, path, eager, other)
            return
        if (eager.children is None) != (other.children is None):
            self.differ(place, "type", "structure", parts(eager), parts(other))
        elif eager.children is not None:
            self._containers(where, path, eager, other)
        elif eager.scalar is not other.scalar and not (
            self.rules.rewritten and _are_functions_of_a_call(place, eager, other)
        ):
            self._numbers(place, path, eager, other)

    def _containers(self, where: str, path: tuple[str, ...], eager: Snapshot, other: Snapshot) -> None:
        expected, actual = dict(eager.children or ()), dict(other.children or ())
        place = where + "".join(path)
        if eager.type == CACHE and expected.keys() != actual.keys():
            # A function gives the same without its cache, unless what it keeps is changed afterwards.
            missing = [place + key for key in (*expected, *actual) if (key in expected) != (key in actual)]
            if self.rules.changing.isdisjoint(missing):
                self.note(place, "mutation", None, "items", len(expected), len(actual))
            else:
                self.differ(place, "mutation", "items", len(expected), len(actual))
            common_keys = expected.keys() & actual.keys()
            expected, actual = ({key: side[key] for key in sorted(common_keys)} for side in (expected, actual))
        if expected.keys() != actual.keys() or (eager.ordered and list(expected) != list(actual)):
            items = [sum(key.startswith("[") for key in side) for side in (expected, actual)]
            if items[0] != items[1]:  # a deque also has a `.maxlen`
                self.differ(place, "type", "items", *items)
            elif len(expected) != len(actual):
                self.differ(place, "type", "items", len(expected), len(actual))
            else:
                self.differ(place, "type", "keys", short(list(expected)), short(list(actual)))
            return
        if list(expected) != list(actual):
            self.note(place, "metadata", "order", "order")
        if eager.default != other.default:
            self.note(place, "metadata", "order", "default_factory", str(eager.default), str(other.default))
        for key, child in expected.items():
            self._values(where, child, actual[key], (*path, key))

    def _tensors(self, place: str, path: tuple[str, ...], eager: Snapshot, other: Snapshot) -> bool:
        """Compare two tensors or arrays; return whether they are alike enough to compare their properties."""
        expected, actual = eager.tensor, other.tensor
        if expected is None or actual is None:
            return False
        forms: tuple[tuple[Unlike, str], ...] = (
            ("dtype", "dtype"),
            ("shape", "shape"),
            ("device", "metadata"),
            ("layout", "type"),
        )
        for name, kind in forms:
            eager_form, other_form = getattr(expected, name), getattr(actual, name)
            if eager_form != other_form:
                self.differ(place, kind, name, eager_form, other_form)
                return False
        if expected.data is not None and actual.data is not None:  # the meta device has no values
            self._numbers(place, path, eager, other)
        if expected.stride != actual.stride and expected.data is not None and expected.data.numel() > 1:
            self.note(place, "metadata", "stride", "stride", str(expected.stride), str(actual.stride))
        if expected.requires_grad != actual.requires_grad:
            self.for_training(place, "metadata", "requires_grad", expected.requires_grad, actual.requires_grad)
        elif expected.flags != actual.flags:
            flags = listed(expected.flags), listed(actual.flags)
            if set(expected.flags) ^ set(actual.flags) <= {"leaf", "inference"}:
                self.for_training(place, "metadata", "flags", *flags)
            else:
                self.differ(place, "metadata", "flags", *flags)
        return True

    def _properties(self, where: str, path: tuple[str, ...], eager: Snapshot, other: Snapshot) -> None:
        """Compare what tensors carry besides elements; inside, a difference of any sort is one of this property."""
        expected, actual = dict(eager.children or ()), dict(other.children or ())
        outer = self.kind
        for key in dict.fromkeys([*expected, *actual]):
            self.kind = outer or ("gradient" if key == ".grad" else "metadata")
            if key == COALESCED and key in expected and key in actual:
                of_eager, of_other = expected[key].scalar, actual[key].scalar
                if of_eager is not of_other:
                    self.note(where + "".join((*path, key)), "metadata", None, "value", of_eager, of_other)
            elif key in expected and key in actual:
                self._values(where, expected[key], actual[key], (*path, key))
            else:
                present = ("a value", None) if key in expected else (None, "a value")
                self.differ(where + "".join((*path, key)), "metadata", "property", *present)
        self.kind = outer

    def _numbers(self, place: str, path: tuple[str, ...], eager: Snapshot, other: Snapshot) -> None:
        if same_bits(eager, other):
            return
        eager, other = _of_one_shape(eager, other)
        apart = distance(eager, other)
        if apart is None:
            return
        if apart.bits in ("signed-zero", "nan-payload"):
            self.note(place, "value", apart.bits.replace("-", "_"), "value", bits=apart.bits, elements=apart.elements)
        elif self.rules.repeated and not repeats(eager, other):
            self.differ(place, "value", "value")
        elif self.exact or not explained(eager, other, lambda run: self._sampled(run, path)):
            numbers: dict[str, Any] = {}
            if self.rules.changes:
                numbers["changes"] = self.rules.changes[:MOST_NAMED]
                numbers["more_changes"] = len(self.rules.changes[MOST_NAMED:]) or None
            if not self.rules.show_values:
                self.differ(place, "value", "value", **numbers)
                return
            index: tuple[int, ...] = ()
            if eager.tensor is not None and other.tensor is not None:
                unequal = far_apart(eager.tensor, other.tensor)
                index = first_unequal(unequal)
                numbers["elements"] = (int(unequal.sum()), eager.tensor.data.numel())
            numbers |= {"at": index, "bits": "value", "ulps": two_digits(apart.ulps)}
            self.differ(place, "value", "value", *sides(eager, other, index), **numbers)

    def _sampled(self, run: int, path: tuple[str, ...]) -> Snapshot | None:
        """Return the value at a path in eager's run with rounding noise, or None."""
        observation = self.sample(run) if self.sample is not None else None
        snapshot = self.part(observation) if observation is not None else None
        for key in path:
            snapshot = (
                dict(snapshot.children).get(key) if snapshot is not None and snapshot.children is not None else None
            )
        return snapshot

    def exceptions(self, eager: Observation, other: Observation) -> None:
        """Note exceptions that ``except`` for eager's type catches, but that are not the same."""
        expected, actual = eager.raised, other.raised
        if expected is None or actual is None or not actual.is_a(expected):
            return
        if expected.type != actual.type:
            self.note("result", "exception", None, "raises", expected.type, actual.type)
        eager_message, other_message = scrub(expected.message), scrub(actual.message)
        if eager_message != other_message:
            self.note("result", "exception", "message", "message", short(eager_message), short(other_message))

    def aliases(self, eager: Observation, other: Observation) -> None:
        """Report results that share memory on one side only."""
        # An earlier call that failed on one side alone left no result there to share memory with.
        gone = tuple(f"{label}: " for label in set(eager.earlier) ^ set(other.earlier))
        expected, actual = ({pair for pair in side.aliases if not pair[1].startswith(gone)} for side in (eager, other))
        if eager.state is None or other.state is None:
            expected, actual = (
                {pair for pair in pairs if not pair[1].startswith("state[")} for pairs in (expected, actual)
            )
        for where, partner in sorted(expected - actual):  # sorted, so that two runs write the same records
            self.differ(where, "alias", "memory", partner)
        for where, partner in sorted(actual - expected):
            self.differ(where, "alias", "memory", None, partner)

    def memory(self, eager: Observation, other: Observation) -> None:
        """Report arguments that get other memory on one side only; note those that autograd sees changed on one."""
        for where in sorted(eager.moved ^ other.moved):
            self.differ(where, "alias", "moved", *(("moves", None) if where in eager.moved else (None, "moves")))
        for where in sorted(eager.versions ^ other.versions):
            sides_raised = ("raises", None) if where in eager.versions else (None, "raises")
            self.note(where, "metadata", None, "version", *sides_raised)

        for where, size in eager.kept_alive.items():
            other_size = other.kept_alive.get(where, size)
            if not size <= 2 * other_size <= 4 * size:  # no value depends on it
                self.note(where, "metadata", None, "storage", size, other_size)

    def earlier(self, eager: Observation, other: Observation) -> None:
        """Compare what the call overwrote of the results and arguments of earlier calls."""
        if eager.overwritten is None or other.overwritten is None:
            return
        # An earlier call that failed on one side alone left nothing there to overwrite.
        gone = tuple(f"earlier[{label!r}]" for label in set(eager.earlier) ^ set(other.earlier))
        expected, actual = dict(eager.overwritten.children or ()), dict(other.overwritten.children or ())
        for place in dict.fromkeys([*expected, *actual]):
            if place.startswith(gone):
                continue
            if place in expected and place in actual:
                self.part = lambda observation: observation.overwritten
                self._values("", expected[place], actual[place], (place,))
            else:
                self.differ(
                    place, "mutation", "overwritten", *(("writes", None) if place in expected else (None, "writes"))
                )

    def output(self, eager: Observation, other: Observation) -> None:
        """Compare what is printed and warned."""
        if eager.output != other.output:
            self.note("output", "output", "output", "output", short(eager.output), short(other.output))
        if eager.stderr != other.stderr:  # mostly tracebacks, whose paths are of one installation
            self.note("stderr", "output", None, "output", short(scrub(eager.stderr)), short(scrub(other.stderr)))
        if sorted(eager.warned) != sorted(other.warned):
            self.note("warnings", "output", None, "warnings", short(list(eager.warned)), short(list(other.warned)))
        byte_counts = eager.written, other.written
        if None not in byte_counts and byte_counts[0] != byte_counts[1]:
            self.note("output", "output", None, "written", *byte_counts)

    def gradients(self, eager: Observation, other: Observation) -> None:
        """Compare what a backward after the call left in the inputs and parameters."""
        if eager.backward is not None or other.backward is not None:
            # A backward that raises on the other side alone is no silent difference: `verdict` takes it as a failure.
            if eager.backward is not None and other.backward is None:
                self.for_training("backward", "gradient", "backward", eager.backward.type)
            return
        if eager.gradients is None and other.gradients is None:
            return
        expected = dict(eager.gradients.children or ()) if eager.gradients is not None else {}
        actual = dict(other.gradients.children or ()) if other.gradients is not None else {}
        parameters = set(_parameters("args", eager.args))
        before = self.kind
        self.kind = "gradient"
        for path in dict.fromkeys([*expected, *actual]):
            eager_gradient, other_gradient = expected.get(path), actual.get(path)
            place = f"gradients.{path}"
            if _absent(eager_gradient) and _absent(other_gradient):
                continue
            if eager_gradient is None or other_gradient is None or _absent(eager_gradient) or _absent(other_gradient):
                present = other_gradient if _absent(eager_gradient) else eager_gradient
                zero = present is not None and _all_zero(present)
                word = "zeros" if zero else "a gradient"
                present_in = (None, word) if _absent(eager_gradient) else (word, None)
                if not zero:
                    self.for_training(place, "gradient", "gradient", *present_in)
                elif path.startswith("args") and path not in parameters:
                    self.note(place, "gradient", None, "zero_gradient", *present_in)
                else:  # an optimizer skips a parameter without a gradient; with zeros it decays and moves on
                    self.for_training(place, "gradient", "zero_gradient", *present_in)
            elif self.rules.inference_only:
                continue
            else:
                self.part = lambda snapshot: snapshot.gradients
                self._values("gradients.", eager_gradient, other_gradient, (path,))
        self.kind = before

    def outside(self, eager: Observation, other: Observation) -> None:
        """Compare the bytes of the arguments' storages that lie outside the arguments."""
        for path, expected in eager.outside.items():
            actual = other.outside.get(path)
            if actual is not None:
                size = min(len(expected), len(actual))  # one side may have padding behind the storage
                changed = int((expected[:size] != actual[:size]).sum())
                if changed:
                    self.differ(f"args{path}", "mutation", "outside", None, changed)

    def places(self, eager: Snapshot | None, other: Snapshot | None, part: Part) -> None:
        """Compare two described states place by place."""
        if eager is None or other is None:
            return
        expected, actual = dict(eager.children or ()), dict(other.children or ())
        for path in dict.fromkeys([*expected, *actual]):
            if path in expected and path in actual:
                self.part = part
                self._values("", expected[path], actual[path], (path,))
            else:
                self.differ(path, "mutation", "set", *(("set", None) if path in expected else (None, "set")))

    def settings(self, eager: Observation, other: Observation) -> None:
        """Compare global settings of torch, random states and environment variables after the call."""
        for name, value in eager.flags.items():
            if other.flags.get(name, value) != value:
                self.differ(place_of(name), "state", "setting", value, other.flags[name])
        for name, value in eager.random_states.items():
            if other.random_states.get(name, value) != value:
                self.note(f"random_state.{name}", "state", "random_state", "random_state")
        for name in sorted({*eager.environment, *other.environment}):
            eager_value, other_value = eager.environment.get(name), other.environment.get(name)
            if eager_value != other_value:
                self.note(f"environ[{name!r}]", "state", "environment", "environment")


def _parameters(path: str, snapshot: Snapshot) -> Iterator[str]:
    """Yield the paths of the parameters in a described value."""
    if snapshot.type.endswith(".Parameter"):
        yield path
    elif snapshot.tensor is None:
        for label, child in snapshot.children or ():
            yield from _parameters(path + label, child)


def _of_one_shape(eager: Snapshot, other: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Return two described tensors of one shape with elements of one shape: either may lack repeated elements."""
    if eager.tensor is None or other.tensor is None or eager.tensor.data is None or other.tensor.data is None:
        return eager, other
    expected, actual = eager.tensor.data, other.tensor.data
    if expected.shape == actual.shape or eager.tensor.shape != other.tensor.shape:
        return eager, other
    import torch

    expected, actual = torch.broadcast_tensors(expected, actual)
    return (
        replace(eager, tensor=replace(eager.tensor, data=expected)),
        replace(other, tensor=replace(other.tensor, data=actual)),
    )


def _absent(snapshot: Snapshot | None) -> bool:
    return snapshot is None or snapshot.type == "NoneType"


def _all_zero(snapshot: Snapshot) -> bool:
    return snapshot.tensor is not None and snapshot.tensor.data is not None and not bool(snapshot.tensor.data.any())


def _are_functions_of_a_call(place: str, *described: Snapshot) -> bool:
    """Whether all of these are names of functions that a call has defined, or the place is that of their code."""
    return place.endswith(".__code__") or all("<locals>" in str(snapshot.scalar) for snapshot in described)
