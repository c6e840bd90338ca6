"""One difference between a captured callable and eager, as facts; the sentence that people read is made from them.

Nothing here needs another package: the judge makes differences, also inside a script that has torch alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from recapture.records.kinds import Bits

Unlike = Literal[
    "value",
    "type",
    "structure",
    "items",
    "keys",
    "order",
    "default_factory",
    "dtype",
    "shape",
    "device",
    "layout",
    "stride",
    "requires_grad",
    "flags",
    "property",
    "memory",
    "outside",
    "set",
    "gradient",
    "zero_gradient",
    "backward",
    "raises",
    "message",
    "rank",
    "output",
    "setting",
    "random_state",
    "environment",
    "capture",
    "inputs",
    "original_raises",
    "original",
    "moved",
    "overwritten",
    "version",
    "warnings",
    "written",
    "cut",
    "storage",
]
"""What the two sides of a difference are unlike in; `SENTENCES` has the words for each."""


class Sentence(NamedTuple):
    """The sentence for each set of sides that have something; empty where no difference is of this form."""

    both: str = ""
    eager: str = ""
    other: str = ""
    neither: str = ""


_PLAIN = Sentence("eager {eager}, this {other}")

SENTENCES: dict[Unlike, Sentence] = {
    "value": Sentence("eager {eager}, this {other}", neither="value differs"),
    "type": Sentence("eager gives {eager}, this {other}"),
    "structure": Sentence("eager has {eager}, this {other}"),
    "items": Sentence("eager has {eager} items, this {other}"),
    "keys": Sentence("eager has {eager}, this {other}"),
    "order": Sentence(neither="keys in another order than in eager"),
    "default_factory": Sentence("default factory {eager} in eager, {other} here"),
    "dtype": _PLAIN,
    "shape": _PLAIN,
    "device": _PLAIN,
    "layout": _PLAIN,
    "stride": Sentence("stride {eager} in eager, {other} here"),
    "requires_grad": Sentence("requires_grad {eager} in eager, {other} here"),
    "flags": _PLAIN,
    "property": Sentence(eager="eager has {eager}, this none", other="eager has none, this {other}"),
    "memory": Sentence(
        eager="shares memory with {eager} in eager, not here", other="shares memory with {other} here, not in eager"
    ),
    "outside": Sentence(other="{other} bytes outside the view differ"),
    "set": Sentence(eager="eager sets it, this does not", other="eager does not set it, this does"),
    "gradient": Sentence(
        eager="{eager} in eager, none on the other side", other="{other} here, none on the other side"
    ),
    "zero_gradient": Sentence(
        eager="{eager} in eager, None on the other side", other="{other} here, None on the other side"
    ),
    "backward": Sentence(eager="eager's backward raises {eager}, this returned"),
    "raises": Sentence("eager raises {eager}, this its subclass {other}", eager="eager raises {eager}, this returned"),
    "message": Sentence("eager's message {eager}, this {other}"),
    "rank": Sentence(other="refuses another rank: {other}"),
    "output": Sentence("eager printed {eager}, this printed {other}"),
    "setting": Sentence("eager leaves {eager}, this leaves {other}"),
    "random_state": Sentence(neither="another state than eager leaves"),
    "environment": Sentence(neither="another value than eager leaves"),
    "capture": Sentence("capturing changes it, as a call does", other="capturing changes it"),
    "inputs": Sentence(other="its inputs cannot be made any more: {other}"),
    "original_raises": Sentence(other="the original raises {other} after the capture"),
    "original": Sentence(other="the original works differently after the capture: {other}"),
    "moved": Sentence(
        eager="eager moves it to other memory, this does not", other="this moves it to other memory, eager does not"
    ),
    "overwritten": Sentence(
        eager="eager overwrites what an earlier call left, this does not",
        other="this overwrites what an earlier call left, eager does not",
    ),
    "version": Sentence(
        eager="autograd counts a change in eager, not here", other="autograd counts a change here, not in eager"
    ),
    "warnings": Sentence("eager warned {eager}, this warned {other}"),
    "written": Sentence("eager wrote {eager} bytes past sys.stdout, this {other}"),
    "cut": Sentence(other="a part was not compared: {other}"),
    "storage": Sentence("eager keeps {eager} bytes alive, this {other}"),
}
"""The sentence of each form of difference, except what `Difference.detail` adds to a value's."""

