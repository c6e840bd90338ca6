"""The main program of scripts printed by `recapture repro`: runs the cell and shows both sides of every call.

A script contains the source of this module and of those that it imports, so that it applies the same rules as a run.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from recapture.base.text import printable
from recapture.cases.case import labels_after, named_inputs
from recapture.judge.steps import carry_out
from recapture.judge.verdict import decide, failed_loudly
from recapture.torch_api.libraries import release_libraries

if TYPE_CHECKING:
    from recapture.judge.compare import Comparison
    from recapture.judge.observe import Observation
    from recapture.judge.snapshot import Snapshot
    from recapture.judge.verdict import Call, Ruling

BRACKETS = {"list": ("[", "]"), "dict": ("{", "}")}
"""Brackets by container type; other containers are shown in parentheses."""

_EXECUTED: list[ModuleType] = []
"""The modules that the script was executed as."""


@dataclass(frozen=True)
class Script:
    """A script's facts about its cell; `cases` is its name for the dict of what cases are declared with."""

    suite: str
    case: str
    cases: str
    backward: bool | None
    train_step: float | None
    strict: tuple[str, ...]
    concrete_args: tuple[str, ...] | None
    compiler: str
    function: str
    uses_dynamo: bool
    shares_state: bool
    checks_inputs: bool
    inference_only: bool
    sees_held_out: bool
    fixed_ranks: bool
    device: str


def replay(path: str, script: Script) -> str | None:
    """Run the cell in the script at `path`, print the observations and the verdict, and return the verdict."""
    import torch

    _show("torch", torch.__version__)
    torch.set_num_threads(1)  # as in a recorded run
    compiler: Any = SimpleNamespace(
        name=script.compiler,
        function=getattr(_execute(path, f"compilers_of_{script.suite}"), script.function),
        uses_dynamo=script.uses_dynamo,
        shares_state=script.shares_state,
        checks_inputs=script.checks_inputs,
        inference_only=script.inference_only,
        sees_held_out=script.sees_held_out,
        fixed_ranks=script.fixed_ranks,
    )
    trial = carry_out(lambda: _load(path, script), compiler, script.device, lambda _: None)
    ruling = decide(trial)
    torch.set_printoptions(precision=8)
    sides = ("eager:    ", "captured: ") if trial.calls else ("eager:    ", "again:    ")
    _show_comparison("capture", trial.capture)
    for call in trial.calls or trial.repeated:
        _show_call(call, sides)
    _show_comparison("the original, after the capture", trial.original)
    for reason in dict.fromkeys(trial.log.break_reasons if trial.log else ()):
        _show("graph break:", reason)
    for text in trial.warnings:
        _show("note:", text)
    if ruling is None:
        return None
    _show_ruling(ruling)
    return str(ruling.verdict)


def _execute(path: str, suite: str) -> ModuleType:
    """Execute the script as a new module, independent of other executions."""
    name = f"recapture_suite_{suite}"
    for earlier in (sys.modules["__main__"], *_EXECUTED):
        release_libraries(vars(earlier))  # this execution defines the file's operators again
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = path
    _EXECUTED.append(module)
    with open(path, "rb") as source:  # noqa: PTH123 - pathlib is not needed
        exec(compile(source.read(), path, "exec", dont_inherit=True), vars(module))  # noqa: S102
    return module


def _load(path: str, script: Script) -> Any:
    """Execute the script and return its case."""
    options = vars(_execute(path, script.suite))[script.cases][script.case]
    held_out, others, refused = (options.get(name, ()) for name in ("held_out", "other_ranks", "refused"))
    inputs = named_inputs(options["target"], options["example"], (*held_out, *others, *refused))
    return SimpleNamespace(
        target=options["target"],
        is_module=inspect.isclass(options["target"]),
        inputs=lambda: inputs,
        other_rank_inputs=labels_after(held_out, others),
        refused_inputs=labels_after((*held_out, *others), refused),
        watch=options.get("watch"),
        reset=options.get("reset"),
        rewrite_of=options.get("rewrite_of"),
        backward=script.backward,
        train_step=script.train_step,
        strict=script.strict,
        concrete_args=script.concrete_args,
        made_by=None,  # a generated case that eager cannot run was not judged, and has no script
    )


def _show(*parts: object) -> None:
    """Print one text, in which no character controls the terminal: exceptions and values may hold any."""
    print(printable(" ".join(map(str, parts)), keep="\n\t"))


def _show_call(call: Call, sides: tuple[str, str]) -> None:
    _show("==", call.eager.input)
    for side, seen in zip(sides, (call.eager, call.other), strict=True):
        _show(f"{side}{_outcome(seen)}")
    if failed_loudly(call.eager, call.other):  # missing side effects of a failed call are not separate differences
        _show("FAILED: eager does not raise this")
        return
    _show_differences(call.found)
    if not call.found.differences:
        _show("same")


def _show_comparison(label: str, found: Comparison | None) -> None:
    """Print what differs outside the calls, if anything does."""
    if found is not None and found.differences:
        _show("==", label)
        _show_differences(found)


def _show_differences(found: Comparison) -> None:
    for one in found.differences:
        _show(f"DIFFERENT: {one.where} ({one.kind}): {one.detail}")


def _outcome(seen: Observation) -> str:
    if seen.raised is not None:
        return f"raised {seen.raised.type}: {seen.raised.message}"
    return "nothing" if seen.result is None else _text(seen.result)


def _text(seen: Snapshot) -> str:
    """Return a described value as text: its type's name, unless builtin, and its content."""
    name = "" if seen.type == "torch.Tensor" or "." not in seen.type else f"{seen.type} "
    if seen.tensor is not None:
        values = seen.tensor.data
        text = f"{seen.tensor.dtype} {seen.tensor.shape}" if values is None else repr(values)
        return f"{name}{text}" + "".join(f" with {label} {_text(one)}" for label, one in seen.children or ())
    if seen.children is not None:
        plain = seen.type in ("list", "tuple")
        inner = ", ".join(_text(one) if plain else f"{label}: {_text(one)}" for label, one in seen.children)
        first, last = BRACKETS.get(seen.type, ("(", ")"))
        return f"{name}{first}{inner}{last}"
    if seen.scalar is None:
        return "None" if seen.type == "NoneType" else seen.type
    described = isinstance(seen.scalar, str) and seen.type != "str"  # a repr, not a plain scalar
    return f"{name}{seen.scalar if described else repr(seen.scalar)}"


def _show_ruling(ruling: Ruling) -> None:
    for one in ruling.noted:
        _show(f"note: {one.input}: {one.where} ({one.kind}): {one.detail}")
    where = f" in {ruling.phase}" if ruling.phase else ""
    where += f" on {ruling.input}" if ruling.input else ""
    why = f": {ruling.reason}" if ruling.reason else ""
    if ruling.raised is not None:
        why = f": {ruling.raised.type}: {ruling.raised.message}"
    _show(f"== verdict: {ruling.verdict}{where}{why}")
