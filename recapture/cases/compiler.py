"""The definition of a compiler: one way to capture or compile, which can print its own source."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recapture.cases.requirements import absent_modules
from recapture.cases.source import closure

Capture = Callable[..., Callable[..., Any]]
"""``capture(fn, example) -> callable``; it may also accept ``concrete_args`` (set by a case) and ``held_out``."""

COMPILERS_ATTRIBUTE = "__recapture_compilers__"
"""Name of the list in a file's namespace that `@compiler` appends to."""


@dataclass(frozen=True)
class Compiler:
    """One way to capture or compile a function or module, given one example input."""

    name: str
    function: Capture
    since: str | None
    requires: tuple[str, ...]
    unavailable: Callable[[], str | None] | None
    uses_dynamo: bool
    generates_code: bool
    shares_state: bool
    checks_inputs: bool
    inference_only: bool
    optional: bool
    sees_held_out: bool = False
    fixed_ranks: bool = False

    def capture(self, fn: Callable[..., Any], example: tuple[Any, ...], **options: Any) -> Callable[..., Any]:
        """Capture `fn`, a function or module, with the example arguments. Errors from torch propagate."""
        return self.function(fn, example, **options)

    def describe(self) -> str:
        """Return one sentence for the reports."""
        return (self.function.__doc__ or self.name).strip().splitlines()[0]

    def to_source(self) -> str:
        """Return stand-alone source: imports, helpers and, last, the capture function."""
        return closure(Path(self.function.__code__.co_filename), self.function.__name__).text

    @property
    def only_when_named(self) -> bool:
        """Whether a compiler that ships runs only when it is named: it is optional, or lacks modules that it needs."""
        return self.optional or bool(absent_modules(self.requires))

    @property
    def function_name(self) -> str:
        """The name of the capture function in `to_source`."""
        return self.function.__name__


def compiler(
    name: str,
    *,
    since: str | None = None,
    requires: Sequence[str] = (),
    unavailable: Callable[[], str | None] | None = None,
    uses_dynamo: bool = False,
    generates_code: bool = False,
    shares_state: bool = True,
    checks_inputs: bool = True,
    inference_only: bool = False,
    optional: bool = False,
    sees_held_out: bool = False,
    fixed_ranks: bool = False,
) -> Callable[[Capture], Capture]:
    """Declare the decorated ``capture(fn, example) -> callable`` as a compiler.

    `since` is the first torch release that has the compiler, `requires` the modules it needs. `unavailable` is a
    function that returns a reason why it cannot run here, for other requirements. With `uses_dynamo`, graphs, graph
    breaks and recompiles are counted. `generates_code` means that it compiles C++ or Triton code. `shares_state` is
    False if the result works on its own copy of a module's parameters and buffers. `checks_inputs` is False if the
    result reads memory without checking its inputs. `inference_only` means that the result computes no gradients by
    design, so that gradients and ``requires_grad`` are not held against it. An `optional` compiler runs only when it is
    named; one that ships and whose `requires` are not installed does so too. `fixed_ranks` means that the result takes
    tensors of the example's numbers of dimensions alone, by design.

    With `sees_held_out`, the function is called with a third argument, ``held_out=``: a tuple of the held-out inputs,
    each a tuple of arguments. They are made for this alone, by another execution of the case's file. Their tensors are
    on the device ``meta``: they have sizes and dtypes, and no values. The argument needs a default, such as ``()``,
    because a benchmark has no held-out inputs. The decorated function is returned unchanged.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"a compiler's name is no text but {name!r}"[:300])
    if since is not None and not (isinstance(since, str) and re.fullmatch(r"\d+(\.\d+)*", since)):
        raise TypeError(f"compiler {name!r}: since is not a release such as '2.6' but {since!r}"[:300])
    if isinstance(requires, str):  # a string would pass as a list of letters
        raise TypeError(f"compiler {name!r}: requires is not a list of names but {requires!r}"[:300])
    if unavailable is not None and not callable(unavailable):
        raise TypeError(f"compiler {name!r}: unavailable is not a callable but {unavailable!r}"[:300])

    def register(function: Capture) -> Capture:
        if sees_held_out and not _may_be_given(function, "held_out"):
            raise TypeError(f"compiler {name!r}: sees_held_out needs an argument held_out with a default, such as ()")
        compilers: list[Compiler] = vars(sys.modules[function.__module__]).setdefault(COMPILERS_ATTRIBUTE, [])
        compilers.append(
            Compiler(
                name=name,
                function=function,
                since=since,
                requires=tuple(requires),
                unavailable=unavailable,
                uses_dynamo=uses_dynamo,
                generates_code=generates_code,
                shares_state=shares_state,
                checks_inputs=checks_inputs,
                inference_only=inference_only,
                optional=optional,
                sees_held_out=sees_held_out,
                fixed_ranks=fixed_ranks,
            )
        )
        return function

    return register


def _may_be_given(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of this name and a default for it."""
    found = inspect.signature(function).parameters.get(name)
    return found is not None and found.default is not found.empty
