"""What eager itself gave, as digests: whether two of them are the same bits, differ by rounding, or are other numbers.

The judge makes digests, so this module imports the standard library alone. `recapture.records.eager_file` stores them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

EagerChangeKind = Literal["raises", "dtype", "form", "changed", "rounding", "inputs"]

EAGER_CHANGES: dict[EagerChangeKind, str] = {
    "raises": "an exception on one side alone, or another one",
    "dtype": "another dtype",
    "form": "another type, shape, stride or structure",
    "changed": "other numbers, beyond rounding",
    "rounding": "other bits, within rounding",
    "inputs": "other inputs or initial weights, so that the results cannot be compared",
}
"""How eager can differ from eager, worst first, with the meaning."""

ROUNDING = {"float16": 1e-2, "bfloat16": 4e-2, "float32": 3e-5, "complex64": 3e-5, "float64": 1e-9, "complex128": 1e-9}
"""Largest difference of two digests that counts as rounding, by dtype; for float32, 250 units in the last place."""


@dataclass(frozen=True)
class Digest:
    """What a few numbers say of many: `bits` is a hash of all values, `form` of types, shapes, strides and structure.

    `dtypes` names the dtypes of the tensors. `numbers` are sums of all values under fixed weights, relative to the size
    of each tensor: where they agree to seven digits, so do the values, as far as sums tell.
    """

    bits: str
    form: str
    dtypes: str = ""
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True)
class EagerCall:
    """What eager gave for one input of a case.

    `given` is a hash of the arguments and of the state, such as parameters, before the call. `effects` digests both
    after the call; it is None if their bits are as before. `raised` is the type of an exception. A call that gave
    something else when it was repeated is `unstable` and has no digests.
    """

    input: str
    given: str = ""
    result: Digest | None = None
    gradients: Digest | None = None
    effects: Digest | None = None
    raised: str | None = None
    unstable: bool = False


@dataclass(frozen=True)
class EagerChange:
    """How one call of eager differs from another: `part` of it on `input`; `digits` are those that agree, if any."""

    kind: EagerChangeKind
    input: str
    part: str = ""
    digits: float | None = None
    old: str = ""
    new: str = ""

    @property
    def words(self) -> str:
        """The change in words."""
        if self.kind in ("raises", "dtype"):
            return f"{self.part or 'result'}: {self.old or 'returns'} → {self.new or 'returns'}"
        digits = "" if self.digits is None else f", {self.digits:.1f} digits agree"
        return f"{self.part + ': ' if self.part else ''}{EAGER_CHANGES[self.kind]}{digits}"


def agreeing_digits(first: tuple[float, ...], second: tuple[float, ...]) -> float | None:
    """Return the decimal digits to which the numbers of two digests agree; None where there is nothing to compare."""
    if not first or len(first) != len(second):
        return None
    difference = max(abs(left - right) for left, right in zip(first, second, strict=True))
    return 16.0 if difference == 0 else max(0.0, -math.log10(difference))


def change_of_call(old: EagerCall, new: EagerCall) -> EagerChange | None:
    """Return how two calls of eager on one input differ; None if they agree, or if one of them is not stable."""
    if old.unstable or new.unstable:
        return None
    if old.given != new.given:
        return EagerChange("inputs", new.input)
    if old.raised != new.raised:
        return EagerChange("raises", new.input, "", None, old.raised or "", new.raised or "")
    changes = [
        change
        for part in ("result", "gradients", "effects")
        if (change := _change_of_part(part, new.input, getattr(old, part), getattr(new, part))) is not None
    ]
    return min(changes, key=_rank, default=None)


def change_of_calls(old: tuple[EagerCall, ...], new: tuple[EagerCall, ...]) -> EagerChange | None:
    """Return the worst change among the inputs that both sides have."""
    before = {call.input: call for call in old}
    pairs = [(before[call.input], call) for call in new if call.input in before]
    return min((change for pair in pairs if (change := change_of_call(*pair)) is not None), key=_rank, default=None)


def _change_of_part(part: str, label: str, old: Digest | None, new: Digest | None) -> EagerChange | None:
    if old is None and new is None:
        return None
    if old is None or new is None:
        return EagerChange("changed", label, part, None, "there" if old else "none", "there" if new else "none")
    if old.dtypes != new.dtypes:
        return EagerChange("dtype", label, part, None, old.dtypes, new.dtypes)
    digits = agreeing_digits(old.numbers, new.numbers)
    if old.form != new.form:
        return EagerChange("form", label, part, digits)
    if old.bits == new.bits:
        return None
    limits = [ROUNDING[name] for name in new.dtypes.split(", ") if name in ROUNDING]
    by_rounding = digits is not None and bool(limits) and 10.0**-digits <= max(limits)
    return EagerChange("rounding" if by_rounding else "changed", label, part, digits)


def _rank(change: EagerChange) -> int:
    return list(EAGER_CHANGES).index(change.kind)
