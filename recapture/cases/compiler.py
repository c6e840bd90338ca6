"""The definition of a compiler: one way to capture or compile, with its family and what it can do as fields."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from recapture.cases.requirements import absent_modules
from recapture.cases.source import closure

if TYPE_CHECKING:
    from recapture.records.guilty_stage import StageName

    LastStage: TypeAlias = StageName | Literal["other"]

Capture = Callable[..., Callable[..., Any]]
"""``capture(fn, example) -> callable``; it may also accept ``concrete_args`` (set by a case) and ``held_out``."""

COMPILERS_ATTRIBUTE = "__recapture_compilers__"
"""Name of the list in a file's namespace that `@compiler` appends to."""

OTHER_STAGE: Literal["other"] = "other"
"""The last stage of a compiler that ends with one that is not torch's, such as a backend of a user."""


class Family(str, Enum):
    """How a compiler captures code, in the order of the reports.

    What compilers of one family accept, return and raise is alike, so that reports have one wording for all of them.
    """

    def __new__(
        cls,
        value: str,
        frontend: str = "",
        last_stage: StageName | None = None,
        records_a_run: bool = False,
        torch_alone: bool = False,
    ) -> Family:
        """Make the member of a value, with its row of the table."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.frontend, member.last_stage = frontend, last_stage
        member.records_a_run, member.torch_alone = records_a_run, torch_alone
        return member

    frontend: str
    """The part of torch that captures: families with the same one make the same mistakes."""
    last_stage: StageName | None
    """The last stage of torch's that its compilers go through; None if no stage can be told from another."""
    records_a_run: bool
    """Whether the result is what one run of the example did, so that a step of it may not hold for another input."""
    torch_alone: bool
    """Whether it needs only ``import torch``, and not Dynamo, whose import takes longer than many cells."""

    REFERENCE = "reference", "eager mode", None, False, True
    """Eager PyTorch itself."""
    DYNAMO = "dynamo", "torch.compile", "inductor", False, False
    """`torch.compile`."""
    SCRIPT = "script", "torch.jit", None, False, True
    """`torch.jit.script`: compiles the source."""
    TRACE = "trace", "torch.jit", None, True, True
    """`torch.jit.trace`: records the operators that one call runs."""
    SYMBOLIC = "symbolic_trace", "torch.fx", None, True, True
    """`torch.fx.symbolic_trace`: runs the code once on proxies."""
    ATEN = "aten_trace", "torch.fx", None, True, False
    """`make_fx`: records the ATen operators that one call dispatches."""
    EXPORT = "exported_program", "torch.export", "export", True, False
    """`torch.export`."""
    AOTI = "aot_inductor", "torch.export", "inductor", True, False
    """AOTInductor: an exported program as a shared library."""
    ONNX = "onnx_program", "torch.export", None, True, False
    """The ONNX exporter: an exported program in another format."""

    def __str__(self) -> str:
        return str.__str__(self)


@dataclass(frozen=True, kw_only=True)
class CompilerFacts:
    """What reports and tools need to know about a compiler; see `compiler` for the fields."""

    name: str
    family: str
    """A member of `Family`, or the name of another family."""
    last_stage: LastStage | None = None
    arguments: Mapping[str, object] = field(default_factory=dict)
    uses_dynamo: bool = False
    generates_code: bool = False
    shares_state: bool = True
    checks_inputs: bool = True
    inference_only: bool = False
    optional: bool = False
    run_by: tuple[str, ...] = ()
    share_passing: float = 0.0
    fixes_values: bool = False
    also_called: tuple[str, ...] = ()
    sees_held_out: bool = False
    fixed_ranks: bool = False

    @property
    def is_reference(self) -> bool:
        """Whether it is eager PyTorch itself."""
        return self.family == Family.REFERENCE

    @property
    def frontend(self) -> str:
        """The part of torch that captures; compilers with the same one make the same mistakes."""
        return self.family.frontend if isinstance(self.family, Family) else self.family

    @property
    def records_a_run(self) -> bool:
        """Whether the result is what one run of the example did."""
        return isinstance(self.family, Family) and self.family.records_a_run

    @property
    def torch_alone(self) -> bool:
        """Whether it needs only ``import torch``."""
        return isinstance(self.family, Family) and self.family.torch_alone

    @property
    def cuda_graphs(self) -> bool:
        """Whether the mode of `torch.compile` turns on CUDA graphs on a GPU."""
        return self.arguments.get("mode") in ("reduce-overhead", "max-autotune")

    @property
    def autotunes(self) -> bool:
        """Whether compiling includes timing candidates on the device."""
        return str(self.arguments.get("mode")).startswith("max-autotune")


LONGEST_NAME = 100
"""Characters of the longest name of a compiler, which reports and the legend of a run repeat."""


