"""Finds out, in a child process, what a target is and which derived inputs eager accepts."""

from __future__ import annotations

import dis
import inspect
import re
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from recapture.base.exceptions import qualified, safe_text
from recapture.base.scrub import encodable
from recapture.base.text import one_line, plural, shorten
from recapture.judge.compare import Rules, compare
from recapture.judge.fresh_case import FreshCase
from recapture.judge.observe import ARGUMENTS_SEED
from recapture.judge.snapshot import see
from recapture.pool.protocol import task_name
from recapture.tools.check import loading
from recapture.tools.check.case_text import Prepared, example_expression, found_expression
from recapture.tools.check.imports import ImportsOfTarget
from recapture.tools.check.likeness import same_arguments, same_ranks
from recapture.tools.check.loading import TargetError
from recapture.tools.check.mining import about_nonfinite, codes_of, mined
from recapture.tools.check.request import CheckRequest
from recapture.tools.check.variants import derive, variants
from recapture.torch_api.compat import seed_everything

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.judge.observe import Observation


SECONDS = 4.0
"""Seconds of eager calls that the derived inputs may cost in each cell; a slow model gets fewer of them."""

MOST_INPUTS = 40
"""The most derived inputs; each is called with every compiler."""

FEWEST_INPUTS = 5
"""The number of derived inputs that even a slow model gets."""

MOST_REFUSED = 6
"""The most inputs that eager refuses and every compiler is called with, each for another reason."""

OF_VALUES = (ValueError, ArithmeticError, AssertionError, IndexError, RuntimeError)
"""Exceptions that refuse values and shapes. Others, as a TypeError, mostly say that a variant is of a wrong type."""

REASON = 120
"""Characters of eager's reason for refusing an input."""


NO_GPU = "--device cuda: torch finds no GPU that it can use; `recapture doctor` says why"
"""The error where there is none."""


class Preparation(msgspec.Struct, frozen=True):
    """A request, and the names of the derived inputs that must not be tried, because one killed the child."""

    request: CheckRequest
    without: tuple[str, ...] = ()


