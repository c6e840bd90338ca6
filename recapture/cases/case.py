"""Cases: a function or module, one example input, held-out inputs, and the claims published about it."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

from recapture.base.errors import did_you_mean
from recapture.cases.claim import Claim, ClaimSyntaxError, parse_claims
from recapture.cases.requirements import unmet
from recapture.records.kinds import STRICT

Inputs = Callable[[], tuple[Any, ...]]
"""A function that returns one tuple of arguments; it is called under a fixed seed, once per run."""

Watch = Callable[..., Any]
"""A function called after every run with none, one or both of: the called function or module, and its result."""

NAMES = ("strict", "concrete_args", "requires", "codegen_on", "compilers")
"""Names of the fields of a case that are lists of names."""

Target = TypeVar("Target", bound=Callable[..., Any])
Builder = TypeVar("Builder", bound=Callable[[str], Mapping[str, Any]])

CASES_ATTRIBUTE = "__recapture_cases__"
"""Name of the list in a suite file's namespace that `@case` appends to; each execution of the file has a new list."""

REFUSED_ATTRIBUTE = "__recapture_refused__"
"""Name of the list in a suite file's namespace for `RefusedCase`; a file that is not being collected has none."""

LACKING_ATTRIBUTE = "__recapture_lacking__"
"""Name of the list in a suite file's namespace with a text for each `case_for_each` whose requirements are missing."""


class CaseError(Exception):
    """A case's declaration is invalid; the message names the case."""


class InputsError(Exception):
    """A factory of a case did not return arguments that the case's function takes; the message names the input."""


@dataclass(frozen=True)
class RefusedCase:
    """A case whose declaration is invalid: its name, the line that declares it, and the reason, which names it."""

    name: str
    line: int | None
    error: str

    def __str__(self) -> str:
        return self.error if self.line is None else f"{self.error} (line {self.line})"


@dataclass(frozen=True)
class Case:
    """A case declared with `@case`; see `case` for the fields."""

    name: str
    line: int | None
    """The line of the suite file that declares the case; None for a case that was not collected from a file."""
    target: Callable[..., Any]
    example: Inputs
    held_out: tuple[Inputs, ...]
    claims: Mapping[str, tuple[Claim, ...]]
    concrete_args: tuple[str, ...] | None
    rewrite_of: Callable[..., Any] | None
    backward: bool | None
    strict: tuple[str, ...]
    watch: Watch | None
    reset: Callable[..., Any] | None
    since: str | None
    requires: tuple[str, ...]
    codegen_on: tuple[str, ...] | None
    compilers: tuple[str, ...] | None = None
    train_step: float | None = None
    seconds: float | None = None
    other_ranks: tuple[Inputs, ...] = ()
    refused: tuple[Inputs, ...] = ()
    made_by: str | None = None
    """The function of the suite file that makes the case, if it is generated: see `case_for_each`."""
    source: str = ""
    """Text from outside the suite file that a generated case is made from."""

    @property
    def is_module(self) -> bool:
        """Whether the target is an ``nn.Module`` subclass, which is built without arguments under the fixed seed."""
        return inspect.isclass(self.target)

    @property
    def options(self) -> dict[str, str]:
        """The options that were given, besides inputs and claims, as text: functions by their names."""
        plain = {"backward": self.backward, "train_step": self.train_step, "since": self.since, "seconds": self.seconds}
        names = {name: getattr(self, name) for name in NAMES}
        functions = {name: getattr(self, name) for name in ("watch", "reset", "rewrite_of")}
        options = {name: str(value) for name, value in plain.items() if value is not None}
        options |= {name: ", ".join(value) for name, value in names.items() if value}
        return options | {
            name: str(getattr(value, "__name__", value)) for name, value in functions.items() if value is not None
        }

    def inputs(self) -> list[tuple[str, Inputs]]:
        """Return every input with its name; see `named_inputs`."""
        return named_inputs(self.target, self.example, (*self.held_out, *self.other_ranks, *self.refused))

    @property
    def other_rank_inputs(self) -> frozenset[str]:
        """The names of the inputs that exporters may refuse, because they hold for the example's ranks by design."""
        return labels_after(self.held_out, self.other_ranks)

    @property
    def refused_inputs(self) -> frozenset[str]:
        """The names of the inputs that eager refuses."""
        return labels_after((*self.held_out, *self.other_ranks), self.refused)