_BITS = {"signed-zero": "zeros of another sign", "nan-payload": "NaNs with other bits"}
"""Sentences about numbers that are equal and whose bits differ."""


Aspect = Literal["type", "value", "dtype", "shape", "stride", "items"]
"""What an argument and the example's may be unlike in."""


class InputChange(NamedTuple):
    """In what one argument is unlike the example's: `what` is type, value, dtype, shape, stride or items.

    `value` is that of the input, `example` that of the example, both as text.
    """

    where: str
    what: Aspect
    value: str
    example: str

    def __str__(self) -> str:
        """The change in words: ``args[0] has shape (2,), the example's (4,)``."""
        if self.what in ("type", "value"):
            return f"{self.where} is {self.value}, the example's {self.example}"
        if self.what == "items":
            return f"{self.where} has {self.value} items, the example's {self.example}"
        return f"{self.where} has {self.what} {self.value}, the example's {self.example}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which the captured callable differed from eager.

    `input` is ``example`` or ``held_out[i]``, ``capture`` for an effect of capturing itself, or ``original`` for the
    original callable after the capture. `where` is a path such as ``result[0]``, ``args[1]`` or ``state['weight']``.
    `kind` is one of `recapture.records.kinds.KINDS`.

    `unlike` says in what the sides are unlike, one of `SENTENCES`. `eager` and `other` are the two sides as text;
    None if a side has nothing of the kind. `at` is the index of the first element that differs. `changes` say in what
    the input is unlike the example, for a compiler that does not check its inputs: each the argument, what is unlike
    (type, value, dtype, shape, stride or items), that of the input and that of the example. `more_changes` is the
    number of those left out. For numbers, `bits` says how they differ, `ulps` is the largest distance of two elements
    in units in the last place, and `elements` says how many of how many elements differ.

    `text` is the sentence of a record of an older version that no fields make; None for all others.
    """

    input: str
    where: str
    kind: str
    text: str | None = None
    unlike: Unlike | None = None
    eager: str | None = None
    other: str | None = None
    at: tuple[int, ...] = ()
    changes: tuple[InputChange, ...] = ()
    more_changes: int | None = None
    bits: Bits | None = None
    ulps: int | None = None
    elements: tuple[int, int] | None = None

    @property
    def detail(self) -> str:
        """The difference as a sentence; empty for a form that has none."""
        if self.text is not None:
            return self.text
        if self.unlike is None:
            return ""
        if self.bits in _BITS:
            return _BITS[self.bits]
        sentence = sentence_of(self).format(eager=self.eager, other=self.other)
        if self.unlike != "value":
            return sentence
        return self._count(sentence) + self._place() + self._unlike_example()

    @property
    def eager_alone_raises(self) -> bool:
        """Whether eager raises an exception where the captured callable returns."""
        return self.unlike == "raises" and self.other is None

    def _count(self, sides: str) -> str:
        """Return the sides of a value, after how many elements differ if it has elements."""
        if self.elements is None:
            return sides
        # A tensor without dimensions has one element and no index.
        count = "{} of {} elements differ".format(*self.elements) if self.at else "value differs"
        return count if self.eager is None else f"{count}: {sides}"

    def _place(self) -> str:
        return f" at {list(self.at)}" if self.at and self.eager is not None else ""

    def _unlike_example(self) -> str:
        return f"; {self.changes_in_words()}" if self.changes else ""

    def changes_in_words(self, words: Callable[[InputChange], str] = str) -> str:
        """Return in what the input is unlike the example; `words` says it for one argument."""
        more = f" and {self.more_changes} more" if self.more_changes else ""
        return ", ".join(map(words, self.changes)) + more


def sentence_of(difference: Difference) -> str:
    """Return the sentence for the sides that a difference has, with their names in braces; empty if it has none."""
    if difference.unlike is None:
        return ""
    forms = SENTENCES[difference.unlike]
    if difference.eager is None:
        return forms.neither if difference.other is None else forms.other
    return forms.eager if difference.other is None else forms.both
