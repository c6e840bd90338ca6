"""Which differences in attributes of a module nobody sees: neither a later call, nor a reader of public state.

What is in `state_dict` always counts, and is none of these. There are two kinds of such attributes. One has a private
name, and all that reads it gives the same values. The other is computed anew by every call before the call reads it,
from the module's state alone, as the weight of `torch.nn.utils.weight_norm` is: what was left there has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from recapture.judge.compare import Rules, compare, compare_places
from recapture.judge.fresh_case import FreshCase
from recapture.judge.observe import Observation
from recapture.judge.snapshot import Snapshot, snapshot_of, snapshot_result_of
from recapture.judge.verdict import failed_loudly

if TYPE_CHECKING:
    from recapture.judge.reference import Eager
    from recapture.records.difference import Difference, Unlike

_PRIVATE = re.compile(r"state\.(?:[^\[]*\.)?_(?!_)")

BESIDE_THE_VALUE = ("requires_grad", "flags", "stride")
"""What of an attribute a difference may concern, besides its value and its type."""

STALE = ("value", "capture", *BESIDE_THE_VALUE)
"""What may be unlike in an attribute that is merely not computed anew: something of another type is not stale."""


def unseen(
    differences: Sequence[Difference],
    subject: FreshCase,
    captured: Callable[..., Any],
    module: Any,
    eager: Eager,
    failed: frozenset[str],
    unlike: frozenset[str],
) -> frozenset[tuple[str, Unlike | None]]:
    """Return the differences that nobody sees, each by its place and by what is unlike there.

    `subject` is the case that `captured` was made from, and `module` its result, if that has parameters of its own.
    `failed` are the inputs on which it raised an exception, and those that were not tried, and `unlike` those on which
    it differs in more than the state: neither tells anything about attributes. Where this cannot be tried, such as with
    inputs that can be made only so often, every difference counts.
    """
    attributes = [item for item in differences if item.kind == "mutation" and item.where.startswith("state.")]
    try:
        stale = {item.where for item in attributes if not _is_private(item) and item.unlike in STALE}
        anew = _computed_anew(stale, eager) if stale else frozenset()
        candidates = {
            (item.where, item.unlike)
            for item in attributes
            if _is_private(item) or (item.unlike in STALE and item.where in anew)
        }
        if not candidates or not _no_later_call_differs(subject, captured, module, eager, failed, unlike):
            return frozenset()
    except Exception:  # of the case's own code
        return frozenset()
    return frozenset(candidates)


def _is_private(difference: Difference) -> bool:
    """Whether a difference is in an attribute with a private name, or in something else than the attribute's value."""
    return difference.unlike in BESIDE_THE_VALUE or bool(_PRIVATE.match(difference.where))


def _no_later_call_differs(
    subject: FreshCase,
    captured: Callable[..., Any],
    module: Any,
    eager: Eager,
    failed: frozenset[str],
    unlike: frozenset[str],
) -> bool:
    """Whether nobody sees that the attributes of a module were left with other contents than eager leaves.

    The captured callable is called once more on every input but those in `failed` and `unlike`, and then the original,
    on the state that the calls so far have left. Their results are compared with those of eager, called as often. So
    are public properties, and what a module adds to its own `state_dict`.
    """
    reference = FreshCase(eager.load(), eager.device)
    # Its first calls bring the reference to where the subject is.
    for label, make in reference.case.inputs():
        if label not in failed:
            reference.call(reference.target, label, make)
    for read in (_public, _saved_besides):
        if compare_places("", read(reference.target), read(subject.target)).differences:
            return False
    for function, state in ((captured, module), (subject.target, None)):
        for (label, make), (_, make_again) in zip(reference.case.inputs(), subject.case.inputs(), strict=True):
            if label in failed | unlike:
                continue
            expected = reference.call(reference.target, label, make, backward=False)
            actual = subject.call(function, label, make_again, module=state, backward=False)
            if differs_beside_the_state(expected, actual) or failed_loudly(expected, actual):
                return False
    reference.leave()
    return True