def named_inputs(target: Callable[..., Any], example: Inputs, held_out: Sequence[Inputs]) -> list[tuple[str, Inputs]]:
    """Return the factories of a function's or module class's inputs with their names: ``example``, ``held_out[0]``, …

    They raise InputsError if their result is no tuple of arguments that `target` takes.
    """
    named = [("example", example), *((f"held_out[{index}]", make) for index, make in enumerate(held_out))]
    return [(label, partial(_checked_arguments, target, label, make)) for label, make in named]


def labels_after(before: Sequence[Inputs], some: Sequence[Inputs]) -> frozenset[str]:
    """Return the names of held-out inputs that are numbered after others."""
    return frozenset(f"held_out[{len(before) + index}]" for index in range(len(some)))


def _checked_arguments(target: Callable[..., Any], label: str, make: Inputs) -> tuple[Any, ...]:
    args: object = make()
    if not isinstance(args, tuple):
        raise InputsError(f"{label} gives {type(args).__name__}, not a tuple of arguments")
    is_module = inspect.isclass(target)
    try:
        signature = inspect.signature(target.forward if is_module else target)  # type: ignore[attr-defined]
    except ValueError:  # a builtin that does not say what it takes
        return args
    try:
        signature.bind(*((None, *args) if is_module else args))
    except TypeError as error:
        called = f"{target.__name__}{signature}"
        raise InputsError(f"{label} gives {len(args)} arguments, but {called} says: {error}") from None
    return args