def prepare(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Examine a target: `Preparation` → `Prepared`. `enter` is called with the name of each input that is tried."""
    todo = msgspec.json.decode(payload, type=Preparation)
    enter("reference")
    try:
        if todo.request.device == "cuda" and not _has_gpu():
            return msgspec.json.encode(Prepared(error=NO_GPU))
        found = _Examination(todo.request).run(set(todo.without), enter)
    except TargetError as error:
        found = Prepared(error=_line(error))
    return msgspec.json.encode(found)


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


class _Examination:
    """One target in this process."""

    def __init__(self, request: CheckRequest) -> None:
        self.request = request
        names = dict(vars(loading))
        with ImportsOfTarget() as imports:
            self.found: Any = eval(found_expression(request), names)  # noqa: S307 - the expression is this project's
            self.built = self._built()
        self.modules = imports.modules
        names["FOUND"] = self.built
        expression = compile(example_expression(request), "the example", "eval")
        self.example: Callable[[], tuple[Any, ...]] = lambda: eval(expression, names)  # noqa: S307
        self.kind, self.name = _kind(self.built, request.name)

    def _built(self) -> Any:
        """Make the target. What its class or factory raises is the user's to mend, and told in one line."""
        try:
            return loading.build(self.found, self.request.name)
        except TargetError:
            raise
        except BaseException as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name is not None
            why = f"the module {error.name!r} is not installed" if absent else safe_text(error)  # type: ignore[attr-defined]
            raise TargetError(f"{self.request.title} cannot be made: {qualified(type(error))}: {why}") from None

    def run(self, without: set[str], enter: Callable[[str], None]) -> Prepared:
        """Call eager on the example and on every derived input."""
        request = self.request
        self._arguments()  # refused here, in words of the target
        subject = self._subject()
        self._first_call(subject)
        began = time.perf_counter()
        first = self._call(subject, "example", self.example)
        seconds = time.perf_counter() - began
        if first.raised is not None:
            text = shorten(one_line(first.raised.message), 300)
            raise TargetError(f"{request.title} raises {first.raised.type} on its input: {text}")
        subject.start_again()
        other = self._call(subject, "example", self.example, seed="another")
        random = bool(compare(first, other, rules=Rules(show_values=False)).differences)
        codes, keys = codes_of(self.built)
        prepared = Prepared(
            kind=self.kind,
            name=self.name,
            constants=tuple(mined(codes, keys)),
            nonfinite=about_nonfinite(codes),
            modules=self.modules,
            seconds=round(seconds, 4),
            random=random,
        )
        if not request.derive:
            return prepared
        most = max(FEWEST_INPUTS, min(MOST_INPUTS, int(SECONDS / max(seconds, 1e-6))))
        return self._derived(prepared, subject, without, enter, most)

    def _first_call(self, subject: FreshCase) -> None:
        """Call eager, which may take longer than later; raise TargetError for a factory that needs arguments."""
        import torch

        made: list[Any] = []

        def called(*args: Any) -> Any:
            made.append(subject.target(*args))
            return made[-1]

        subject.call(called, "example", self.example)
        if made and isinstance(made[0], torch.nn.Module):
            raise TargetError(
                f"{self.request.title} needs arguments, and returns a torch.nn.Module: write a function without "
                "arguments that makes it"
            )

    def _derived(
        self, prepared: Prepared, subject: FreshCase, without: set[str], enter: Callable[[str], None], most: int
    ) -> Prepared:
        """Call eager on derived inputs until `most` are accepted, and note what it refuses."""
        facts = prepared.facts(self.request)
        example = self._arguments()
        seen = [see(example)]
        kept: list[str] = []
        other_ranks: list[str] = []
        refused: list[tuple[str, str]] = []
        raising: dict[str, str] = {}
        names = list(variants(example, **facts))
        for number, name in enumerate(names):
            if len(kept) + len(other_ranks) == most:
                names = names[number:]
                break
            if name in without:
                refused.append((name, "the process died"))
                continue
            enter(name)
            tried = self._tried(subject, name, facts, seen, raising)
            if tried.outcome == "kept":
                (kept if same_ranks(seen[0], seen[-1]) else other_ranks).append(name)
            elif tried.outcome != "known":
                refused.append((name, tried.reason))
            if tried.outcome == "raises":
                raising[tried.kind] = name
        else:
            names = []
        return msgspec.structs.replace(
            prepared,
            inputs=tuple(kept),
            other_ranks=tuple(other_ranks),
            refused=tuple(refused),
            must_raise=tuple(raising.values()),
            untried=tuple(names),
        )

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
            takes = f"{self.request.title} takes {signature}, and {plural(len(example), 'input')} given"
            raise TargetError(f"{takes}: {error}; give each argument once with --input, or all with --inputs") from None
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

    def _tried(
        self, subject: FreshCase, name: str, facts: dict[str, Any], seen: list[Any], raising: dict[str, str]
    ) -> _Tried:
        """Call eager on one input, twice if it may be used: it must do the same again."""

        def make() -> tuple[Any, ...]:
            return derive(name, self.example(), **facts)

        subject.start_again()
        try:
            seed_everything(ARGUMENTS_SEED)
            given = see(make())
            one = self._call(subject, name, make)
        except BaseException as error:  # what makes a variant may not fit these arguments
            return _Tried("refused", shorten(one_line(f"{qualified(type(error))}: {safe_text(error)}"), REASON))
        if one.raised is not None:
            reason = shorten(one_line(f"{one.raised.type}: {one.raised.message}"), REASON)
            kind = re.sub(r"\d+", "0", f"{one.raised.type}: {one.raised.message}")
            wanted = kind not in raising and len(raising) < MOST_REFUSED and self._may_be_refused(make, one)
            subject.start_again()
            again = self._call(subject, name, make) if wanted else None
            same = again is not None and again.raised is not None and again.raised.type == one.raised.type
            return _Tried("raises" if same else "refused", reason, kind)
        # With the arguments of an earlier input, it would be called twice for nothing. A step of training is a new one,
        # and so is one tensor given twice, where the example has two equal ones.
        is_new = name.startswith("step ") or " is args" in name
        if not is_new and any(same_arguments(given, before) for before in seen):
            return _Tried("known")
        seen.append(given)
        subject.start_again()
        again = self._call(subject, name, make)
        if again.raised is not None or compare(one, again, rules=Rules(show_values=False)).differences:
            return _Tried("refused", "eager disagrees with itself")
        return _Tried("kept")

    def _may_be_refused(self, make: Callable[[], tuple[Any, ...]], one: Observation) -> bool:
        """Whether compilers are called with an input that eager refuses: not on a GPU, which it may stop for good."""
        if self.request.train or self.request.device != "cpu" or one.raised is None:
            return False
        if not isinstance(one.raised.error, OF_VALUES) and not _is_deliberate(one.raised.error):
            return False
        try:
            inspect.signature(getattr(self.built, "forward", self.built)).bind(*make())
        except (TypeError, ValueError):
            return False
        return True


def _is_deliberate(error: BaseException) -> bool:
    """Whether Python code raised an exception itself, by ``raise`` or ``assert``, and no operation on wrong types."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or not isinstance(error, Exception) or place.tb_lasti < 0:
        return False
    return dis.opname[place.tb_frame.f_code.co_code[place.tb_lasti]] == "RAISE_VARARGS"


class _Tried(NamedTuple):
    """What eager made of an input: ``kept``, ``known`` from an earlier one, ``raises`` (to be tried) or ``refused``.

    `kind` is the reason without its numbers.
    """

    outcome: str
    reason: str = ""
    kind: str = ""


def _kind(built: Any, name: str) -> tuple[str, str]:
    """Return how a target is declared in a generated file, and its name."""
    import torch

    if isinstance(built, torch.nn.Module):
        return "module", (name.rpartition(".")[2] if name else type(built).__name__)
    called = getattr(built, "__name__", None)
    if inspect.isfunction(built) and called is not None and called.isidentifier():
        return "function", called
    return "callable", called if called is not None and called.isidentifier() else "anonymous"


def _line(error: BaseException) -> str:
    return shorten(encodable(one_line(safe_text(error))), 600)


PREPARE = task_name(prepare)
