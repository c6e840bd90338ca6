"""Finds out, in a child process, what a target is and which derived inputs eager accepts."""

from __future__ import annotations

import ctypes
import dis
import faulthandler
import inspect
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from recapture.base.exceptions import qualified, safe_text
from recapture.base.paths import PACKAGE
from recapture.base.scrub import encodable, scrub
from recapture.base.text import one_line, plural, shorten
from recapture.cases.own_code import BY_NAME, OwnCode, TargetError, attribute_of, order_of_names
from recapture.judge.compare import Rules, compare
from recapture.judge.fresh_case import FreshCase
from recapture.judge.observe import ARGUMENTS_SEED
from recapture.judge.snapshot import snapshot_of
from recapture.pool.protocol import task_name
from recapture.tools.check.case_text import Prepared, case_name
from recapture.tools.check.comparisons import compared
from recapture.tools.check.input_changes import BELOW_ZERO, FAR_BEYOND, tensors_in, unchangeable_in
from recapture.tools.check.operators import own_operators
from recapture.tools.check.request import CheckRequest
from recapture.tools.check.same_arguments import same_arguments, same_ranks
from recapture.tools.check.source_facts import INSTALLED, ImportsOfTarget, about_nonfinite, codes_of, mined
from recapture.tools.check.variants import derive, variants
from recapture.torch_api.compat import is_out_of_memory, seed_everything
from recapture.torch_api.custom_operators import registered_operators

if TYPE_CHECKING:
    from types import TracebackType

    from recapture.judge.observe import Observation

STAGES = {
    "load": "while its file is loaded",
    "arguments": "while its inputs are made",
    "call": "in the call with the example",
    "source": "while recapture reads its source",
}
"""What a child does before it tries derived inputs, by the name of the phase. Later phases are names of inputs."""

AFFORDED_SECONDS = 10.0
"""Seconds that the calls with one derived input may take, and more if the example is slow."""

TIMES_AS_SLOW = 20
"""How many times as long as the example's call the calls with one derived input may take."""

SHARE_OF_TIMEOUT = 0.8
"""Part of the timeout after which no other derived input is tried."""

SHARE_OF_ONE_INPUT = 0.4
"""Part of the time that is left which one derived input may take: several that never end do not use it up."""

TOO_SLOW = "Timeout ("
"""What Python's watchdog writes when the calls with a derived input take too long."""

MOST_REFUSED = 6
"""The most inputs that eager refuses and every compiler is called with, each for another reason."""

OF_VALUES = (ValueError, ArithmeticError, AssertionError, IndexError, RuntimeError)
"""Exceptions that refuse values and shapes. Others, as a TypeError, mostly say that a variant is of a wrong type."""

OF_RANGES = re.compile(r"index|range|bound", re.IGNORECASE)
"""What messages say about integers that are too small or too large."""

REASON = 120
"""Characters of eager's reason for refusing an input."""

M_PERTURB = -6
"""The option of glibc's ``mallopt`` that fills new memory with a byte."""

NO_GPU = "--device cuda: torch finds no GPU that it can use; `recapture doctor` says why"
"""The error where there is none."""


Stability = Literal["steady", "depends on calls", "unsteady", "uninitialised"]
"""Whether eager does the same on the example again.

If not, the result depends on earlier calls, or has memory that nothing was written to. A result that is ``unsteady``
differs although the target's state was restored, as far as that can be done.
"""


class Preparation(msgspec.Struct, frozen=True):
    """A request, its time limit in seconds, and what earlier children leave.

    That is why some derived inputs are not tried, because each ended a child, and how much of the time is left.
    """

    request: CheckRequest
    timeout: float = 600.0
    without: dict[str, str] = {}
    left: float = 600.0