def case(  # long: its docstring is the reference for authors of cases
    target: Any = None,
    *,
    example: Inputs | None = None,
    held_out: Sequence[Inputs] = (),
    other_ranks: Sequence[Inputs] = (),
    refused: Sequence[Inputs] = (),
    claims: Mapping[str, Any] | None = None,
    concrete_args: Sequence[str] | None = None,
    rewrite_of: Callable[..., Any] | None = None,
    backward: bool | None = None,
    train_step: float | None = None,
    strict: Sequence[str] = (),
    watch: Watch | None = None,
    reset: Callable[..., Any] | None = None,
    compare_output: bool = False,
    since: str | None = None,
    requires: Sequence[str] = (),
    codegen_on: Sequence[str] | None = None,
    compilers: Sequence[str] | None = None,
    seconds: float | None = None,
    **unknown: NoReturn,
) -> Callable[[Target], Target]:
    """Declare the decorated function or ``nn.Module`` subclass as a case of this suite.

    `example` makes the arguments that a compiler captures with. Each of `held_out` makes arguments that the compiler
    has not seen: another branch, shape, dtype or Python value. They are called under a fixed seed, once per run, and
    their results are placed on the device as they were made. The inputs are passed in order to one captured callable
    (and one module), as a program would. If a factory raises, the cells of its case are an ``error`` in phase
    ``reference``. `other_ranks` makes further held-out inputs, whose tensors have more or fewer dimensions than those
    of the example: where an exporter, whose programs have fixed ranks, refuses them with an exception, that is a note.
    `refused` makes further held-out inputs that eager refuses with an exception: a compiler that returns
    a value for them is silently wrong, and any exception of it is right.

    `claims` maps a compiler to ``(id, expected)`` or a list of such pairs; `recapture.cases.claim` has the grammar.
    `concrete_args` names the arguments that ``fx:concrete_args`` specialises on. By default it takes all that hold no
    tensor and that ``torch.fx`` checks at each call: numbers, strings, None, dtypes, devices, and containers of these,
    nested, but no empty ones. A tensor, or an object of another type, becomes a constant if it is named. `rewrite_of`
    is the original function if this one is a supposedly equivalent rewrite: the `eager` compiler then compares the two.

    `backward` says whether gradients are compared: after each call, a backward runs from the result, and the gradients
    of arguments and parameters must agree. By default it runs where a result requires grad; False never runs it.
    After that backward, `train_step` moves every parameter by minus this rate times its gradient, so that the inputs in
    order are training steps, and the updated parameters must agree.

    `strict` names differences that shall decide the verdict. By default they are notes, because they rarely matter:
    ``stride``, ``order`` (of dict keys), ``message`` (of an exception), ``random_state``, ``output`` (printed, warned
    and logged text), ``signed_zero``, ``nan_payload``, ``environment`` (variables). ``compare_output=True`` is an older
    spelling of ``strict=("output",)``.

    `watch` returns something else that must agree after every call, such as a counter in another module. It takes no
    argument, or the target (the function, or the module that was built), or the target and the call's result. `reset`
    restores state that the case keeps outside its file: it is called before each sequence of calls, also between the
    capture and the first call. It takes no argument, or the target.

    `since` is the oldest torch release that the case can run on; `requires` lists the modules that it needs besides
    torch. Where they are missing, its cells are ``not_applicable``. `codegen_on` names the devices on which compilers
    that generate code run the case (default: all), because a large model can take 15 minutes of C++ compilation on a
    CPU. On other devices, those cells are ``not_applicable``. `compilers` names the compilers that the case is about
    (default: all); besides eager, no other is planned, unless an address ``suite::case::compiler`` names it.
    `seconds` is a limit of its own for each cell, where some releases are known to hang and the usual limit is far too
    long; a shorter limit of the run still applies.

    The decorated object is returned unchanged. An invalid declaration raises CaseError, which names the case. In a
    suite file that `recapture` executes, such a case is left out and reported with its line, and the others still run.
    """

    def declared(decorated: Any, line: int | None) -> Case:
        name = getattr(decorated, "__name__", None)
        if name is None:
            raise CaseError(f"a case has no name: {decorated!r} is not a function or class"[:300])
        if not name.isprintable():  # a line break or half a character, which no file of results can hold
            raise CaseError(f"case {name!r}: its name has characters that cannot be printed"[:300])
        if inspect.isclass(decorated) and not hasattr(decorated, "forward"):
            raise CaseError(f"case {name!r} is a class, but not an nn.Module with a forward method")
        if target is not None and decorated is not target:
            raise CaseError(f"case {name!r}: options have names: write @case(example=...)")
        if unknown:
            first = next(iter(unknown))
            raise CaseError(f"case {name!r}: unknown option {first!r}{did_you_mean(first, OPTIONS)}")
        if example is None:
            hint = "lambda: (...,)" if target is None else "..."
            raise CaseError(f"case {name!r} has no example: write @case(example={hint})")
        _check_inputs(name, example, held_out=held_out, other_ranks=other_ranks, refused=refused)
        _check_names(name, requires=requires, concrete_args=concrete_args, codegen_on=codegen_on)
        _check_names(name, strict=strict, compilers=compilers)
        _check_arguments(name, decorated, concrete_args or ())
        _check_functions(name, watch=watch, reset=reset, rewrite_of=rewrite_of)
        if not (backward is None or isinstance(backward, bool)):
            raise CaseError(f"case {name!r}: backward is not True, False or None but {backward!r}"[:300])
        if train_step is not None and not (isinstance(train_step, float) and train_step > 0):
            raise CaseError(f"case {name!r}: train_step is not a rate such as 1e-3 but {train_step!r}"[:300])
        if seconds is not None and not (isinstance(seconds, (int, float)) and 0 < seconds < float("inf")):
            raise CaseError(f"case {name!r}: seconds is not a number such as 60 but {seconds!r}"[:300])
        if since is not None and not (isinstance(since, str) and re.fullmatch(r"\d+(\.\d+)*", since)):
            raise CaseError(f"case {name!r}: since is not a release such as '2.6' but {since!r}"[:300])
        try:
            parsed = parse_claims(claims)
        except ClaimSyntaxError as error:
            raise CaseError(f"case {name!r}: {error}") from None
        return Case(
            name=name,
            line=line,
            target=decorated,
            example=example,
            held_out=tuple(held_out),
            other_ranks=tuple(other_ranks),
            refused=tuple(refused),
            claims=parsed,
            concrete_args=None if concrete_args is None else tuple(concrete_args),
            rewrite_of=rewrite_of,
            backward=backward,
            train_step=train_step,
            seconds=seconds,
            strict=tuple(dict.fromkeys([*(strict or ()), *(["output"] if compare_output else [])])),
            watch=watch,
            reset=reset,
            since=since,
            requires=tuple(requires or ()),
            codegen_on=None if codegen_on is None else tuple(codegen_on),
            compilers=None if compilers is None else tuple(compilers),
        )

    def register(decorated: Target) -> Target:
        line, suite = _place()
        if suite is None:
            _add(declared(decorated, None), vars(sys.modules[decorated.__module__]))
            return decorated
        try:
            _add(declared(decorated, line), suite)
        except CaseError as error:  # the other cases of the file can still run
            name = str(getattr(decorated, "__name__", decorated))
            suite[REFUSED_ATTRIBUTE].append(RefusedCase(name, line, str(error)))
        return decorated

    is_bare = target is not None and getattr(target, "__name__", "<lambda>") != "<lambda>"
    return register(target) if is_bare else register


