"""Cases: a function or module, one example input, held-out inputs, and the claims published about it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from recapture.declare.claim import Claim, ClaimSyntaxError, parse_claims

__all__ = ["CASES_ATTRIBUTE", "STRICT", "Case", "CaseError", "Inputs", "Watch", "case"]

Inputs = Callable[[], tuple[Any, ...]]
"""A function that returns one tuple of arguments; it is called under a fixed seed, once per run."""

Watch = Callable[..., Any]
"""A function called after every run with none, one or both of: the called function or module, and its result."""

Target = TypeVar("Target", bound=Callable[..., Any])

CASES_ATTRIBUTE = "__recapture_cases__"
"""Name of the list in a suite file's namespace that `@case` appends to; each execution of the file has a new list."""


STRICT = ("stride", "order", "message", "random_state", "output", "signed_zero", "nan_payload", "environment")
"""Names of the differences that are notes unless a case asks for them with ``strict=``."""


class CaseError(Exception):
    """A case's declaration is invalid; the message names the case."""


@dataclass(frozen=True)
class Case:
    """A case declared with `@case`; see `case` for the fields."""

    name: str
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

    @property
    def compare_output(self) -> bool:
        """Whether printed text decides the verdict."""
        return "output" in self.strict

    @property
    def is_module(self) -> bool:
        """Whether the target is an ``nn.Module`` subclass, which is built without arguments under the fixed seed."""
        return inspect.isclass(self.target)

    def inputs(self) -> list[tuple[str, Inputs]]:
        """Return every input with its name: ``example``, ``held_out[0]``, ``held_out[1]``, …"""
        return [("example", self.example), *((f"held_out[{i}]", made) for i, made in enumerate(self.held_out))]


def case(  # long: its docstring is the reference for authors of cases
    target: Any = None,
    *,
    example: Inputs | None = None,
    held_out: Sequence[Inputs] = (),
    claims: Mapping[str, Any] | None = None,
    concrete_args: Sequence[str] | None = None,
    rewrite_of: Callable[..., Any] | None = None,
    backward: bool | None = None,
    strict: Sequence[str] = (),
    watch: Watch | None = None,
    reset: Callable[..., Any] | None = None,
    compare_output: bool = False,
    since: str | None = None,
    requires: Sequence[str] = (),
    codegen_on: Sequence[str] | None = None,
) -> Callable[[Target], Target]:
    """Declare the decorated function or ``nn.Module`` subclass as a case of this suite.

    `example` makes the arguments that a compiler captures with. Each of `held_out` makes arguments that the compiler
    has not seen: another branch, shape, dtype or Python value. They are called under a fixed seed, once per run, and
    their results are moved to the device. The inputs are passed in order to one captured callable (and one module), as
    a program would.

    `claims` maps a compiler to ``(id, expected)`` or a list of such pairs; `recapture.declare.claim` has the grammar.
    `concrete_args` names the arguments that ``fx:concrete_args`` specialises on (default: all that hold no tensor).
    `rewrite_of` is the original function if this one is a supposedly equivalent rewrite: the `eager` compiler then
    compares the two. `watch` is called after every run, and its result (for example a global counter) must also agree.
    `compare_output` also compares printed text. `since` is the oldest torch release that the case can run on;
    `requires` lists the modules that it needs besides torch. Where they are missing, its cells are ``not_applicable``.
    `codegen_on` names the devices on which compilers that generate code run the case (default: all), because a large
    model can take 15 minutes of C++ compilation on a CPU. On other devices, those cells are ``not_applicable``.

    The decorated object is returned unchanged. Raises CaseError, which names the case, for an invalid declaration.
    """
    if target is not None:
        raise CaseError(f"case {getattr(target, '__name__', target)!r} has no example: write @case(example=...)")

    def register(decorated: Target) -> Target:
        name = getattr(decorated, "__name__", None)
        if name is None:
            raise CaseError(f"a case has no name: {decorated!r} is no function or class"[:300])
        if example is None:
            raise CaseError(f"case {name!r} has no example: write @case(example=lambda: (...,))")
        if not isinstance(held_out, (list, tuple)):
            raise CaseError(f"case {name!r}: held_out is not a list of callables but {held_out!r}"[:300])
        for label, made in [("example", example), *((f"held_out[{i}]", made) for i, made in enumerate(held_out))]:
            if not callable(made):
                raise CaseError(f"case {name!r}: {label} is not a callable without arguments but {made!r}"[:300])
        for label, names in (
            ("requires", requires),
            ("concrete_args", concrete_args),
            ("codegen_on", codegen_on),
            ("strict", strict),
        ):
            if isinstance(names, str):  # a string would pass as a list of letters
                raise CaseError(f"case {name!r}: {label} is not a list of names but {names!r}")
            if names is not None and not isinstance(names, (list, tuple, set, frozenset)):
                raise CaseError(f"case {name!r}: {label} is not a list of names but {names!r}"[:300])
        strange = sorted(set(map(str, codegen_on or ())) - {"cpu", "cuda"})
        if strange:
            raise CaseError(f"case {name!r}: codegen_on names {strange[0]!r}, which is neither cpu nor cuda")
        for label, function in (("watch", watch), ("rewrite_of", rewrite_of)):
            if function is not None and not callable(function):
                raise CaseError(f"case {name!r}: {label} is not a callable but {function!r}"[:300])
        if since is not None and not (isinstance(since, str) and re.fullmatch(r"\d+(\.\d+)*", since)):
            raise CaseError(f"case {name!r}: since is not a release such as '2.6' but {since!r}")
        try:
            parsed = parse_claims(claims)
        except ClaimSyntaxError as error:
            raise CaseError(f"case {name!r}: {error}") from None
        cases: list[Case] = vars(sys.modules[decorated.__module__]).setdefault(CASES_ATTRIBUTE, [])
        if any(other.name == name for other in cases):
            raise CaseError(f"two cases are named {name!r}")
        cases.append(
            Case(
                name=name,
                target=decorated,
                example=example,
                held_out=tuple(held_out),
                claims=parsed,
                concrete_args=None if concrete_args is None else tuple(concrete_args),
                rewrite_of=rewrite_of,
                backward=backward,
                strict=tuple(dict.fromkeys([*strict, *(["output"] if compare_output else [])])),
                watch=watch,
                reset=reset,
                since=since,
                requires=tuple(requires),
                codegen_on=None if codegen_on is None else tuple(codegen_on),
            )
        )
        return decorated

    return register