def prepare(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Examine a target: `Preparation` → `Prepared`. `enter` is called with each stage, and each input that is tried."""
    preparation = msgspec.json.decode(payload, type=Preparation)
    enter("load")
    try:
        if preparation.request.device == "cuda" and not _has_gpu():
            return msgspec.json.encode(Prepared(error=NO_GPU))
        prepared = _Examination(preparation, enter).run()
    except TargetError as error:
        prepared = Prepared(error=_line(error))
    return msgspec.json.encode(prepared)


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


class _Examination:
    """One target in this process."""

    def __init__(self, preparation: Preparation, enter: Callable[[str], None]) -> None:
        self.request = preparation.request
        self.timeout = preparation.timeout
        self.left = preparation.left
        self.without = preparation.without
        self.enter = enter
        self.began = time.monotonic()
        before = registered_operators()
        with ImportsOfTarget() as imports:
            self.own = OwnCode(**self.request.own_code)
            self.built = self._built()
        self.operators = own_operators(before)
        self.unwrapped = self.built
        self.modules = imports.modules
        self.calling: dict[str, Any] = {}
        self.remarks: list[str] = []
        self.kind, self.name = _kind(self.built, self.request.name)
        self.stability: Stability = "steady"
        self.seen: list[Any] = []
        self.raising: dict[str, str] = {}
        """Inputs that compilers are called with although eager refuses them, by eager's reason without its numbers."""

    def _built(self) -> Any:
        """Make the target. What its class or factory raises is the user's to mend, and told in one line."""
        try:
            return self.own.load()
        except TargetError:
            raise
        except BaseException as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name is not None
            why = f"the module {error.name!r} is not installed" if absent else safe_text(error)  # type: ignore[attr-defined]
            where = f"; it runs in {self.request.folder}" if isinstance(error, FileNotFoundError) else ""
            raise TargetError(f"{self.request.title} cannot be made: {qualified(type(error))}: {why}{where}") from None

    def run(self) -> Prepared:
        """Call eager on the example and on every derived input."""
        request = self.request
        self.enter("arguments")
        self._arguments()
        self.enter("call")
        if request.train:
            self._ask_for_gradients()
        subject = self._subject()
        self._first_call(subject)
        subject.start_again()
        began = time.perf_counter()
        first = self._call(subject, "example", self.own.example)
        seconds = time.perf_counter() - began
        if first.raised is not None:
            raise TargetError(self._raises(first))
        stability = self._stability(subject)
        if stability == "uninitialised":
            self._judge_form_alone(subject)
        subject = self._subject(anew=stability == "unsteady")
        first = self._call(subject, "example", self.own.example)
        subject.start_again()
        other_seed = self._call(subject, "example", self.own.example, seed="another")
        self.stability = stability
        random = stability == "steady" and bool(compare(first, other_seed, rules=Rules(show_values=False)).differences)
        if request.train and first.gradients is None:
            self.remarks.append("--train compares no gradients: no floating tensor of the result requires one")
        self.enter("source")
        codes, keys = codes_of(self.unwrapped)
        sizes, numbers = compared(codes)
        prepared = Prepared(
            kind=self.kind,
            name=self.name,
            calling=self.calling,
            constants=tuple(mined(codes, keys, numbers)),
            sizes=sizes,
            nonfinite=about_nonfinite(codes),
            modules=self.modules,
            operators=self.operators,
            seconds=round(seconds, 4),
            random=random,
            depends_on_calls=stability in ("depends on calls", "unsteady"),
            size_of_one=any(1 in tensor.shape for _, tensor in tensors_in(self.own.example(), "args")),
            sets_fallback_random=_speaks_of(self.request.place, "fallback_random"),
            remarks=tuple(self.remarks),
        )
        return self._derived(prepared, subject) if request.derive else prepared

    # --- the example --------------------------------------------------------------------------------------------------

    def _arguments(self) -> None:
        """Make the example once, and find out how the target takes it. Raises TargetError, in words of the target."""
        import torch

        seed_everything(ARGUMENTS_SEED)
        try:
            inputs = self._given()
            if callable(inputs) and not hasattr(inputs, "dtype"):
                inputs = inputs()
            if isinstance(inputs, BY_NAME):
                names, by_name = order_of_names(self.built, inputs)
                self._call_as(names=names, by_name=by_name)
            example = self.own.arguments(inputs)
        except TargetError:
            raise
        except BaseException as error:  # a user's function of inputs may raise anything
            raise TargetError(f"the example cannot be made: {qualified(type(error))}: {safe_text(error)}") from None
        alike = self._bind(example)
        if not isinstance(self.built, torch.nn.Module) and not (alike and _has_a_name(self.built)):
            self._call_as(nameless=True)
            self.kind, self.name = _kind(self.built, self.request.name)
        for path, tensor in unchangeable_in(example, "args"):
            kind = type(tensor).__name__ if type(tensor).__name__ != "Tensor" else f"{tensor.layout} tensor"
            self.remarks.append(f"{path} is a {kind}, of which no other inputs are derived")

    def _given(self) -> Any:
        """Return the example as the user gives it. Raises TargetError for what is none."""
        inputs = self.own.given()
        if self.request.inputs_from is not None and (inputs is None or inspect.isgenerator(inputs)):
            what = "returns None" if inputs is None else "yields its values"
            raise TargetError(f"--inputs: {self.request.inputs_from[1]} {what}: return the arguments as a tuple")
        return inputs

    def _bind(self, example: tuple[Any, ...]) -> bool:
        """Whether the target's signature fits the example. Raises TargetError if the target cannot take it."""
        function = getattr(self.built, "forward", self.built)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return True
        try:
            signature.bind(*example)
        except TypeError as error:
            try:  # a decorated function may take other arguments than the one within it, whose signature it has
                inspect.signature(function, follow_wrapped=False).bind(*example)
            except TypeError:
                raise TargetError(self._does_not_take(signature, example, error)) from None
            return False
        return True

    def _does_not_take(self, signature: inspect.Signature, example: tuple[Any, ...], error: TypeError) -> str:
        takes = f"{self.request.title} takes {signature}, but it got {plural(len(example), 'input')}: {error}"
        parameters = signature.parameters.values()
        if not parameters:
            return f"{takes}; a function without arguments is a target if it makes a function or a torch.nn.Module"
        if any(
            parameter.kind == parameter.KEYWORD_ONLY and parameter.default is parameter.empty
            for parameter in parameters
        ):
            return f"{takes}; for inputs that are given by name, name a function with --inputs that returns a dict"
        return f"{takes}; give each argument once with --input, or all with --inputs"

    def _call_as(self, **calling: Any) -> None:
        """Change how the target is called, or what its inputs are."""
        self.calling |= calling
        for name, value in calling.items():
            setattr(self.own, name, value)
        if calling.keys() & {"by_name", "form", "nameless"}:
            self.built = self.own.load()

    def _ask_for_gradients(self) -> None:
        """Let floating-point inputs require a gradient, unless the target's parameters do or it cannot take them so."""
        import torch

        if isinstance(self.built, torch.nn.Module) and any(weight.requires_grad for weight in self.built.parameters()):
            return
        self._call_as(gradients=True)
        subject = self._subject()
        if self._call(subject, "example", self.own.example).raised is not None:
            self._call_as(gradients=False)
        subject.start_again()

    def _first_call(self, subject: FreshCase) -> None:
        """Call eager, which may take longer than later; raise TargetError for a factory that needs arguments."""
        import torch

        results: list[Any] = []

        def call(*args: Any) -> Any:
            results.append(subject.target(*args))
            return results[-1]

        subject.call(call, "example", self.own.example)
        if results and isinstance(results[0], torch.nn.Module):
            raise TargetError(
                f"{self.request.title} needs arguments, and returns a torch.nn.Module: write a function without "
                "arguments that makes it"
            )

    def _raises(self, first: Observation) -> str:
        """Say what eager raises on the example, where, and what to do about a file that it does not find."""
        if first.raised is None:
            return ""
        text = shorten(scrub(one_line(first.raised.message)), 300)
        where = _line_of(first.raised.error)
        message = f"{self.request.title} raises {first.raised.type} on its input{where}: {text}"
        if isinstance(first.raised.error, FileNotFoundError):
            message += "; a call runs in an empty folder: read files when the target is made, or by their whole path"
        return message

    def _stability(self, subject: FreshCase) -> Stability:
        """Say whether the example gives the same again, also where new memory has another content."""
        calls = []
        # The first two have the same content: what differs between these is not what memory contained before.
        for byte in (0x55, 0x55, 0x2A):
            subject.start_again()
            with NewMemory(byte):
                calls.append(self._call(subject, "example", self.own.example))
        first, again, otherwise = calls
        if compare(first, again, rules=Rules(show_values=False)).differences:
            return "unsteady"
        if _results_differ(first, otherwise):
            return "uninitialised"
        subject.start_again()
        self._call(subject, "example", self.own.example)
        following = self._call(subject, "example", self.own.example)  # in the state that a call leaves
        return "depends on calls" if _results_differ(first, following) else "steady"

    def _judge_form_alone(self, subject: FreshCase) -> None:
        """Replace the numbers of a result that nothing was written to: its shapes and dtypes are judged."""
        form = _form_of_result(subject.target(*self.own.example()))
        if form:
            self._call_as(form=form)
            self.remarks.append(
                "the result contains memory that nothing was written to: shapes and dtypes alone are judged"
            )

    # --- derived inputs -----------------------------------------------------------------------------------------------

    def _derived(self, prepared: Prepared, subject: FreshCase) -> Prepared:
        """Call eager on derived inputs until enough are accepted, and note what it refuses and cannot afford."""
        example = self.own.example()
        self.seen = [snapshot_of(example)]
        afforded = min(max(AFFORDED_SECONDS, TIMES_AS_SLOW * prepared.seconds), SHARE_OF_ONE_INPUT * self.left)
        names = list(variants(example, **prepared.facts(self.request)))
        probes = [name for name in (BELOW_ZERO, FAR_BEYOND) if name in names]
        accepted: dict[str, list[str]] = {"accepted": [], "other rank": []}
        refused: list[tuple[str, str]] = []
        unaffordable: list[tuple[str, str]] = []
        untried: list[str] = []
        late = False
        for name in [*probes, *(name for name in names if name not in probes)]:
            late = late or time.monotonic() - self.began > SHARE_OF_TIMEOUT * self.left
            if late or sum(map(len, accepted.values())) >= self.request.most_inputs:
                untried.append(name)
                continue
            if name in self.without:
                unaffordable.append((name, self.without[name]))
                continue
            self.enter(name)
            # In C, without Python's lock: one long operation on a large integer holds it.
            faulthandler.dump_traceback_later(afforded, exit=True, file=sys.__stderr__ or 2)
            tried = self._tried(subject, name, prepared)
            faulthandler.cancel_dump_traceback_later()
            if tried.outcome in accepted:
                accepted[tried.outcome].append(name)
            elif tried.outcome == "unaffordable":
                unaffordable.append((name, tried.reason))
            elif tried.outcome != "known":
                refused.append((name, tried.reason))
            if tried.outcome == "raises":
                self.raising[tried.kind] = name
            if name in probes and tried.outcome in ("raises", "refused") and OF_RANGES.search(tried.reason):
                prepared = msgspec.structs.replace(prepared, careful=True)
        if late:
            self.remarks.append(f"inputs are left out, because --timeout {self.timeout:g} s was nearly over")
        return msgspec.structs.replace(
            prepared,
            inputs=tuple(accepted["accepted"]),
            other_ranks=tuple(accepted["other rank"]),
            refused=tuple(refused),
            must_raise=tuple(self.raising.values()),
            unaffordable=tuple(unaffordable),
            untried=tuple(untried),
            remarks=tuple(self.remarks),
        )

    def _tried(self, subject: FreshCase, name: str, prepared: Prepared) -> _Tried:
        """Call eager on one input, twice if it may be used: it must do the same again."""
        facts = prepared.facts(self.request)

        def make() -> tuple[Any, ...]:
            return derive(name, self.own.example(), **facts)

        def call() -> Observation:
            fresh = self._subject(anew=True) if self.stability == "unsteady" else subject
            fresh.start_again()
            return self._call(fresh, name, make)

        try:
            seed_everything(ARGUMENTS_SEED)
            arguments = snapshot_of(make())
            first = call()
        except BaseException as error:  # what makes a variant may not fit these arguments
            text = shorten(one_line(f"{qualified(type(error))}: {safe_text(error)}"), REASON)
            return _Tried("unaffordable" if is_out_of_memory(error) else "refused", text)
        if first.raised is not None:
            return self._refused(first, make, call)
        # With the arguments of an earlier input, it would be called twice for nothing. A step of training is a new one,
        # and so are tensors that share memory.
        is_new = name.startswith("step ") or " is args" in name or " overlaps args" in name
        if not is_new and any(same_arguments(arguments, before) for before in self.seen):
            return _Tried("known")
        self.seen.append(arguments)
        again = call()
        if again.raised is not None or compare(first, again, rules=Rules(show_values=False)).differences:
            return _Tried("refused", "eager disagrees with itself")
        return _Tried("accepted" if same_ranks(self.seen[0], arguments) else "other rank")

    def _refused(
        self, first: Observation, make: Callable[[], tuple[Any, ...]], call: Callable[[], Observation]
    ) -> _Tried:
        """Return what follows from an exception of eager: compilers may have to raise one, too."""
        if first.raised is None:
            raise ValueError("eager accepts this input")
        text = f"{first.raised.type}: {first.raised.message}"
        reason, kind = shorten(scrub(one_line(text)), REASON), re.sub(r"\d+", "0", text)
        if is_out_of_memory(first.raised.error):
            return _Tried("unaffordable", "eager has not enough memory for it")
        is_tried = kind not in self.raising and len(self.raising) < MOST_REFUSED and self._may_be_refused(make, first)
        again = call() if is_tried else None
        same = again is not None and again.raised is not None and again.raised.type == first.raised.type
        return _Tried("raises" if same else "refused", reason, kind)

    def _may_be_refused(self, make: Callable[[], tuple[Any, ...]], first: Observation) -> bool:
        """Whether compilers are called with an input that eager refuses: not on a GPU, which it may stop for good."""
        if self.request.train or self.request.device != "cpu" or first.raised is None:
            return False
        if not isinstance(first.raised.error, OF_VALUES) and not _is_deliberate(first.raised.error):
            return False
        try:
            inspect.signature(getattr(self.built, "forward", self.built)).bind(*make())
        except (TypeError, ValueError):
            return False
        return True

    # --- calls --------------------------------------------------------------------------------------------------------

    def _subject(self, *, anew: bool = False) -> FreshCase:
        """Return the target, ready to be called; `anew` executes its file again, where its state cannot be restored."""
        built = OwnCode(**self.request.own_code, **self.calling).load() if anew else self.built
        case: Any = SimpleNamespace(
            target=(lambda: built) if self.kind == "module" else built,
            is_module=self.kind == "module",
            inputs=lambda: [("example", self.own.example)],
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


def _line_of(error: BaseException) -> str:
    """Return the last line of the user's own files in an exception's traceback, as `` (model.py:12)``."""
    place, where = error.__traceback__, ""
    while place is not None:
        file = Path(place.tb_frame.f_code.co_filename)
        if INSTALLED not in file.parts and PACKAGE not in file.parents and file.suffix == ".py":
            where = f" (line {place.tb_lineno} of {file.name})"
        place = place.tb_next
    return where


def _results_differ(first: Observation, second: Observation) -> bool:
    """Whether two results differ, whatever else the calls changed."""
    differences = compare(first, second, rules=Rules(show_values=False)).differences
    return any(difference.where.startswith("result") for difference in differences)


def _speaks_of(place: str, word: str) -> bool:
    """Whether a word is in the text of a target's file."""
    return place.endswith(".py") and word in Path(place).read_text(encoding="utf-8", errors="replace")


def _form_of_result(result: Any) -> str:
    """Return the form of a result, as `recapture.cases.own_code.wrapped` takes it; empty for any other."""
    import torch

    if isinstance(result, torch.Tensor):
        return "tensor"
    if type(result) in (tuple, list) and result and all(isinstance(item, torch.Tensor) for item in result):
        return str(len(result))
    return ""


class NewMemory:
    """Lets the allocator of the C library fill new memory with a byte, so that what nobody writes to shows."""

    def __init__(self, byte: int) -> None:
        self.byte = byte

    def __enter__(self) -> None:
        self._set(self.byte)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._set(0)

    def _set(self, byte: int) -> None:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent outside Linux with glibc
        if mallopt is not None:
            mallopt(M_PERTURB, byte)


def _is_deliberate(error: BaseException) -> bool:
    """Whether Python code raised an exception itself, by ``raise`` or ``assert``, and no operation on wrong types."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or not isinstance(error, Exception) or place.tb_lasti < 0:
        return False
    return dis.opname[place.tb_frame.f_code.co_code[place.tb_lasti]] == "RAISE_VARARGS"


class _Tried(NamedTuple):
    """What eager made of an input.

    It is ``accepted``, of an ``other rank`` and accepted, ``known`` from an earlier one, ``raises`` (compilers are
    called with it), ``refused``, or ``unaffordable``. `kind` is the reason without its numbers.
    """

    outcome: str
    reason: str = ""
    kind: str = ""


def _kind(built: Any, name: str) -> tuple[str, str]:
    """Return how a target is declared in a generated file, and its name."""
    import torch

    if isinstance(built, torch.nn.Module):
        return "module", (name.rpartition(".")[2] if name else type(built).__name__)
    called = attribute_of(built, "__name__", "")
    return "function", called if called.isidentifier() else "anonymous"


def _has_a_name(built: Any) -> bool:
    """Whether a generated file can define a target under its own name: no lambda, and no object that is called."""
    return inspect.isfunction(built) and built.__name__ == case_name(built.__name__)


def _line(error: BaseException) -> str:
    return shorten(encodable(one_line(safe_text(error))), 600)


PREPARE = task_name(prepare)
