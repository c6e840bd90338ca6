"""Finds out, in a child process, what a target is and which derived inputs eager accepts."""

from __future__ import annotations

import inspect
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.exceptions import qualified, safe_text
from recapture.base.scrub import encodable
from recapture.base.text import one_line, shorten
from recapture.base.torch_compat import seed_everything
from recapture.conformance.fresh_case import FreshCase
from recapture.conformance.judge import Rules, compare
from recapture.conformance.observe import ARGUMENTS_SEED
from recapture.conformance.seen import see
from recapture.declare.own_code import loading
from recapture.declare.own_code.case_text import Prepared, example_expression, found_expression
from recapture.declare.own_code.loading import TargetError
from recapture.declare.own_code.request import CheckRequest  # noqa: TC001 - msgspec resolves it
from recapture.declare.own_code.variants import derive, variants

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.conformance.observe import Observation

__all__ = ["PREPARE", "Preparation", "prepare"]

PREPARE = f"{__name__}:prepare"

SECONDS = 4.0
"""Seconds of eager calls that the derived inputs may cost in each cell; a slow model gets fewer of them."""

MOST_INPUTS = 24
"""The most derived inputs; each is called with every compiler."""

FEWEST_INPUTS = 5
"""The number of derived inputs that even a slow model gets."""

REASON = 120
"""Characters of eager's reason for refusing an input."""

MOST_MINED = 12
"""The most numbers and strings that are taken from the target's source."""


class Preparation(msgspec.Struct, frozen=True):
    """A request, and the names of the derived inputs that must not be tried, because one killed the child."""

    request: CheckRequest
    without: tuple[str, ...] = ()