def case_for_each(
    *, names: Callable[[], Sequence[str]], since: str | None = None, requires: Sequence[str] = ()
) -> Callable[[Builder], Builder]:
    """Declare a case for each name: the decorated ``build(name)`` returns its ``target`` and the options of `case`.

    ``names()`` returns the names. It runs whenever the file is executed, as ``build`` does for each name, so both
    should be quick: a large model is built when its class is called, not before. The target is a function or an
    ``nn.Module`` subclass with this name, and its address is ``suite::name``. The key ``source``, if given, is text
    from outside the file that the case is made from; it is part of the case's hash, as the source of ``build`` is.

    Where torch is older than `since`, or modules in `requires` are not installed, there are no such cases, and
    `recapture` says so in one line. An invalid case is refused alone, as with `case`. The decorated function is
    returned unchanged.
    """

    def register(build: Builder) -> Builder:
        namespace = vars(sys.modules[build.__module__])
        lacking = unmet("it", since, requires)
        if lacking is not None:
            namespace.setdefault(LACKING_ATTRIBUTE, []).append(lacking)
            return build
        refused: list[RefusedCase] | None = namespace.get(REFUSED_ATTRIBUTE)
        for name in names():
            try:
                _declare(build, name, namespace)
            except CaseError as error:
                if refused is None:  # the file is not executed by `recapture`
                    raise
                refused.append(RefusedCase(str(name), None, str(error)))
        return build

    return register


def _declare(build: Callable[[str], Mapping[str, Any]], name: str, namespace: dict[str, Any]) -> None:
    """Declare one case. Raises CaseError, which names it."""
    maker = build.__name__
    try:
        options = dict(build(name))
    except Exception as error:  # of a library, for one of its names
        text = next(iter(str(error).splitlines()), "")
        raise CaseError(f"case {name!r}: {maker} raised {type(error).__name__}: {text}"[:300]) from None
    target, source = options.pop("target", None), options.pop("source", "")
    if getattr(target, "__name__", None) != name:
        raise CaseError(f"case {name!r}: {maker} gives no target of this name but {target!r}"[:300])
    cases: list[Case] = namespace.setdefault(CASES_ATTRIBUTE, [])
    before = len(cases)
    target.__module__ = namespace["__name__"]
    case(**options)(target)
    if len(cases) > before:  # else it is among the refused ones
        cases[-1] = dataclasses.replace(cases[-1], made_by=maker, source=str(source))