@dataclass(frozen=True, kw_only=True)
class Compiler(CompilerFacts):
    """One way to capture or compile a function or module, given one example input."""

    function: Capture
    since: str | None
    requires: tuple[str, ...]
    unavailable: Callable[[], str | None] | None

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
    family: str | None = None,
    last_stage: LastStage | None = None,
    arguments: Mapping[str, object] | None = None,
    uses_dynamo: bool = False,
    generates_code: bool = False,
    shares_state: bool = True,
    checks_inputs: bool = True,
    inference_only: bool = False,
    optional: bool = False,
    run_by: Sequence[str] = (),
    share_passing: float = 0.0,
    fixes_values: bool = False,
    also_called: Sequence[str] = (),
    sees_held_out: bool = False,
    fixed_ranks: bool = False,
) -> Callable[[Capture], Capture]:
    """Declare the decorated ``capture(fn, example) -> callable`` as a compiler.

    The `name` has at most 100 characters, no comma and no two colons, which divide names on the command line, and no
    outer blanks. `since` is the first torch release that has the compiler, `requires` the modules it needs.
    `unavailable` is a function that returns a reason why it cannot run here, for other requirements.

    `family` is how it captures, a value of `Family` such as ``"dynamo"`` for `torch.compile`, or a name of your own; by
    default that of the compiler that ships and has the name before the colon: ``compile:mine`` is of the family of
    ``compile``. `last_stage` is the last stage of the compiler that it goes through, such as ``"aot_autograd"``, if it
    is not that of the family; ``"other"`` if it is not torch's. `arguments` are those that it passes to the function of
    torch that captures, such as ``dynamic=True``. `recapture stage` reads all three.

    With `uses_dynamo`, graphs, graph breaks and recompiles are counted. `generates_code` means that it compiles C++
    or Triton code. `shares_state` is False if the result works on its own copy of a module's parameters and
    buffers. `checks_inputs` is False if the result reads memory without checking its inputs. `inference_only` means
    that the result computes no gradients by design, so that gradients and ``requires_grad`` are not held against
    it. An `optional` compiler runs only when it is named; one that ships and whose `requires` are not installed
    does so too. `run_by` names the tools that run a compiler that ships where none is named, besides `recapture
    run`: check, pytest, bench. `share_passing` is the share of its committed cells that pass: cells that share a
    process run in this order, because one that fails may end it. `fixed_ranks` means that the result takes tensors
    of the example's numbers of dimensions alone, by design. `fixes_values` means that Python values of the example
    are constants of the result, which it checks. `also_called` are names that people use for it elsewhere.

    With `sees_held_out`, the function is called with a third argument, ``held_out=``: a tuple of the held-out inputs,
    each a tuple of arguments. They are made for this alone, by another execution of the case's file. Their tensors are
    on the device ``meta``: they have sizes and dtypes, and no values. The argument needs a default, such as ``()``,
    because a benchmark has no held-out inputs. The decorated function is returned unchanged. Raises TypeError, which
    names the compiler, for an invalid declaration.
    """
    _check_declaration(name, since, requires, unavailable)
    own_family = family_of_name(name) if family is None else _family(family)

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
                family=own_family,
                last_stage=last_stage or (own_family.last_stage if isinstance(own_family, Family) else None),
                arguments=dict(arguments or {}),
                uses_dynamo=uses_dynamo,
                generates_code=generates_code,
                shares_state=shares_state,
                checks_inputs=checks_inputs,
                inference_only=inference_only,
                optional=optional,
                run_by=tuple(run_by),
                share_passing=share_passing,
                fixes_values=fixes_values,
                also_called=tuple(also_called),
                sees_held_out=sees_held_out,
                fixed_ranks=fixed_ranks,
            )
        )
        return function

    return register


def _check_declaration(name: object, since: object, requires: object, unavailable: object) -> None:
    """Raise TypeError, which names the compiler, for an argument of `compiler` that is not of its type."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"a compiler's name is not text but {name!r}"[:300])
    if len(name) > LONGEST_NAME:
        beginning = f"{name[:20]}…"
        raise TypeError(f"compiler {beginning!r}: its name has {len(name)} characters, and {LONGEST_NAME} are allowed")
    if "," in name or "::" in name or name != name.strip():
        raise TypeError(f"compiler {name!r}: its name has a comma, two colons or outer blanks")
    if since is not None and not (isinstance(since, str) and re.fullmatch(r"\d+(\.\d+)*", since)):
        raise TypeError(f"compiler {name!r}: since is not a release such as '2.6' but {since!r}"[:300])
    if isinstance(requires, str):  # a string would pass as a list of letters
        raise TypeError(f"compiler {name!r}: requires is not a list of names but {requires!r}"[:300])
    if unavailable is not None and not callable(unavailable):
        raise TypeError(f"compiler {name!r}: unavailable is not a callable but {unavailable!r}"[:300])


def _family(text: str) -> str:
    """Return the member of `Family` with this value, or the text itself for another family."""
    return Family(text) if text in {family.value for family in Family} else text


def family_of_name(name: str) -> str:
    """Return the family of a compiler that does not ship, of which only the name is known.

    This is a convention: ``compile:mine`` is a variant of the compiler ``compile``. Any other name is a family of its
    own.
    """
    from recapture.cases.compilers import builtin_compilers  # they are declared with this module

    plain = name.partition(":")[0]
    shipped = builtin_compilers().get(plain)
    return plain if shipped is None else shipped.family


def _may_be_given(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of this name and a default for it."""
    parameter = inspect.signature(function).parameters.get(name)
    return parameter is not None and parameter.default is not parameter.empty