def prepare(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Examine a target: `Preparation` → `Prepared`. `enter` is called with the name of each input that is tried."""
    todo = msgspec.json.decode(payload, type=Preparation)
    enter("reference")
    try:
        found = _Examination(todo.request).run(set(todo.without), enter)
    except TargetError as error:
        found = Prepared(error=_line(error))
    return msgspec.json.encode(found)


class _Examination:
    """One target in this process."""

    def __init__(self, request: CheckRequest) -> None:
        self.request = request
        before = set(sys.modules)
        names = {name: getattr(loading, name) for name in loading.__all__}
        self.found: Any = eval(found_expression(request), names)  # noqa: S307 - the expression is this project's
        self.built = loading.build(self.found, request.name)
        self.modules = _installed(set(sys.modules) - before)
        names["FOUND"] = self.built
        expression = compile(example_expression(request), "the example", "eval")
        self.example: Callable[[], tuple[Any, ...]] = lambda: eval(expression, names)  # noqa: S307
        self.kind, self.name = _kind(self.built, request.name)

    def run(self, without: set[str], enter: Callable[[str], None]) -> Prepared:
        """Call eager on the example and on every derived input."""
        request = self.request
        example = self._arguments()
        subject = self._subject()
        self._call(subject, "example", self.example)  # the first call may take longer
        began = time.perf_counter()
        first = self._call(subject, "example", self.example)
        seconds = time.perf_counter() - began
        if first.raised is not None:
            text = shorten(one_line(first.raised.message), 300)
            raise TargetError(f"{request.title} raises {first.raised.type} on its input: {text}")
        subject.start_again()
        other = self._call(subject, "example", self.example, seed="another")
        random = bool(compare(first, other, rules=Rules(show_values=False)).differences)
        prepared = Prepared(
            kind=self.kind,
            name=self.name,
            constants=tuple(_mined(self.built)),
            modules=tuple(sorted(self.modules)),
            seconds=round(seconds, 4),
            random=random,
        )
        if not request.derive:
            return prepared
        facts = prepared.facts(request)
        most = max(FEWEST_INPUTS, min(MOST_INPUTS, int(SECONDS / max(seconds, 1e-6))))
        kept: list[str] = []
        refused: list[tuple[str, str]] = []
        seen = [see(example)]
        names = list(variants(example, **facts))
        for number, name in enumerate(names):
            if name in without:
                refused.append((name, "the process died"))
                continue
            if len(kept) == most:
                return msgspec.structs.replace(
                    prepared, inputs=tuple(kept), refused=tuple(refused), untried=tuple(names[number:])
                )
            enter(name)
            why = self._refusal(subject, name, facts, seen)
            if why is None:
                kept.append(name)
            elif why:
                refused.append((name, why))
        return msgspec.structs.replace(prepared, inputs=tuple(kept), refused=tuple(refused))

    def _arguments(self) -> tuple[Any, ...]:
        seed_everything(ARGUMENTS_SEED)
        try:
            example = self.example()
        except TargetError:
            raise
        except BaseException as error:  # a user's function of inputs may raise anything
            raise TargetError(f"the example cannot be made: {qualified(type(error))}: {safe_text(error)}") from None
        function = getattr(self.built, "forward", self.built)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return example
        try:
            signature.bind(*example)
        except TypeError as error:
            some = f"{len(example)} input{'s' if len(example) != 1 else ''}"
            takes = f"{self.request.title} takes {signature}"
            raise TargetError(f"{takes}, which {some} do not fit: {error}; give them with --input") from None
        return example

    def _subject(self) -> FreshCase:
        built = loading.made_for(self.built, train=self.request.train)
        case: Any = SimpleNamespace(
            target=(lambda: built) if self.kind == "module" else built,
            is_module=self.kind == "module",
            inputs=lambda: [("example", self.example)],
            watch=None,
            reset=None,
            backward=None if self.kind != "module" or self.request.train else False,
            train_step=None,
            strict=(),
        )
        return FreshCase(case, self.request.device)

    def _call(
        self, subject: FreshCase, label: str, make: Callable[[], tuple[Any, ...]], seed: str | None = None
    ) -> Observation:
        return subject.call(subject.target, label, make, seed=seed)

    def _refusal(self, subject: FreshCase, name: str, facts: dict[str, Any], seen: list[Any]) -> str | None:
        """Return None if an input can be used, else eager's reason, or an empty text if it is no new input."""

        def make() -> tuple[Any, ...]:
            return derive(name, self.example(), **facts)

        subject.start_again()
        try:
            seed_everything(ARGUMENTS_SEED)
            given = see(make())
            one = self._call(subject, name, make)
        except BaseException as error:  # what makes a variant may not fit these arguments
            return shorten(one_line(f"{qualified(type(error))}: {safe_text(error)}"), REASON)
        if one.raised is not None:
            return shorten(one_line(f"{one.raised.type}: {one.raised.message}"), REASON)
        # With the arguments of an earlier input, it would be called twice for nothing. A step of training is a new one.
        if not name.startswith("step ") and any(_same(given, before) for before in seen):
            return ""
        seen.append(given)
        subject.start_again()
        again = self._call(subject, name, make)
        if again.raised is not None or compare(one, again, rules=Rules(show_values=False)).differences:
            return "eager disagrees with itself"
        return None


def _same(one: Any, two: Any) -> bool:
    """Whether two descriptions of arguments are of the same arguments, bit by bit, with the same strides."""
    import torch

    if (one.type, one.scalar, one.children is None) != (two.type, two.scalar, two.children is None):
        return False
    mine, theirs = one.tensor, two.tensor
    if (mine is None) != (theirs is None):
        return False
    if mine is not None:
        alike = all(getattr(mine, key) == getattr(theirs, key) for key in ("dtype", "shape", "stride", "requires_grad"))
        if not alike or (mine.data is None) != (theirs.data is None):
            return False
        if mine.data is not None and not torch.equal(mine.data, theirs.data):
            return False
    left, right = one.children or (), two.children or ()
    return [key for key, _ in left] == [key for key, _ in right] and all(
        _same(mine, theirs) for (_, mine), (_, theirs) in zip(left, right, strict=True)
    )


def _kind(built: Any, name: str) -> tuple[str, str]:
    """Return how a target is declared in a generated file, and its name."""
    import torch

    if isinstance(built, torch.nn.Module):
        return "module", (name.rpartition(".")[2] if name else type(built).__name__)
    called = getattr(built, "__name__", None)
    if inspect.isfunction(built) and called is not None and called.isidentifier():
        return "function", called
    return "callable", called if called is not None and called.isidentifier() else "anonymous"


def _mined(built: Any) -> list[Any]:
    """Return the numbers and strings in the code of a function, or of a module's methods, and of what they define."""
    codes: list[Any] = []
    kinds = {type(one) for one in built.modules()} if hasattr(built, "modules") else ()
    for kind in kinds:
        if not kind.__module__.startswith("torch"):
            codes += [one.__code__ for one in vars(kind).values() if inspect.isfunction(one)]
    if hasattr(built, "__code__"):
        codes.append(built.__code__)
    found: dict[tuple[type, Any], Any] = {}
    while codes:
        code = codes.pop()
        for one in code.co_consts:
            if inspect.iscode(one):
                codes.append(one)
            elif type(one) in (int, float) and abs(one) > 1 and abs(one) < 1e6:
                found.setdefault((type(one), one), one)
            elif type(one) is str and one.isidentifier() and one != code.co_name and encodable(one) == one:
                found.setdefault((str, one), one)
    return sorted(found.values(), key=lambda one: (type(one) is str, str(one)))[:MOST_MINED]


def _installed(names: set[str]) -> set[str]:
    """Return the modules of installed packages, which a server may import before it forks."""
    found = set()
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        root = name.partition(".")[0]
        if file is not None and "site-packages" in Path(file).parts and root not in ("torch", "recapture"):
            found.add(name)
    return {one for one in found if all(part.isidentifier() for part in one.split("."))}


def _line(error: BaseException) -> str:
    return shorten(encodable(one_line(safe_text(error))), 600)