def _add(new: Case, namespace: dict[str, Any]) -> None:
    """Add a case to those of its file. Raises CaseError, and removes the other case, if two have one name."""
    cases: list[Case] = namespace.setdefault(CASES_ATTRIBUTE, [])
    others = [*cases, *namespace.get(REFUSED_ATTRIBUTE, ())]
    if any(other.name == new.name for other in others):
        cases[:] = [other for other in cases if other.name != new.name]  # its name means the other definition
        raise CaseError(f"two cases are named {new.name!r}")
    cases.append(new)


def _place() -> tuple[int | None, dict[str, Any] | None]:
    """Return the line at a suite file's top level that is being executed, and the file's namespace.

    Both are None outside of suite files that `recapture` executes.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None or REFUSED_ATTRIBUTE not in frame.f_globals:
        return None, None
    return frame.f_lineno, frame.f_globals


def _check_inputs(name: str, example: object, **lists: object) -> None:
    named: list[tuple[str, object]] = [("example", example)]
    for label, factories in lists.items():
        if not isinstance(factories, (list, tuple)):
            raise CaseError(f"case {name!r}: {label} is not a list of callables but {factories!r}"[:300])
        named += [(f"{label}[{index}]", factory) for index, factory in enumerate(factories)]
    for label, factory in named:
        if not callable(factory):
            raise CaseError(f"case {name!r}: {label} is not a callable without arguments but {factory!r}"[:300])


def _check_names(name: str, **options: object) -> None:
    """Check the options that are lists of strings; one string would pass as a list of letters."""
    for label, names in options.items():
        if names is None:
            continue
        if not isinstance(names, (list, tuple)) or not all(isinstance(text, str) for text in names):
            raise CaseError(f"case {name!r}: {label} is not a list of names but {names!r}"[:300])
        for text in names:
            if label == "codegen_on" and text not in ("cpu", "cuda"):
                raise CaseError(f"case {name!r}: codegen_on names {text!r}, which is neither cpu nor cuda")
            if label == "strict" and text not in STRICT:
                known = did_you_mean(text, STRICT) or f"; known are {', '.join(STRICT)}"
                raise CaseError(f"case {name!r}: strict names the unknown difference {text!r}{known}")


def _check_arguments(name: str, decorated: Any, concrete_args: Sequence[str]) -> None:
    try:
        known = inspect.signature(getattr(decorated, "forward", decorated)).parameters
    except ValueError:  # a builtin that does not say what it takes
        return
    for argument in concrete_args:
        if argument not in known:
            near = did_you_mean(argument, known)
            raise CaseError(f"case {name!r}: concrete_args names {argument!r}, which is not an argument{near}")


def _check_functions(name: str, **options: object) -> None:
    """Check the options that are functions, and how many arguments those that are called with the target need."""
    for label, function in options.items():
        if function is not None and not callable(function):
            raise CaseError(f"case {name!r}: {label} is not a callable but {function!r}"[:300])
        most = {"watch": 2, "reset": 1}.get(label)
        if function is not None and most is not None and _needs_more_than(most, function):
            raise CaseError(f"case {name!r}: {label} is called with at most {most} argument{'s'[: most - 1]}")


def _needs_more_than(most: int, function: Callable[..., Any]) -> bool:
    """Whether a function cannot be called with `most` positional arguments or fewer."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin that does not say what it takes
        return False
    for count in range(most + 1):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return False
    return True


OPTIONS = frozenset(inspect.signature(case).parameters) - {"target", "unknown"}
"""Names of the options of `case`."""
