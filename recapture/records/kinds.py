"""The kinds of differences between a captured callable and eager, and what a case may ask to be judged strictly."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Kind(NamedTuple):
    """A kind of difference: its meaning, and the differences of this kind that never decide a verdict."""

    meaning: str
    noted: str = ""
    form: bool = False
    """Whether the form of a value differs, which shows that a program is run on inputs that it does not hold for."""
    side_effect: bool = False
    """Whether something differs that a call leaves behind, and not what it returns."""
    shrinks: bool = False
    """Whether its detail has sizes and texts that get smaller with the program."""
    rank: int = 0
    """Its place among the differences of a record: the first one is the headline. Lower ranks matter more to a user."""


KINDS: dict[str, Kind] = {
    "value": Kind("A number, string or element differs by more than the rounding of its dtype explains.", rank=1),
    "dtype": Kind("A tensor or a numpy scalar has another dtype.", form=True, rank=8),
    "shape": Kind("A tensor has another shape.", form=True, shrinks=True, rank=2),
    "type": Kind("A value has another Python type, or a container has other items.", form=True, rank=7),
    "mutation": Kind(
        "An argument, module, buffer, closure, global or class attribute is left with another content.",
        noted="An effect of capturing that a plain call has, too; an attribute of a module that nobody reads, such as "
        "a cache that is not filled, or that every call computes anew before it reads it.",
        side_effect=True,
        shrinks=True,
        rank=3,
    ),
    "alias": Kind("Two values share memory on one side only, shown by writing to one of them.", rank=6),
    "gradient": Kind(
        "A gradient of an input or parameter differs after a backward of the result.",
        noted="Under a compiler that is for inference only; zeros for no gradient, or the reverse, of an argument that "
        "is no parameter.",
        rank=5,
    ),
    "metadata": Kind(
        "A property of a tensor or container beside its content differs, such as `requires_grad`.",
        noted="`requires_grad` under a compiler that is for inference only.",
        rank=11,
    ),
    "state": Kind(
        "A setting of torch or the process differs afterwards, or the original callable works differently.",
        side_effect=True,
        rank=9,
    ),
    "exception": Kind(
        "Only one side raises an exception, or the two sides raise exceptions of different types.",
        noted="An exception of a subclass of eager's, which the same `except` catches; an exporter's refusal of an "
        "input that the case declares to be of another rank.",
        rank=4,
    ),
    "output": Kind("What is printed, warned or logged differs, if the case asks to compare it.", shrinks=True, rank=10),
}
"""Every kind of difference, in the order of the reports."""


class Strict(NamedTuple):
    """A difference that decides the verdict only where the case asks for it: its meaning, and its kind."""

    meaning: str
    kind: str


STRICT: dict[str, Strict] = {
    "stride": Strict("The strides or the memory format of a tensor.", "metadata"),
    "order": Strict("The order of the keys of a dict, and the default factory of a `defaultdict`.", "metadata"),
    "message": Strict("The message of an exception of the same type.", "exception"),
    "random_state": Strict("The state of the random number generators after a call.", "state"),
    "output": Strict("The text and order of what is printed, warned and logged.", "output"),
    "signed_zero": Strict("The sign of a zero.", "value"),
    "nan_payload": Strict("The bits of a NaN.", "value"),
    "environment": Strict("The environment variables after a call.", "state"),
}
"""What a case may name in ``strict=``. Elsewhere these differences are notes of the same kind."""

Bits = Literal["value", "rounding", "signed-zero", "nan-payload"]

BITS: dict[Bits, str] = {
    "value": "The numbers differ by more than rounding.",
    "rounding": "The numbers differ by no more than rounding explains.",
    "signed-zero": "Zeros differ in their sign alone.",
    "nan-payload": "NaNs differ in their bits alone.",
}
"""How far two numbers differ, widest first; a difference has the first that applies to any element."""

_OLD_KINDS = {"structure": "type", "device": "metadata", "watched": "mutation"}


def current_kind(old: str, where: str) -> str:
    """Return the kind of a difference in a record of version 1 by its present name.

    In version 1, ``state`` was both the state of a module (now ``mutation``) and that of torch (still ``state``).
    """
    if old == "state" and not where.startswith("torch."):
        return "mutation"
    return _OLD_KINDS.get(old, old)