def differs_beside_the_state(expected: Observation, actual: Observation) -> bool:
    """Whether two calls differ in anything but the state that they left, and the memory that results share."""
    others = (replace(call, state=None, aliases=frozenset()) for call in (expected, actual))
    return bool(compare(*others, rules=Rules(show_values=False)).differences)


def _computed_anew(places: set[str], eager: Eager) -> frozenset[str]:
    """Return the places in attributes that each call of eager writes before it reads them, the same for all inputs.

    An attribute that a call writes and does not read is there for others, such as a loss to be added. One that depends
    on the input may be, too. Eager is called on each input from the state that it began with.
    """
    reference = FreshCase(eager.load(), eager.device)
    owners = {where: owner for where in places if (owner := reference.reachable.attribute_at(where)) is not None}
    accesses: dict[str, list[str]] = {}
    values: dict[str, list[Snapshot]] = {where: [] for where in owners}
    inputs: list[Observation] = []
    for label, make in reference.case.inputs():
        if label in reference.case.refused_inputs:
            continue
        reference.start_again()
        with ExitStack() as stack:
            for where, (part, key) in owners.items():
                accesses[where] = stack.enter_context(_accesses(part, key))
            observation = reference.call(reference.target, label, make, backward=False)
        if observation.raised is not None:
            continue
        inputs.append(Observation(label, args=observation.args))
        for where, (part, key) in list(owners.items()):
            if accesses[where][:1] != ["write"] or "read" not in accesses[where]:
                del owners[where]
            else:
                values[where].append(Snapshot("state", children=((where, snapshot_of(vars(part)[key])),)))
    reference.leave()
    if not any(compare(inputs[0], other).differences for other in inputs[1:]):
        return frozenset()  # one input does not show what depends on it
    return frozenset(
        where
        for where in owners
        if not any(compare_places("", values[where][0], value).differences for value in values[where][1:])
    )


@contextmanager
def _accesses(part: Any, key: str) -> Iterator[list[str]]:
    """Collect ``read`` and ``write`` in the order in which code uses an attribute of a module.

    For that time the module is of a class of its own, because Python asks a property of the class before it looks into
    the object.
    """
    log: list[str] = []
    kind = type(part)

    def read(self: Any) -> Any:
        log.append("read")
        if key not in vars(self):
            raise AttributeError(key)
        return vars(self)[key]

    def write(self: Any, value: Any) -> None:
        log.append("write")
        vars(self)[key] = value

    def delete(self: Any) -> None:
        log.append("write")
        vars(self).pop(key, None)

    watched = {key: property(read, write, delete), "__module__": kind.__module__}
    part.__class__ = type(kind.__name__, (kind,), watched)
    try:
        yield log
    finally:
        part.__class__ = kind


def _saved_besides(module: Any) -> Snapshot:
    """Describe what a module's `state_dict` has besides its parameters and buffers, each a child."""
    import torch

    own = {tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    more = {
        key: value
        for key, value in module.state_dict().items()
        if not (isinstance(value, torch.Tensor) and value.data_ptr() in own)
    }
    return Snapshot("state", children=tuple((key, snapshot_of(value)) for key, value in more.items()))


def _public(module: Any) -> Snapshot:
    """Describe the public properties of a module and its submodules, each a child."""
    places: list[tuple[str, Snapshot]] = []
    for name, part in module.named_modules():
        for kind in type(part).__mro__:
            for key, value in vars(kind).items():
                if (
                    isinstance(value, property)
                    and not key.startswith("_")
                    and kind.__module__ != "torch.nn.modules.module"
                ):
                    places.append((f"{name}.{key}", snapshot_result_of(partial(getattr, part, key))))
    return Snapshot("state", children=tuple(dict(places).items()))
